"""After all the runs: the artifacts and the environment are still what was built and installed, byte for byte."""

from __future__ import annotations

from smoke.test_build import ask


def test_no_run_has_changed_a_file() -> None:
    report = ask("-m", "scripts", "verify", "--stack", "cpu", "--json")
    assert report["findings"] == []
    assert report["checked"]["entries in the environment"] > 10_000
