"""A project folder with the stack `fixture`, and the build plane's command line run in it as a person would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.layout import PROJECT_ROOT, Layout
from tests.sources.repositories import HERE, Repository

STACK = "fixture"
PYTHON = f"3.{sys.version_info.minor}"
LIMIT_S = 300.0
"""For one command, which builds everything in a few seconds."""

ROOM = ("host.disk-build", "host.disk-install")
NOT_NEEDED = ("build.compilers", "build.cmake", "build.protoc", "build.libclang", "build.libraries", *ROOM)
"""What vLLM and Dynamo ask of a machine, and the small sources do not: an old C compiler and 300 MB are enough."""

_IGNORED = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True)
class Answer:
    """What a command said: its exit status, the `--json` document, and what a person saw on stderr."""

    status: int
    document: dict[str, Any]
    progress: str

    @property
    def error(self) -> dict[str, str]:
        assert not self.document["ok"], self.document
        error: dict[str, str] = self.document["error"]
        return {name: value or "" for name, value in error.items()}

    @property
    def said(self) -> str:
        """The whole error as one text."""
        return "\n".join(self.error.values())


@dataclass(frozen=True)
class Project:
    """One project folder."""

    root: Path
    sources: Mapping[str, Repository]
    ignored: tuple[str, ...] = NOT_NEEDED

    @property
    def layout(self) -> Layout:
        return Layout(self.root, STACK)

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads(self.layout.manifest.read_text())

    def command(self, verb: str, *options: str) -> list[str]:
        asked = [sys.executable, "-m", "scripts", verb, "--stack", STACK, "--json", *options]
        if verb in {"build", "install", "repro"}:
            asked += [argument for check in self.ignored for argument in ("--ignore-check", check)]
        return asked

    def run(self, verb: str, *options: str, status: int = 0, **variables: str) -> Answer:
        """Run one verb to its end; it must end with `status`."""
        finished = subprocess.run(
            self.command(verb, *options),
            cwd=self.root,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert finished.returncode == status, f"{verb}: {finished.returncode}\n{finished.stdout}{finished.stderr}"
        return Answer(finished.returncode, json.loads(finished.stdout), finished.stderr)

    def another(self, root: Path) -> Project:
        """One of the same code and sources elsewhere, in which nothing has been done yet."""
        return make(root, self.sources, self.root / "scripts")

    def edit_stack(self, old: str, new: str) -> None:
        """Change the stack file."""
        text = self.layout.stack_file.read_text()
        assert old in text
        self.layout.stack_file.write_text(text.replace(old, new))


def make(root: Path, sources: Mapping[str, Repository], plane: Path = PROJECT_ROOT / "scripts") -> Project:
    """Lay a project out below `root`: the real build plane, a payload, and the stack of these repositories.

    The code has a part in what is written. `Project.another` is to be compared with: somebody may be editing ours.
    """
    stack = root / "stacks" / STACK
    shutil.copytree(HERE / "stack", stack)
    template = (stack / "stack.toml").read_text()
    filled = {"python": PYTHON, "rust": rust_release()}
    for name, repository in sources.items():
        filled |= {f"{name}.repository": repository.address, f"{name}.revision": repository.revision}
    for name, value in filled.items():
        template = template.replace(f"<{name}>", value)
    assert not re.search(r'"<.*>"', template), template
    (stack / "stack.toml").write_text(template)
    shutil.copytree(plane, root / "scripts", ignore=_IGNORED)
    shutil.copytree(HERE / "payload", root / "harness" / "payload")
    return Project(root, sources)


def rust_release() -> str:
    """The release of the machine's own Rust, which the fixture asks for."""
    said = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True, cwd="/").stdout
    return said.split()[1]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
