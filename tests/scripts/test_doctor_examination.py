"""An examination: whatever a check does there is a finding, in time, without secrets, for the purpose asked for."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from doctor_fakes import FakeMachine
from doctor_itself import check, results_of

from scripts.doctor import examination, examine, failures, require
from scripts.doctor.registry import Finding, fail, ok, warn
from scripts.doctor.subject import Options, Subject
from scripts.errors import DoctorError, UsageError

STACK_FILE = 'platform = "cpu"\npython = "3.11"\ntorch_backend = "cpu"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one stack, named `mini`."""
    folder = tmp_path / "stacks" / "mini"
    folder.mkdir(parents=True)
    (folder / "stack.toml").write_text(STACK_FILE)
    return tmp_path


def test_checks_are_made_side_by_side_and_shown_in_order(root: Path) -> None:
    meeting = threading.Barrier(2, timeout=5)

    def together(_: Subject) -> Finding:
        meeting.wait()
        return ok("met", "to meet")

    both = [check(together, "host.first"), check(together, "build.second")]
    results = examine(root, "mini", machine=FakeMachine(), checks=both)
    assert [(each.check.id, each.finding.found) for each in results] == [("host.first", "met"), ("build.second", "met")]


def test_only_what_a_purpose_needs_is_looked_at(root: Path) -> None:
    wanted = check(lambda each: ok(str(each.purpose), "run"), "host.wanted", ("run", "build"))
    other = check(lambda _: ok("1", "1"), "host.other", ("install",))
    results = examine(root, "mini", "run", machine=FakeMachine(), checks=[wanted, other])
    assert [(each.check.id, each.finding.found) for each in results] == [("host.wanted", "run")]
    assert len(examine(root, "mini", machine=FakeMachine(), checks=[wanted, other])) == 2


def test_a_check_that_raises_is_a_failure_of_the_doctor_and_the_others_go_on(root: Path) -> None:
    def broken(_: Subject) -> Finding:
        raise KeyError("surprise")

    broke, fine = examine(
        root, "mini", machine=FakeMachine(), checks=[check(broken, "host.broken"), check(lambda _: ok("1", "1"))]
    )
    assert broke.finding.status == "fail"
    assert broke.finding.found.startswith("the doctor itself failed: KeyError: 'surprise' (test_doctor_examination.py:")
    assert broke.finding.fix.startswith("python3 -m scripts.doctor --stack mini --check host.broken")
    assert fine.finding.status == "ok"


def test_a_check_that_hangs_is_a_finding_and_not_a_hang(root: Path) -> None:
    forever = threading.Event()
    began = time.monotonic()
    hung, fine = examine(
        root,
        "mini",
        machine=FakeMachine(),
        checks=[check(lambda _: ok(str(forever.wait()), "1"), "host.hung"), check(lambda _: ok("1", "1"))],
        limit_s=0.3,
    )
    forever.set()
    assert time.monotonic() - began < 5
    assert (hung.finding.status, hung.finding.found) == ("fail", "no answer within 0.3 s")
    assert fine.finding.status == "ok"


def test_a_requirement_that_fails_names_every_fault_with_its_fix(root: Path) -> None:
    faults = [
        check(lambda _: fail("none", "one toy", "mend toys"), "host.toys"),
        check(lambda _: fail("0", "2 games", "mend games"), "build.games"),
        check(lambda _: warn("old", "new", "renew it"), "host.fair"),
    ]
    with pytest.raises(DoctorError) as caught:
        require(root, "mini", "run", machine=FakeMachine(), checks=faults)
    error = caught.value
    assert (error.exit_code, error.what) == (10, "this machine lacks 2 things to run the stack mini")
    assert error.found is not None
    assert error.hint is not None
    assert [line.strip() for line in error.found.splitlines()] == ["host.toys: none", "build.games: 0"]
    assert [line.strip() for line in error.hint.splitlines()] == ["mend toys", "mend games"]


