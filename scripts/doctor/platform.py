"""Which platform `smoke` runs on here: two GPUs that a program of this shell would see, or none.

A driver that does not answer counts as GPUs: the run on them then ends with what the doctor finds, and is not quietly
another one. Needs nothing but the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scripts.doctor.facts import StackFacts
from scripts.doctor.gpu_devices import NEEDED, OF_THE_DRIVER
from scripts.doctor.gpu_smi import see, visible
from scripts.doctor.machine import Machine
from scripts.doctor.real_machine import RealMachine
from scripts.doctor.subject import Subject


@dataclass(frozen=True)
class Choice:
    """The platform, and why."""

    platform: Literal["cpu", "cuda"]
    why: str


def choose(root: Path, machine: Machine | None = None) -> Choice:
    """Ask nvidia-smi, as every check of the group GPU does."""
    subject = Subject(root, StackFacts("cuda", platform="cuda"), machine or RealMachine())
    try:
        return _choice(subject)
    finally:
        subject.machine.close()


def _choice(subject: Subject) -> Choice:
    sight = see(subject)
    if sight.kind == "seen":
        count = len(visible(subject, sight.gpus).gpus)
        what = f"{count} of {len(sight.gpus)} GPUs visible, {NEEDED} needed"
        return Choice("cuda" if count >= NEEDED else "cpu", what)
    loaded = len(subject.machine.entries(OF_THE_DRIVER) or ())
    if loaded >= NEEDED:
        return Choice("cuda", f"the driver has {loaded} GPUs, but {sight.problem}")
    return Choice("cpu", sight.problem)
