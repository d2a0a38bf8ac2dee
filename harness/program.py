"""The caller's own trainer as a command line: split as a shell would, never run by one, its program looked up at once.

Nothing is expanded: what a program needs to know comes to it in variables (see `services.command`).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.errors import UsageError

OPTION = "--trainer"
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"})


class Program(BaseModel):
    """What `--trainer` named. `argv[0]` is as the caller wrote it; `cwd` is where the caller was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: tuple[str, ...]
    cwd: Path

    @classmethod
    def parse(cls, text: str, cwd: Path) -> Program:
        """Raises UsageError for a text that is no command line of one program."""
        try:
            argv = tuple(shlex.split(text))
        except ValueError as error:
            raise _refused(f"{OPTION}: the command line cannot be split", str(error), text) from error
        if not argv:
            raise _refused(f"{OPTION}: no program", "an empty command line", text)
        shell = [word for word in argv if word in _SHELL_WORDS]
        if shell:
            raise _refused(f"{OPTION}: no shell runs it", f"the word {shell[0]!r}", text)
        return cls(argv=argv, cwd=cwd)

    def concealed(self, conceal: Callable[[str], str]) -> Program:
        """What may be written down of it."""
        return self.model_copy(update={"argv": tuple(conceal(word) for word in self.argv)})

    @property
    def text(self) -> str:
        return shlex.join(self.argv)

    def path(self, search: str) -> Path | None:
        """The program's file: by its path from `cwd`, or found in `search`, a PATH. None when there is none."""
        name = Path(self.argv[0]).expanduser()
        if name.is_absolute() or os.sep in self.argv[0]:
            file = self.cwd / name
            return file if file.is_file() and os.access(file, os.X_OK) else None
        found = shutil.which(self.argv[0], path=search)
        return None if found is None else Path(found).absolute()

    def require(self, search: str, *, made_later: Path) -> None:
        """Raise UsageError when there is no such program. What lies in `made_later` may only come with the install."""
        if self.path(search) is None and not (self.cwd / self.argv[0]).is_relative_to(made_later):
            raise self.missing()

    def resolved(self, search: str) -> tuple[str, ...]:
        """The command line with the program's file in it. Raises UsageError when there is none."""
        file = self.path(search)
        if file is None:
            raise self.missing()
        return (str(file), *self.argv[1:])

    def missing(self) -> UsageError:
        return UsageError(
            f"{OPTION}: there is no program {self.argv[0]}",
            expected=f"an executable file, in PATH or by its path from {self.cwd}",
            found="no such file, or one that may not be executed",
            hint=f"{OPTION} 'python train.py --steps 4', with the path of the program that you run by hand",
        )


def _refused(what: str, found: str, text: str) -> UsageError:
    return UsageError(
        what,
        expected="a program and its arguments, quoted as for a shell",
        found=f"{found} in {text!r}",
        hint="for pipes and variables write a script, and name it here",
    )
