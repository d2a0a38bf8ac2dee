"""How trainer (rank 0) and engine workers find each other: a store on the trainer, then a Gloo group.

Every wait is bounded, and a group that does not come together is reported as expected against joined ranks, on both
sides. Listens on the given master address only (torch's own store would listen on every interface).
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import DistNetworkError, PrefixStore, ProcessGroupGloo, TCPStore

from smokestack_payload.background import in_background

POLL_S = 0.02
FAREWELL_S = 0.2
"""How long a store outlives a bad verdict, so that the workers can read it."""

GO = "go"
VERDICT = "verdict"
SENDER = 0


class RendezvousError(RuntimeError):
    """The transfer group did not come together; the text names expected and joined ranks."""


class TransferGroup:
    """A group that came together: broadcasts from the trainer, and small reports from the workers back to it."""

    def __init__(self, store: TCPStore, gloo: ProcessGroupGloo, rank: int, world_size: int) -> None:
        self._store = store
        self._gloo = gloo
        self._rank = rank
        self._world_size = world_size

    def begin_broadcast(self, payload: torch.Tensor) -> Any:
        """Start sending (trainer) or filling (worker) `payload`; the returned work has `wait()`."""
        return self._gloo.broadcast(payload, SENDER)

    def publish(self, report: Mapping[str, float]) -> None:
        """Leave this worker's report for the trainer, in place of its last one."""
        self._store.set(_report(self._rank), json.dumps(report))

    def reports(self) -> dict[int, dict[str, float]]:
        """The last report of every worker that left one, by rank."""
        ranks = [rank for rank in range(1, self._world_size) if self._store.check([_report(rank)])]
        return {rank: json.loads(self._store.get(_report(rank))) for rank in ranks}


def host_group(
    address: str,
    port: int,
    world_size: int,
    *,
    rendezvous_s: float,
    transfer_s: float,
    check: Callable[[], None] = lambda: None,
) -> TransferGroup:
    """Rank 0: open the store, wait until ranks 1 .. world_size-1 have joined, form the group.

    `check` is called while waiting and may raise, so that a peer that already failed is not waited for. When it or
    the deadline ends the wait, the joined workers are told, and stop waiting too.
    """
    store = _listening_store(address, port, rendezvous_s)
    expected = list(range(1, world_size))
    deadline = time.monotonic() + rendezvous_s
    while missing := [rank for rank in expected if not store.check([_joined(rank)])]:
        problem = _problem(check)
        if problem is None and time.monotonic() >= deadline:
            problem = f"no more ranks joined within {rendezvous_s:g} s"
        if problem is not None:
            joined = [rank for rank in expected if rank not in missing]
            text = f"{problem}; expected ranks {expected}, joined {joined}, missing {missing}"
            store.set(VERDICT, text)
            time.sleep(FAREWELL_S)
            raise RendezvousError(text)
        time.sleep(POLL_S)
    store.set(VERDICT, GO)
    return _form(store, 0, world_size, _address_towards(address, port), transfer_s)


def join_group(
    address: str, port: int, rank: int, world_size: int, *, rendezvous_s: float, transfer_s: float
) -> TransferGroup:
    """A worker: announce `rank` at the trainer's store, wait for its verdict, form the group."""
    if not 0 < rank < world_size:
        raise RendezvousError(f"rank {rank} is outside the group: expected ranks {list(range(1, world_size))}")
    deadline = time.monotonic() + rendezvous_s
    store = _connected_store(address, port, rank, deadline)
    if store.add(f"claims/{rank}", 1) > 1:
        raise RendezvousError(f"rank {rank} has joined already: two workers were given the same rank offset")
    store.set(_joined(rank), str(os.getpid()))
    try:
        verdict = _verdict(store, rank, world_size, deadline)
    except DistNetworkError as error:
        raise RendezvousError(f"rank {rank}: the trainer's store at {address}:{port} is gone: {error}") from error
    if verdict != GO:
        raise RendezvousError(f"rank {rank}: the trainer gave up: {verdict}")
    return _form(store, rank, world_size, _address_towards(address, port), transfer_s)


def _verdict(store: TCPStore, rank: int, world_size: int, deadline: float) -> str:
    while not store.check([VERDICT]):
        if time.monotonic() >= deadline:
            expected = list(range(1, world_size))
            joined = [other for other in expected if store.check([_joined(other)])]
            raise RendezvousError(f"rank {rank}: no go from the trainer; expected ranks {expected}, joined {joined}")
        time.sleep(POLL_S)
    verdict: str = store.get(VERDICT).decode()
    return verdict


def _joined(rank: int) -> str:
    return f"joined/{rank}"


def _report(rank: int) -> str:
    return f"report/{rank}"


def _problem(check: Callable[[], None]) -> str | None:
    try:
        check()
    except RuntimeError as error:
        return str(error)
    return None


def _listening_store(address: str, port: int, timeout_s: float) -> TCPStore:
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise RendezvousError(f"cannot listen on {address}:{port}: {error}") from error
    return TCPStore(
        address,
        listener.getsockname()[1],
        None,
        True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def _connected_store(address: str, port: int, rank: int, deadline: float) -> TCPStore:
    """Connect once the port answers: torch's own retries overrun the deadline and print stack traces."""
    while True:
        left = deadline - time.monotonic()
        try:
            socket.create_connection((address, port), timeout=max(left, POLL_S)).close()
            break
        except OSError as error:
            if time.monotonic() + POLL_S >= deadline:
                raise RendezvousError(f"rank {rank}: nobody answers at {address}:{port}: {error}") from error
            time.sleep(POLL_S)
    timeout = timedelta(seconds=max(deadline - time.monotonic(), 1.0))
    return TCPStore(address, port, None, False, timeout=timeout, wait_for_workers=False)


def _form(store: TCPStore, rank: int, world_size: int, own_address: str, transfer_s: float) -> TransferGroup:
    """Form the group in a thread that may run on any CPU of the parent process; Gloo's threads inherit that.

    vLLM binds a CPU worker to its own cores. Receiving must not share the one core that is busy loading.
    """

    def form() -> ProcessGroupGloo:
        os.sched_setaffinity(0, os.sched_getaffinity(0) | os.sched_getaffinity(os.getppid()))
        options: Any = ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=transfer_s)
        options._devices = [ProcessGroupGloo.create_device(hostname=own_address)]
        return ProcessGroupGloo(PrefixStore("gloo", store), rank, world_size, options)

    gloo = in_background("form-group", form).result(timeout=transfer_s)
    return TransferGroup(store, gloo, rank, world_size)


def _address_towards(address: str, port: int) -> str:
    """This machine's address on the route to the master: loopback for loopback. Nothing is sent (UDP connect)."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0][0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        return str(probe.getsockname()[0])
