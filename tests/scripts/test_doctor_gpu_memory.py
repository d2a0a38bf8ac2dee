"""The memory of the two GPUs of a run is free, or it is said who has it."""

from __future__ import annotations

import json

import pytest
from doctor_fakes import CUDA, FakeMachine, look
from doctor_gpus import APPS, HUNG, Card, machine, two

from scripts.doctor import gpu
from scripts.doctor.registry import Check
from scripts.doctor.subject import Options

ROOT = "/home/me/smokestack"


def check(name: str) -> Check:
    return next(each for each in gpu.CHECKS if each.id == name)


def with_process(fake: FakeMachine, pid: int, comm: str, started: int = 77) -> FakeMachine:
    stat = f"{pid} ({comm}) S 1 " + " ".join(["0"] * 17) + f" {started} 0 0\n"
    fake.files.update({f"/proc/{pid}/comm": f"{comm}\n", f"/proc/{pid}/stat": stat})
    return fake


def with_run(fake: FakeMachine, *pids: int, owner: int | None = None, started: int = 77) -> FakeMachine:
    """A stack on disk whose engine is these processes."""
    state = {
        "schema": 1,
        "stack": "prime-rl",
        "boot_id": "this-boot",
        "owner": None if owner is None else {"pid": owner, "start_time": started},
        "services": [
            {"service": "engine-0", "pid": pids[0], "start_time": started, "members": [[pid, started] for pid in pids]}
        ],
    }
    fake.files[f"{ROOT}/runs/20261129T100000Z-aaaa/stack.json"] = json.dumps(state)
    fake.files["/proc/sys/kernel/random/boot_id"] = "this-boot\n"
    return fake


def test_free_memory_is_told_in_numbers() -> None:
    found = look(check("gpu.memory"), two(), CUDA)
    assert (found.status, found.found) == ("ok", "GPU 0: 81555 of 81559 MiB free, GPU 1: 81555 of 81559 MiB free")


def test_a_taken_engine_gpu_fails_and_a_taken_trainer_gpu_warns() -> None:
    busy = "9000"
    assert look(check("gpu.memory"), machine(Card(0, used=busy), Card(1)), CUDA).status == "fail"
    assert look(check("gpu.memory"), machine(Card(0), Card(1, used=busy)), CUDA).status == "warn"


def test_a_run_on_three_gpus_is_looked_at_on_three_of_which_two_are_engines() -> None:
    three = Options(gpus=3)
    for busy, status in ((0, "fail"), (1, "fail"), (2, "warn")):
        cards = [Card(index, used="9000" if index == busy else Card(index).used) for index in range(4)]
        found = look(check("gpu.memory"), machine(*cards), CUDA, options=three)
        assert (found.status, f"GPU {busy}: 72559 of 81559 MiB free" in found.found) == (status, True)
        assert "GPU 3" not in found.found
    fake = with_process(machine(Card(0), Card(1), Card(2)), 4711, "python3")
    fake.answers[APPS] = f"{Card(2).uuid}, 4711, python3, 900\n"
    assert "GPU 2: pid 4711" in look(check("gpu.processes"), fake, CUDA, options=three).found
    assert look(check("gpu.count"), two(), CUDA, options=three).required == (
        "3 GPUs: one for each of 2 engine ranks, one for the trainer"
    )


def test_who_has_a_taken_gpus_memory_is_named_with_pid_and_memory() -> None:
    fake = with_process(machine(Card(0, used="70000"), Card(1)), 4711, "python3")
    fake.answers[APPS] = f"{Card(0).uuid}, 4711, python3 train.py --secret, 69990\n{Card(1).uuid}, 12, x, [N/A]\n"
    found = look(check("gpu.memory"), fake, CUDA)
    assert found.found == (
        "GPU 0: 11559 of 81559 MiB free, GPU 1: 81555 of 81559 MiB free; GPU 0: pid 4711 (python3) has 69990 MiB; "
        "GPU 1: pid 12 (x) has unknown memory"
    )


def test_ninety_per_cent_free_is_enough_and_less_is_not() -> None:
    enough = machine(Card(0, total="1000", used="100"), Card(1))
    less = machine(Card(0, total="1000", used="101"), Card(1))
    assert [look(check("gpu.memory"), fake, CUDA).status for fake in (enough, less)] == ["ok", "fail"]


def test_free_gpus_elsewhere_are_offered_by_their_numbers() -> None:
    fake = machine(Card(0, used="70000"), Card(1), Card(2, used="70000"), Card(3))
    assert look(check("gpu.memory"), fake, CUDA).fix.startswith("export CUDA_VISIBLE_DEVICES=1,3 ")


def test_memory_of_an_earlier_runs_engine_is_freed_by_taking_it_down() -> None:
    fake = with_run(with_process(machine(Card(0, used="70000"), Card(1)), 4242, "VLLM::EngineCore"), 4242)
    assert look(check("gpu.memory"), fake, CUDA).fix.startswith("./noxw -s down -- --all-runs")


