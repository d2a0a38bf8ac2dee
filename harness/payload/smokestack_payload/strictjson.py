"""JSON as the standard has it, and no deeper than any answer of the stack: what could be read in two ways is refused.

Imports nothing of the project. `harness/strictjson.py` is the same for the other plane, which this one may not import;
tests/harness/test_strictjson.py holds both to the same cases.
"""

from __future__ import annotations

import json
from typing import NoReturn

MAX_DEPTH = 64


def decode(body: bytes) -> object:
    """The document. Raises ValueError for anything that is not UTF-8, not JSON, too deep, or names a key twice."""
    text = body.decode("utf-8")
    _require_shallow(text)
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)


def _require_shallow(text: str) -> None:
    """Brackets inside strings do not count. Looked at first: the parser itself goes as deep as it is led."""
    depth, inside, escaped = 0, False, False
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH}")
        elif character in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"names {next(name for name in names if names.count(name) > 1)[:80]!r} twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
