"""What is examined: a machine, a stack on it, and what the caller has asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.doctor.asking import Answer
from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import ASK_LIMIT_S, Machine

_OFF = frozenset({"", "0", "false", "no", "off"})


def means_on(value: str) -> bool:
    """Whether a switch is on that is set to `value`, as pip, uv and cargo read theirs."""
    return value.lower() not in _OFF


@dataclass(frozen=True)
class Options:
    """What a build or a run was told that changes what it needs."""

    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports asked for by name: `--port NAME=N`."""
    jobs: int | None = None
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Checkouts given instead of being fetched: `--source NAME=PATH`."""
    recipes: tuple[str, ...] | None = None
    """Only these are built: `--only NAME`; all of the stack's where it is None."""
    model: Path | None = None
    """A model's folder, where the run was given one."""
    gpus: int | None = None
    """How many GPUs the run takes, the trainer's last; two where it is None."""
    trainer: Path | None = None
    """The trainer's environment, where it is not the engine's."""


@dataclass(frozen=True)
class Subject:
    """Everything that a check may look at."""

    root: Path
    stack: StackFacts
    machine: Machine
    purpose: str | None = None
    """build, install or run; None for all of them."""
    options: Options = field(default_factory=Options)

    @property
    def environ(self) -> Mapping[str, str]:
        return self.machine.environ

    @property
    def environment(self) -> Path:
        """The stack's own environment, whether it is there or not."""
        return self.root / f".venv-{self.stack.name}"

    @property
    def site_packages(self) -> Path:
        return self.environment / "lib" / f"python{self.stack.python}" / "site-packages"

    def ask(self, *argv: str, limit_s: float = ASK_LIMIT_S, env: Mapping[str, str] | None = None) -> Answer:
        """Ask a program on PATH, or by its path."""
        return self.machine.ask(argv, limit_s, env)

    def which(self, name: str) -> str | None:
        return self.machine.which(name)

    def asks_for(self, purpose: str) -> bool:
        """Whether `purpose` is what the machine is examined for."""
        return self.purpose in {None, purpose}

    def says(self, argv: Sequence[str], limit_s: float = ASK_LIMIT_S) -> str | None:
        """The output of a program that ended with 0, stripped; None otherwise."""
        answer = self.machine.ask(argv, limit_s)
        return answer.output.strip() if answer.good else None
