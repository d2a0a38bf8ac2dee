"""The stack's processes: each starts in a session of its own and ends with everything that came from it.

The services of a stack are started here and ended in `ending`, nowhere else. A process is never matched by its name.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from harness.clock import Clock, Deadline, SteadyClock
from harness.ending import POLL_S, Ending, Stopped, never, send
from harness.errors import DoctorError, InstallError, ServiceDiedError
from harness.proctable import ProcessId, ProcessRow, ProcessTable, read_row
from harness.services.spec import ServiceSpec
from harness.survivors import RUN_MARK, SERVICE_MARK, ProcessTree

_STEADY = SteadyClock()


class Process:
    """One service as a child of this process.

    Its leader is not reaped before its whole tree has ended: until then the kernel gives neither its pid nor its
    session's number to anybody else, so that both keep naming the run's own processes.
    """

    def __init__(self, spec: ServiceSpec, *, run_id: str, stdout: Path | None = None) -> None:
        """`stdout` is a file for the standard output alone; by default it shares `spec.log` with standard error."""
        self.spec = spec
        self.run_id = run_id
        self._stdout = stdout
        self._popen: subprocess.Popen[bytes] | None = None
        self._ending: Ending | None = None
        self._stopped: Stopped | None = None

    def start(self) -> None:
        """Start it once. Raises `InstallError` when the program is missing, `DoctorError` when its log cannot be."""
        if self._popen is not None:
            raise RuntimeError(f"{self.spec.name} was started before")
        with ExitStack() as files:
            log = files.enter_context(_open_log(self.spec.log))
            stdout = log if self._stdout is None else files.enter_context(_open_log(self._stdout))
            self._popen = _spawn(self.spec, self.run_id, stdout=stdout, stderr=log)
        row = read_row(self._popen.pid)
        assert row is not None, "a child that was not reaped is in the process table"
        self._ending = Ending(ProcessTree(self.spec.name, self.run_id, leader=row.id, session=row.pid))

    @property
    def started(self) -> bool:
        return self._popen is not None

    @property
    def id(self) -> ProcessId:
        """Pid and start time of the leader."""
        return self.tree.leader

    @property
    def pid(self) -> int:
        return self.id.pid

    @property
    def start_time(self) -> int:
        """In clock ticks since the machine's boot."""
        return self.id.start_time

    @property
    def session(self) -> int:
        return self.tree.session

    @property
    def tree(self) -> ProcessTree:
        return self._begun.tree

    @property
    def _begun(self) -> Ending:
        if self._ending is None:
            raise RuntimeError(f"{self.spec.name} was not started")
        return self._ending

    def poll(self) -> int | None:
        """The leader's exit status, negative for a signal; None while it runs (or before the start)."""
        if self._popen is None or self._popen.returncode is not None:
            return None if self._popen is None else self._popen.returncode
        ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def alive(self) -> bool:
        return self.started and self.poll() is None

    def interrupt(self) -> None:
        """Pass a Ctrl-C on to the leader: its session is its own, so that the terminal's does not reach it."""
        send(self.id, signal.SIGINT)

    def check_alive(self) -> None:
        """The liveness check for the poller: raises `ServiceDiedError` when the leader has ended."""
        returncode = self.poll()
        if returncode is None:
            return
        raise ServiceDiedError(
            f"{self.spec.name} ended although it should run",
            expected=f"{self.spec.name} (pid {self.pid}) runs",
            found=describe_exit(returncode),
            where=self.spec.name,
            hint=f"read {self.spec.log}",
            log=self.spec.log,
        )

    def snapshot(self) -> list[ProcessRow]:
        """Record the service's processes, descendants included, and return those that have not ended.

        To be called again and again while the service runs: what was seen once can be ended after its parent has gone.
        """
        return self.tree.update(ProcessTable.read())

    def wait(self, deadline: Deadline, clock: Clock) -> int | None:
        """Wait for the leader's end: its exit status, or None at the deadline. Raises `Interrupted` with the clock."""
        while (returncode := self.poll()) is None and not deadline.passed(clock):
            clock.sleep(min(POLL_S, deadline.remaining(clock)))
        return returncode

    def stop(
        self, grace_s: float | None = None, *, clock: Clock = _STEADY, urgent: Callable[[], bool] = never
    ) -> Stopped:
        """End it and everything that came from it; afterwards nothing of it is left, or `Stopped.left` says what.

        SIGTERM, then at most `grace_s` seconds (the spec's by default), then SIGKILL. `urgent` is asked all the time;
        once it is true, or the clock was interrupted, the grace is over. Stopping again, or before the start, is fine.
        """
        if self._popen is None or self._ending is None:
            return Stopped(self.spec.name, 0.0, None)
        if self._stopped is None:
            grace = self.spec.stop_grace_s if grace_s is None else grace_s
            self._stopped = self._ending.end(grace, clock, urgent, self._reap)
        return self._stopped

    def kill(self) -> Stopped:
        """End it without any grace."""
        return self.stop(0.0, urgent=lambda: True)

    def record(self) -> RecordedProcess:
        """What a later command needs to find this process again."""
        self.snapshot()
        members = tuple(sorted((member.pid, member.start_time) for member in self.tree.recorded))
        return RecordedProcess(self.spec.name, self.pid, self.start_time, self.session, self.run_id, members)

    def _reap(self) -> int | None:
        returncode = self.poll()
        if self._popen is not None and returncode is not None:
            self._popen.wait()
        return returncode


