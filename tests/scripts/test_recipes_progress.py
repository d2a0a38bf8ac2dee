"""What is shown of a step that takes hours: the last line of its log that tells something, and not too often."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from scripts.console import Console
from scripts.recipes.progress import Progress, headline


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            "[1/9] Building CXX object a.o\n[2/9] Building CXX object b.o\nwarning: x\n",
            "[2/9] Building CXX object b.o",
        ),
        ("   Compiling serde v1.0.1\n   Compiling tokio v1.2.3\n", "Compiling tokio v1.2.3"),
        ("[ 42%] Built target dnnl\n", "[ 42%] Built target dnnl"),
        ("-- Configuring done\n", "-- Configuring done"),
        ("nothing telling\n", None),
        ("", None),
    ],
)
def test_the_last_telling_line_is_shown(log: str, line: str | None) -> None:
    assert headline(log) == line


def test_elsewhere_than_on_a_terminal_a_line_comes_now_and_then(tmp_path: Path) -> None:
    log, stream, now = tmp_path / "log", io.StringIO(), [0.0]
    progress = Progress(Console(stream), log, clock=lambda: now[0])
    for second in range(40):
        now[0] = float(second)
        log.write_text(f"[{second}/99] Building\n")
        progress()
    assert stream.getvalue().splitlines() == [f"    [{second}/99] Building" for second in (0, 15, 30)]


def test_nothing_new_is_not_said_again(tmp_path: Path) -> None:
    log, stream, now = tmp_path / "log", io.StringIO(), [0.0]
    log.write_text("[1/99] Building\n")
    progress = Progress(Console(stream), log, clock=lambda: now[0])
    for _ in range(3):
        progress()
        now[0] += 60
    assert stream.getvalue().count("Building") == 1


def test_on_a_terminal_one_line_is_written_over(tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    log, stream, now = tmp_path / "log", Terminal(), [0.0]
    progress = Progress(Console(stream), log, clock=lambda: now[0])
    for number in (1, 2):
        log.write_text(f"[{number}/2] Building\n")
        progress()
        now[0] += 5
    progress.end()
    assert stream.getvalue() == "\r\x1b[K    [1/2] Building\r\x1b[K    [2/2] Building\r\x1b[K"
