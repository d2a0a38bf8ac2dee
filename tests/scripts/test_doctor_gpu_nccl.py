"""NCCL is the same on both sides of a refit: its release, its settings, the library that is really loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_fakes import CUDA, FakeMachine, look

from scripts.doctor import gpu_nccl
from scripts.doctor.registry import Finding
from scripts.doctor.subject import Options

RELEASE, VARIABLES, LIBRARY = gpu_nccl.CHECKS
ENGINE = "/home/me/smokestack/.venv-prime-rl/lib/python3.12/site-packages"
TRAINER = "/home/me/trainer/lib/python3.11/site-packages"


def release(engine: str | None, trainer: str | None) -> Finding:
    folders = {ENGINE, TRAINER, "/home/me/trainer/lib/pkgconfig", "/home/me/trainer/lib/python3.10/lib-dynload"}
    folders.add("/home/me/trainer/lib/another/site-packages")
    for site, package in ((ENGINE, engine), (TRAINER, trainer)):
        if package is not None:
            folders.add(f"{site}/{package}.dist-info")
    return look(RELEASE, FakeMachine(folders=folders), CUDA, options=Options(trainer=Path("/home/me/trainer")))


def test_equal_releases_are_fine() -> None:
    found = release("nvidia_nccl_cu13-2.30.7", "nvidia_nccl_cu13-2.30.7")
    assert (found.status, found.found) == ("ok", "engine nvidia-nccl-cu13 2.30.7, trainer nvidia-nccl-cu13 2.30.7")


@pytest.mark.parametrize("trainer", ["nvidia_nccl_cu13-2.28.9", "nvidia_nccl_cu12-2.30.7"])
def test_another_release_fails_with_the_command_that_makes_them_equal(trainer: str) -> None:
    found = release("nvidia_nccl_cu13-2.30.7", trainer)
    assert found.status == "fail"
    assert found.fix == "uv pip install --python /home/me/trainer/bin/python nvidia-nccl-cu13==2.30.7"


def test_a_trainer_with_another_source_of_nccl_is_a_warning() -> None:
    found = release("nvidia_nccl_cu13-2.30.7", "torch-2.13.0")
    assert (found.status, "whose release is not seen" in found.found) == ("warn", True)


def test_nothing_to_compare_with_is_skipped() -> None:
    assert release(None, "nvidia_nccl_cu13-2.30.7").status == "skip"
    assert look(RELEASE, FakeMachine(folders={ENGINE}), CUDA).status == "skip"
    nowhere = Options(trainer=Path("/home/me/trainer"))
    assert look(RELEASE, FakeMachine(), CUDA, options=nowhere).status == "skip"


def test_a_trainer_folder_that_is_no_environment_fails() -> None:
    fake = FakeMachine(folders={ENGINE, "/home/me/elsewhere"})
    found = look(RELEASE, fake, CUDA, options=Options(trainer=Path("/home/me/elsewhere")))
    assert (found.status, found.found) == ("fail", "/home/me/elsewhere is no Python environment")


def test_no_settings_at_all_are_fine() -> None:
    assert look(VARIABLES, FakeMachine(), CUDA).found == "none set"


def test_a_setting_that_both_sides_must_share_is_a_warning() -> None:
    fake = FakeMachine(environ={"NCCL_CUMEM_ENABLE": "0", "NCCL_DEBUG": "INFO"})
    found = look(VARIABLES, fake, CUDA)
    assert (found.status, found.fix) == ("warn", "unset NCCL_CUMEM_ENABLE")
    assert found.found.startswith("exported: NCCL_CUMEM_ENABLE, NCCL_DEBUG. A run drops what is exported")


def test_a_setting_that_only_prints_is_listed_without_a_warning() -> None:
    found = look(VARIABLES, FakeMachine(environ={"NCCL_DEBUG": "INFO"}), CUDA)
    assert (found.status, "NCCL_DEBUG" in found.found) == ("ok", True)


def test_a_file_at_home_is_read_by_one_side_only() -> None:
    path = "/home/me/.nccl.conf"
    found = look(VARIABLES, FakeMachine(files={path: "# mine\nNCCL_P2P_DISABLE=1\n"}), CUDA)
    assert (found.status, found.fix) == ("warn", f"mv {path} {path}.off")


def test_a_file_of_the_machine_holds_for_both_sides() -> None:
    found = look(VARIABLES, FakeMachine(files={"/etc/nccl.conf": "NCCL_P2P_DISABLE=1\n"}), CUDA)
    assert (found.status, "/etc/nccl.conf: NCCL_P2P_DISABLE" in found.found) == ("ok", True)


def test_a_library_before_the_environments_own_is_named() -> None:
    fake = FakeMachine(
        environ={"LD_LIBRARY_PATH": "/opt/none::/usr/local/nccl/lib"}, files={"/usr/local/nccl/lib/libnccl.so.2": ""}
    )
    found = look(LIBRARY, fake, CUDA)
    assert found.status == "warn"
    assert found.found == "LD_LIBRARY_PATH, which a run passes on, has /usr/local/nccl/lib/libnccl.so.2"


@pytest.mark.parametrize(("files", "remark"), [({}, ", which is not there"), ({"/opt/libnccl.so.2": ""}, "")])
def test_vllms_own_variable_is_told(files: dict[str, str], remark: str) -> None:
    fake = FakeMachine(environ={"VLLM_NCCL_SO_PATH": "/opt/libnccl.so.2"}, files=files)
    found = look(LIBRARY, fake, CUDA)
    assert (found.status, found.fix) == ("warn", "unset VLLM_NCCL_SO_PATH")
    assert found.found.startswith(f"VLLM_NCCL_SO_PATH names /opt/libnccl.so.2{remark}: a run drops it")


def test_no_other_library_is_fine() -> None:
    assert look(LIBRARY, FakeMachine(environ={"LD_LIBRARY_PATH": "/opt/cuda/lib64"}), CUDA).status == "ok"
