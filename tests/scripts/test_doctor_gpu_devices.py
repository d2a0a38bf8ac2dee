"""Enough GPUs are visible, of an architecture that the engine is built for, in a mode in which they serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_fakes import CUDA, FakeMachine, look
from doctor_gpus import HUNG, Card, machine, two

from scripts.doctor import gpu
from scripts.doctor.gpu_devices import runs_on
from scripts.doctor.registry import Check, Finding

OF_THE_DRIVER = "/proc/driver/nvidia/gpus"


def check(name: str) -> Check:
    return next(each for each in gpu.CHECKS if each.id == name)


def visible(value: str | None, *cards: Card, **environ: str) -> Finding:
    chosen = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    fake = machine(*(cards or (Card(0), Card(1))), environ={**chosen, **environ})
    return look(check("gpu.visible-devices"), fake, CUDA)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "unset: 2 of 2 GPUs"),
        ("1,0", "'1,0': 2 of 2 GPUs"),
        ("1", "'1': 1 of 2 GPUs"),
        ("GPU-0aaaaaaa", "'GPU-0aaaaaaa': 1 of 2 GPUs"),
    ],
)
def test_what_is_visible_is_said(value: str | None, found: str) -> None:
    seen = visible(value)
    assert (seen.status, seen.found) == ("ok", found)


@pytest.mark.parametrize(
    ("value", "entry", "count"), [("", "", 0), ("-1", "-1", 0), ("0,7", "7", 1), ("7,0", "7", 0), ("GPU-9", "GPU-9", 0)]
)
def test_an_entry_that_names_no_gpu_fails_since_cuda_stops_there(value: str, entry: str, count: int) -> None:
    found = visible(value)
    assert found.status == "fail"
    assert found.found == f"{value!r}: {entry!r} names no GPU (0, 1 are there); CUDA sees {count}"
    assert found.fix == "unset CUDA_VISIBLE_DEVICES"


def test_a_slice_of_a_gpu_is_not_enough() -> None:
    found = visible("MIG-11111111-2222")
    assert (found.status, found.found) == ("fail", "'MIG-11111111-2222' names a slice of a GPU")


def test_numbers_mean_different_gpus_where_they_are_of_several_kinds() -> None:
    cards = (Card(0, name="NVIDIA L4"), Card(1))
    found = visible("0,1", *cards)
    assert (found.status, found.fix) == ("warn", "export CUDA_DEVICE_ORDER=PCI_BUS_ID")
    assert visible("0,1", *cards, CUDA_DEVICE_ORDER="PCI_BUS_ID").status == "ok"
    assert visible(None, *cards).status == "ok"


@pytest.mark.parametrize(
    ("value", "count", "status"),
    [(None, 2, "ok"), (None, 1, "fail"), ("1", 2, "fail"), ("0,0", 2, "fail"), (None, 8, "ok"), ("-1", 2, "fail")],
)
def test_engine_and_trainer_need_a_gpu_each(value: str | None, count: int, status: str) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = look(check("gpu.count"), machine(*map(Card, range(count)), environ=environ), CUDA)
    assert found.status == status


def test_one_gpu_leads_to_the_run_without_any() -> None:
    found = look(check("gpu.count"), machine(Card(0)), CUDA)
    assert (found.found, found.fix.split("   ")[0]) == ("1 GPU", "./noxw -s smoke-cpu")


def test_a_hidden_gpu_leads_to_the_variable() -> None:
    found = look(check("gpu.count"), two(environ={"CUDA_VISIBLE_DEVICES": "1"}), CUDA)
    assert (found.found, found.fix) == ("1 of 2 visible", "unset CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("fake", "status", "found"),
    [
        (FakeMachine(), "fail", "no GPU"),
        (machine(smi="No devices were found\n"), "fail", "no GPU"),
        (FakeMachine(folders={f"{OF_THE_DRIVER}/0000:01:00.0"}), "fail", "1 GPU"),
        (
            FakeMachine(folders={f"{OF_THE_DRIVER}/0000:01:00.0", f"{OF_THE_DRIVER}/0000:02:00.0"}),
            "skip",
            "the driver has 2, but there is no nvidia-smi on PATH",
        ),
        (machine(smi=HUNG), "skip", "they cannot be counted: nvidia-smi did not answer within 4 s"),
        (machine(Card(0), environ={"CUDA_VISIBLE_DEVICES": ""}), "fail", "no visible GPU"),
    ],
)
def test_gpus_that_are_not_there_are_missed_and_those_that_do_not_show_are_not_guessed(
    fake: FakeMachine, status: str, found: str
) -> None:
    seen = look(check("gpu.count"), fake, CUDA)
    assert (seen.status, seen.found) == (status, found)


@pytest.mark.parametrize(
    ("capability", "arch", "runs"),
    [
        ("9.0", "9.0", True),
        ("9.0", "9.0a", True),
        ("8.9", "8.0", True),
        ("8.0", "8.6", False),
        ("9.0", "8.0", False),
        ("9.0", "8.0+PTX", True),
        ("8.0", "8.0+PTX", True),
        ("8.0", "9.0+PTX", False),
        ("12.0", "10.0", False),
        ("10.3", "10.0f", True),
        ("10.3", "10.0a", False),
        ("10.3", "10.0a+PTX", False),
        ("[N/A]", "9.0", False),
        ("9.0", "Hopper", False),
    ],
)
def test_what_is_compiled_for_one_architecture_runs_on_some_others(capability: str, arch: str, runs: bool) -> None:
    assert runs_on(capability, arch) is runs


def test_a_gpu_of_the_stacks_architectures_is_fine() -> None:
    found = look(check("gpu.architecture"), two(), CUDA)
    assert (found.status, found.required) == ("ok", "an architecture that runs code for 9.0")


def test_a_gpu_that_the_engine_is_not_built_for_is_named_with_what_to_add() -> None:
    found = look(check("gpu.architecture"), machine(Card(0), Card(1, name="NVIDIA A100", capability="8.0")), CUDA)
    assert (found.status, found.found) == ("fail", "GPU 1 (NVIDIA A100) is 8.0")
    assert found.fix == (
        "./noxw -s build -- --stack prime-rl --only vllm   # "
        'after adding "8.0" to cuda_archs in stacks/prime-rl/stack.toml'
    )


def test_a_third_gpu_is_not_the_runs_concern() -> None:
    fake = machine(Card(0), Card(1), Card(2, capability="7.0", mode="Prohibited", used="80000"))
    names = ("gpu.architecture", "gpu.modes", "gpu.memory", "gpu.processes")
    assert [look(check(name), fake, CUDA).status for name in names] == ["ok"] * 4


def test_a_stack_that_names_no_architectures_is_not_held_to_any() -> None:
    assert look(check("gpu.architecture"), two(), replace(CUDA, recipes={})).status == "skip"


@pytest.mark.parametrize(
    ("card", "status", "fix"),
    [
        (Card(1), "ok", ""),
        (Card(1, mode="Prohibited"), "fail", "sudo nvidia-smi -i 1 -c DEFAULT"),
        (Card(1, mode="Exclusive_Process"), "warn", "sudo nvidia-smi -i 1 -c DEFAULT"),
        (Card(1, mig="Enabled"), "warn", "sudo nvidia-smi -i 1 -mig 0"),
        (Card(1, mig="[N/A]"), "ok", ""),
    ],
)
def test_modes_are_told_and_those_that_keep_a_run_out_are_undone(card: Card, status: str, fix: str) -> None:
    found = look(check("gpu.modes"), machine(Card(0), card), CUDA)
    assert (found.status, found.fix) == (status, fix)
    assert "GPU 0: Default, MIG Disabled, persistence Enabled, ECC Enabled" in found.found
