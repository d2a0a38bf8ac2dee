"""Why two files of one name differ: in few words by what is found here, and by diffoscope where it is installed."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from scripts import commands
from scripts.build_paths import BuildPaths
from scripts.console import Console
from scripts.environ import child_environment
from scripts.layout import Layout
from scripts.repro.difference import first_difference

DIFFOSCOPE_LIMIT_S = 1800.0
_SHOWN = 8
_VALUE_CHARACTERS = 60


def explained(one: Path, other: Path, places: tuple[Path, Path]) -> list[str]:
    """The differences in a few lines. `places` are the folders of the two builds, as they would be found in a file."""
    missing = [path for path in (one, other) if not path.is_file()]
    if missing:
        return [f"the {missing[0].parent.name} build did not make it"]
    if zipfile.is_zipfile(one) and zipfile.is_zipfile(other):
        return _of_archives(one, other, places)
    if one.suffix == ".json":
        return _of_documents(one, other)
    with one.open("rb") as first, other.open("rb") as second:
        return _of_bytes(first, second, (one.stat().st_size, other.stat().st_size), places)


def by_diffoscope(layout: Layout, one: Path, other: Path, console: Console) -> str | None:
    """A line that names the file with diffoscope's text; None where it is not installed or has nothing to compare."""
    program = shutil.which("diffoscope")
    if program is None or not (one.is_file() and other.is_file()):
        return None
    text = layout.logs / f"repro-{layout.stack}-{one.name}.diffoscope.txt"
    log = layout.logs / f"repro-{layout.stack}-diffoscope.log"
    with console.step(f"diffoscope {one.name}"):
        finished = commands.run(
            [program, "--text", str(text), str(one), str(other)],
            cwd=layout.root,
            env=child_environment(os.environ, {}),
            log=log,
            limit_s=DIFFOSCOPE_LIMIT_S,
        )
    # 1 is its word for "they differ".
    if finished.expired or finished.returncode != 1:
        found = "still ran" if finished.expired else f"ended with {finished.returncode}"
        return f"diffoscope {found}: see {layout.relative(log)}"
    return f"diffoscope: see {layout.relative(text)}"


def _of_archives(one: Path, other: Path, places: tuple[Path, Path]) -> list[str]:
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        here, there = ({info.filename: info for info in archive.infolist()} for archive in (first, second))
        lines = [f"{name}: only in the first" for name in sorted(here.keys() - there.keys())]
        lines += [f"{name}: only in the second" for name in sorted(there.keys() - here.keys())]
        for name in sorted(here.keys() & there.keys()):
            sizes = (here[name].file_size, there[name].file_size)
            if (here[name].CRC, sizes[0]) != (there[name].CRC, sizes[1]):
                with first.open(name) as stream, second.open(name) as counterpart:
                    lines += [f"{name}: {line}" for line in _of_bytes(stream, counterpart, sizes, places)]
        return _few(lines) or [f"the same files with {_look(list(here.values()), list(there.values()))}"]


def _look(one: list[zipfile.ZipInfo], other: list[zipfile.ZipInfo]) -> str:
    """In what two archives with the same contents differ."""
    by_name = {info.filename: info for info in other}
    differs = {
        "another order": [info.filename for info in one] != [info.filename for info in other],
        "other dates": any(info.date_time != by_name[info.filename].date_time for info in one),
        "other modes": any(info.external_attr != by_name[info.filename].external_attr for info in one),
        "another compression": any(info.compress_size != by_name[info.filename].compress_size for info in one),
    }
    return ", ".join(what for what, found in differs.items() if found) or "other bytes between them"


def _of_documents(one: Path, other: Path) -> list[str]:
    texts = [path.read_bytes() for path in (one, other)]
    try:
        first, second = (json.loads(text) for text in texts)
    except ValueError:
        return ["one of them is not JSON"]
    return _few(list(islice(_unequal(first, second, ""), 4 * _SHOWN))) or ["the same values in another layout"]


def _unequal(one: Any, other: Any, at: str) -> Iterator[str]:
    """Where two JSON values part: a path and both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            yield from _unequal(one.get(name), other.get(name), f"{at}.{name}" if at else name)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from _unequal(first, second, f"{at}[{number}]")
    elif one != other:
        yield f"{at}: {_short(one)} against {_short(other)}"


def _of_bytes(one: IO[bytes], other: IO[bytes], sizes: tuple[int, int], places: tuple[Path, Path]) -> list[str]:
    found = first_difference(one, other)
    if found is None:
        return []
    lines = [found.described(time.time())]
    if sizes[0] != sizes[1]:
        lines.append(f"{sizes[0]} against {sizes[1]} bytes")
    held = [
        BuildPaths.of([str(place)]).found_in(_rewound(stream))
        for stream, place in zip((one, other), places, strict=True)
    ]
    if any(held):
        lines.append("it holds the folder that it was built in")
    return [", ".join(lines)]


def _rewound(stream: IO[bytes]) -> IO[bytes]:
    stream.seek(0, io.SEEK_SET)
    return stream


def _few(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"and {len(lines) - _SHOWN} more"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_CHARACTERS else text[: _VALUE_CHARACTERS - 1] + "…"
