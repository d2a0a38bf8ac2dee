"""Group host: the operating system and the processor."""

from __future__ import annotations

import re

from scripts.doctor import versions
from scripts.doctor.registry import PURPOSES, Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

OLDEST_KERNEL = (5, 3)
"""The first one with pidfd_open, by which children are waited for."""

OLDEST_GLIBC = (2, 28)
OLDEST_GLIBCXX = (3, 4, 24)
"""Both as in the platform tag manylinux_2_28, which the locked wheels carry."""

OPEN_FILES = 4096
EARLIEST_S = 1_704_067_200.0
LATEST_S = 4_102_444_800.0
"""2024 and 2100: a clock outside of them was never set."""

AHEAD_S = 120.0
"""How far a file may lie in the future: the clock of a file server is never quite this machine's."""

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


def cpu_flags(subject: Subject) -> frozenset[str]:
    """The first processor's flags; empty where the system does not tell."""
    text = subject.machine.read_text("/proc/cpuinfo") or ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def _cpu_flags(subject: Subject) -> Finding:
    device = str(subject.stack.recipes.get("vllm", {}).get("device", "cpu"))
    if subject.stack.cuda or device != "cpu":
        return skip(f"the engine of {subject.stack.name} computes on a GPU")
    required = "avx2; avx512f makes the engine faster"
    flags = cpu_flags(subject)
    if not flags:
        return warn("/proc/cpuinfo names no flags", required, "lscpu")
    if "avx2" not in flags:
        return fail(
            "no avx2", required, "lscpu | grep -o 'avx[^ ]*'   # another machine, or another CPU model of the VM"
        )
    return ok("avx2, avx512f" if "avx512f" in flags else "avx2, without avx512f", required)


def _clock(subject: Subject) -> Finding:
    required = "a clock that is set, and no file from the future"
    machine = subject.machine
    now = machine.now()
    if not EARLIEST_S < now < LATEST_S:
        return fail(f"{now:.0f} s since 1970", required, "sudo timedatectl set-ntp true")
    looked = (subject.root, subject.root / "stacks", subject.root / ".git", subject.environ.get("TMPDIR") or "/tmp")
    ahead = {str(path): (machine.modified(path) or 0.0) - now for path in looked}
    worst = max(ahead, key=lambda path: ahead[path])
    if ahead[worst] > AHEAD_S:
        found = f"{worst} was changed {ahead[worst]:.0f} s in the future"
        return warn(found, required, "sudo timedatectl set-ntp true   # and the same on the file server")
    return ok("set, files are not ahead of it", required)


def _locale(subject: Subject) -> Finding:
    required = "a UTF-8 locale; builds set their own"
    encoding = subject.machine.locale_encoding()
    if encoding.replace("-", "") == "utf8":
        return ok(encoding, required)
    if encoding == "ascii":
        return ok("C, for which Python takes UTF-8", required)
    return warn(f"{encoding}: other characters than ASCII are lost in output", required, "export LC_ALL=C.UTF-8")


def _open_files(subject: Subject) -> Finding:
    required = f"a hard limit of {OPEN_FILES} open files or more"
    soft, hard = subject.machine.open_files_limit()
    if 0 <= hard < OPEN_FILES:
        found = f"{soft}, which may be raised to {hard}"
        return warn(
            found, required, "ulimit -n 65536   # as root first: /etc/security/limits.conf, or LimitNOFILE=65536"
        )
    return ok(f"{_limit(soft)}, which may be raised to {_limit(hard)}", required)


def _limit(value: int) -> str:
    return "no limit" if value < 0 else str(value)


CHECKS = (
    Check(
        id="host.linux",
        title="Linux",
        group="host",
        why="processes are watched and ended through pidfds, and every wheel is built for Linux",
        symptom="AttributeError on pidfd_open or prctl, or no wheel that fits this platform",
        cause="another system, or a kernel older than 5.3",
        looks_at="uname, /proc/sys/kernel/osrelease",
        fix='docker run --rm -it -v "$PWD":/smokestack -w /smokestack python:3.11-bookworm',
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
        fix='docker run --rm -it --platform linux/amd64 -v "$PWD":/smokestack -w /smokestack python:3.11-bookworm',
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
        fix='docker run --rm -it -v "$PWD":/smokestack -w /smokestack python:3.11-bookworm   # or a newer host',
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
    Check(
        id="host.cpu-flags",
        title="processor flags",
        group="host",
        why="the engine's CPU kernels are compiled for AVX2 and for AVX-512",
        symptom="illegal instruction (signal 4), or the build asks for an instruction set that is not there",
        cause="the processor, or the model of it that a virtual machine shows, has no AVX2",
        looks_at="/proc/cpuinfo",
        fix="lscpu | grep -o 'avx[^ ]*'   # another machine, or another CPU model of the VM",
        reference="https://github.com/vllm-project/vllm/issues/5317",
        needed_for=("build", "run"),
        look=_cpu_flags,
        rows=(10,),
    ),
    Check(
        id="host.clock",
        title="clock",
        group="host",
        why="TLS, make, cargo and ninja all believe the clock",
        symptom="certificate is not yet valid, or everything is compiled again in each build",
        cause="the clock was never set, or the file server's is ahead of it",
        looks_at="the time, and when the project's folders and TMPDIR were last changed",
        fix="sudo timedatectl set-ntp true",
        reference="https://ninja-build.org/manual.html",
        needed_for=PURPOSES,
        look=_clock,
    ),
    Check(
        id="host.locale",
        title="locale",
        group="host",
        why="names and logs hold more than ASCII",
        symptom="UnicodeEncodeError, or question marks in logs",
        cause="LC_ALL, LC_CTYPE or LANG names a locale with another character set",
        looks_at="LC_ALL, LC_CTYPE, LANG",
        fix="export LC_ALL=C.UTF-8",
        reference="https://peps.python.org/pep-0538/",
        needed_for=("build", "run"),
        look=_locale,
    ),
    Check(
        id="host.open-files",
        title="open files",
        group="host",
        why="an engine holds many sockets and files, and a link step opens thousands of objects",
        symptom="OSError: [Errno 24] Too many open files",
        cause="the hard limit of open files is low, so that no program can raise its own",
        looks_at="getrlimit(RLIMIT_NOFILE)",
        fix="ulimit -n 65536   # as root first: /etc/security/limits.conf, or LimitNOFILE=65536",
        reference="https://man7.org/linux/man-pages/man2/getrlimit.2.html",
        needed_for=("build", "run"),
        look=_open_files,
    ),
)
