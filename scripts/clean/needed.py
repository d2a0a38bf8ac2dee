"""What of the caches is still needed: by a stack file's pins, and by what lies in `dist/` now."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts import manifest as manifests
from scripts import pins
from scripts.errors import PinError
from scripts.layout import Layout
from scripts.stackfile import Stack

_SHORT = 12
"""Digits of a digest in the names of folders; see `models` and the run plane's caches."""


@dataclass
class Needed:
    """Names in the caches, each with who needs it. `stacks` are all that there are."""

    stacks: list[str] = field(default_factory=list)
    wheels: dict[str, str] = field(default_factory=dict)
    git: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    built: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    unreadable: str | None = None
    """A stack file that cannot be read: what it pins is not known, so nothing that a pin may name is deleted."""


def read_needed(root: Path) -> Needed:
    """Read every stack file, and the state of every stack's last build."""
    needed = Needed()
    for path in sorted((root / "stacks").glob("*/stack.toml")):
        layout = Layout(root, path.parent.name)
        needed.stacks.append(layout.stack)
        _add_built(needed, layout)
        try:
            _add_pins(needed, pins.load(path))
        except PinError as error:
            needed.unreadable = f"{layout.relative(path)} cannot be read: {error.what}"
    return needed


def _add_pins(needed: Needed, stack: Stack) -> None:
    who = f"pinned by stacks/{stack.name}"
    if stack.engine is not None:
        needed.wheels |= {stack.engine.base.sha256: who, stack.engine.donor.sha256: who}
    for name, model in stack.models.items():
        needed.wheels[model.sha256] = who
        needed.models[f"{name}-{model.member_sha256[:_SHORT]}"] = who
    for name, source in stack.sources.items():
        needed.git[f"{name}-{source.revision}"] = who
        needed.git |= {f"{name}.{nested}-{pin.revision}": who for nested, pin in source.nested.items()}


def _add_built(needed: Needed, layout: Layout) -> None:
    manifest = manifests.load(layout.manifest)
    if manifest is not None:
        needed.engines[f"stack-{layout.stack}-{manifest.inputs[:_SHORT]}"] = f"of the present dist/{layout.stack}"
    for key in _keys(layout.build_state):
        needed.built[key] = f"in dist/{layout.stack}"


def _keys(state: Path) -> list[str]:
    try:
        document: Any = json.loads(state.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError):
        return []
    products = document.get("products") if isinstance(document, dict) else None
    return list(products) if isinstance(products, dict) else []
