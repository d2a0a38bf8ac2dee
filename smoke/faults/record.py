"""What the fault suite found, of which revision, on which machine: a run's numbers, never a hand's; see `page`."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from smoke.runner import ROOT

PAGE_PATH = "docs/reliability.md"
CPUINFO = Path("/proc/cpuinfo")


@dataclass
class Injection:
    """One fault. `seconds` from the provocation to the run's own word, once it was detected as it must be."""

    fault: str
    case: str
    seconds: float | None = None
    outcome: str = ""
    survivors: int = 0
    recovered: bool = False
    """Whether the run went on to its end, as it may with some faults: then there is nothing to detect."""

    @property
    def right(self) -> bool:
        return self.recovered or self.seconds is not None


@dataclass
class Record:
    """What one run of the suite has provoked so far."""

    injections: list[Injection] = field(default_factory=list)

    def begin(self, fault: str, case: str) -> Injection:
        self.injections.append(Injection(fault, case))
        return self.injections[-1]


@dataclass(frozen=True)
class Subject:
    """What was tested, and on what: neither tells whose machine it is."""

    revision: str
    machine: str

    @classmethod
    def here(cls) -> Subject:
        return cls(revision(ROOT), machine())


def revision(checkout: Path) -> str:
    """The commit in a checkout, and whether files differ from it; the page that is to be written does not count.

    Raises OSError without git, and CalledProcessError where git refuses.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()

    changes = git("status", "--porcelain", "--untracked-files=normal", "--", ".", f":(exclude){PAGE_PATH}")
    return git("rev-parse", "HEAD") + (", with changes" if changes else "")


def machine() -> str:
    """The machine without its name: cores, processor, memory, system."""
    memory = psutil.virtual_memory().total / 2**30
    gpu = "with a GPU" if list(Path("/dev").glob("nvidia[0-9]*")) else "no GPU"
    cores = f"{os.cpu_count()} cores ({processor(CPUINFO.read_text(encoding='utf-8'))})"
    return f"{cores}, {memory:.0f} GiB, {platform.system()} {platform.machine()}, {gpu}"


def processor(cpuinfo: str) -> str:
    """Its maker, family and widest vector instructions: a model's name would say more of a machine than of a number."""
    told = dict(re.findall(r"^([a-z_ ]+?)\s*: (.*)$", cpuinfo, re.MULTILINE))
    flags = set(told.get("flags", "").split())
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "no AVX2")
    return f"{told.get('vendor_id', 'unknown maker')} family {told.get('cpu family', 'unknown')}, {vectors}"
