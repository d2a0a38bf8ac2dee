"""`stacks/<name>/verify.toml`: what the outside checkers may complain about, each with the written reason.

An allowance is for one check of one artifact, and for files or libraries by name. One that nothing needs any more is
itself a finding.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from scripts.errors import PinError

FILE_NAME = "verify.toml"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Allowance(_Strict):
    """`check` is the program and what it complains of, `of` patterns (fnmatch) of what the complaint names first."""

    check: Annotated[str, StringConstraints(pattern=r"^(check-wheel-contents|auditwheel)\.[A-Za-z0-9-]+$")]
    artifact: str
    of: Annotated[list[str], Field(min_length=1)]
    reason: Annotated[str, StringConstraints(min_length=20)]


class _Document(_Strict):
    allowed: list[Allowance]


def load(path: Path) -> list[Allowance]:
    """A stack's allowances; none without the file. Raises `PinError` for a file that is not one."""
    if not path.is_file():
        return []
    try:
        document = _Document.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise PinError(
            f"{path.name} cannot be used",
            expected="[[allowed]] with check, artifact, of, and a reason of at least 20 letters",
            found=str(error),
            where=str(path),
        ) from error
    return document.allowed
