"""Group host: the platform that the wheels are built for: kernel, architecture, C and C++ libraries."""

from __future__ import annotations

import re

from scripts.doctor import versions
from scripts.doctor.registry import PURPOSES, Check, Finding, fail, ok, warn
from scripts.doctor.subject import Subject

OLDEST_KERNEL = (5, 3)
"""The first one with pidfd_open, by which children are waited for."""

OLDEST_GLIBC = (2, 28)
OLDEST_GLIBCXX = (3, 4, 24)
"""Both as in the platform tag manylinux_2_28, which the locked wheels carry."""

_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib")
_CONTAINER = 'docker run --rm -it --platform linux/amd64 -v "$PWD":/smokestack -w /smokestack python:3.11-bookworm'
_DOCTOR_THERE = f"{_CONTAINER} python3 -m scripts.doctor"


def _linux(subject: Subject) -> Finding:
    required = f"Linux {versions.dotted(OLDEST_KERNEL)} or newer"
    system = subject.machine.system()
    if system != "Linux":
        return fail(system, required, _DOCTOR_THERE)
    release = (subject.machine.read_text("/proc/sys/kernel/osrelease") or "").strip()
    version = versions.parse(release)
    if version is None:
        return warn(f"Linux of an unknown release {release!r}", required, "uname -r")
    if version < OLDEST_KERNEL:
        return fail(f"Linux {release}", required, "sudo apt-get install -y linux-image-amd64   # then restart")
    return ok(f"Linux {release}", required)


def _architecture(subject: Subject) -> Finding:
    found = subject.machine.architecture()
    required = "x86_64: the locks hold the hashes of its wheels"
    if found in {"x86_64", "amd64"}:
        return ok(found, required)
    return fail(found, required, f"{_DOCTOR_THERE}   # slow where it is emulated: an x86-64 machine is better")


def _glibc(subject: Subject) -> Finding:
    required = f"glibc {versions.dotted(OLDEST_GLIBC)} or newer (manylinux_2_28)"
    library = subject.machine.libc()
    version = versions.parse(library)
    if library.startswith("glibc") and version is not None and version >= OLDEST_GLIBC:
        return ok(library, required)
    found = library or "another C library than glibc, such as musl"
    return fail(found, required, f"{_DOCTOR_THERE}   # or a host such as Debian 10, Ubuntu 20.04, RHEL 8 or newer")


def _libstdcxx(subject: Subject) -> Finding:
    required = f"libstdc++.so.6 with GLIBCXX_{versions.dotted(OLDEST_GLIBCXX)}"
    path = next((f"{folder}/libstdc++.so.6" for folder in _LIBRARIES if _has_libstdcxx(subject, folder)), None)
    if path is None:
        return fail("no libstdc++.so.6 in the system's folders", required, "sudo apt-get install -y libstdc++6")
    named = re.findall(r"GLIBCXX_(\d+\.\d+\.\d+)", subject.machine.read_text(path) or "")
    newest = max((tuple(map(int, each.split("."))) for each in named), default=None)
    if newest is None:
        return warn(f"{path} names no version", required, f"grep -ao 'GLIBCXX_[0-9.]*' {path} | sort -Vu | tail -1")
    if newest < OLDEST_GLIBCXX:
        return fail(f"GLIBCXX_{versions.dotted(newest)}", required, f"{_DOCTOR_THERE}   # or a newer host")
    return ok(f"GLIBCXX_{versions.dotted(newest)}", required)


def _has_libstdcxx(subject: Subject, folder: str) -> bool:
    return subject.machine.exists(f"{folder}/libstdc++.so.6")


CHECKS = (
    Check(
        id="host.linux",
        title="Linux",
        group="host",
        why="processes are watched and ended through pidfds, and every wheel is built for Linux",
        symptom="AttributeError on pidfd_open or prctl, or no wheel that fits this platform",
        cause="another system, or a kernel older than 5.3",
        looks_at="uname, /proc/sys/kernel/osrelease",
        fix=_CONTAINER,
        reference="https://man7.org/linux/man-pages/man2/pidfd_open.2.html",
        needed_for=PURPOSES,
        look=_linux,
    ),
    Check(
        id="host.architecture",
        title="architecture",
        group="host",
        why="the locks hold hashes of x86-64 wheels, and none of others",
        symptom="no matching distribution, or exec format error",
        cause="the stack's binaries are pinned for x86-64 only",
        looks_at="uname",
        fix=_CONTAINER,
        reference="https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",
        needed_for=PURPOSES,
        look=_architecture,
    ),
    Check(
        id="host.glibc",
        title="C library",
        group="host",
        why="a wheel for manylinux_2_28 does not load on an older C library",
        symptom="version `GLIBC_2.28' not found, when a library is loaded",
        cause="the wheel was built for a newer C library than the host has",
        looks_at="confstr(CS_GNU_LIBC_VERSION), as Python runs on it",
        fix=f"{_CONTAINER}   # or a newer host",
        reference="https://github.com/ai-dynamo/dynamo/issues/287",
        needed_for=PURPOSES,
        look=_glibc,
        rows=(16,),
    ),
    Check(
        id="host.libstdcxx",
        title="C++ library",
        group="host",
        why="the engine's and Dynamo's libraries use the system's libstdc++",
        symptom="version `GLIBCXX_3.4.24' not found, or libstdc++.so.6: cannot open shared object file",
        cause="the wheel was built with a newer compiler than the host's, or a slim image has no C++ library",
        looks_at="libstdc++.so.6 in the system's library folders, and the versions that it names",
        fix="sudo apt-get install -y libstdc++6",
        reference="https://github.com/ai-dynamo/dynamo/issues/773",
        needed_for=("install", "run"),
        look=_libstdcxx,
        rows=(16,),
    ),
)
