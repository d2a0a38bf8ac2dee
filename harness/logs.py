"""`logs`: the last lines of a run's logs, and what is appended to them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import UsageError
from harness.plaintext import plain
from harness.request import PROJECT_ROOT
from harness.signals import InterruptSignals

FOLLOW_INTERVAL_S = 0.2


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
            hint="name one of them" if names else f"name a run with --run-dir; {PROJECT_ROOT / 'runs'} has yours",
        )
    width = max(len(path.stem) for path in paths)
    ends = {path: _print_tail(path, args.lines, width) for path in paths}
    with InterruptSignals() as signals:
        while args.follow and not signals.interrupt.wait(FOLLOW_INTERVAL_S):
            for path, end in ends.items():
                ends[path] = _print_from(path, end, width)
    return 0


def _print_tail(path: Path, count: int, width: int) -> int:
    content = path.read_bytes()
    for line in content.decode("utf-8", errors="replace").splitlines()[-count:]:
        sys.stdout.write(f"{path.stem:<{width}} | {plain(line)}\n")
    return len(content)


def _print_from(path: Path, start: int, width: int) -> int:
    with path.open("rb") as handle:
        handle.seek(start)
        content = handle.read()
    whole = content[: content.rfind(b"\n") + 1]
    for line in whole.decode("utf-8", errors="replace").splitlines():
        sys.stdout.write(f"{path.stem:<{width}} | {plain(line)}\n")
    sys.stdout.flush()
    return start + len(whole)
