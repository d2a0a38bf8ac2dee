"""Asks the build plane, as a subprocess, for what a run needs: the installed stack and the model's folder.

The build plane is never imported; its answer is one JSON document on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clock import Clock, Deadline
from harness.environ import tool_environment
from harness.errors import DoctorError, InstallError, SmokestackError, UsageError
from harness.gpus import visible
from harness.models import ModelChoice
from harness.signals import DIE_WITH_PARENT
from harness.tool import ToolResult, run_tool

_ABOUT_GPUS = "gpu."
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
    run_id: str
    urgent: Callable[[], bool]

    def examine(self, gpus: Sequence[str] | None = None) -> None:
        """Ask the doctor what this machine lacks for a run. Raises `DoctorError` with each fault and its fix.

        What it has to say of the GPUs is passed on even where it is no fault: who else computes there, above all.
        `gpus` are those that the run was told to take.
        """
        argv = [sys.executable, "-m", "scripts.doctor", "--stack", self.stack, "--for", "run", "--json"]
        argv += [] if gpus is None else ["--gpus", str(len(gpus))]
        chosen = {} if gpus is None else visible(gpus)
        env = {**tool_environment(os.environ), **chosen, DIE_WITH_PARENT: str(os.getpid())}
        result = self._tool(argv, "doctor", env)
        checks = _checks(result)
        for check in checks:
            if check["status"] == "warn" and check["id"].startswith(_ABOUT_GPUS):
                self.progress(f"{check['id']}: {check['found']}")
        failed = [check for check in checks if check["status"] == "fail"]
        if failed or not checks or result.returncode != 0:
            raise DoctorError(
                f"this machine is not fit for the stack {self.stack}",
                expected=_each(failed, "required") or "exit status 0 and one JSON document on stdout",
                found=_each(failed, "found") or result.describe(),
                hint="\n    ".join(str(check["fix"]) for check in failed)
                or f"python3 -m scripts.doctor --stack {self.stack}",
                log=self.logs / "doctor.log",
            )

    def install(self) -> dict[str, Any]:
        """Build and install the stack, or find that nothing changed. Returns the build plane's answer."""
        return self._scripts("install")

    def preview(self) -> dict[str, Any]:
        """What `install` would do, and the manifest it would lead to; changes nothing."""
        return self._scripts("install", "--dry-run")

    def model(
        self, choice: ModelChoice, environment: Path, env: Mapping[str, str], *, warm: bool = False
    ) -> ModelFolder:
        """The folder that the engine serves, made once. `warm` makes the tiny model's warmed-up folder as well."""
        if choice.folder is not None:
            return ModelFolder(serve=choice.folder)
        python = str(environment / "bin" / "python")
        models = self.root / ".cache" / "models"
        make = [python, "-m", "smokestack_payload.model", "make", "--kind", choice.kind]
        if choice.kind == "smollm2":
            # Beside the file that it is made from, whose folder is named after its digest: a new pin is a new model.
            gguf = Path(self._scripts("fetch-model", "smollm2")["gguf"])
            made = self._payload([*make, "--gguf", str(gguf), "--out", str(gguf.parent)], "model-smollm2", env)
            return ModelFolder(serve=Path(made["dir"]))
        recipe = self._payload([python, "-m", "smokestack_payload.recipe"], "model-recipe", env)
        out = models / f"tiny-{recipe['tiny']}"
        more = ["--warm"] if warm else []
        made = self._payload([*make, "--out", str(out), *more], "model-tiny", env)
        return ModelFolder(serve=Path(made["dir"]), warm_cache=out / "warm")

    def _payload(self, argv: list[str], name: str, env: Mapping[str, str]) -> dict[str, Any]:
        return _answer(self._tool(argv, name, env), self.logs / f"{name}.log")

    def _scripts(self, *command: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "scripts", *command, "--stack", self.stack, "--json"]
        name = command[0]
        env = {**tool_environment(os.environ), DIE_WITH_PARENT: str(os.getpid())}
        return _answer(self._tool(argv, name, env), self.logs / f"{name}.log")

    def _tool(self, argv: list[str], name: str, env: Mapping[str, str]) -> ToolResult:
        return run_tool(
            argv,
            env=env,
            cwd=self.root,
            log=self.logs / f"{name}.log",
            deadline=self.deadline,
            clock=self.clock,
            on_line=self.progress,
            run_id=self.run_id,
            urgent=self.urgent,
        )


@dataclass(frozen=True)
class ModelFolder:
    """`serve` is what the engine loads first; `warm_cache` is where the trainer keeps its warmed-up weights, if any."""

    serve: Path
    warm_cache: Path | None = None


def _checks(result: ToolResult) -> list[dict[str, Any]]:
    """What the doctor found; nothing when it gave no account that can be read."""
    try:
        checks: list[dict[str, Any]] = json.loads(result.stdout)["checks"]
        return checks if all("status" in check for check in checks) else []
    except (ValueError, TypeError, KeyError):
        return []


def _each(checks: list[dict[str, Any]], field: str) -> str:
    return "\n    ".join(f"{check['id']}: {check[field]}" for check in checks)


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
        str(error.get("what") or f"{' '.join(result.argv[1:4])} failed"),
        expected=error.get("expected") or "exit status 0 and one JSON document on stdout",
        found=error.get("found") or result.describe(),
        where=error.get("where"),
        hint=error.get("hint"),
        log=Path(error["log"]) if error.get("log") else log,
    )
