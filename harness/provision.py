"""Asks the build plane, as a subprocess, for what a run needs: the installed stack and the model's folder.

The build plane is never imported; its answer is one JSON document on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clock import Clock, Deadline
from harness.errors import DoctorError, InstallError, SmokestackError, UsageError
from harness.models import ModelChoice
from harness.tool import ToolResult, run_tool

_ERRORS: dict[int, type[SmokestackError]] = {2: UsageError, 10: DoctorError, 20: InstallError}


@dataclass(frozen=True)
class Provisioner:
    """Runs the one-shot commands that come before the stack. `progress` gets each line they print for people."""

    root: Path
    stack: str
    logs: Path
    clock: Clock
    deadline: Deadline
    progress: Callable[[str], None]

    def install(self) -> dict[str, Any]:
        """Build and install the stack, or find that nothing changed. Returns the build plane's answer."""
        return self._scripts("install")

    def preview(self) -> dict[str, Any]:
        """What `install` would do, and the manifest it would lead to; changes nothing."""
        return self._scripts("install", "--dry-run")

    def model(self, choice: ModelChoice, environment: Path, env: dict[str, str]) -> ModelFolder:
        """The folder that the engine serves, made once and kept under the recipe's hash."""
        if choice.folder is not None:
            return ModelFolder(serve=choice.folder, warm_cache=None)
        argv = model_command(choice, environment, self.root)
        if choice.kind == "smollm2":
            argv += ["--gguf", self._scripts("fetch-model", "smollm2")["gguf"]]
        made = _answer(self._tool(argv, f"model-{choice.kind}", env), self.logs / f"model-{choice.kind}.log")
        folder = Path(made["dir"])
        if choice.kind == "tiny":
            return ModelFolder(serve=folder / "base", warm_cache=folder / "warm")
        return ModelFolder(serve=folder, warm_cache=None)

    def _scripts(self, *command: str) -> dict[str, Any]:
        argv = scripts_command(self.stack, *command)
        log = self.logs / f"{command[0]}.log"
        result = self._tool(argv, command[0], dict(os.environ))
        return _answer(result, log)

    def _tool(self, argv: list[str], name: str, env: dict[str, str]) -> ToolResult:
        return run_tool(
            argv,
            env=env,
            cwd=self.root,
            log=self.logs / f"{name}.log",
            deadline=self.deadline,
            clock=self.clock,
            on_line=self.progress,
        )


@dataclass(frozen=True)
class ModelFolder:
    """`serve` is what the engine loads; `warm_cache` is where the trainer keeps its warmed-up weights, if it warms up."""

    serve: Path
    warm_cache: Path | None


def scripts_command(stack: str, *command: str) -> list[str]:
    """argv of the build plane for `stack`."""
    return [sys.executable, "-m", "scripts", *command, "--stack", stack, "--json"]


def model_command(choice: ModelChoice, environment: Path, root: Path) -> list[str]:
    """argv that makes a named model's folder with the stack's own Python."""
    python = str(environment / "bin" / "python")
    out = str(root / ".cache" / "models")
    return [python, "-m", "smokestack_payload.model", "make", "--kind", choice.kind, "--out", out]


def _answer(result: ToolResult, log: Path) -> dict[str, Any]:
    """The JSON document that a command printed; its error, raised as ours, when it failed."""
    try:
        parsed = json.loads(result.stdout)
    except ValueError:
        parsed = None
    if result.returncode == 0 and isinstance(parsed, dict):
        return parsed
    error = parsed.get("error", {}) if isinstance(parsed, dict) else {}
    kind = _ERRORS.get(result.returncode, InstallError)
    raise kind(
        str(error.get("what") or f"{result.argv[2]} {result.argv[3]} failed"),
        expected=error.get("expected") or "exit status 0 and one JSON document on stdout",
        found=error.get("found") or f"exit status {result.returncode}",
        where=error.get("where"),
        hint=error.get("hint"),
        log=Path(error["log"]) if error.get("log") else log,
    )
