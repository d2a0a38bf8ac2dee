"""What the caller asked for, checked as a whole before anything is created or started."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from harness.config import (
    DEFAULT_STEPS,
    ControlKind,
    Deadlines,
    GrpoConfig,
    MismatchBudget,
    Packing,
    Platform,
    RefitKind,
    Rendezvous,
)
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.engines import engines_asked_for
from harness.environ import callers_path_variable
from harness.errors import UsageError
from harness.gpu_options import BUFFERS, about_nccl, packing_of
from harness.models import ModelChoice, choose
from harness.option_values import named_ports
from harness.ports import port_names
from harness.program import Program
from harness.sabotage.declaration import OVER_A_GROUP
from harness.sabotage.registry import named

PROJECT_ROOT = Path(__file__).resolve().parents[1]
INVOKED_FROM = "SMOKESTACK_INVOKED_FROM"
"""Where the caller of a nox session was: nox itself has changed to the project's root by then."""


@dataclass(frozen=True)
class Request:
    """One command line, resolved. `ports` are fixed ones by name; `platform` is what the stack has to be for, if told.

    `gpus` None: those that the run chooses. `refit` None: the stack's own. `about_nccl`: the options on that, as given.
    """

    stack: str
    model: ModelChoice
    root: Path = PROJECT_ROOT
    steps: int = DEFAULT_STEPS
    run_dir: Path | None = None
    keep_up: bool = False
    sabotage: str | None = None
    trainer: Program | None = None
    control: ControlKind | None = None
    serving: Literal["dynamo", "plain-vllm"] = "dynamo"
    dry_run: bool = False
    json: bool = False
    quiet: bool = False
    refit: RefitKind | None = None
    lora: bool = False
    tensor_parallel: tuple[int, ...] = (1,)
    platform: Platform | None = None
    gpus: tuple[str, ...] | None = None
    packing: Packing | None = None
    about_nccl: tuple[str, ...] = ()
    rendezvous: Rendezvous | None = None
    ports: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    credentials: Credentials = NO_CREDENTIALS
    deadlines: Deadlines = field(default_factory=Deadlines)
    grpo: GrpoConfig = field(default_factory=GrpoConfig)
    mismatch: MismatchBudget | None = None

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Request:
        """From the parsed options of `smoke` or `up`; options that `up` lacks keep their defaults."""
        options = vars(args)
        engines = engines_asked_for(options)
        model = choose(args.model, callers_path("."), os.environ)
        refit_s = options.get("refit_timeout", Deadlines().refit_s)
        deadlines = Deadlines().model_copy(
            update={
                "engine_s": args.ready_timeout,
                "step_s": options.get("step_timeout", Deadlines().step_s),
                "refit_s": refit_s,
                "command_s": options.get("trainer_timeout", Deadlines().command_s),
                "rendezvous_s": min(Deadlines().rendezvous_s, refit_s),
            }
        )
        stack = _known_stack(args.stack, PROJECT_ROOT)
        return cls(
            stack=stack,
            model=model,
            steps=options.get("steps", DEFAULT_STEPS),
            run_dir=options.get("run_dir"),
            keep_up=options.get("keep_up", False),
            sabotage=_sabotage(options, engines),
            control=_control(options, engines),
            trainer=_own_trainer(options, PROJECT_ROOT / f".venv-{stack}"),
            dry_run=args.dry_run,
            json=args.json,
            quiet=args.quiet,
            refit=options.get("refit"),
            lora=options.get("lora", False),
            tensor_parallel=engines,
            platform=args.platform,
            gpus=args.gpus,
            packing=packing_of(options),
            about_nccl=about_nccl(options),
            rendezvous=options.get("rendezvous"),
            ports=named_ports(args.port, port_names(len(engines))),
            credentials=Credentials.given(
                os.environ,
                api_key_env=args.api_key_env,
                headers=args.header,
                headers_from_env=args.header_from_env,
            ),
            deadlines=deadlines,
            grpo=GrpoConfig().model_copy(update=_training_options(options, model)),
            mismatch=MismatchBudget.of(options["mismatch_budget"]) if "mismatch_budget" in options else None,
        )


