"""The doctor on the system, its libraries and limits; and that a good machine passes every check of the group host."""

from __future__ import annotations

import pytest
from doctor_fakes import CUDA, look
from doctor_hosts import CHECKS, PYTHON, ROOT, machine, the, with_files

from scripts.doctor import (
    interpreters,
)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_machine_that_has_all_passes(name: str) -> None:
    good = machine()
    good.answers[f"/usr/bin/python3.11 -I -S -c {interpreters._QUESTION}"] = PYTHON.format("3, 11, 7", "True")
    assert look(CHECKS[name], good).status in {"ok", "skip"}
    assert look(CHECKS[name], good).status == ("skip" if name == "host.swap" else "ok")


def test_another_system_than_linux_is_told_of_a_container() -> None:
    found = look(the("linux"), machine(kernel="Darwin"))
    assert (found.status, found.found) == ("fail", "Darwin")
    assert found.fix.startswith("docker run --rm -it ")


@pytest.mark.parametrize(
    ("release", "status"), [("5.2.21", "fail"), ("5.3.0", "ok"), ("6.18.44-x", "ok"), ("", "warn")]
)
def test_the_kernel_has_pidfds(release: str, status: str) -> None:
    assert look(the("linux"), with_files(**{"/proc/sys/kernel/osrelease": release})).status == status


def test_another_architecture_fails() -> None:
    assert look(the("architecture"), machine(cpu="aarch64")).status == "fail"


@pytest.mark.parametrize(
    ("library", "status"),
    [("glibc 2.27", "fail"), ("glibc 2.28", "ok"), ("glibc 2.40", "ok"), ("", "fail"), ("musl 1.2", "fail")],
)
def test_the_c_library_is_new_enough_for_the_wheels(library: str, status: str) -> None:
    assert look(the("glibc"), machine(c_library=library)).status == status


@pytest.mark.parametrize(
    ("text", "status", "found"),
    [
        ("GLIBCXX_3.4.9 GLIBCXX_3.4.24", "ok", "GLIBCXX_3.4.24"),
        ("GLIBCXX_3.4.19", "fail", "GLIBCXX_3.4.19"),
        ("nothing", "warn", "/usr/lib64/libstdc++.so.6 names no version"),
    ],
)
def test_the_cxx_library_is_new_enough(text: str, status: str, found: str) -> None:
    result = look(the("libstdcxx"), with_files(**{"/usr/lib64/libstdc++.so.6": text}))
    assert (result.status, result.found) == (status, found)


def test_a_slim_image_without_a_cxx_library_is_told_the_package() -> None:
    bare = machine()
    del bare.files["/usr/lib64/libstdc++.so.6"]
    assert look(the("libstdcxx"), bare).fix == "sudo apt-get install -y libstdc++6"


@pytest.mark.parametrize(
    ("flags", "status", "found"),
    [
        ("fpu avx2", "ok", "avx2, without avx512f"),
        ("fpu avx2 avx512f", "ok", "avx2, avx512f"),
        ("fpu avx", "fail", "no avx2"),
        ("", "warn", "/proc/cpuinfo names no flags"),
    ],
)
def test_the_processor_has_avx2(flags: str, status: str, found: str) -> None:
    result = look(
        the("cpu-flags"), with_files(**{"/proc/cpuinfo": f"flags : {flags}\n" if flags else "Processor: ARM"})
    )
    assert (result.status, result.found) == (status, found)


def test_an_engine_on_the_gpu_needs_no_flags() -> None:
    assert look(the("cpu-flags"), machine(), CUDA).status == "skip"


def test_a_clock_that_was_never_set_fails() -> None:
    assert look(the("clock"), machine(clock=86_400.0)).status == "fail"


def test_files_from_the_future_are_worth_a_word() -> None:
    ahead = machine()
    ahead.times[f"{ROOT}/.git"] = ahead.clock + 3600
    found = look(the("clock"), ahead)
    assert (found.status, found.found) == ("warn", f"{ROOT}/.git was changed 3600 s in the future")


@pytest.mark.parametrize(
    ("encoding", "status"), [("utf-8", "ok"), ("utf8", "ok"), ("ascii", "ok"), ("iso-8859-1", "warn")]
)
def test_a_locale_with_another_character_set_is_worth_a_word(encoding: str, status: str) -> None:
    assert look(the("locale"), machine(encoding=encoding)).status == status


@pytest.mark.parametrize(("limits", "status"), [((1024, 4096), "ok"), ((1024, 1024), "warn"), ((-1, -1), "ok")])
def test_few_open_files_are_worth_a_word(limits: tuple[int, int], status: str) -> None:
    assert look(the("open-files"), machine(open_files=limits)).status == status
