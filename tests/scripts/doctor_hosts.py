"""A machine on which every check of the doctor's group host is content."""

from __future__ import annotations

from doctor_fakes import GIB, FakeMachine

from scripts.doctor import (
    host_disk,
    host_git,
    host_memory,
    host_paths,
    host_platform,
    host_python,
    host_system,
)
from scripts.doctor.machine import Space
from scripts.doctor.registry import Check

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