def callers_path(text: str) -> Path:
    """A path of the command line, absolute: relative ones start where the caller is."""
    return Path(os.environ.get(INVOKED_FROM) or Path.cwd(), Path(text).expanduser())


def _sabotage(options: Mapping[str, Any], engines: Sequence[int]) -> str | None:
    """The fault that `smoke` was told of; `selftest` makes a request for each of its own.

    Raises UsageError where the run has no place for it.
    """
    name = options.get("sabotage")
    fault = named(name) if isinstance(name, str) else None
    if fault is None:
        return None
    if len(engines) < fault.engines:
        raise UsageError(
            f"--sabotage {name} strikes one of several engines",
            expected=f"at least {fault.engines} engines",
            found=str(len(engines)),
            hint=f"add --engines {fault.engines}",
        )
    kind = options.get("refit") or OVER_A_GROUP[0]
    if kind not in fault.refits:
        raise UsageError(
            f"--sabotage {name}: there is no such fault in a refit of kind {kind}",
            expected=f"--refit {' or '.join(fault.refits)}",
            found=f"--refit {kind}" if "refit" in options else "the stack's own kind",
            hint=f"give --refit {fault.refits[0]}",
        )
    return fault.name


def _training_options(options: Mapping[str, object], model: ModelChoice) -> dict[str, object]:
    chosen: dict[str, object] = dict(model.training_defaults)
    for option in ("seed", "learning_rate"):
        if option in options:
            chosen[option] = options[option]
    return chosen


def _control(options: Mapping[str, Any], engines: Sequence[int]) -> ControlKind | None:
    """What `--control` asks for. Raises UsageError beside an option that excludes it."""
    kind: ControlKind | None = options.get("control")
    if kind is not None and len(engines) > 1:
        raise UsageError(
            f"--control {kind} compares one engine",
            expected="one engine: nothing but Dynamo spreads requests over several",
            found=f"{len(engines)} engines",
            hint="leave out --control, or ask for one engine",
        )
    reasons = {
        "trainer": "a command tells nothing that could be compared",
        "sabotage": "a run that has to fail needs no control",
        "keep_up": "the control would share the machine with the stack that is kept",
        "lora": "the engine alone has no sidecar that could take an adapter",
    }
    for name, reason in reasons.items():
        if kind is not None and options.get(name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"--control {kind} and {option} exclude each other: {reason}",
                expected="one of the two",
                found=f"--control {kind} and {_as_given(option, options[name])}",
                hint=f"leave out --control or {option}",
            )
    return kind


def _own_trainer(options: Mapping[str, Any], environment: Path) -> Program | None:
    """What `--trainer` names. Raises UsageError when there is no such program, or an option that only ours has."""
    if options.get("trainer") is None:
        return None
    ours = ("sabotage", "learning_rate", "mismatch_budget", "step_timeout", "refit_timeout", "lora", "unpacked")
    for name in (*ours, *BUFFERS, "rendezvous"):
        if options.get(name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} is for the trainer of this project",
                expected=f"--trainer without {option}",
                found=_as_given(option, options[name]),
                hint="give your command its own options",
            )
    program = Program.parse(options["trainer"], callers_path("."))
    program.require(callers_path_variable(os.environ, PROJECT_ROOT), made_later=environment)
    return program


def _as_given(option: str, value: object) -> str:
    return option if value is True else f"{option} {value}"


def require_platform(asked: Platform | None, platform: Platform, stack: str) -> None:
    """Raise UsageError for a stack that is not of the platform that was asked for: nothing else is run instead."""
    if asked not in {None, platform}:
        raise UsageError(
            f"the stack {stack} does not run on the platform that was asked for",
            expected=f"a stack for {asked}",
            found=f"{stack} is for {platform}",
            hint=f'--stack NAME with `platform = "{asked}"` in its stack.toml',
        )


def _known_stack(name: str, root: Path) -> str:
    known = sorted(path.parent.name for path in (root / "stacks").glob("*/stack.toml"))
    if name not in known:
        raise UsageError(
            f"--stack {name}: no such stack",
            expected=", ".join(known),
            found=repr(name),
            hint="a stack is a folder stacks/NAME with a stack.toml",
        )
    return name
