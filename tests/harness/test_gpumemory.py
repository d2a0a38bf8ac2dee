"""GPU memory is back where it was: what nvidia-smi says, how long it is waited for, and each way in which it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import events
from harness.errors import DoctorError
from harness.evidence import CHECKS, ON_GPUS, Check, Expectation, evaluate
from harness.evidence.gpus import SLACK_MIB
from harness.gpumemory import APPS, GPUS, RELEASE_S, GpuWatch
from harness.models import ModelChoice
from harness.request import Request
from harness.session import Session, opened
from tests.harness.event_factory import Fields, edited, passing_run, run_config

CHECK = "teardown.gpu-memory"
UUIDS = ("GPU-0aaa-0000", "GPU-1bbb-0000", "GPU-2ccc-0000")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Smi:
    """nvidia-smi of three GPUs, whose numbers in use are the next ones of `used` at each question."""

    def __init__(self, *used: Sequence[object], apps: str = "") -> None:
        self.used, self.apps = list(used), apps

    def __call__(self, argv: Sequence[str]) -> str:
        if tuple(argv) == APPS:
            return self.apps
        assert tuple(argv) == GPUS
        now = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        return "".join(f"{index}, {UUIDS[index]}, {used}\n" for index, used in enumerate(now))


def watch(smi: Callable[[Sequence[str]], str], *names: str) -> tuple[GpuWatch, Clock]:
    clock = Clock()
    return GpuWatch(names or ("0", "2"), smi, clock), clock


def test_the_runs_own_gpus_are_looked_at_by_number_and_by_uuid() -> None:
    smi = Smi((4, 5, 6), apps=f"{UUIDS[2]}, 77, /usr/bin/python3 --token x, 3\n{UUIDS[1]}, 78, other, 9\n")
    look = watch(smi, "GPU-0aaa", "2")[0].before()
    assert [(gpu.name, gpu.used_mib) for gpu in look.gpus] == [("GPU-0aaa", 4), ("2", 6)]
    assert look.gpus[1].processes == (events.GpuProcess(pid=77, program="python3", used_mib=3),)


def test_the_end_waits_for_the_driver_to_free_what_dead_processes_had() -> None:
    looking, clock = watch(Smi((4, 0, 4), (70000, 0, 900), (300, 0, 4), (5, 0, 4)))
    before = looking.before()
    after = looking.after(before)
    assert [gpu.used_mib for gpu in after.gpus] == [5, 4]
    assert clock.now == pytest.approx(1.0)


def test_what_is_not_freed_is_told_at_the_limit() -> None:
    looking, clock = watch(Smi((4, 0, 4), (4, 0, 5000)))
    after = looking.after(looking.before())
    assert after.gpus[1].used_mib == 5000
    assert RELEASE_S <= clock.now <= RELEASE_S + 1


@pytest.mark.parametrize("answer", ["0, GPU-0\n", "no devices\n"])
def test_another_answer_than_asked_for_is_an_error(answer: str) -> None:
    with pytest.raises(DoctorError, match="something else than asked"):
        watch(lambda _: answer)[0].before()


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(DoctorError, match="lists no GPU 7"):
        watch(Smi((1, 2, 3)), "7")[0].before()


def gpu(name: str, used: int | None, *processes: events.GpuProcess) -> events.GpuUse:
    return events.GpuUse(name=name, used_mib=used, processes=processes)


def on_gpus(*ends: events.GpuUse, keep_up: bool = False) -> tuple[list[Fields], Any]:
    """A sound run's events with both looks, the last of them as given, and its configuration."""
    config = run_config(platform="cuda", gpus=("0", "1"), keep_up=keep_up)
    run = passing_run(config)
    first = next(index for index, event in enumerate(run) if event["kind"] == "service.started")
    before = events.GpuMemory(when="start", gpus=(gpu("0", 4), gpu("1", 900)))
    after = events.GpuMemory(when="end", gpus=ends or (gpu("0", 4), gpu("1", 900 + SLACK_MIB)))
    return [*run[:first], before.fields(), *run[first:], after.fields()], config


def judged(run: list[Fields], config: Any) -> dict[str, Check]:
    return {check.id: check for check in evaluate(run, Expectation.of(config))}


