"""What the programs that others wrote say of a wheel, as `verify` understands it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.verify import programs


def test_a_platform_that_auditwheel_doubts_is_told_beside_what_no_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allowance for the one must not hide the other, nor one tag's libraries another tag."""
    outside = {"manylinux_2_28_x86_64": {"libs_to_eliminate": ["libnuma.so.1"]}}
    told = {"overall_tag": "linux_x86_64", "unsupported_isa": True, "pyfpe": False, "ucs2": False}
    answer = json.dumps({**told, "policy_upgrades": outside, "external_libs": {}})
    monkeypatch.setattr(programs, "_ask", lambda *_: answer)
    complaints, _ = programs.show_platform("demo", tmp_path, ["manylinux_2_28_x86_64", "manylinux_2_34_x86_64"])
    assert [(each.check, each.of) for each in complaints] == [
        ("auditwheel.unsupported-isa", ""),
        ("auditwheel.library", "libnuma.so.1"),
        ("auditwheel.platform-tag", ""),
    ]
