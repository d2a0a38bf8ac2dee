"""The hook that signs: the caller's command, whose failure fails the build, and never a signature of other bytes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from synthetic import Project

from scripts import build
from scripts.build_inputs import read_inputs
from scripts.console import Console
from scripts.errors import BuildError, UsageError
from scripts.layout import PROJECT_ROOT
from scripts.provenance import signing

STATEMENT = b'{"a": "statement"}\n'


@pytest.fixture(autouse=True)
def _no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(signing.VARIABLE, raising=False)


@pytest.fixture
def sign(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that "signs": it writes what it was given, and how often it was called."""
    script = project.root / "sign.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "statement, bundle, calls = map(pathlib.Path, sys.argv[1:])\n"
        "calls.write_text((calls.read_text() if calls.exists() else '') + '.')\n"
        "bundle.write_bytes(b'signed by ' + os.environ['IDENTITY'].encode() + b': ' + statement.read_bytes())\n"
    )
    calls = project.root / "calls"
    monkeypatch.setenv("IDENTITY", "ci")
    monkeypatch.setenv(signing.VARIABLE, f"'{sys.executable}' '{script}' {{statement}} {{bundle}} '{calls}'")
    return calls


def signature(project: Project) -> Path:
    return project.layout.dist / signing.SIGNATURE_NAME


def test_without_a_hook_there_is_no_signature_and_a_reader_is_told(project: Project, console: Console) -> None:
    signing.put(project.layout, STATEMENT, console)
    assert (project.layout.dist / "provenance.json").read_bytes() == STATEMENT
    assert not signature(project).exists() and not signing.is_due(project.layout)
    assert "unsigned" in signing.sentence(project.layout.dist)


def test_the_hook_signs_the_statement_with_the_caller_s_identity(
    project: Project, console: Console, sign: Path
) -> None:
    assert signing.is_due(project.layout)
    signing.put(project.layout, STATEMENT, console)
    assert signature(project).read_bytes() == b"signed by ci: " + STATEMENT
    assert not signing.is_due(project.layout)
    told = signing.sentence(project.layout.dist)
    assert "unsigned" not in told and signing.SIGNATURE_NAME in told and "not checked" in told


def test_what_is_signed_is_not_signed_again_and_keeps_its_signature(
    project: Project, console: Console, sign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing.put(project.layout, STATEMENT, console)
    signing.put(project.layout, STATEMENT, console)
    monkeypatch.delenv(signing.VARIABLE)
    signing.put(project.layout, STATEMENT, console)
    assert sign.read_text() == "."
    assert signature(project).is_file()


def test_a_signature_of_another_statement_does_not_stay(
    project: Project, console: Console, sign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing.put(project.layout, b"{}\n", console)
    monkeypatch.delenv(signing.VARIABLE)
    signing.put(project.layout, STATEMENT, console)
    assert not signature(project).exists()
    assert "unsigned" in signing.sentence(project.layout.dist)


def test_a_statement_that_somebody_changed_is_written_again_before_it_is_signed(
    project: Project, console: Console, sign: Path
) -> None:
    signing.put(project.layout, STATEMENT, console)
    (project.layout.dist / "provenance.json").write_bytes(b"{}\n")
    signing.put(project.layout, STATEMENT, console)
    assert signature(project).read_bytes() == b"signed by ci: " + STATEMENT
    assert sign.read_text() == ".."


@pytest.mark.parametrize(
    ("program", "seen"),
    [
        ("import sys; print('no identity'); sys.exit(3)", ("signing dist/mini/provenance.json failed", "no identity")),
        ("import sys", ("left no signature", "no file")),
        ("import sys; open(sys.argv[2], 'w').close()", ("left no signature", "an empty file")),
        ("import sys; open(sys.argv[2], 'w').write('half'); sys.exit(1)", ("failed", "1")),
    ],
)
def test_a_hook_that_fails_fails_the_build_and_leaves_no_signature(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch, program: str, seen: tuple[str, str]
) -> None:
    what, found = seen
    script = project.root / "sign.py"
    script.write_text(program)
    monkeypatch.setenv(signing.VARIABLE, f"'{sys.executable}' '{script}' {{statement}} {{bundle}}")
    with pytest.raises(BuildError, match=what) as caught:
        signing.put(project.layout, STATEMENT, console)
    assert found in (caught.value.found or "")
    assert caught.value.log is not None and caught.value.log.is_file()
    assert [path.name for path in project.layout.dist.iterdir()] == ["provenance.json"]
    assert signing.is_due(project.layout)


def test_a_build_whose_hook_fails_is_not_finished_and_the_next_one_is(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, inputs = project.layout, read_inputs(project.layout)
    monkeypatch.setenv(signing.VARIABLE, "false {statement} {bundle}")
    with pytest.raises(BuildError, match=r"signing dist/mini/provenance\.json failed"):
        build.build(layout, inputs, console)
    assert not layout.manifest.exists() and not signature(project).exists()
    monkeypatch.setenv(signing.VARIABLE, "cp {statement} {bundle}")
    assert build.build(layout, inputs, console).manifest is not None
    assert signature(project).read_bytes() == (layout.dist / "provenance.json").read_bytes()
    assert signing.SIGNATURE_NAME not in layout.sums.read_text()
    assert build.build(layout, inputs, console).cached


def test_a_finished_build_is_signed_when_it_is_asked_for_and_stays_signed(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, inputs = project.layout, read_inputs(project.layout)
    build.build(layout, inputs, console)
    before = {path.name: path.read_bytes() for path in layout.dist.iterdir()}
    assert "is unsigned" in console.stream.getvalue()
    monkeypatch.setenv(signing.VARIABLE, "cp {statement} {bundle}")
    build.build(layout, inputs, console)
    monkeypatch.delenv(signing.VARIABLE)
    assert build.build(layout, inputs, console).cached
    after = {path.name: path.read_bytes() for path in layout.dist.iterdir()}
    assert after.pop(signing.SIGNATURE_NAME) == before["provenance.json"]
    assert after == before


def test_a_hook_that_cannot_work_leaves_a_finished_build_alone(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = read_inputs(project.layout)
    build.build(project.layout, inputs, console)
    monkeypatch.setenv(signing.VARIABLE, "true")
    with pytest.raises(UsageError):
        build.build(project.layout, inputs, console)
    assert project.layout.manifest.is_file()


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("", "does not name {statement} and {bundle}"),
        ("true {statement}", "does not name {bundle}"),
        ("true {bundle}", "does not name {statement}"),
        ("true '{statement} {bundle}", "is not a command"),
        ("no-such-program-anywhere {statement} {bundle}", "a program that is not there"),
    ],
)
def test_a_hook_that_cannot_work_is_refused_before_anything_is_built(command: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        signing.hook({signing.VARIABLE: command})
    assert what in caught.value.what


def test_no_hook_is_no_command() -> None:
    assert signing.hook({}) is None


def test_the_documented_commands_are_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (PROJECT_ROOT / "docs" / "signing.md").read_text()
    commands = re.findall(rf"{signing.VARIABLE}(?:=|: )'([^']+)'", text)
    monkeypatch.setattr("shutil.which", lambda _program: "/usr/bin/there")
    assert len(commands) >= 2
    for command in commands:
        assert signing.hook({signing.VARIABLE: command}) == command.split()
    assert signing.SIGNATURE_NAME in text
