"""The stack's isolated environment: which Python, how it is filled, where its files are. Uses uv for all of it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from scripts import commands, indexes, wheels
from scripts.environ import child_environment
from scripts.errors import DoctorError, InstallError
from scripts.layout import Layout
from scripts.manifest import Artifact, Manifest
from scripts.publish import remove
from scripts.requirements_file import normalised
from scripts.wheels import RecordLine


@dataclass(frozen=True)
class Environment:
    """The environment of one stack, whether it exists or not."""

    layout: Layout
    python_minor: str

    @property
    def path(self) -> Path:
        return self.layout.environment

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    @property
    def site_packages(self) -> Path:
        return self.path / "lib" / f"python{self.python_minor}" / "site-packages"

    def distributions(self) -> dict[str, str]:
        """Normalised name -> version of everything that is installed."""
        found = metadata.distributions(path=[str(self.site_packages)])
        return {normalised(each.metadata["Name"]): each.version for each in found}

    def records(self) -> dict[str, tuple[RecordLine, ...]]:
        """What the installed packages say that they consist of: path from `site-packages` -> digest and size.

        Several where several packages bring the same file: it is that of the one which was installed last.
        """
        lines: dict[str, tuple[RecordLine, ...]] = {}
        for distribution in metadata.distributions(path=[str(self.site_packages)]):
            for name, line in wheels.parse_record(distribution.read_text("RECORD") or "").items():
                lines[name] = (*lines.get(name, ()), line)
        return lines

    def python_version(self) -> str | None:
        """The interpreter's full version, as the environment's own configuration says; None without one."""
        try:
            lines = (self.path / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        settings = dict(line.replace(" ", "").split("=", 1) for line in lines if "=" in line)
        return settings.get("version_info") if (self.bin / "python").exists() else None


def uv_program() -> str:
    """The uv of the tool environment, whose version is locked; never another one that happens to be on PATH."""
    program = Path(sys.executable).with_name("uv")
    if not program.is_file():
        raise DoctorError(
            "the tool environment has no uv",
            expected=str(program),
            found="no such file",
            hint="./noxw -s install   # python -m scripts runs inside the tool environment",
        )
    return str(program)


def uv_environment() -> dict[str, str]:
    """The environment of every call of uv: the caller's, cleaned, with the site's package sources."""
    site = indexes.uv_variables(os.environ, indexes.read_pip_config(sys.executable))
    return child_environment(os.environ, {**site, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"})


def find_python(layout: Layout, minor: str) -> str:
    """An interpreter of exactly the stack's minor version. Raises `DoctorError` saying how to get one."""
    finished = commands.run(
        [uv_program(), "python", "find", "--system", "--no-project", minor],
        cwd=layout.root,
        env=uv_environment(),
        log=layout.logs / f"{layout.stack}-python.log",
        limit_s=commands.ASK_LIMIT_S,
    )
    if finished.returncode != 0:
        raise DoctorError(
            f"this machine has no Python {minor}, for which the stack's packages are locked",
            expected=f"python{minor} on PATH, from pyenv, or managed by uv",
            found=finished.output.strip(),
            hint=f"{uv_program()} python install {minor}   # or your system's python{minor} package",
        )
    return finished.output.strip().splitlines()[-1]


def create(env: Environment, python: str) -> None:
    """An empty environment; whatever was at its place is removed first."""
    remove(env.path)
    commands.check(
        [uv_program(), "venv", "--no-project", "--quiet", "--python", python, str(env.path)],
        cwd=env.layout.root,
        env=uv_environment(),
        log=env.layout.logs / f"{env.layout.stack}-venv.log",
        error=InstallError,
        what="making the environment",
    )


def fill(env: Environment, manifest: Manifest, torch_backend: str, renewed: list[Artifact]) -> None:
    """Make the environment contain the lock and the manifest's artifacts, and nothing else.

    `renewed` are artifacts to install again although their version is unchanged.
    """
    layout = env.layout
    ours = layout.cache / f"{layout.stack}-artifacts.txt"
    ours.write_text("".join(requirement(artifact, layout.dist) for artifact in manifest.wheels), encoding="utf-8")
    variables = uv_environment()
    version = manifest.packages.get("torch")
    torch = [] if version is None else indexes.torch_arguments(version, torch_backend, variables)
    if version is not None:
        # `==2.13.0` in the lock would take 2.13.0+cpu as well, where a wheelhouse has one: three signs take no other.
        exact = layout.cache / f"{layout.stack}-exact.txt"
        exact.write_text(f"torch==={version}\n", encoding="utf-8")
        torch += ["--constraints", str(exact)]
    reinstalled = [
        argument
        for artifact in renewed
        if artifact.kind == "wheel"
        for argument in ("--reinstall-package", artifact.name)
    ]
    commands.check(
        sync_command(env, [layout.lock, ours], [*torch, *reinstalled]),
        cwd=layout.root,
        env=variables,
        log=layout.logs / f"{layout.stack}-install.log",
        error=InstallError,
        what="installing the locked packages",
        hint="the index or wheelhouse must have every file of the lock: see UV_DEFAULT_INDEX and UV_FIND_LINKS",
    )


def sync_command(env: Environment, requirements: list[Path], options: list[str]) -> list[str]:
    """The one uv command that fills the environment. `sync`, as `install` would resolve again and undo overrides."""
    return [
        *(uv_program(), "pip", "sync", "--python", str(env.bin / "python"), "--quiet", "--require-hashes"),
        # uv does not compile on its own, and nothing in a run should: three processes import vLLM at once.
        *("--compile-bytecode", "--only-binary", ":all:"),
        *options,
        *(str(path) for path in requirements),
    ]


def requirement(artifact: Artifact, dist: Path) -> str:
    """One of our wheels as a hashed requirement. The manifest names the file: a folder listing never does."""
    return f"{artifact.name} @ {(dist / artifact.file).as_uri()} --hash=sha256:{artifact.sha256}\n"
