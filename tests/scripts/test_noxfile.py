"""The sessions of noxfile.py that choose what a run is on: what they hand to the run plane."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPUS = ("--platform", "cuda", "--stack", "cuda", "--model", "Qwen/Qwen3-0.6B")


class Nox(ModuleType):
    """In the place of nox, which runs this project's tools and is not one of them: a session stays a function."""

    options = SimpleNamespace()

    @staticmethod
    def session(function: Callable[..., None] | None = None, **_options: object) -> Any:
        return function if function is not None else lambda decorated: decorated


@pytest.fixture
def noxfile(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    fake = Nox("nox")
    monkeypatch.setattr(fake, "Session", object, raising=False)
    command = ModuleType("nox.command")
    monkeypatch.setattr(command, "CommandFailed", RuntimeError, raising=False)
    monkeypatch.setitem(sys.modules, "nox", fake)
    monkeypatch.setitem(sys.modules, "nox.command", command)
    spec = importlib.util.spec_from_file_location("noxfile_under_test", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def handed_on(noxfile: ModuleType, session: str, *posargs: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(noxfile, "harness", lambda _session, *argv: told.extend(argv))
    getattr(noxfile, session)(SimpleNamespace(posargs=list(posargs), log=lambda _text: None))
    return told


def test_on_gpus_nothing_else_is_run_whatever_is_asked_for(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--platform", "cpu", "--stack", "cpu")
    told = handed_on(noxfile, "smoke_2gpu", *asked, monkeypatch=monkeypatch)
    assert told == ["smoke", *GPUS, *asked, "--platform", "cuda"]


def test_on_the_cpu_the_stack_is_the_cpus(noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handed_on(noxfile, "smoke_cpu", "--steps", "1", monkeypatch=monkeypatch) == [
        *("smoke", "--stack", "cpu", "--steps", "1")
    ]


@pytest.mark.parametrize(("platform", "options"), [("cpu", ("--stack", "cpu")), ("cuda", GPUS)])
def test_the_machine_chooses_where_nobody_does(
    platform: str, options: tuple[str, ...], noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noxfile.platform, "choose", lambda _root: SimpleNamespace(platform=platform, why="so"))
    assert handed_on(noxfile, "smoke", monkeypatch=monkeypatch) == ["smoke", *options]
