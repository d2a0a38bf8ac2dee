"""Which processes belong to a run: by session, by parentage, by what was recorded, and by a mark in the environment.

Each sign alone is blind somewhere: a child may open its own session, an orphan loses its parent, and vLLM's engine core
and workers overwrite their environment (setproctitle). So descendants are recorded while the run goes on. No process
is ever matched by its name. Only reads; `process` acts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.proctable import ProcessId, ProcessRow, ProcessTable, command_of, environment_of

RUN_MARK = "SMOKESTACK_RUN_ID"
SERVICE_MARK = "SMOKESTACK_SERVICE"


@dataclass(frozen=True)
class Survivor:
    """A process of the run that outlived its teardown."""

    pid: int
    service: str
    cmd: str


@dataclass
class ProcessTree:
    """The processes of one service: its leader, whatever descends from it, and what was recorded before.

    `leader` opened the session `session` (the same number as its pid). `recorded` grows with each `update`.
    """

    service: str
    run_id: str
    leader: ProcessId
    session: int
    recorded: set[ProcessId] = field(default_factory=set)

    def update(self, table: ProcessTable, *, marks: bool = False) -> list[ProcessRow]:
        """Record the tree's processes in `table`; returns those that have not ended.

        With `marks`, environments are read as well: slower, and needed only where completeness counts (teardown).
        """
        protected = {table[pid].id for pid in table.ancestors(os.getpid())}
        known = {process for process in self.recorded | {self.leader} if table.find(process) is not None}
        marked = self._marked(table) if marks else set()
        traced = _with_sessions(known, table)
        if any(table[process.pid].session == self.session for process in marked):
            traced = _with_descendants(traced | _members({self.session}, table), table)
        # A mark may have been copied into somebody's shell: no reason to record a process, nor to take its session.
        self.recorded |= traced - protected
        found = _with_descendants(traced | marked, table) - protected
        rows = (table[process.pid] for process in sorted(found))
        return [row for row in rows if not row.ended]

    def _marked(self, table: ProcessTable) -> set[ProcessId]:
        wanted = (self.run_id, self.service)
        return {row.id for row in table.values() if marks_of(row) == wanted}


def marks_of(row: ProcessRow) -> tuple[str, str] | None:
    """(run id, service) that the process was started with, where it can be seen."""
    environment = environment_of(row.pid)
    if RUN_MARK not in environment:
        return None
    return environment[RUN_MARK], environment.get(SERVICE_MARK, "")


def find_survivors(run_id: str, trees: Iterable[ProcessTree]) -> list[Survivor]:
    """Every process of the run that is still there, zombies aside: those of `trees`, and any other that bears the
    run's mark."""
    table = ProcessTable.read()
    services: dict[ProcessId, str] = {}
    for tree in trees:
        services.update((row.id, tree.service) for row in tree.update(table, marks=True))
    protected = table.ancestors(os.getpid())
    for row in table.values():
        if row.ended or row.id in services or row.pid in protected:
            continue
        marks = marks_of(row)
        if marks is not None and marks[0] == run_id:
            services[row.id] = marks[1]
    return [Survivor(process.pid, service, command_of(process.pid)) for process, service in sorted(services.items())]


def _with_sessions(known: set[ProcessId], table: ProcessTable) -> set[ProcessId]:
    """`known`, their descendants, and everyone in the sessions of these.

    Sessions cannot be joined: a session that holds a descendant of a session leader was opened by that leader or below
    it. And as long as it has a living member, its number is not given out again.
    """
    found = _with_descendants(known, table)
    return found | _members({table[process.pid].session for process in found}, table)


def _members(sessions: set[int], table: ProcessTable) -> set[ProcessId]:
    """Everyone in these sessions; the session of this process itself is never taken for the stack's."""
    return {row.id for row in table.values() if row.session in sessions - {os.getsid(0)}}


def _with_descendants(roots: set[ProcessId], table: ProcessTable) -> set[ProcessId]:
    children: dict[int, list[ProcessRow]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row)
    found = set(roots)
    open_ends = [process.pid for process in roots]
    while open_ends:
        for row in children.get(open_ends.pop(), []):
            if row.id not in found:
                found.add(row.id)
                open_ends.append(row.pid)
    return found
