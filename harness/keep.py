"""`up`: start a stack and leave it running to work against."""

from __future__ import annotations

import sys

from harness import dryrun
from harness.bringup import (
    first_generation,
    install,
    leave_standing,
    make_model,
    new_stack,
    observer_of,
    phase,
)
from harness.errors import SmokestackError
from harness.events import Failure, Teardown
from harness.evidence.exposure import exposed
from harness.report.failure import failure_body, failure_headline
from harness.report.stream import print_document, say
from harness.report.verdict import failure_document
from harness.request import Request
from harness.session import Session, opened
from harness.stack import Stack
from harness.standing import forget
from harness.takedown import describe, document, not_wholly_down


class ExposureError(SmokestackError):
    """A stack that others on the network could reach is not left standing."""

    kind = "exposure"
    exit_code = 30


def up(request: Request) -> int:
    """Start the stack with the warmed-up model and leave it running; nothing is left if that fails."""
    if request.dry_run:
        dryrun.show(request, train=False)
        return 0
    with opened(request) as session:
        session.console.on_event(session.events.emit("run.started", config=session.config.model_dump(mode="json")))
        stack: Stack | None = None
        try:
            with phase(session, "install"):
                manifest = install(session)
            with phase(session, "ready"):
                make_model(session, manifest, warm=True)
                stack = new_stack(session, manifest)
                stack.start()
                first_generation(session, observer_of(session, stack))
            _require_unexposed(session, stack)
            standing = leave_standing(session, stack)
        except BaseException as error:
            status = _give_up(session, stack, error)
            if not isinstance(error, Exception):
                raise
            return status
        session.console.close()
    if request.json:
        print_document(document(standing))
    else:
        describe(standing, sys.stdout)
    return 0


def _require_unexposed(session: Session, stack: Stack) -> None:
    listing = stack.listening("start")
    session.emit(listing)
    reachable = exposed(listing, session.config.host)
    if reachable:
        raise ExposureError(
            "the stack listens where other machines can reach it",
            expected=f"loopback or {session.config.host}",
            found="; ".join(reachable),
            hint="its admin routes ask for no key: whoever reaches them can replace the weights",
        )


def _give_up(session: Session, stack: Stack | None, error: BaseException) -> int:
    """End what was started, and say why and what is left. Returns the exit status: 50 if anything is."""
    failure = session.record_failure(error)
    teardown = _clear_away(session, stack)
    session.console.close()
    told = Failure.of(failure).error
    body = failure_body(told, session.run_dir.path, session.request.credentials.conceal)
    say(f"{failure_headline(told)}\n{body}")
    if session.request.json:
        print_document(failure_document(failure))
    if teardown.clean:
        return failure.exit_code
    left = not_wholly_down(session.run_dir.path, teardown)
    say(f"{left.kind}: {left}")
    return left.exit_code


def _clear_away(session: Session, stack: Stack | None) -> Teardown:
    began = session.clock.monotonic()
    left = None if stack is None else stack.stop(urgent=session.signals.urgent.is_set)
    teardown = Teardown(
        survivors=left.survivors if left else (),
        ports=left.ports if left else (),
        files=(*(left.files if left else ()), *session.scratch.remove()),
        seconds=session.clock.monotonic() - began,
    )
    session.emit(teardown)
    if teardown.clean:
        forget(session.run_dir.path)
    return teardown
