"""Stacks that stay up: `up` starts one and leaves it, `status` and `logs` look at it, `down` takes it down."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import dryrun
from harness.bringup import first_generation, install, make_model, new_stack, observer_of, phase
from harness.errors import SmokestackError, TeardownError, UsageError
from harness.request import PROJECT_ROOT, Request
from harness.scratch import Scratch
from harness.session import STANDING_MARK, Session, opened
from harness.signals import InterruptSignals
from harness.standing import STATE_FILE, StandingStack

FOLLOW_INTERVAL_S = 0.2


def up(request: Request) -> int:
    """Start the stack with the warmed-up model and leave it running; nothing is left if that fails."""
    if request.dry_run:
        dryrun.show(request, train=False)
        return 0
    with opened(request) as session:
        session.console.on_event(session.events.emit("run.started", config=session.config.model_dump(mode="json")))
        standing = _start(session)
        session.console.close()
    describe(standing, as_json=request.json)
    return 0


def _start(session: Session) -> StandingStack:
    stack = None
    try:
        with phase(session, "install"):
            manifest = install(session)
        with phase(session, "ready"):
            make_model(session, manifest, warm=True)
            stack = new_stack(session, manifest)
            stack.start()
            first_generation(session, observer_of(session, stack))
    except BaseException as error:
        if stack is not None:
            stack.stop(urgent=session.signals.urgent.is_set)
        if isinstance(error, SmokestackError):
            session.record_failure(error)
        raise
    (session.scratch.path / STANDING_MARK).touch()
    standing = stack.describe()
    standing.write()
    return standing


def status(args: argparse.Namespace) -> int:
    """Every standing stack: what lives, where it is."""
    standing = _chosen(args)
    if args.json:
        sys.stdout.write(json.dumps([_document(one) for one in standing], indent=2) + "\n")
        return 0
    for one in standing:
        describe(one, as_json=False)
    return 0


def down(args: argparse.Namespace) -> int:
    """Take stacks down. Exit status 50 when something of one is left."""
    standing = _chosen(args)
    if len(standing) > 1 and not args.all_runs:
        raise UsageError(
            f"{len(standing)} stacks are up",
            expected="one, or --all-runs, or --run-dir",
            found=", ".join(str(one.run_dir) for one in standing),
            hint="./noxw -s down -- --all-runs",
        )
    if not standing:
        sys.stderr.write("no stack is up\n")
    taken: list[dict[str, Any]] = []
    with InterruptSignals() as signals:
        for one in standing:
            names = ", ".join(service.service for service in one.services)
            sys.stderr.write(f"taking down stack {one.stack} of {one.run_dir}: {names}\n")
            left = one.take_down(urgent=signals.urgent.is_set)
            files = Scratch(one.tmp_dir).remove()
            if left.survivors or left.ports or files:
                raise TeardownError(
                    "the stack is not wholly down",
                    expected="no process, port or file left",
                    found=f"processes {[s.pid for s in left.survivors]}, ports {list(left.ports)}, files {files}",
                    where=str(one.run_dir),
                )
            (one.run_dir / STATE_FILE).unlink()
            taken.append({"run_dir": str(one.run_dir), "seconds": round(left.seconds, 3)})
            sys.stderr.write(f"down in {left.seconds:.1f} s, nothing left\n")
    if args.json:
        sys.stdout.write(json.dumps(taken, indent=2) + "\n")
    return 0


def logs(args: argparse.Namespace) -> int:
    """Print the last lines of a run's logs, and with `-f` what is appended until Ctrl-C."""
    run_dir = getattr(args, "run_dir", None) or PROJECT_ROOT / "runs" / "latest"
    paths = sorted((run_dir / "logs").glob("*.log"))
    if args.service is not None:
        paths = [path for path in paths if path.stem == args.service]
    if not paths:
        names = sorted(path.stem for path in (run_dir / "logs").glob("*.log"))
        raise UsageError(
            "no such log",
            expected=", ".join(names) or "a run folder with logs",
            found=args.service or str(run_dir),
            where=str(run_dir),
        )
    width = max(len(path.stem) for path in paths)
    ends = {path: _print_tail(path, args.lines, width) for path in paths}
    with InterruptSignals() as signals:
        while args.follow and not signals.interrupt.wait(FOLLOW_INTERVAL_S):
            for path, end in ends.items():
                ends[path] = _print_from(path, end, width)
    return 0


def describe(standing: StandingStack, *, as_json: bool) -> None:
    """Addresses, processes and logs, and the command that takes it down."""
    if as_json:
        sys.stdout.write(json.dumps(_document(standing), indent=2) + "\n")
        return
    lines = [f"stack {standing.stack}, model {standing.model}, run {standing.run_dir}"]
    lines += [f"  {name:<12}{url}" for name, url in standing.urls.items()]
    alive = standing.alive()
    for service in standing.services:
        state = "runs" if alive[service.service] else "has ended"
        lines.append(f"  {service.service:<12}pid {service.pid} {state}, log {service.log}")
    lines.append("take it down with: ./noxw -s down")
    sys.stdout.write("\n".join(lines) + "\n")


def _document(standing: StandingStack) -> dict[str, Any]:
    return {**standing.model_dump(mode="json", by_alias=True), "alive": standing.alive()}


def _chosen(args: argparse.Namespace) -> list[StandingStack]:
    """The stack of `--run-dir`, or every stack that was left running from this checkout."""
    run_dir: Path | None = getattr(args, "run_dir", None)
    if run_dir is not None:
        return [StandingStack.load(run_dir.absolute())]
    return list(_standing(PROJECT_ROOT / "runs"))


def _standing(runs: Path) -> Iterator[StandingStack]:
    for path in sorted(runs.glob(f"*/{STATE_FILE}")):
        if not path.parent.is_symlink():
            yield StandingStack.load(path.parent)


def _print_tail(path: Path, count: int, width: int) -> int:
    content = path.read_bytes()
    for line in content.decode("utf-8", errors="replace").splitlines()[-count:]:
        sys.stdout.write(f"{path.stem:<{width}} | {line}\n")
    return len(content)


def _print_from(path: Path, start: int, width: int) -> int:
    with path.open("rb") as handle:
        handle.seek(start)
        content = handle.read()
    whole = content[: content.rfind(b"\n") + 1]
    for line in whole.decode("utf-8", errors="replace").splitlines():
        sys.stdout.write(f"{path.stem:<{width}} | {line}\n")
    sys.stdout.flush()
    return start + len(whole)
