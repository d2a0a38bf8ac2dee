"""Output that breaks is said where it can be said, and changes nothing else."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.report.stream import lasting, print_document

ROOT = Path(__file__).parents[2]


class Broken(io.StringIO):
    """A terminal that has gone: every write fails as it then does."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_stream_that_works_is_written_as_it_is() -> None:
    stream = io.StringIO()
    kept = lasting(stream)
    kept.write("one\n")
    kept.flush()
    assert stream.getvalue() == "one\n"
    assert not kept.isatty()


@pytest.mark.parametrize("stream", [Broken(), None], ids=["gone", "closed from the start"])
def test_a_stream_that_fails_is_given_up_silently(stream: io.StringIO | None) -> None:
    kept = lasting(stream)
    assert kept.write("one\n") == 4
    kept.flush()
    assert kept.write("two\n") == 4


def test_a_closed_file_is_given_up_silently() -> None:
    stream = io.StringIO()
    stream.close()
    lasting(stream).write("one\n")


def test_a_document_that_nobody_reads_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken())
    print_document({"schema": 1})
    assert "could not be written to standard output: [Errno 5]" in capsys.readouterr().err


def test_a_broken_pipe_does_not_become_pythons_own_exit_status() -> None:
    """What is left in a stream's buffer is flushed at the interpreter's end; if that fails it exits with 120."""
    read, write = os.pipe()
    os.close(read)
    code = (
        "import sys; from harness.report.stream import lasting, print_document\n"
        "lasting(sys.stderr).write('one\\n'); print_document({}); sys.exit(30)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=write, stderr=write, check=False)
    os.close(write)
    assert done.returncode == 30


def test_a_document_is_one_json_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_document({"path": "ä \ud83d"})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"path": "ä \ud83d"}
    assert captured.err == ""
