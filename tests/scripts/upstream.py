"""Small real git repositories for a test to fetch from: fixed names and dates, nobody's settings, `file://` only."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

EPOCH = 1_700_000_000
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", "Test"), ("EMAIL", "test@example.invalid"), ("DATE", f"{EPOCH} +0000"))
    },
}


def git(folder: Path, *arguments: str) -> str:
    """Run git in `folder`, as nobody in particular; its output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    finished = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env=variables | _ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, f"git {arguments}: {finished.stderr}"
    return finished.stdout.rstrip("\n")


@dataclass(frozen=True)
class Upstream:
    """A repository with a working tree, where commits are made."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, files: dict[str, str]) -> Upstream:
        folder.mkdir(parents=True)
        git(folder, "init", "--quiet", "--initial-branch=main")
        made = cls(folder)
        made.commit(files)
        return made

    @property
    def address(self) -> str:
        return self.folder.as_uri()

    @property
    def head(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    def commit(self, files: dict[str, str], *arguments: str) -> str:
        """Write files and commit everything that is there; the new revision."""
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(text.encode())
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--allow-empty", "--message", "A change", *arguments)
        return self.head

    def tag(self, name: str, revision: str = "HEAD") -> None:
        git(self.folder, "tag", name, revision)

    def submodule(self, address: str, path: str) -> str:
        """Add a submodule and commit it."""
        git(self.folder, "submodule", "--quiet", "add", address, path)
        return self.commit({})

    def clone(self, target: Path, *options: str) -> Path:
        """What a person would have after `git clone --recurse-submodules`."""
        git(self.folder, "clone", "--quiet", "--recurse-submodules", *options, self.address, str(target))
        return target


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below `folder` that a write would change: names, modes, sizes, times, links."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        what = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        found[str(path.relative_to(folder))] = what
    return found
