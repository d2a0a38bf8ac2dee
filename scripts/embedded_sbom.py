"""The CycloneDX documents that build tools put into wheels, made the same on every build. Pure: text in, text out.

cargo-cyclonedx, which maturin runs, writes the hour and a random number into each, and the build folder into the
references. What stays is what the document says of the wheel.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from scripts.build_paths import BuildPaths
from scripts.errors import BuildError

Json = Any

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:smokestack:embedded-sbom")
_NO_NUMBER = str(uuid.UUID(int=0))
# Lists whose order says nothing in CycloneDX. Cargo sorts by identifiers that have the folder in them.
_UNORDERED = frozenset(
    {"components", "services", "dependencies", "dependsOn", "provides", "externalReferences", "hashes"}
)


def normalised(text: str, *, epoch: int, paths: BuildPaths) -> str | None:
    """The document dated `epoch` (seconds), numbered by its content, in one order, without build paths.

    None for JSON that is no CycloneDX document. Raises `BuildError` for text that is no JSON, and for references that
    only a build path told apart.
    """
    document = _parsed(text)
    if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
        return None
    number = _number(document)
    plain = _mapped(document, lambda string: paths.stripped(_renumbered(string, number, _NO_NUMBER)))
    if len(_references(plain)) != len(_references(document)):
        raise BuildError(
            "an embedded SBOM has references that only a build path tells apart",
            expected=f"{len(_references(document))} different ones without the paths {', '.join(paths.prefixes)}",
            found=str(len(_references(plain))),
        )
    _redate(plain, datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    ordered = _ordered(plain)
    if number is not None:
        content = str(uuid.uuid5(_NAMESPACE, _canonical(ordered)))
        ordered = _mapped(ordered, lambda string: _renumbered(string, _NO_NUMBER, content))
    return json.dumps(ordered, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _parsed(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise BuildError("an embedded SBOM is not JSON", found=str(error)) from error


def _refuse(constant: str) -> Json:
    raise ValueError(f"{constant} is no JSON number")


def _number(document: dict[str, Json]) -> str | None:
    serial = document.get("serialNumber")
    return serial.removeprefix("urn:uuid:") if isinstance(serial, str) else None


def _renumbered(string: str, old: str | None, new: str) -> str:
    """The document's own number, in `serialNumber` and in links to the document's parts."""
    if old and string.startswith(("urn:uuid:", "urn:cdx:")):
        return string.replace(old, new)
    return string


def _redate(document: dict[str, Json], moment: str) -> None:
    """The dates that say when the document was made; those of what it describes (commits, advisories) stay."""
    for dated in (document.get("metadata"), *_list(document.get("annotations"))):
        if isinstance(dated, dict) and "timestamp" in dated:
            dated["timestamp"] = moment


def _references(value: Json) -> set[str]:
    """Every `bom-ref` in the document."""
    if isinstance(value, dict):
        own = {value["bom-ref"]} if isinstance(value.get("bom-ref"), str) else set()
        return own.union(*map(_references, value.values()))
    return set().union(*map(_references, _list(value)))


def _mapped(value: Json, change: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list) else value


def _ordered(value: Json, name: str = "") -> Json:
    if isinstance(value, dict):
        return {key: _ordered(item, key) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items = [_ordered(item) for item in value]
    return sorted(items, key=_canonical) if name in _UNORDERED else items


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
