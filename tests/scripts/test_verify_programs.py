"""What the programs that others wrote say of a wheel, as `verify` understands it, and what a stack may allow of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.errors import BuildError, PinError
from scripts.inventory import Entry
from scripts.layout import PROJECT_ROOT, Layout
from scripts.verify import _needs, allowances, programs
from scripts.verify.allowances import Allowance
from scripts.verify.artifacts import Outcome
from scripts.verify.programs import Complaint

COMPLAINTS = [
    Complaint("vllm", "check-wheel-contents.W002", "Wheel contains duplicate files", "vllm/a.json"),
    Complaint("vllm", "check-wheel-contents.W002", "Wheel contains duplicate files", "vllm/b.json"),
    Complaint("vllm", "auditwheel.unsupported-isa", "what no platform tag allows"),
]


def judged(*allowed: Allowance) -> list[tuple[str, str, str | None]]:
    found = programs.judge(COMPLAINTS, allowed, {"vllm": "dist/vllm.whl"}, "stacks/verify.toml")
    return [(each.kind, each.file, each.found) for each in found]


def allowance(check: str, *of: str, artifact: str = "vllm") -> Allowance:
    return Allowance(check=check, artifact=artifact, of=list(of), reason="a reason of some length")


def test_complaints_of_one_kind_are_one_finding_that_names_them_all() -> None:
    assert judged() == [("wheel", "dist/vllm.whl", "vllm/a.json, vllm/b.json"), ("wheel", "dist/vllm.whl", None)]


def test_an_allowance_is_for_one_check_of_one_artifact_and_for_what_it_names() -> None:
    isa = ("wheel", "dist/vllm.whl", None)
    assert judged(allowance("check-wheel-contents.W002", "vllm/*.json")) == [isa]
    assert judged(allowance("check-wheel-contents.W002", "vllm/b.*")) == [
        ("wheel", "dist/vllm.whl", "vllm/a.json"),
        isa,
    ]


@pytest.mark.parametrize(
    "unused",
    [
        allowance("check-wheel-contents.W002", "other/*"),
        allowance("check-wheel-contents.W001", "*"),
        allowance("check-wheel-contents.W002", "*", artifact="gone"),
    ],
)
def test_an_allowance_that_nothing_needs_is_a_finding(unused: Allowance) -> None:
    needed = [allowance("check-wheel-contents.W002", "vllm/*"), allowance("auditwheel.unsupported-isa", "*")]
    assert judged(*needed) == []
    assert judged(*needed, unused) == [("allowance", "stacks/verify.toml", "a reason of some length")]


@pytest.mark.parametrize(
    "text",
    [
        "allowed = 1",
        "[[allowed]]\ncheck = 'check-wheel-contents.W002'\nartifact = 'vllm'\nof = ['*']\nreason = 'because'",
        "[[allowed]]\ncheck = 'W002'\nartifact = 'vllm'\nof = ['*']\nreason = 'a reason that is long enough'",
        "[[allowed]]\ncheck = 'auditwheel.library'\nartifact = 'vllm'\nof = []\nreason = 'a reason of some length'",
        "[[allowed",
    ],
)
def test_an_allowance_without_a_reason_or_for_nothing_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "verify.toml"
    path.write_text(text)
    with pytest.raises(PinError, match=r"verify\.toml cannot be used"):
        allowances.load(path)


def test_the_stacks_own_allowances_can_be_read() -> None:
    stacks = [Layout(PROJECT_ROOT, path.parent.name) for path in PROJECT_ROOT.glob("stacks/*/stack.toml")]
    assert stacks
    for layout in stacks:
        for allowance in allowances.load(layout.stack_dir / allowances.FILE_NAME):
            assert allowance.artifact in {"vllm", "ai-dynamo", "ai-dynamo-runtime", "smokestack-payload"}


def test_what_auditwheel_likes_on_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"overall_tag": "linux_x86_64", "unsupported_isa": True, "pyfpe": False, "ucs2": False}
    answer = json.dumps({**told, "policy_upgrades": {}, "external_libs": {}})
    monkeypatch.setattr(programs, "_ask", lambda *_: answer)
    complaints, _ = programs.show_platform("demo", tmp_path, ["linux_x86_64"])
    assert [each.check for each in complaints] == ["auditwheel.unsupported-isa"]


def test_a_wheel_that_auditwheel_doubts_without_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"overall_tag": "linux_x86_64", "unsupported_isa": False, "pyfpe": False, "ucs2": False}
    answer = json.dumps({**told, "policy_upgrades": {}, "external_libs": {}})
    monkeypatch.setattr(programs, "_ask", lambda *_: answer)
    complaints, _ = programs.show_platform("demo", tmp_path, ["manylinux_2_28_x86_64"])
    assert [each.check for each in complaints] == ["auditwheel.platform-tag"]


def test_a_checker_that_says_something_new_is_not_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_ask", lambda *_: "/dist/a.whl: OK\nwhat is this?\n")
    with pytest.raises(BuildError, match="said something unknown"):
        programs.check_contents({"a": Path("/dist/a.whl")})


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


def test_what_an_artifact_needs_from_outside_is_told_with_its_place(tmp_path: Path) -> None:
    needs = {"a.whl": {"libtorch.so": None, "libnuma.so.1": "/lib/libnuma.so.1", "libgone.so": None}, "b.whl": {}}
    entries = {"lib/torch/libtorch.so": Entry("file", 0o644)}
    told = "libgone.so (not found), libnuma.so.1 (this machine), libtorch.so (lib/torch)"
    assert _needs(Layout(tmp_path, "mini"), Outcome(needs=needs), entries) == [
        f"dist/mini/a.whl needs from outside: {told}"
    ]
