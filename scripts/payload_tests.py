"""Runs the payload's tests in a stack's environment, which has torch and vllm but no pytest.

The environment holds exactly what its manifest says, so pytest is put into a folder beside it, from a lock that holds
shared dependencies at the stack's versions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from scripts import commands
from scripts.digests import file_sha256
from scripts.environ import child_environment
from scripts.environment import uv_environment, uv_program
from scripts.errors import BuildPlaneError, InstallError
from scripts.layout import PROJECT_ROOT
from scripts.publish import publishing, remove

LOCK = PROJECT_ROOT / "scripts" / "requirements" / "payload-tests.lock"


def main(argv: Sequence[str]) -> NoReturn:
    """`python -m scripts.payload_tests ENVIRONMENT FOLDER PATH… [pytest's options]`: becomes pytest."""
    environment, folder, path, *options = argv
    python = PROJECT_ROOT / environment / "bin" / "python"
    try:
        packages = ensure_packages(python, PROJECT_ROOT / folder)
    except BuildPlaneError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this program's output
        sys.exit(error.exit_code)
    _become_pytest(python, packages, [path, *options])


def _become_pytest(python: Path, packages: Path, options: Sequence[str]) -> NoReturn:
    # pytest would leave its rewritten bytecode of installed plug-ins in the environment, which `verify` finds.
    added = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    env = child_environment(os.environ, added)
    os.chdir(PROJECT_ROOT)
    os.execve(python, [str(python), "-m", "pytest", *options], env)


def ensure_packages(python: Path, folder: Path) -> Path:
    """The folder with pytest in it, of this lock; older ones are removed."""
    target = folder / file_sha256(LOCK)[:16]
    if target.is_dir():
        return target
    remove(folder)
    with publishing(target) as partial:
        commands.check(
            [
                *(uv_program(), "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:"),
                *("--python", str(python), "--target", str(partial), "--requirement", str(LOCK)),
            ],
            cwd=PROJECT_ROOT,
            env=uv_environment(),
            log=PROJECT_ROOT / ".cache" / "logs" / "payload-tests.log",
            error=InstallError,
            what="installing pytest for the payload's tests",
        )
    return target


if __name__ == "__main__":
    main(sys.argv[1:])
