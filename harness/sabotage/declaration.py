"""What a sabotage declares of itself. Imports nothing of the harness, so that anything may read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Where = Literal["trainer", "harness"]

OVER_A_GROUP = ("native", "collective-rpc")
BY_FILES = ("filesystem",)


@dataclass(frozen=True)
class Sabotage:
    """One fault. `fails` are the checks that it must turn red, and no other; `words` must be in what those say.

    Where several fail, or one and the run itself, each has words of its own, by its id or by the kind of failure.
    `where` is who does it: the trainer, from its configuration, or the harness, in `acts`. `ends_in` is the kind of
    failure in which the run has to end, None where it goes on to its end. It needs a run of so many `engines`; `refits`
    are the kinds of refit in which there is such a fault. `as_command`: a command is in the place of our trainer, and
    some checks are judged otherwise.
    """

    name: str
    does: str
    where: Where
    fails: tuple[str, ...]
    words: tuple[str, ...] | Mapping[str, tuple[str, ...]]
    ends_in: str | None = None
    engines: int = 1
    refits: tuple[str, ...] = (*OVER_A_GROUP, *BY_FILES)
    as_command: bool = False

    @property
    def reasons(self) -> Mapping[str, tuple[str, ...]]:
        """The words of each check that fails, and of the run's end. Raises ValueError for words that are nobody's."""
        who = (*self.fails, *([] if self.ends_in is None else [self.ends_in]))
        words = {who[0]: self.words} if isinstance(self.words, tuple) else self.words
        if set(words) != set(who):
            raise ValueError(f"{self.name}: words of {', '.join(words)}, while what fails is {', '.join(who)}")
        return words
