"""Dynamo's number of jobs, which is none, is taken out of the work copy; everything else stays to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.errors import BuildError
from scripts.recipes.cargo_jobs import main, without_jobs

SHELL = '"$(if [ $(nproc) -gt 32 ]; then echo 32; else echo $(nproc); fi)"'


def test_the_line_goes_and_the_rest_stays() -> None:
    text = f'# why\n[build]\njobs = {SHELL}\nrustflags = ["--cfg", "x"] # kept\n\n[alias]\njobs = "build -j 4"\n'
    assert without_jobs(text) == text.replace(f"jobs = {SHELL}\n", "", 1)


@pytest.mark.parametrize("text", ["", "[net]\nretry = 3\n", '[build]\ntarget-dir = "x"\n'])
def test_a_configuration_without_it_is_left_alone(text: str) -> None:
    assert without_jobs(text) == text


@pytest.mark.parametrize("text", ["build.jobs = 4\n", "build = { jobs = 4, incremental = true }\n"])
def test_one_that_writes_it_some_other_way_is_refused(text: str) -> None:
    with pytest.raises(BuildError, match="not a line of its own"):
        without_jobs(text)


def test_a_file_is_changed_in_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[build]\njobs = {SHELL}\n")
    assert main([str(file)]) == 0
    assert file.read_text() == "[build]\n"


def test_no_file_is_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "config.toml")]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_file_that_is_not_understood_fails_with_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text("not TOML")
    assert main([str(file)]) == 1
    assert str(file) in capsys.readouterr().err
