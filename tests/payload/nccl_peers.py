"""Stand-ins for the tests of NCCL: the communicator alone is a fake, with fake engines around it.

It records what it is asked for, in one journal with the engines' calls. There is no GPU here; CUDA's streams are stood
in for, since vLLM packs on them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import FakeEngine, configured
from smokestack_payload.refit.admin import EngineFleet
from smokestack_payload.refit.backends import connector
from smokestack_payload.refit.manifest import Expected
from smokestack_payload.refit.session import RefitSession
from smokestack_payload.refit.source import ParameterSource
from smokestack_payload.settings import EngineAddress, Plan, TrainerSettings
from vllm.distributed.weight_transfer import nccl_engine, packed_tensor

MakeEngine = Callable[[], FakeEngine]
BUFFER = 600
ROUND = ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache", "/resume"]


@dataclass
class Journal:
    """Everything in the order in which it happened: `POST <path> begins`, `POST <path> ends`, `broadcast <bytes>`."""

    lines: list[str] = field(default_factory=list)
    sent: list[torch.Tensor] = field(default_factory=list)
    first: threading.Event = field(default_factory=threading.Event)

    def broadcasts(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines if line.startswith("broadcast")]

    def place(self, line: str) -> int:
        return self.lines.index(line)


class Communicator:
    """Stands where vLLM's `PyNcclCommunicator` stands. `gone`: a broadcast does not return, as when a peer has died."""

    available, disabled = True, False

    def __init__(self, journal: Journal, *, gone: bool = False) -> None:
        self.journal, self.gone = journal, gone
        self.calls: list[str] = []
        self.comm = "the communicator"
        self.nccl = SimpleNamespace(ncclCommAbort=self._note("abort"), ncclCommDestroy=self._note("destroy"))
        self.released = threading.Event()

    def _note(self, what: str) -> Callable[[Any], None]:
        def call(comm: Any) -> None:
            assert comm == self.comm
            self.calls.append(what)
            self.released.set()

        return call

    def broadcast(self, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
        assert src == 0
        if self.gone:
            self.released.wait(timeout=20)
            raise RuntimeError("the communicator was aborted")
        self.journal.lines.append(f"broadcast {tensor.numel() * tensor.element_size()}")
        self.journal.sent.append(tensor.detach().clone().reshape(-1).view(torch.uint8))
        self.journal.first.set()

    def destroy(self) -> None:
        self.calls.append("destroy of vLLM's")


class Stream:
    def synchronize(self) -> None:
        return


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA, as far as vLLM's packing needs it."""
    monkeypatch.setattr(packed_tensor, "_get_streams", lambda _device, count: tuple(Stream() for _ in range(count)))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: Stream())


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    parts = {"embedding": torch.nn.Embedding(10, 16), "up": torch.nn.Linear(16, 8), "norm": torch.nn.LayerNorm(8)}
    return torch.nn.ModuleDict(parts).to(torch.bfloat16)


@pytest.fixture
def by_store(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Communicator:
    """vLLM's endpoint of the trainer is this communicator."""
    communicator = Communicator(journal)

    def opened(info: Any, rank: int = 0) -> Communicator:
        assert (info.master_address, info.master_port, rank) == ("127.0.0.1", 29500, 0)
        journal.lines.append("endpoint opened")
        return communicator

    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", opened)
    return communicator


def plan(*engines: FakeEngine, ranks: int = 1) -> Plan:
    fleet = tuple(EngineAddress(one.url, ranks, 1 + index * ranks) for index, one in enumerate(engines))
    return Plan("http://127.0.0.1:1", "m", fleet, 1 + ranks * len(engines), "127.0.0.1", 29500)


def settings(**changes: Any) -> TrainerSettings:
    packing = {"packed": True, "buffer_bytes": BUFFER, "buffers": 2}
    values = {"backend": "nccl", "precision": "bfloat16", "packing": packing, **changes}
    return TrainerSettings.parse(configured(Path("nowhere"), **values))


def write_down(engine: FakeEngine, journal: Journal, *, update_waits: bool = True) -> None:
    """Let the engine write its calls into the journal; its update goes on until the first broadcast has come."""

    def handler(path: str) -> Callable[[Any], tuple[int, Any]]:
        def answer(_body: Any) -> tuple[int, Any]:
            journal.lines.append(f"POST {path} begins")
            if path == "/update_weights" and update_waits and not journal.first.wait(timeout=5):
                return 500, {"error": "no broadcast came while the update was open"}
            journal.lines.append(f"POST {path} ends")
            return 200, {"success": True}

        return answer

    for path in ["/init_weight_transfer_engine", *ROUND]:
        engine.on(path, handler(path))


def session_of(
    model: torch.nn.Module, chosen: TrainerSettings, *engines: FakeEngine, limit_s: float = 10
) -> tuple[RefitSession, Callable[[], None]]:
    source = ParameterSource(model)
    expected = Expected({one.name: one.shape for one in source.metadata()}, "bfloat16")
    there = plan(*engines)
    session = RefitSession(EngineFleet(there.engines), source, expected, limit_s)
    return session, lambda: session.initialise(connector(chosen, there), limit_s)


def refitted(
    journal: Journal, model: torch.nn.Module, chosen: TrainerSettings, *engines: FakeEngine, version: int = 0
) -> RefitSession:
    """A session after one refit of these engines, which write their calls down."""
    for engine in engines:
        write_down(engine, journal)
    session, initialise = session_of(model, chosen, *engines)
    initialise()
    session.refit(version)
    return session


def check_order(journal: Journal) -> None:
    """One refit of one engine: the calls of a round, and the broadcasts while the update is open."""
    begins = [line.split()[1] for line in journal.lines if line.endswith("begins")]
    assert begins == ["/init_weight_transfer_engine", *ROUND]
    broadcasts = [index for index, line in enumerate(journal.lines) if line.startswith("broadcast")]
    assert min(broadcasts) > journal.place("POST /start_weight_update ends")
    assert max(broadcasts) < journal.place("POST /finish_weight_update begins")
    assert min(broadcasts) < journal.place("POST /update_weights ends"), "the update is open while weights are sent"


def replayed(journal: Journal, update: dict[str, Any], told: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """What a worker makes of the broadcasts, by vLLM's own receiving code and with what it was told alone."""
    left = iter(journal.sent)

    class Peer:
        def broadcast(self, into: torch.Tensor, src: int) -> None:
            message = next(left)
            assert message.numel() == into.numel(), "trainer and worker cut the stream in different places"
            into.copy_(message)

    def announced() -> Iterator[tuple[str, tuple[list[int], torch.dtype]]]:
        for name, dtype, shape in zip(update["names"], update["dtype_names"], update["shapes"], strict=True):
            yield name, (shape, getattr(torch, dtype))

    received: list[tuple[str, torch.Tensor]] = []
    packed_tensor.packed_nccl_broadcast_consumer(
        iterator=announced(),
        group=Peer(),
        src=0,
        post_unpack_func=received.extend,
        buffer_size_bytes=told["packed_buffer_size_bytes"],
        num_buffers=told["packed_num_buffers"],
        device="cpu",
    )
    assert next(left, None) is None
    return received


def body(engine: FakeEngine, path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(called for where, called in engine.calls if where == path)
    return found