def test_without_another_way_it_is_said_how_to_see_who_has_the_memory() -> None:
    fake = machine(Card(0, used="70000"), Card(1))
    assert look(check("gpu.memory"), fake, CUDA).fix.startswith("nvidia-smi --query-compute-apps")


@pytest.mark.parametrize("card", [Card(0, total="[N/A]", used="[N/A]"), Card(0, total="0"), Card(0, used="[N/A]")])
def test_a_gpu_without_memory_of_its_own_is_skipped(card: Card) -> None:
    assert look(check("gpu.memory"), machine(card, Card(1)), CUDA).status == "skip"


def test_nobody_on_the_gpus_is_fine() -> None:
    found = look(check("gpu.processes"), two(), CUDA)
    assert (found.status, found.found) == ("ok", "no process")


def test_another_program_is_named_by_pid_and_memory_without_its_arguments() -> None:
    fake = two()
    fake.answers[APPS] = f"{Card(0).uuid}, 31337, /opt/bin/train.py --token SECRET, 40960\n"
    found = look(check("gpu.processes"), with_process(fake, 31337, "python3"), CUDA)
    assert (found.status, found.found) == ("warn", "GPU 0: pid 31337 (python3) has 40960 MiB")
    assert found.fix.startswith("ps -o user,pid,etime,comm -p 31337")


def test_a_program_of_which_only_the_driver_tells_is_named_by_its_last_part() -> None:
    fake = two(files={"/proc/31337/stat": ""})
    fake.answers[APPS] = f"{Card(0).uuid}, 31337, /opt/bin/train.py --token SECRET, [N/A]\n"
    found = look(check("gpu.processes"), fake, CUDA)
    assert found.found == "GPU 0: pid 31337 (train.py) has unknown memory"


def test_a_process_that_is_not_here_is_another_containers_or_dead() -> None:
    fake = two()
    fake.answers[APPS] = f"{Card(1).uuid}, 999, VLLM::EngineCore, 70000\n"
    found = look(check("gpu.processes"), fake, CUDA)
    assert found.status == "warn"
    assert found.found.startswith("GPU 1: pid 999 (VLLM::EngineCore) has 70000 MiB, and is no process here")
    assert found.fix.startswith("sudo fuser -v /dev/nvidia*")


def test_an_engine_of_an_earlier_run_is_told_apart_from_others() -> None:
    fake = with_run(with_process(two(), 4242, "VLLM::EngineCore"), 4242)
    fake.answers[APPS] = f"{Card(0).uuid}, 4242, VLLM::EngineCore, 70000\n"
    found = look(check("gpu.processes"), fake, CUDA)
    assert found.status == "warn"
    assert found.fix.startswith("./noxw -s down -- --all-runs")


@pytest.mark.parametrize("line", ["No running processes found", f"{Card(0).uuid}, [N/A], python3, 1", "a, 1, b, 1"])
def test_a_line_that_tells_of_no_process_on_these_gpus_is_passed_over(line: str) -> None:
    fake = two()
    fake.answers[APPS] = f"{line}\n"
    assert look(check("gpu.processes"), fake, CUDA).found == "no process"


def test_an_engine_of_a_run_at_work_is_not_to_be_taken_down() -> None:
    fake = with_process(with_process(two(), 4242, "VLLM::EngineCore"), 4000, "python")
    fake.answers[APPS] = f"{Card(0).uuid}, 4242, VLLM::EngineCore, 70000\n"
    assert look(check("gpu.processes"), with_run(fake, 4242, owner=4000), CUDA).fix.startswith("ps -o")


def test_a_pid_that_is_somebody_elses_by_now_is_not_taken_for_ours() -> None:
    fake = with_run(with_process(two(), 4242, "python3", started=78), 4242)
    fake.answers[APPS] = f"{Card(0).uuid}, 4242, python3, 70000\n"
    assert look(check("gpu.processes"), fake, CUDA).fix.startswith("ps -o")


def test_memory_that_no_process_accounts_for_is_told() -> None:
    assert look(check("gpu.processes"), machine(Card(0, used="1023"), Card(1)), CUDA).status == "ok"
    assert look(check("gpu.processes"), machine(Card(0, used="1024"), Card(1)), CUDA).status == "warn"
    found = look(check("gpu.processes"), machine(Card(0, used="40000"), Card(1)), CUDA)
    assert found.status == "warn"
    assert found.found.startswith("GPU 0: 40000 MiB in use, but no process is listed")


def test_a_list_that_does_not_come_is_skipped() -> None:
    fake = two()
    fake.answers[APPS] = HUNG
    found = look(check("gpu.processes"), fake, CUDA)
    assert (found.status, found.found) == (
        "skip",
        "nvidia-smi does not list processes: nvidia-smi did not answer within 4 s",
    )