def test_memory_as_before_passes_and_is_told() -> None:
    checks = judged(*on_gpus())
    assert list(checks) == [*CHECKS, *ON_GPUS]
    assert (checks[CHECK].status, checks[CHECK].found) == ("pass", "2 GPUs as before: GPU 0: 4 MiB, GPU 1: 964 MiB")


def test_a_run_without_gpus_has_no_such_check() -> None:
    assert CHECK not in judged(passing_run(), run_config())


def kinds(when: str) -> Callable[[list[Fields]], object]:
    def drop(run: list[Fields]) -> object:
        run[:] = [event for event in run if not (event["kind"] == "gpu.memory" and event["when"] == when)]
        return None

    return drop


def to(place: Callable[[list[Fields]], int], when: str) -> Callable[[list[Fields]], object]:
    def move(run: list[Fields]) -> object:
        event = next(one for one in run if one["kind"] == "gpu.memory" and one["when"] == when)
        run.remove(event)
        run.insert(place(run), event)
        return None

    return move


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((gpu("0", 4 + SLACK_MIB + 1), gpu("1", 900)), "GPU 0: 69 MiB in use, 4 before: nobody listed"),
        (
            (gpu("0", 4), gpu("1", 70000, events.GpuProcess(pid=7, program="VLLM::EngineCore", used_mib=69000))),
            "GPU 1: 70000 MiB in use, 900 before: pid 7 (VLLM::EngineCore) 69000 MiB",
        ),
        ((gpu("0", 4), gpu("1", None)), "GPU 1: memory in use is not told"),
        ((gpu("0", 4),), "GPU 1: memory in use is not told"),
    ],
)
def test_memory_that_was_not_given_back_turns_this_check_alone_red(ends: tuple[events.GpuUse, ...], said: str) -> None:
    checks = judged(*on_gpus(*ends))
    assert {check.id for check in checks.values() if check.status == "fail"} == {CHECK}
    assert said in checks[CHECK].found


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (kinds("start"), "not looked at before the run"),
        (kinds("end"), "not looked at after the run"),
        (to(len, "start"), "first looked at after a service was started"),
        (to(lambda _: 0, "end"), "last looked at before everything was ended"),
    ],
)
def test_a_look_that_is_missing_or_out_of_place_is_no_evidence(
    edit: Callable[[list[Fields]], object], said: str
) -> None:
    run, config = on_gpus()
    check = judged(edited(run, edit), config)[CHECK]
    assert check.status == "fail"
    assert said in check.found


def test_a_stack_that_is_left_up_is_not_asked() -> None:
    run, config = on_gpus(keep_up=True)
    assert judged(edited(run, kinds("end")), config)[CHECK].status == "skip"


def test_a_run_that_started_nothing_is_not_asked() -> None:
    config = run_config(platform="cuda", gpus=("0", "1"))
    failed = events.Failure.of(DoctorError("no GPU")).fields()
    assert judged([failed], config)[CHECK].status == "skip"


def test_bfloat16_has_a_tolerance_of_its_own() -> None:
    assert Expectation.of(run_config(platform="cuda")).tolerance > 100 * Expectation.of(run_config()).tolerance


PROGRAM = """#!/bin/sh
case "$1" in
--query-gpu=index,uuid,memory.used) printf '0, GPU-0aaa, 4\\n1, GPU-1bbb, 5\\n' ;;
--query-compute-apps=*) printf 'GPU-1bbb, 4711, python3, 5\\n' ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Of a run on two GPUs, with a program called nvidia-smi before any other."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(PROGRAM)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with opened(Request(stack="cuda", model=ModelChoice("tiny", "tiny"), root=tmp_path, quiet=True)) as session:
        session.use(platform="cuda", gpus=("0", "1"))
        yield session


def test_the_program_itself_is_asked(session: Session) -> None:
    look = GpuWatch.of(session).before()
    assert [(gpu.name, gpu.used_mib, len(gpu.processes)) for gpu in look.gpus] == [("0", 4, 0), ("1", 5, 1)]


def test_a_program_that_fails_is_an_error_with_its_log(session: Session, tmp_path: Path) -> None:
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho no driver >&2\nexit 9\n")
    with pytest.raises(DoctorError, match="does not tell what is in use") as caught:
        GpuWatch.of(session).before()
    assert caught.value.log is not None
    assert "no driver" in caught.value.log.read_text()
