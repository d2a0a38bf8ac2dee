"""Small real git repositories for a test to fetch from: fixed names and dates, nobody's settings, `file://` only."""

from __future__ import annotations

import io
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.console import Console
from scripts.layout import Layout
from scripts.stackfile import GitSource

EPOCH = 1_700_000_000
DEEP = Path("third_party", "middle", "below", "deep")
"""The file of the innermost submodule of `with_submodules`."""

FILES = {"run.sh": "#!/bin/sh\n", "src/main.c": "int main(void) { return 0; }\n", ".gitignore": "build/\n"}
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


def simple(folder: Path) -> Upstream:
    """Three commits, a tag on the first, and a branch with a tag that is nobody's ancestor."""
    made = Upstream.make(folder, FILES)
    made.tag("v1.2.0")
    made.commit({"src/main.c": "int main(void) { return 1; }\n"})
    git(made.folder, "checkout", "--quiet", "-b", "side")
    made.commit({"side": "x"})
    made.tag("v9.9.9")
    git(made.folder, "checkout", "--quiet", "main")
    made.commit({"src/main.c": "int main(void) { return 2; }\n"})
    return made


def with_submodules(folder: Path) -> Upstream:
    """A repository with a submodule that has one itself, of a relative address; both have gone on since."""
    inner = Upstream.make(folder / "inner", {"deep": "1\n"})
    middle = Upstream.make(folder / "middle", {"half": "1\n"})
    middle.submodule("../inner", "below")
    outer = Upstream.make(folder / "outer", {"top": "1\n", ".gitignore": "build/\n"})
    outer.submodule(middle.address, "third_party/middle")
    outer.tag("v2.0.0")
    git(outer.folder, "submodule", "update", "--quiet", "--init", "--recursive")
    inner.commit({"deep": "2\n"})
    middle.commit({"half": "2\n"})
    return outer


def pinned(repository: Upstream, revision: str | None = None, version: str | None = "1.2.0") -> GitSource:
    """What a stack file would say of it."""
    return GitSource(repository=repository.address, revision=revision or repository.head, version=version)


def isolate(monkeypatch: pytest.MonkeyPatch, configuration: Path) -> None:
    """A global configuration of the test's own, for it to write; nothing stands between git and the loopback."""
    configuration.touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def said(console: Console) -> str:
    """The progress that the fixture `console` was told."""
    assert isinstance(console.stream, io.StringIO)
    return console.stream.getvalue()


def in_the_cache(layout: Layout) -> list[str]:
    """The names in the cache of sources."""
    return sorted(path.name for path in (layout.cache / "git").iterdir())


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below `folder` that a write would change: names, modes, sizes, times, links."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        what = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        found[str(path.relative_to(folder))] = what
    return found
