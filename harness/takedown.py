"""`status` and `down`: the stacks that are up, whoever started them, and their end.

One stack that makes trouble keeps no other from being shown or taken down; every trouble is told, the worst decides.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from harness.errors import SmokestackError, TeardownError, UsageError
from harness.events import Teardown
from harness.proctable import command_of
from harness.report.stream import lasting, print_document, say
from harness.request import PROJECT_ROOT
from harness.scratch import Scratch
from harness.signals import InterruptSignals
from harness.standing import StandingStack, Survey, forget


def status(args: argparse.Namespace) -> int:
    """Every stack that is up: what lives, where it is, how it ends."""
    found = _chosen(args)
    if args.json:
        print_document([document(one) for one in found.stacks])
    else:
        for one in found.stacks:
            describe(one, sys.stdout)
    if not found.stacks:
        say("no stack is up")
    return _told(found.unreadable)


def down(args: argparse.Namespace) -> int:
    """Take stacks down. Exit status 50 when something of one is left.

    The stack of a run that still works is that run's to end: it is left alone, and asked for alone it is refused.
    """
    found = _chosen(args)
    running = [one for one in found.stacks if one.situation == "running"]
    ours = [one for one in found.stacks if one not in running]
    troubles: list[SmokestackError] = [*found.unreadable]
    if len(ours) > 1 and not args.all_runs:
        raise _ambiguous(ours)
    if not found.stacks:
        say("no stack is up")
    if running and not ours:
        troubles += [_still_owned(one) for one in running]
    elif running:
        for one in running:
            say(f"left alone: {_still_owned(one).what}")
    taken: list[dict[str, Any]] = []
    with InterruptSignals() as signals:
        for one in ours:
            try:
                teardown = take_down(one, urgent=signals.urgent.is_set)
            except (SmokestackError, OSError) as error:
                troubles.append(_as_trouble(one, error))
                continue
            taken.append({"run_dir": str(one.run_dir), **teardown.model_dump(mode="json", exclude=_NOT_SHOWN)})
            if not teardown.clean:
                troubles.append(not_wholly_down(one.run_dir, teardown))
    if args.json:
        print_document(taken)
    return _told(troubles)


_NOT_SHOWN = {"t", "source", "kind"}


def take_down(one: StandingStack, *, urgent: Callable[[], bool]) -> Teardown:
    """End one stack and remove its scratch folder; forget it when nothing is left."""
    names = ", ".join(service.service for service in one.services)
    say(f"taking down stack {one.stack} of {one.run_dir}: {names}")
    left = one.take_down(urgent=urgent)
    files = (*left.files, *_remove_scratch(one))
    teardown = Teardown(survivors=left.survivors, ports=left.ports, files=files, seconds=round(left.seconds, 3))
    if teardown.clean:
        forget(one.run_dir)
        say(f"down in {left.seconds:.1f} s, nothing left")
    return teardown


def not_wholly_down(run_dir: Path, teardown: Teardown) -> TeardownError:
    """The error that names what was left."""
    processes = ", ".join(f"{each.pid} ({each.service})" for each in teardown.survivors)
    return TeardownError(
        "the stack is not wholly down",
        expected="no process, port or file left",
        found=f"processes: {processes or 'none'}; ports: {list(teardown.ports)}; files: {list(teardown.files)}",
        where=str(run_dir),
        hint=down_command(run_dir),
    )


def describe(standing: StandingStack, stream: TextIO) -> None:
    """Addresses, processes and logs, and what takes it down."""
    lines = [f"stack {standing.stack}, model {standing.model}, run {standing.run_dir}"]
    lines += [f"  {name:<12}{url}" for name, url in standing.urls.items()]
    alive = standing.alive()
    for service in standing.services:
        state = "runs" if alive[service.service] else "has ended"
        lines.append(f"  {service.service:<12}pid {service.pid} {state}, log {service.log}")
    lines.append(_what_ends_it(standing))
    shown = lasting(stream)
    shown.write("\n".join(lines) + "\n")
    shown.flush()


def document(standing: StandingStack) -> dict[str, Any]:
    """For `--json`: the state file, and what is true of it now."""
    fields = standing.model_dump(mode="json", by_alias=True)
    return {**fields, "situation": standing.situation, "alive": standing.alive()}


def down_command(run_dir: Path) -> str:
    """What to type; a folder outside the project's own has to be named."""
    inside = run_dir.parent == PROJECT_ROOT / "runs"
    return "./noxw -s down" if inside else f"./noxw -s down -- --run-dir {shlex.quote(str(run_dir))}"


def _what_ends_it(standing: StandingStack) -> str:
    command, owner = down_command(standing.run_dir), standing.owner
    if owner is None or standing.situation == "rebooted":
        return f"take it down with: {command}"
    if standing.situation == "running":
        return f"it belongs to a run that is at work and ends with it: pid {owner.pid}, {command_of(owner.pid)}"
    return f"its run (pid {owner.pid}) has ended without taking it down; do so with: {command}"


def _chosen(args: argparse.Namespace) -> Survey:
    """The stack of `--run-dir`, or every stack of this checkout's runs."""
    run_dir: Path | None = getattr(args, "run_dir", None)
    if run_dir is not None:
        return Survey((StandingStack.load(run_dir.absolute()),), ())
    return Survey.of(PROJECT_ROOT / "runs")


def _ambiguous(found: Sequence[StandingStack]) -> UsageError:
    return UsageError(
        f"{len(found)} stacks are up",
        expected="one, or --all-runs, or --run-dir",
        found=", ".join(str(one.run_dir) for one in found),
        hint="./noxw -s down -- --all-runs",
    )


def _still_owned(one: StandingStack) -> UsageError:
    assert one.owner is not None, "a running stack has an owner"
    return UsageError(
        f"the stack of {one.run_dir} belongs to a run that is at work (pid {one.owner.pid})",
        expected="a stack that was left running",
        found=f"pid {one.owner.pid}: {command_of(one.owner.pid)}",
        where=str(one.run_dir),
        hint=f"kill -INT {one.owner.pid}   # or Ctrl-C in its terminal; it then takes its stack down itself",
    )


def _remove_scratch(one: StandingStack) -> list[str]:
    """The file names the folder, so it is believed only if the folder itself says that it is this run's."""
    scratch = Scratch(one.tmp_dir)
    if not scratch.path.exists():
        return []
    if not scratch.belongs_to(one.run_id):
        return [f"{scratch.path} (not removed: it does not bear the mark of run {one.run_id})"]
    return scratch.remove()


def _as_trouble(one: StandingStack, error: SmokestackError | OSError) -> SmokestackError:
    if isinstance(error, SmokestackError):
        return error
    return TeardownError("the stack could not be taken down", found=str(error), where=str(one.run_dir))


def _told(troubles: Sequence[SmokestackError]) -> int:
    """Say what went wrong. Returns the exit status: 50 if anything was left, else that of the first trouble."""
    for error in troubles:
        say(f"{error.kind}: {error}")
    codes = [error.exit_code for error in troubles]
    return TeardownError.exit_code if TeardownError.exit_code in codes else next(iter(codes), 0)
