"""Remembers on what the services of a run were seen to listen: now, and at any look since the start.

A listener that came and went between two looks of a second is not seen; one that lives longer is kept, even when its
process has ended. What is allowed is judged from the event, in `evidence`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Literal

from harness.events import Listening, ListeningSocket
from harness.sockets import sockets_of

HARNESS = "harness"
"""The name under which this process's own sockets are listed."""


class Exposure:
    """The looks of one run. `service` of a socket is whose process held it."""

    def __init__(self) -> None:
        self._seen: set[ListeningSocket] = set()
        self._unread: set[int] = set()

    def look(self, services: Mapping[str, Iterable[int]]) -> set[ListeningSocket]:
        """What the processes of each service, and this one, listen on now; remembered."""
        owners = {pid: service for service, pids in services.items() for pid in pids} | {os.getpid(): HARNESS}
        sockets = sockets_of(owners)
        found = {
            ListeningSocket(
                service=owners[one.pid], pid=one.pid, protocol=one.protocol, address=one.address, port=one.port
            )
            for one in sockets.listening
        }
        self._seen |= found
        self._unread |= sockets.unread
        return found

    def listing(self, when: Literal["start", "end"], services: Mapping[str, Iterable[int]]) -> Listening:
        """Look once more. At the end the event has every socket that was seen since the start."""
        found = self.look(services)
        listed = found if when == "start" else self._seen
        order = sorted(listed, key=lambda one: (one.service, one.port, one.address, one.pid))
        return Listening(when=when, sockets=tuple(order), unread=tuple(sorted(self._unread)))
