"""`--trainer`: a command line is split as a shell would, run by none, and its program is looked up before anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.program import Program


def executable(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_words_are_split_as_a_shell_does_and_nothing_is_expanded(tmp_path: Path) -> None:
    program = Program.parse("""train.py --name 'a b' "c\\"d" $HOME ~/x *.toml""", tmp_path)
    assert program.argv == ("train.py", "--name", "a b", 'c"d', "$HOME", "~/x", "*.toml")
    assert Program.parse(program.text, tmp_path) == program


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no program"),
        ("  ", "no program"),
        ("train.py 'open", "cannot be split"),
        ("train.py | tee log", "no shell"),
        ("cd x && python train.py", "no shell"),
        ("train.py > log", "no shell"),
    ],
)
def test_what_is_no_single_program_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        Program.parse(text, tmp_path)


def test_a_program_is_found_in_path_or_by_its_path_from_where_the_caller_is(tmp_path: Path) -> None:
    in_path = executable(tmp_path / "bin" / "train")
    beside = executable(tmp_path / "own" / "train.sh")
    search = str(tmp_path / "bin")
    assert Program.parse("train --fast", tmp_path).resolved(search) == (str(in_path), "--fast")
    assert Program.parse("own/train.sh", tmp_path).resolved(search) == (str(beside),)
    assert Program.parse(str(beside), Path("/")).resolved(search) == (str(beside),)


def test_the_interpreter_of_an_environment_stays_the_link_that_it_is(tmp_path: Path) -> None:
    """The file that it leads to would be another environment's Python."""
    link = tmp_path / ".venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(executable(tmp_path / "python3"))
    assert Program.parse(".venv/bin/python train.py", tmp_path).resolved("") == (str(link), "train.py")


@pytest.mark.parametrize("text", ["no-such-program", "own/no-such-program", "own/data.txt", "own"])
def test_a_program_that_is_not_there_is_a_usage_error(text: str, tmp_path: Path) -> None:
    executable(tmp_path / "own" / "data.txt", 0o644)
    program = Program.parse(text, tmp_path)
    with pytest.raises(UsageError, match="there is no program") as caught:
        program.require(os.defpath, made_later=tmp_path / ".venv-cpu")
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match="there is no program"):
        program.resolved(os.defpath)


def test_what_only_the_install_brings_is_looked_for_after_it(tmp_path: Path) -> None:
    program = Program.parse(".venv-cpu/bin/python train.py", tmp_path)
    program.require("", made_later=tmp_path / ".venv-cpu")
    with pytest.raises(UsageError):
        program.resolved("")
