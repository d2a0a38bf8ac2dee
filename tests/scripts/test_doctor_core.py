"""The doctor itself: whatever a check does there is a finding, in time, without secrets, as its schema says."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from doctor_fakes import FakeMachine, subject

from scripts.doctor import checks, command_line, examination, examine, facts, failures, redact, report, require
from scripts.doctor.asking import Questions
from scripts.doctor.real_machine import RealMachine
from scripts.doctor.registry import GROUPS, PURPOSES, Check, Finding, Result, fail, ok, skip, warn
from scripts.doctor.reports import REPORTS
from scripts.doctor.subject import Options, Subject
from scripts.errors import DoctorError, UsageError
from scripts.layout import PROJECT_ROOT

SCHEMA = json.loads((PROJECT_ROOT / "docs" / "doctor.schema.json").read_text(encoding="utf-8"))
STACK_FILE = 'platform = "cpu"\npython = "3.11"\ntorch_backend = "cpu"\n'


def check(look: Callable[[Subject], Finding], name: str = "host.toy", needed_for: tuple[str, ...] = PURPOSES) -> Check:
    return Check(
        id=name,
        title="toy",
        group=name.partition(".")[0],
        why="because",
        symptom="it breaks",
        cause="something",
        looks_at="a toy",
        reference="https://example.org/toy",
        needed_for=needed_for,
        look=look,
        fix="mend the-toy",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one stack, named `mini`."""
    folder = tmp_path / "stacks" / "mini"
    folder.mkdir(parents=True)
    (folder / "stack.toml").write_text(STACK_FILE)
    return tmp_path


# What a check may say


def test_what_is_wrong_comes_with_a_fix_and_what_is_right_without() -> None:
    assert (ok("1", "1").fix, skip("no GPU").status) == ("", "skip")
    for wrong in (
        lambda: Finding("fail", "1", "2"),
        lambda: Finding("ok", "1", "1", "mend it"),
        lambda: warn("1", "2", ""),
    ):
        with pytest.raises(ValueError, match="fix"):
            wrong()
    with pytest.raises(ValueError, match="is none of"):
        Finding("fine", "1", "1")
    with pytest.raises(ValueError, match="what was found"):
        ok("", "1")


@pytest.mark.parametrize(
    ("name", "needed_for", "message"),
    [
        ("toy", ("run",), "not named GROUP.NAME"),
        ("other.toy", ("run",), "not named GROUP.NAME"),
        ("host.toy", (), "names none of"),
        ("host.toy", ("sleep",), "names none of"),
    ],
)
def test_a_check_has_a_proper_name_and_purpose(name: str, needed_for: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(lambda _: ok("1", "1"), name, needed_for)


def test_every_check_is_there_once_and_can_be_documented() -> None:
    names = [each.id for each in checks.CHECKS]
    assert len(names) == len(set(names))
    assert {each.group for each in checks.CHECKS} == set(GROUPS)
    assert [each.id for each in checks.CHECKS if not each.fix] == []
    assert [each.id for each in checks.CHECKS if any(text.endswith(".") for text in (each.why, each.title))] == []


def test_every_reported_failure_is_looked_at_or_says_why_not() -> None:
    covered = {row for each in checks.CHECKS for row in each.rows}
    assert [report.row for report in REPORTS] == list(range(1, 33))
    assert {report.row for report in REPORTS if not report.elsewhere} == covered
    assert {report.row for report in REPORTS if report.elsewhere} == {25}


# An examination


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
    assert broke.finding.found.startswith("the doctor itself failed: KeyError: 'surprise' (test_doctor_core.py:")
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


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    hanging = tmp_path / "tool"
    hanging.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{marker}\nwait\n")
    hanging.chmod(0o755)
    began = time.monotonic()
    answer = Questions().ask([str(hanging)], {"PATH": os.environ["PATH"]}, 1.0)
    assert time.monotonic() - began < 5
    assert (answer.status, answer.problem) == (None, "tool did not answer within 1 s")
    assert _ends(int(marker.read_text()))


def test_a_program_that_leaves_a_child_behind_is_not_waited_for_and_the_child_is_ended(tmp_path: Path) -> None:
    leaving = tmp_path / "tool"
    leaving.write_text("#!/bin/sh\nsleep 600 &\necho $!\n")
    leaving.chmod(0o755)
    answer = Questions().ask([str(leaving)], {"PATH": os.environ["PATH"]}, 20.0)
    assert answer.status == 0
    assert _ends(int(answer.output))


def test_a_program_that_talks_without_end_is_ended_too() -> None:
    answer = Questions().ask(["yes"], {"PATH": os.environ["PATH"]}, 0.3)
    assert (answer.status, answer.problem) == (None, "yes did not answer within 0.3 s")


def test_when_the_examination_ends_so_do_its_questions() -> None:
    questions = Questions()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(questions.ask(["sleep", "600"], os.environ, 60.0)))
    asking.start()
    while not questions._open:
        asking.join(0.01)
    questions.close()
    asking.join(10)
    assert [each.status for each in answers] == [-signal.SIGKILL]
    assert questions.ask(["true"], os.environ, 5.0).problem == "true cannot be run: the examination is over"


