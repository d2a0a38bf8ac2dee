"""Whatever ends a run, its verdict is written, its exit status is the contract's, and its places are given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness import run
from harness.errors import DiscoveryError, InstallError, Interrupted, NotReadyError, RefitError, SmokestackError
from harness.models import ModelChoice
from harness.request import Request
from harness.run import smoke
from harness.session import Session, opened


def asked(tmp_path: Path, **changes: Any) -> Request:
    values: dict[str, Any] = {"stack": "cpu", "model": ModelChoice("tiny", "tiny"), "root": tmp_path, "quiet": True}
    return Request(**{**values, **changes})


def ends_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(_session: Session) -> NoReturn:
        raise error

    monkeypatch.setattr(run, "install", install)


def verdict_of(tmp_path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((tmp_path / "runs" / "latest" / "verdict.json").read_text())
    return parsed


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InstallError("no space"), 20),
        (NotReadyError("engine-0 was not ready"), 30),
        (DiscoveryError("no worker"), 31),
        (RefitError("500"), 40),
        (Interrupted("the run was interrupted"), 130),
        (ZeroDivisionError("a fault of ours"), 1),
    ],
)
def test_every_end_has_its_status_and_a_verdict(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(error, monkeypatch)
    assert smoke(asked(tmp_path)) == status
    verdict = verdict_of(tmp_path)
    assert verdict["verdict"] == "error"
    assert verdict["failure"]["kind"] == (error.kind if isinstance(error, SmokestackError) else "internal")
    assert verdict["survivors"] == []
    written = {path.name for path in (tmp_path / "runs" / "latest").iterdir()}
    assert {"verdict.json", "junit.xml", "config.json", "events.jsonl", "environment.json"} <= written


def test_a_fault_of_ours_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(ZeroDivisionError("a fault of ours"), monkeypatch)
    smoke(asked(tmp_path))
    text = (tmp_path / "runs" / "latest" / "internal-error.txt").read_text()
    assert "Traceback" in text
    assert "ZeroDivisionError: a fault of ours" in text


def test_the_verdict_alone_goes_to_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with(InstallError("no space", hint="rm -r .cache"), monkeypatch)
    smoke(asked(tmp_path, json=True, quiet=False))
    captured = capsys.readouterr()
    assert json.loads(captured.out) == verdict_of(tmp_path)
    assert "no space" in captured.err
    assert "rm -r .cache" in captured.err


def test_a_session_leaves_only_its_run_folder(tmp_path: Path) -> None:
    with opened(asked(tmp_path)) as session:
        scratch = session.scratch.path
        assert scratch.is_dir()
        assert len(set(session.config.ports.values())) == len(session.config.ports)
        config = json.loads((session.run_dir.path / "config.json").read_text())
    assert config["tmp_dir"] == str(scratch)
    assert not scratch.exists()


def test_two_sessions_never_share_a_port(tmp_path: Path) -> None:
    with opened(asked(tmp_path)) as one, opened(asked(tmp_path)) as other:
        assert set(one.config.ports.values()).isdisjoint(other.config.ports.values())
        assert one.config.run_id != other.config.run_id
