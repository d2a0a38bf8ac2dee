"""The driver answers, is new enough for the stack's CUDA, and its devices can be opened; or each says what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_fakes import CPU, CUDA, FakeMachine, look
from doctor_gpus import HUNG, SMI, Card, machine, two

from scripts.doctor import gpu
from scripts.doctor.asking import Answer
from scripts.doctor.registry import Check

MODULE = "/proc/driver/nvidia/version"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 17 17:23:39 UTC 2025\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder)\n"


def check(name: str) -> Check:
    return next(each for each in gpu.CHECKS if each.id == name)


@pytest.mark.parametrize("each", gpu.CHECKS, ids=lambda each: each.id)
def test_a_stack_without_gpus_skips_every_gpu_check_and_asks_nothing(each: Check) -> None:
    fake = two()
    found = look(each, fake, CPU)
    assert (found.status, found.found) == ("skip", "the stack cpu runs without a GPU")
    assert fake.asked == []


@pytest.mark.parametrize("each", gpu.CHECKS, ids=lambda each: each.id)
def test_a_machine_without_a_driver_fails_at_the_driver_and_nowhere_by_an_error(each: Check) -> None:
    found = look(each, FakeMachine(), CUDA)
    fails = {"gpu.driver", "gpu.device-files", "gpu.count"}
    assert (found.status == "fail") == (each.id in fails)


def test_two_gpus_are_listed_with_the_drivers_version() -> None:
    found = look(check("gpu.driver"), two(), CUDA)
    assert found.status == "ok"
    assert found.found.startswith("driver 580.95.05: GPU 0 (NVIDIA H100")


def test_no_driver_at_all_is_a_failure_with_the_package_to_install() -> None:
    found = look(check("gpu.driver"), FakeMachine(), CUDA)
    assert (found.status, found.found) == ("fail", "no NVIDIA driver is loaded")
    assert found.fix.startswith("sudo apt-get install -y nvidia-driver")


def test_in_a_container_the_fix_is_to_give_it_the_gpus() -> None:
    found = look(check("gpu.driver"), FakeMachine(files={"/.dockerenv": ""}), CUDA)
    assert found.fix.startswith("docker run --gpus all")


def test_a_loaded_driver_without_nvidia_smi_is_a_warning() -> None:
    found = look(check("gpu.driver"), FakeMachine(files={MODULE: OPEN.format("580.95.05")}), CUDA)
    assert found.status == "warn"
    assert found.found == "driver 580.95.05 is loaded, but there is no nvidia-smi on PATH: its GPUs cannot be looked at"


def test_an_nvidia_smi_that_hangs_is_a_finding() -> None:
    found = look(check("gpu.driver"), machine(smi=HUNG), CUDA)
    assert (found.status, found.found) == ("fail", "nvidia-smi did not answer within 4 s")
    assert "dmesg" in found.fix


@pytest.mark.parametrize("each", gpu.CHECKS, ids=lambda each: each.id)
def test_an_nvidia_smi_that_hangs_is_asked_once_by_each_check(each: Check) -> None:
    fake = machine(smi=HUNG)
    look(each, fake, CUDA)
    assert fake.asked.count(SMI) <= 1


@pytest.mark.parametrize(
    ("status", "said", "fix"),
    [
        (18, "Failed to initialize NVML: Driver/library version mismatch", "sudo reboot"),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "sudo modprobe nvidia"),
        (6, "No devices were found", "lspci -d 10de:"),
        (255, "Failed to initialize NVML: Unknown Error", "docker restart"),
        (2, 'Field "compute_cap" is not a valid field to query.', "sudo apt-get install -y nvidia-driver"),
        (15, "Unable to determine the device handle for GPU0: GPU is lost.", "sudo dmesg"),
    ],
)
def test_what_nvidia_smi_complains_of_leads_to_its_fix(status: int, said: str, fix: str) -> None:
    found = look(check("gpu.driver"), machine(smi=Answer(status, said + "\n")), CUDA)
    assert found.status == "fail"
    assert said in found.found
    assert found.fix.startswith(fix)


@pytest.mark.parametrize("said", ["", "<html>no</html>\n", "0, GPU-1, NVIDIA H100\n", "x, " * 10 + "y\n"])
def test_an_answer_that_is_none_is_a_failure_that_quotes_it(said: str) -> None:
    found = look(check("gpu.driver"), machine(smi=said), CUDA)
    assert found.status == "fail"
    assert found.found == f"nvidia-smi answered something else than asked: {said.strip() or 'nothing'}"


def test_no_devices_is_understood_whatever_the_exit_status() -> None:
    found = look(check("gpu.driver"), machine(smi="No devices were found\n"), CUDA)
    assert (found.status, found.found) == ("fail", "nvidia-smi says: No devices were found")


@pytest.mark.parametrize(
    ("version", "backend", "status", "needs"),
    [
        ("580.95.05", "cu130", "ok", "driver 580.65.06 or newer for CUDA 13.0"),
        ("580.65.05", "cu130", "fail", "driver 580.65.06 or newer for CUDA 13"),
        ("570.86.10", "cu130", "fail", "driver 580.65.06 or newer for CUDA 13"),
        ("580.95.05", "cu131", "warn", "driver 590.44.01 or newer for all of CUDA 13.1"),
        ("535.104.05", "cu128", "warn", "driver 570.26 or newer for all of CUDA 12.8"),
        ("575.51.03", "cu129", "ok", "driver 575.51.03 or newer for CUDA 12.9"),
        ("515.65.01", "cu121", "fail", "driver 525.60.13 or newer for CUDA 12"),
        ("525.60.13", "cu121", "ok", "driver 525.60.13 or newer for CUDA 12.1"),
        ("999.1", "cu140", "skip", "a driver for CUDA 14.0"),
    ],
)
@pytest.mark.parametrize("text", [CLOSED, OPEN])
def test_the_driver_is_held_to_the_stacks_cuda(text: str, version: str, backend: str, status: str, needs: str) -> None:
    stack = replace(CUDA, torch_backend=backend)
    found = look(check("gpu.driver-version"), two(files={MODULE: text.format(version)}), stack)
    assert (found.status, found.required) == (status, needs)


def test_a_driver_that_is_too_old_is_named_even_when_nvidia_smi_is_not_there() -> None:
    found = look(check("gpu.driver-version"), FakeMachine(files={MODULE: CLOSED.format("470.57.02")}), CUDA)
    assert (found.status, found.found) == ("fail", "driver 470.57.02")
    assert "580.65.06 or newer, then restart" in found.fix


def test_without_proc_the_version_is_nvidia_smis() -> None:
    assert look(check("gpu.driver-version"), machine(Card(0, driver="560.28.03")), CUDA).found == "driver 560.28.03"


def test_no_version_and_a_torch_without_cuda_are_skipped() -> None:
    assert look(check("gpu.driver-version"), FakeMachine(), CUDA).status == "skip"
    stack = replace(CUDA, torch_backend="cpu")
    assert look(check("gpu.driver-version"), two(), stack).status == "skip"


def test_device_files_that_can_be_opened_are_counted() -> None:
    found = look(check("gpu.device-files"), two(), CUDA)
    assert (found.status, found.found) == ("ok", "2 GPU devices and the control devices")


@pytest.mark.parametrize("gone", ["nvidia-uvm", "nvidiactl", "nvidia0"])
def test_a_missing_device_file_is_named(gone: str) -> None:
    fake = machine(Card(0))
    del fake.sizes[f"/dev/{gone}"]
    found = look(check("gpu.device-files"), fake, CUDA)
    assert (found.status, found.found) == ("fail", f"missing: /dev/{gone}")
    assert found.fix == "sudo nvidia-modprobe -u -c=0"


def test_devices_of_another_group_are_named_with_the_group_to_join() -> None:
    found = look(check("gpu.device-files"), two(read_only={"/dev/nvidia1"}), CUDA)
    assert (found.status, found.found) == ("fail", "this user may not open /dev/nvidia1")
    assert found.fix.startswith("sudo usermod -aG")


def test_the_gpu_of_a_windows_host_has_a_device_of_its_own() -> None:
    assert look(check("gpu.device-files"), FakeMachine(sizes={"/dev/dxg": 0}), CUDA).status == "ok"
