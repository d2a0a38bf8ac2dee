"""Local git repositories of the fixture sources, the same revisions on every machine.

Author, dates and modes are fixed, so that a revision depends on nothing but the files beside this module and the Rust
release that `rust-toolchain.toml` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
EPOCH = 1_750_000_000
"""When everything was committed, in seconds."""

SUBMODULE = "third_party/frames"
VERSIONS = {"vllm": "0.26.0", "dynamo": "1.3.0"}
_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Fixture"), ("EMAIL", "fixture@example.invalid"), ("DATE", f"{EPOCH} +0000"))
}
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass(frozen=True)
class Repository:
    """One repository: its folder and the revision that the stack pins."""

    folder: Path
    revision: str

    @property
    def address(self) -> str:
        return self.folder.as_uri()


def git(folder: Path, *arguments: str) -> str:
    """Run git there, with nobody's settings; its output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    finished = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**variables, **_IDENTITY, **_ALONE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, f"git {arguments} in {folder}: {finished.stderr}"
    return finished.stdout.strip()


def make(folder: Path, rust: str) -> dict[str, Repository]:
    """`frames`, `vllm` with it as a submodule, and `dynamo`, below `folder`; both ask for the release `rust`."""
    folder.mkdir(parents=True)
    made = {"frames": _repository(folder / "frames", {})}
    toolchain = {"rust-toolchain.toml": f'[toolchain]\nchannel = "{rust}"\n'}
    made["vllm"] = _repository(folder / "vllm", toolchain, submodule=made["frames"])
    made["dynamo"] = _repository(folder / "dynamo", toolchain)
    for name, version in VERSIONS.items():
        git(made[name].folder, "tag", f"v{version}")
    return made


def clone(repository: Repository, target: Path, *options: str) -> Path:
    """A clone with its submodules, as a person would have it."""
    command = ("-c", "protocol.file.allow=always", "clone", "--quiet", "--recurse-submodules", *options)
    git(repository.folder, *command, repository.address, str(target))
    return target


def commit(folder: Path, name: str, text: str) -> str:
    """Change one file of a repository or a clone; the new revision."""
    (folder / name).write_text(text, encoding="utf-8")
    git(folder, "add", "--force", name)
    git(folder, "commit", "--quiet", "--message", f"Change {name}")
    return git(folder, "rev-parse", "HEAD")


def _repository(folder: Path, added: dict[str, str], submodule: Repository | None = None) -> Repository:
    shutil.copytree(HERE / folder.name, folder, ignore=shutil.ignore_patterns("__pycache__", "target", ".ruff_cache"))
    for name, text in added.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    # A server of a hosting site gives any revision that it has to whoever asks for it in full.
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(folder, "add", "--all")
    if submodule is not None:
        relative = f"../{submodule.folder.name}"
        git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", relative, SUBMODULE)
    git(folder, "commit", "--quiet", "--message", "Everything")
    return Repository(folder, git(folder, "rev-parse", "HEAD"))
