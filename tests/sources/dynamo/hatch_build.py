"""Writes the component's version file while the wheel is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class VersionFile(BuildHookInterface):
    """`dynamo/frontend/_version.py`, which git does not hold."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        target = Path("components", "src", "dynamo", "frontend", "_version.py")
        (Path(self.root) / target).write_text(f'__version__ = "{self.metadata.version}"\n', encoding="utf-8")
        build_data["artifacts"].append(str(target))
