"""What `smoke` runs on: two GPUs where a program would see two, else the CPU, and never quietly another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_fakes import FakeMachine
from doctor_gpus import HUNG, Card, machine, two

from scripts.doctor.asking import Answer
from scripts.doctor.platform import choose

DRIVER = "/proc/driver/nvidia/gpus"


def chosen(fake: FakeMachine) -> tuple[str, str]:
    choice = choose(Path("/home/me/smokestack"), fake)
    return choice.platform, choice.why


@pytest.mark.parametrize(
    ("environ", "platform", "why"),
    [
        ({}, "cuda", "2 of 2 GPUs visible, 2 needed"),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "cuda", "2 of 2 GPUs visible, 2 needed"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "cpu", "1 of 2 GPUs visible, 2 needed"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "cpu", "0 of 2 GPUs visible, 2 needed"),
    ],
)
def test_the_gpus_that_count_are_the_visible_ones(environ: dict[str, str], platform: str, why: str) -> None:
    assert chosen(two(environ=environ)) == (platform, why)


def test_one_gpu_is_too_few() -> None:
    assert chosen(machine(Card(0))) == ("cpu", "1 of 1 GPUs visible, 2 needed")


def test_a_machine_without_a_driver_runs_on_its_cpu() -> None:
    assert chosen(FakeMachine()) == ("cpu", "there is no nvidia-smi on PATH")


def test_gpus_that_cannot_be_asked_are_not_passed_over() -> None:
    silent = machine(Card(0), Card(1), smi=HUNG)
    silent.folders |= {f"{DRIVER}/0000:01:00.0", f"{DRIVER}/0000:02:00.0"}
    platform, why = chosen(silent)
    assert platform == "cuda"
    assert why.startswith("the driver has 2 GPUs, but ")


def test_a_driver_that_lists_no_gpu_is_no_gpu() -> None:
    lost = machine(Card(0), Card(1), smi=Answer(9, "No devices were found\n"))
    assert chosen(lost)[0] == "cpu"
