"""A person's own cargo configuration: what of it would change a build.

cargo reads `config.toml` in its home and `.cargo/config.toml` in every folder above the one it works in. Where things
are fetched from, and how they are shown, is a site's business. Flags, targets, profiles or patches are not: they would
be in the product, and in nobody's record. Standard library only, and importable by Python 3.9: the doctor refuses
beforehand what a build would.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

NAMES = ("config", "config.toml")

_HARMLESS = frozenset(
    {"alias", "cache", "cargo-new", "credential-alias", "future-incompat-report", "http", "install", "net"}
    | {"registries", "registry", "source", "term"}
)
# Settings of [build] that a recipe makes itself, by variables, which win.
_OVERRIDDEN = frozenset({"build.incremental", "build.jobs", "build.rustc-wrapper", "build.target-dir"})


def above(folder: Path) -> list[Path]:
    """The configuration folders that cargo looks into when it works below `folder`."""
    return [parent / ".cargo" for parent in (folder, *folder.parents)]


def foreign(folders: Iterable[Path]) -> list[str]:
    """Each setting that would change what is built, with its file; and files that are no TOML."""
    found = []
    for folder in dict.fromkeys(folders):
        for name in NAMES:
            path = folder / name
            if path.is_file():
                text = path.read_text(encoding="utf-8", errors="replace")
                found += [f"{setting} in {path}" for setting in foreign_settings(text)]
    return found


def foreign_settings(text: str) -> list[str]:
    """What of one configuration would change a build."""
    import tomllib  # not in an old Python, which only imports this

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return [f"no TOML ({error})"]
    names = []
    for key, value in table.items():
        if key == "build" and isinstance(value, dict):
            names += [f"build.{each}" for each in value if f"build.{each}" not in _OVERRIDDEN]
        elif key not in _HARMLESS:
            names.append(key)
    return names