def test_a_requirement_that_holds_gives_the_findings(root: Path) -> None:
    results = require(root, "mini", "run", machine=FakeMachine(), checks=[check(lambda _: warn("1", "2", "mend it"))])
    assert [each.finding.status for each in results] == ["warn"]


def test_a_failure_that_is_ignored_by_name_stops_nothing_and_no_other_is_ignored(root: Path) -> None:
    faults = [
        check(lambda _: fail("none", "one toy", "mend toys"), "host.toys"),
        check(lambda _: fail("0", "2 games", "mend games"), "build.games"),
    ]
    with pytest.raises(DoctorError) as caught:
        require(root, "mini", "run", machine=FakeMachine(), checks=faults, ignored=["host.toys"])
    assert caught.value.found == "build.games: 0"
    results = require(root, "mini", "run", machine=FakeMachine(), checks=faults, ignored=["host.toys", "build.games"])
    assert [each.finding.status for each in results] == ["fail", "fail"]


def test_an_id_that_no_check_has_cannot_be_ignored(root: Path) -> None:
    with pytest.raises(UsageError, match="there is no check named"):
        require(
            root, "mini", "run", machine=FakeMachine(), checks=[check(lambda _: ok("1", "1"))], ignored=["host.tyos"]
        )


def test_a_stack_file_that_cannot_be_read_skips_what_depends_on_it(root: Path) -> None:
    (root / "stacks" / "mini" / "stack.toml").write_text("platform =")
    host, build = examine(
        root,
        "mini",
        machine=FakeMachine(),
        checks=[check(lambda _: ok("1", "1")), check(lambda _: ok("1", "1"), "build.toy")],
    )
    assert host.finding.status == "ok"
    assert build.finding.status == "skip"
    assert "stack.toml is not TOML" in build.finding.found


def test_only_the_recipes_that_are_to_be_built_count(root: Path) -> None:
    (root / "stacks" / "mini" / "stack.toml").write_text(
        '[recipes.vllm]\nsource = "a"\n[recipes.dynamo]\nsource = "b"\n'
    )
    named = check(lambda each: ok(" ".join(each.stack.recipes) or "none", "some"))
    for chosen, found in ((None, "vllm dynamo"), (("dynamo",), "dynamo"), ((), "none")):
        (result,) = examine(root, "mini", "build", Options(recipes=chosen), machine=FakeMachine(), checks=[named])
        assert result.finding.found == found


def test_home_and_credentials_are_shown_nowhere(root: Path) -> None:
    secret = (
        "index https://me:s3cret@host/simple?token=abc&x=1, proxy bob:hush@proxy:3128, /home/me/wheels, /home/merlin"
    )
    leaky = check(lambda _: fail(secret, secret, "ls '/home/me/a b' /home/me/c \"/home/me/d\""))
    (result,) = examine(root, "mini", machine=FakeMachine(home="/home/me"), checks=[leaky])
    shown = "index https://***@host/simple?token=***&x=1, proxy ***@proxy:3128, ~/wheels, /home/merlin"
    assert (result.finding.found, result.finding.required) == (shown, shown)
    assert result.finding.fix == """ls "$HOME"'/a b' ~/c "$HOME/d\""""


@pytest.mark.parametrize(
    ("user", "fix"), [(0, "apt-get install a && mount b"), (1000, "sudo apt-get install a && sudo mount b")]
)
def test_root_is_told_no_sudo(root: Path, user: int, fix: str) -> None:
    privileged = check(lambda _: fail("1", "2", "sudo apt-get install a && sudo mount b"))
    (result,) = examine(root, "mini", machine=FakeMachine(user=user), checks=[privileged])
    assert result.finding.fix == fix


def test_what_failed_can_be_asked_for() -> None:
    results = results_of(ok("1", "1"), fail("1", "2", "mend it"), warn("1", "2", "mend it"))
    assert [each.finding.status for each in failures(results)] == ["fail"]


def test_the_deadline_leaves_room_below_ten_seconds() -> None:
    assert examination.LIMIT_S < 10