def test_a_program_whose_start_hangs_hangs_its_own_question_only(tmp_path: Path) -> None:
    """As on a dead mount: a lease on the file makes whoever runs it wait until it is given back."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    questions, answers = Questions(), []
    asking = threading.Thread(target=lambda: answers.append(questions.ask([str(slow)], os.environ, 60.0)))
    former = signal.signal(signal.SIGIO, signal.SIG_IGN)
    lease = os.open(slow, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        asking.start()
        asking.join(0.1)
        assert questions.ask(["echo", "here"], os.environ, 5.0).output == "here\n"
        questions.close()
    finally:
        os.close(lease)
        signal.signal(signal.SIGIO, former)
    asking.join(10)
    assert [each.problem for each in answers] == ["slow cannot be run: the examination is over"]


def test_a_program_that_is_not_there_or_fails_says_so_in_a_line() -> None:
    questions = Questions()
    assert questions.ask(["no-such-tool", "--version"], os.environ, 5.0).in_short == "no no-such-tool"
    failing = questions.ask(["sh", "-c", "echo one; echo two >&2; exit 3"], os.environ, 5.0)
    assert (failing.status, failing.good, failing.in_short) == (3, False, "ended with 3: two")


def test_the_same_question_is_put_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    machine = RealMachine()
    for _ in range(3):
        machine.ask(["sh", "-c", f"echo . >>{asked}"])
    machine.close()
    assert asked.read_text() == ".\n"


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


# What is shown


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
    ("address", "shown"),
    [
        ("https://me:s3@cret@host/simple", "https://***@host/simple"),
        ("https://me:s3/cret@host/simple", "https://***@host/simple"),
        ("bob:hu@sh@proxy:3128", "***@proxy:3128"),
        ("https://a:b@one,https://c:d@two", "https://***@one,https://***@two"),
        ("https://host/simple?auth=abc&credential=x", "https://host/simple?auth=***&credential=***"),
        ("https://host:8080/@scope/package", "https://host:8080/@scope/package"),
    ],
)
def test_a_password_is_hidden_whatever_is_in_it(address: str, shown: str) -> None:
    assert redact.text(address, "/home/me") == shown


def test_a_command_with_the_home_hidden_still_names_the_same_files() -> None:
    typed = redact.command("printf '%s\\n' '/home/me/a b' /home/me/c \"/home/me/d\"", "/home/me")
    done = subprocess.run(["sh", "-c", typed], env={"HOME": "/home/me"}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["/home/me/a b", "/home/me/c", "/home/me/d"]


@pytest.mark.parametrize("home", ["/", ""])
def test_a_home_that_is_no_folder_of_its_own_hides_nothing(home: str) -> None:
    assert redact.text("/usr/bin and /", home) == "/usr/bin and /"


@pytest.mark.parametrize(
    ("user", "fix"), [(0, "apt-get install a && mount b"), (1000, "sudo apt-get install a && sudo mount b")]
)
def test_root_is_told_no_sudo(root: Path, user: int, fix: str) -> None:
    privileged = check(lambda _: fail("1", "2", "sudo apt-get install a && sudo mount b"))
    (result,) = examine(root, "mini", machine=FakeMachine(user=user), checks=[privileged])
    assert result.finding.fix == fix


def results_of(*findings: Finding) -> list[Result]:
    return [Result(check(lambda _: ok("1", "1"), f"host.toy{n}"), finding) for n, finding in enumerate(findings)]


def test_the_document_is_as_its_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(
        report.document(results_of(ok("1", "1"), warn("1", "2", "a"), fail("1", "2", "b"), skip("no")))
    )
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert set(document) == {"checks"}
    assert list(document["checks"][0]) == ["id", "status", "found", "required", "why", "fix", "reference"]
    for name, value in (("fix", ""), ("status", "fine"), ("reference", "ftp://x"), ("id", "toy"), ("extra", "1")):
        spoiled = json.loads(json.dumps(document))
        spoiled["checks"][2][name] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(spoiled)


def test_the_table_shows_a_fix_on_a_line_of_its_own_and_a_verdict_at_the_end() -> None:
    results = results_of(ok("one", "1"), fail("none", "one toy", "mend toys"), skip("no GPU"), skip("no GPU"))
    lines = report.table(results, "mini", None, 0.25).splitlines()
    assert lines[0] == "doctor: stack mini, build, install, run"
    assert "        fix   mend toys" in lines
    assert "        needs one toy" in lines
    assert "  skip  no GPU: toy, toy" in lines
    assert lines[-1] == "FAIL  1 failed, 0 to know about, 1 ok, 2 skipped (0.2 s)"
    assert "\x1b" not in "".join(lines)


def test_colour_changes_nothing_but_the_colour() -> None:
    results = results_of(ok("one", "1"), warn("1", "2", "a"), fail("none", "1", "b"), skip("no GPU"))
    coloured = report.table(results, "mini", "run", 0.1, colour=True)
    plain = report.table(results, "mini", "run", 0.1)
    assert coloured != plain
    for code in ("\x1b[32m", "\x1b[33m", "\x1b[31;1m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


# The command, on the machine at hand


def doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.doctor", *arguments],
        cwd=PROJECT_ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_examines_this_machine_in_time_and_writes_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    done = doctor("--json", HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert time.monotonic() - began < 10
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert [each["id"] for each in document["checks"]] == [each.id for each in checks.CHECKS]
    assert [each for each in document["checks"] if "the doctor itself failed" in each["found"]] == []
    assert done.returncode == (10 if any(each["status"] == "fail" for each in document["checks"]) else 0)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_tools_is_told_how_to_get_them(tmp_path: Path) -> None:
    done = doctor("--stack", "prime-rl", "--json", PATH=str(tmp_path), HOME=str(tmp_path), CUDA_HOME=str(tmp_path))
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    failed = {each["id"]: each["fix"] for each in document["checks"] if each["status"] == "fail"}
    assert done.returncode == 10
    assert {"host.git", "build.rust", "build.protoc", "build.compilers", "build.libraries"} <= failed.keys()
    assert all(failed.values())
    assert [each for each in document["checks"] if "the doctor itself failed" in each["found"]] == []


def test_the_exit_status_follows_the_findings() -> None:
    done = doctor("--for", "run", "--check", "host.linux")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("PASS  0 failed, 0 to know about, 1 ok, 0 skipped")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--stack", "nope"],
        ["--stack", "../cpu"],
        ["--for", "fun"],
        ["--check", "host.nope"],
        ["--port", "http"],
        ["--port", "http=0"],
        ["--port", "http=x"],
        ["--jobs", "0"],
    ],
)
def test_a_wrong_option_is_status_2_and_looks_at_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command_line.main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


def test_options_reach_the_checks() -> None:
    parser = command_line.parser()
    chosen = parser.parse_args(
        ["--port", "http=8000", "--source", "vllm=/src", "--jobs", "3", "--recipe", "dynamo", "--model", "m"]
    )
    options = command_line._options(parser, chosen)
    assert options == Options(
        ports={"http": 8000}, jobs=3, sources={"vllm": Path("/src")}, recipes=("dynamo",), model=Path("m")
    )


def test_told_to_stop_it_stops_and_leaves_no_question_behind(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    for name in ("git", "python3"):
        (tmp_path / name).write_text(
            f"#!/bin/sh\n/bin/echo $$ >{marker}.$$\n/bin/mv {marker}.$$ {marker}\nexec /bin/sleep 600\n"
        )
        (tmp_path / name).chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.doctor", "--check", "host.git"],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    while not marker.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 130
    assert _ends(int(marker.read_text()))


def test_every_module_can_be_read_by_an_old_python_and_imports_nothing_that_is_not_there() -> None:
    for path in sorted((PROJECT_ROOT / "scripts" / "doctor").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in tree.body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            foreign = [
                name
                for name in names
                if name.partition(".")[0] not in sys.stdlib_module_names - {"tomllib"}
                and name not in {"scripts", "scripts.errors", "scripts.jobs", "scripts.indexes"}
                and not name.startswith("scripts.doctor")
            ]
            assert foreign == [], path.name


def test_the_stacks_that_are_there_are_all_read() -> None:
    for name in facts.stack_names(PROJECT_ROOT):
        stack = facts.read(PROJECT_ROOT, name)
        assert (stack.unread, stack.name) == ("", name)
        assert stack.engine != stack.from_source
    prime = facts.read(PROJECT_ROOT, "prime-rl")
    assert (prime.cuda, prime.torch_cuda, set(prime.recipes)) == (True, (13, 0), {"vllm", "dynamo", "sidecar"})
    assert len(prime.sources["vllm"].revision) == 40


def test_what_failed_can_be_asked_for() -> None:
    results = results_of(ok("1", "1"), fail("1", "2", "mend it"), warn("1", "2", "mend it"))
    assert [each.finding.status for each in failures(results)] == ["fail"]


def test_the_deadline_leaves_room_below_ten_seconds() -> None:
    assert examination.LIMIT_S < 10


def test_files_and_folders_are_read_as_they_are(tmp_path: Path) -> None:
    machine = RealMachine()
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").symlink_to("a")
    assert (machine.read_text(tmp_path / "a"), machine.read_text(tmp_path / "c")) == ("text", None)
    assert machine.read_text("/proc/sys/kernel/osrelease")
    assert (machine.entries(tmp_path), machine.entries(tmp_path / "a")) == (("a", "b"), None)
    assert (machine.size(tmp_path / "a"), machine.owner(tmp_path / "a")) == (4, os.getuid())
    assert (machine.link(tmp_path / "b"), machine.link(tmp_path / "a")) == ("a", None)
    space = machine.space(tmp_path / "not" / "there")
    assert space is not None
    assert (space.path, space.total >= space.free > 0) == (str(tmp_path), True)
    assert subject(FakeMachine()).machine.read_text("/etc/passwd") is None


def _ends(pid: int) -> bool:
    """Whether a process has ended, or is just doing so."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 5.0)[0])
    finally:
        os.close(descriptor)