@dataclass(frozen=True)
class RecordedProcess:
    """A service that an earlier command started and left running, as found in a state file.

    `members` are its processes as (pid, start time) when it was recorded. Whatever the file says, only a process with
    the recorded start time, or one that can be traced to such a process or bears the run's mark, is touched.
    """

    service: str
    pid: int
    start_time: int
    session: int
    run_id: str
    members: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> RecordedProcess:
        """From the decoded JSON that `fields` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        members: Iterable[Any] = fields["members"]
        return cls(
            service=str(fields["service"]),
            pid=int(fields["pid"]),
            start_time=int(fields["start_time"]),
            session=int(fields["session"]),
            run_id=str(fields["run_id"]),
            members=tuple((int(pid), int(start)) for pid, start in members),
        )

    def fields(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def alive(self) -> bool:
        """Whether the leader itself still runs."""
        row = read_row(self.pid)
        return row is not None and row.id == ProcessId(self.pid, self.start_time) and not row.ended

    def tree(self) -> ProcessTree:
        recorded = {ProcessId(pid, start) for pid, start in self.members}
        leader = ProcessId(self.pid, self.start_time)
        return ProcessTree(self.service, self.run_id, leader, self.session, recorded)

    def stop(self, grace_s: float, *, clock: Clock = _STEADY, urgent: Callable[[], bool] = never) -> Stopped:
        """End what is left of it; see `Process.stop`."""
        return Ending(self.tree()).end(grace_s, clock, urgent, returncode=lambda: None)


def describe_exit(returncode: int) -> str:
    """An exit status in words."""
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    if -returncode == signal.SIGKILL:
        return f"ended by {name} (by hand, or by the kernel for lack of memory: see dmesg)"
    return f"ended by {name}"


def _open_log(path: Path) -> IO[bytes]:
    try:
        return path.open("ab")
    except OSError as error:
        raise DoctorError(f"the log {path} cannot be written", found=error.strerror, where=str(path)) from error


def _spawn(spec: ServiceSpec, run_id: str, *, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            spec.argv,
            env={**spec.env, RUN_MARK: run_id, SERVICE_MARK: spec.name},
            cwd=spec.cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=spec.pass_fds,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise InstallError(
            f"{spec.name} cannot be started: {error.strerror}",
            expected=f"the program {spec.argv[0]} and the folder {spec.cwd}",
            found=f"{error.strerror}: {error.filename}",
            where=spec.name,
            hint="nox -s install",
        ) from error
