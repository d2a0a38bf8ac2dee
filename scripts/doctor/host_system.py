"""Group host: the processor, and how the system is set up: clock, locale, limits."""

from __future__ import annotations

from scripts.doctor.registry import PURPOSES, Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

OPEN_FILES = 4096
EARLIEST_S = 1_704_067_200.0
LATEST_S = 4_102_444_800.0
"""2024 and 2100: a clock outside of them was never set."""

AHEAD_S = 120.0
"""How far a file may lie in the future: the clock of a file server is never quite this machine's."""


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
