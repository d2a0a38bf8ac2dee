"""The doctor's group host, on machines made of dictionaries: each check can be right, and wrong, and says which."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_fakes import CPU, CUDA, GIB, FakeMachine, look

from harness import scratch
from scripts.doctor import (
    host_disk,
    host_git,
    host_memory,
    host_paths,
    host_platform,
    host_python,
    host_system,
    interpreters,
)
from scripts.doctor.asking import Answer
from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import Space
from scripts.doctor.registry import Check
from scripts.doctor.subject import Options
from scripts.jobs import Resources

MODULES = (host_platform, host_system, host_python, host_git, host_memory, host_disk, host_paths)
CHECKS = {each.id: each for module in MODULES for each in module.CHECKS}
ROOT = "/home/me/smokestack"
PYTHON = "(({}), True, '/usr/include/python', {}, True)"


def the(name: str) -> Check:
    return CHECKS[f"host.{name}"]


def machine(**fields: object) -> FakeMachine:
    """A machine on which every check of the group is content."""
    good: dict[str, object] = {
        "environ": {"PATH": "/usr/bin"},
        "files": {
            "/proc/sys/kernel/osrelease": "6.1.0-9-amd64\n",
            "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse avx2 avx512f\n",
            "/proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\nSwapTotal: 8388608 kB\n",
            "/usr/lib64/libstdc++.so.6": "\x00GLIBCXX_3.4\x00GLIBCXX_3.4.9\x00GLIBCXX_3.4.30\x00",
            f"{ROOT}/.git/HEAD": "",
            "/usr/bin/python3": "",
            "/usr/bin/python3.11": "",
        },
        "folders": {"/tmp"},
        "programs": {"git": "/usr/bin/git", "python3": "/usr/bin/python3"},
        "answers": {
            "git --version": "git version 2.39.5",
            f"git -C {ROOT} rev-parse --git-dir": ".git",
            "/usr/bin/python3 -I -c import ensurepip, venv": "",
        },
        "spaces": {"/": Space("/", 100 * GIB, 60 * GIB)},
    }
    return FakeMachine(**{**good, **fields})  # type: ignore[arg-type]


def with_files(**files: str) -> FakeMachine:
    made = machine()
    made.files.update(files)
    return made


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_machine_that_has_all_passes(name: str) -> None:
    good = machine()
    good.answers[f"/usr/bin/python3.11 -I -S -c {interpreters._QUESTION}"] = PYTHON.format("3, 11, 7", "True")
    assert look(CHECKS[name], good).status in {"ok", "skip"}
    assert look(CHECKS[name], good).status == ("skip" if name == "host.swap" else "ok")


# The system


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


# Pythons


@pytest.mark.parametrize(("version", "status"), [((3, 9, 18), "fail"), ((3, 10, 13), "fail"), ((3, 11, 0), "ok")])
def test_an_old_python3_is_said_to_be_old(version: tuple[int, int, int], status: str) -> None:
    assert look(the("python3"), machine(python=version)).status == status


def test_a_python3_without_ensurepip_is_told_the_package() -> None:
    bare = machine()
    bare.answers["/usr/bin/python3 -I -c import ensurepip, venv"] = Answer(
        1, "ModuleNotFoundError: No module named 'ensurepip'"
    )
    found = look(the("venv"), bare)
    assert (found.status, found.fix) == ("fail", "sudo apt-get install -y python3-venv")
    bare.folders.add(f"{ROOT}/.tool/py3.11-abc")
    assert look(the("venv"), bare).status == "ok"


@pytest.mark.parametrize(
    ("said", "uv", "status"),
    [("2024.4.15", True, "ok"), ("2023.4.22", True, "warn"), ("2025.2.9", False, "warn"), (None, True, "warn")],
)
def test_a_nox_of_ones_own_is_new_enough_and_has_uv_beside_it(said: str | None, uv: bool, status: str) -> None:
    made = machine()
    made.programs["nox"] = "/usr/bin/nox"
    made.answers["nox --version"] = Answer(1, "broken") if said is None else said
    if uv:
        made.programs["uv"] = "/usr/bin/uv"
        made.answers["uv --version"] = "uv 0.9.1 (abc)"
    assert look(the("nox"), made).status == status


def test_the_stacks_python_is_found_on_path_or_managed_by_uv() -> None:
    made = machine(environ={"PATH": "/usr/bin:/opt/bin"})
    assert look(the("stack-python"), made).fix.startswith("./noxw --list >/dev/null && .tool/py*/bin/uv python install")
    made.folders.add(f"{ROOT}/.tool/py3.11-ab/bin")
    made.programs["uv"] = f"{ROOT}/.tool/py3.11-ab/bin/uv"
    assert look(the("stack-python"), made).fix.startswith(".tool/py3.11-ab/bin/uv python install 3.11")
    made.programs["uv"] = "/usr/bin/uv"
    assert look(the("stack-python"), made).fix.startswith("uv python install 3.11")
    made.files["/opt/bin/python3.11"] = ""
    made.answers[f"/opt/bin/python3.11 -I -S -c {interpreters._QUESTION}"] = PYTHON.format("3, 11, 9", "True")
    assert look(the("stack-python"), made).found == "/opt/bin/python3.11 (3.11.9)"
    managed = "/home/me/.local/share/uv/python/cpython-3.11.11-linux-x86_64-gnu/bin/python3.11"
    made.files[managed] = ""
    made.answers[f"{managed} -I -S -c {interpreters._QUESTION}"] = PYTHON.format("3, 11, 11", "True")
    assert look(the("stack-python"), made).found == f"{managed} (3.11.11)"


@pytest.mark.parametrize(
    "said",
    [
        PYTHON.format("3, 10, 1", "True"),
        PYTHON.format("3, 11, 1", "True").replace("True, '/usr", "False, '/usr"),
        "pyenv: python3.11: command not found",
    ],
    ids=["another version", "an environment's", "a shim that leads nowhere"],
)
def test_a_python_that_is_not_the_stacks_does_not_count(said: str) -> None:
    made = machine()
    made.answers[f"/usr/bin/python3.11 -I -S -c {interpreters._QUESTION}"] = said
    assert look(the("stack-python"), made).status == "fail"


def test_a_python_of_pyenv_that_is_not_on_path_is_the_nearest_fix() -> None:
    made = machine()
    made.folders.add("/home/me/.pyenv/versions/3.11.7")
    assert look(the("stack-python"), made).fix == 'export PATH="/home/me/.pyenv/versions/3.11.7/bin:$PATH"'


# git


@pytest.mark.parametrize(("stack", "status"), [(CPU, "warn"), (CUDA, "fail")])
def test_no_git_matters_most_where_sources_are_fetched(stack: StackFacts, status: str) -> None:
    made = machine()
    made.answers["git --version"] = Answer(None, problem="no git")
    assert look(the("git"), made, stack).status == status
    made.answers["git --version"] = "git version 2.17.1"
    assert look(the("git"), made, stack).status == status


def test_a_checkout_of_another_user_is_told_the_setting() -> None:
    made = machine()
    made.answers[f"git -C {ROOT} rev-parse --git-dir"] = Answer(128, "fatal: detected dubious ownership in repository")
    found = look(the("safe-directory"), made)
    assert (found.status, found.fix) == ("warn", f"git config --global --add safe.directory {ROOT}")
    made.answers[f"git -C {ROOT} rev-parse --git-dir"] = ".git"
    made.files["/src/v l/.git"] = ""
    made.answers["git -C /src/v l rev-parse --git-dir"] = Answer(128, "fatal: detected dubious ownership in repository")
    found = look(the("safe-directory"), made, CUDA, options=Options(sources={"vllm": Path("/src/v l")}))
    assert (found.status, found.fix) == ("fail", "git config --global --add safe.directory '/src/v l'")


def test_a_folder_that_is_no_checkout_has_nothing_to_trust() -> None:
    made = machine()
    del made.files[f"{ROOT}/.git/HEAD"]
    assert look(the("safe-directory"), made).status == "skip"


# Memory and processors


@pytest.mark.parametrize(
    ("stack", "purpose", "free", "status"),
    [
        (CPU, "run", 5, "ok"),
        (CPU, "run", 3, "fail"),
        (CPU, "build", 1, "skip"),
        (CUDA, "build", 7, "ok"),
        (CUDA, "build", 5, "fail"),
        (CUDA, None, 10, "fail"),
    ],
)
def test_memory_is_enough_for_the_purpose(stack: StackFacts, purpose: str | None, free: int, status: str) -> None:
    made = machine(free=Resources(8, free * GIB))
    assert look(the("memory"), made, stack, purpose=purpose).status == status


def test_a_containers_limit_is_named_as_what_bounds_it() -> None:
    found = look(the("memory"), machine(free=Resources(8, 2 * GIB)), purpose="run")
    assert found.found == "2.0 GiB free under a control group's limit"


def test_no_swap_is_worth_a_word_where_memory_is_short() -> None:
    small = "MemTotal: 16777216 kB\nSwapTotal: 0 kB\n"
    assert look(the("swap"), with_files(**{"/proc/meminfo": small}), CUDA).status == "warn"
    assert (
        look(the("swap"), with_files(**{"/proc/meminfo": small.replace("16777216", "268435456")}), CUDA).status == "ok"
    )


@pytest.mark.parametrize(
    ("cores", "status", "found"), [(2, "ok", "2 of 8 under a"), (1, "warn", "1 of 8 under a"), (8, "ok", "8")]
)
def test_a_quota_counts_as_the_number_of_processors(cores: int, status: str, found: str) -> None:
    result = look(the("cores"), machine(free=Resources(cores, 8 * GIB)))
    assert result.status == status
    assert result.found.startswith(found)


# Where things are written


@pytest.mark.parametrize(
    ("name", "stack", "free", "status"),
    [
        ("disk-build", CPU, 1, "fail"),
        ("disk-build", CPU, 3, "ok"),
        ("disk-build", CUDA, 30, "fail"),
        ("disk-build", CUDA, 60, "ok"),
        ("disk-install", CPU, 4, "fail"),
        ("disk-install", CPU, 7, "ok"),
        ("disk-run", CPU, 0.5, "fail"),
        ("disk-run", CPU, 1, "ok"),
    ],
)
def test_there_is_room_for_each_phase(name: str, stack: StackFacts, free: float, status: str) -> None:
    made = machine(spaces={"/": Space("/", 100 * GIB, int(free * GIB))})
    found = look(the(name), made, stack)
    assert found.status == status
    assert found.fix.startswith("./noxw -s clean") == (status == "fail")


def test_what_is_made_already_needs_little_room_but_a_word() -> None:
    made = machine(spaces={"/": Space("/", 100 * GIB, GIB)})
    made.files[f"{ROOT}/dist/cpu/manifest.json"] = "{}"
    assert look(the("disk-build"), made).status == "warn"
    made.spaces["/"] = Space("/", 100 * GIB, GIB // 8)
    assert look(the("disk-build"), made).status == "fail"


def test_a_small_file_system_at_tmpdir_is_seen_apart_from_the_large_one() -> None:
    small = {"/": Space("/", 100 * GIB, 60 * GIB), "/tmp": Space("/tmp", GIB, GIB // 8)}
    found = look(the("disk-run"), machine(spaces=small))
    assert (found.status, found.found) == ("fail", "60.0 GiB at /; 0.1 GiB at /tmp")


def test_a_file_system_without_inodes_or_read_only_or_gone_is_full() -> None:
    few = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB, files_free=100)})
    assert look(the("disk-build"), few).found == "60.0 GiB at /, but only 100 files"
    closed = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB, read_only=True)})
    assert look(the("disk-build"), closed).fix == "sudo mount -o remount,rw /"
    assert look(the("disk-build"), machine(spaces={})).status == "fail"


def test_a_home_that_may_not_be_written_needs_another_place_for_uvs_cache() -> None:
    made = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB), "/home": Space("/home", 100 * GIB, 60 * GIB)})
    assert look(the("disk-install"), made).status == "ok"
    made.read_only.add("/home")
    found = look(the("disk-install"), made)
    assert (found.status, found.found) == ("fail", "/home/me/.cache/uv may not be written")
    assert found.fix == "export UV_CACHE_DIR=/var/tmp/uv-cache"


LONG = "/scratch/" + "x" * 40


@pytest.mark.parametrize(
    ("tmpdir", "status"),
    [
        ("/tmp", "ok"),
        ("/short", "ok"),
        (LONG, "warn"),
        ("/with space", "warn"),
        ("/gone", "fail"),
        ("relative", "fail"),
        ("/closed", "fail"),
    ],
)
def test_sockets_fit_into_tmpdir(tmpdir: str, status: str) -> None:
    made = machine(environ={"TMPDIR": tmpdir}, folders={"/tmp", "/short", "/closed", "/with space", LONG, "relative"})
    made.read_only.add("/closed")
    assert look(the("tmpdir"), made).status == status


def test_a_long_tmpdir_and_no_other_place_fails() -> None:
    made = machine(environ={"TMPDIR": LONG}, folders={LONG})
    assert look(the("tmpdir"), made).status == "fail"


def test_the_longest_tmpdir_is_the_one_that_a_run_accepts() -> None:
    longest = scratch._longest_parent()
    assert longest == host_paths.LONGEST_TMPDIR


def test_a_tmpdir_mounted_noexec_stops_builds_only() -> None:
    noexec = {"/": Space("/", 100 * GIB, 60 * GIB), "/tmp": Space("/tmp", GIB, GIB, noexec=True)}
    assert look(the("tmpdir"), machine(spaces=noexec), CUDA, purpose="build").status == "fail"
    assert look(the("tmpdir"), machine(spaces=noexec), CUDA, purpose="run").status == "ok"
    assert look(the("tmpdir"), machine(spaces=noexec), CPU).status == "ok"


@pytest.mark.parametrize(
    ("root", "stack", "status"),
    [
        ("/home/me/smoke stack", CPU, "ok"),
        ("/home/me/smoke stack", CUDA, "fail"),
        ("/home/me/smoke=stack", CPU, "ok"),
        ("/home/me/smoke=stack", CUDA, "fail"),
        ("/home/" + "x" * 200, CPU, "warn"),
    ],
)
def test_compilers_can_be_told_the_checkouts_path(root: str, stack: StackFacts, status: str) -> None:
    made = machine()
    made.folders.add(root)
    found = look(the("checkout"), made, stack, root=root)
    assert found.status == status
    if status != "ok":
        assert found.fix.startswith("cp -a ")


def test_a_checkout_that_cannot_be_written_or_run_from_fails() -> None:
    made = machine()
    made.read_only.add(ROOT)
    assert look(the("checkout"), made).fix == f'sudo chown -R "$(id -u)" {ROOT}'
    noexec = machine(spaces={"/": Space("/", 100 * GIB, 60 * GIB, noexec=True)})
    assert look(the("checkout"), noexec).status == "fail"
