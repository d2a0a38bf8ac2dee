"""vLLM's own NCCL engine, driven by the real session and the real fan-out client against fake engines.

The communicator alone is a fake: it records what it is asked for, in one journal with the engines' calls. There is no
GPU here; CUDA's streams are stood in for, since vLLM packs on them.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import FakeEngine, configured
from smokestack_payload.errors import ProtocolError, RefitError
from smokestack_payload.refit import nccl
from smokestack_payload.refit.admin import EngineFleet
from smokestack_payload.refit.backends import connector, count_messages
from smokestack_payload.refit.manifest import Expected
from smokestack_payload.refit.protocols import protocol_of
from smokestack_payload.refit.session import RefitSession, State
from smokestack_payload.refit.source import ParameterSource
from smokestack_payload.settings import EngineAddress, PackingSettings, Plan, TrainerSettings
from vllm.distributed.device_communicators import pynccl_wrapper
from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
from vllm.distributed.weight_transfer import nccl_common, nccl_engine, packed_tensor

MakeEngine = Callable[[], FakeEngine]
TellOtherwise = Callable[[dict[str, Any]], None]
BUFFER = 600
ROUND = ["/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache", "/resume"]
UID = bytes(range(128))


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


@pytest.fixture(autouse=True)
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


def session_of(model: torch.nn.Module, chosen: TrainerSettings, *engines: FakeEngine, limit_s: float = 10) -> Any:
    source = ParameterSource(model)
    expected = Expected({one.name: one.shape for one in source.metadata()}, "bfloat16")
    there = plan(*engines)
    session = RefitSession(EngineFleet(there.engines), source, expected, limit_s)
    return session, lambda: session.initialise(connector(chosen, there), limit_s)


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


@pytest.fixture
def tell_otherwise(monkeypatch: pytest.MonkeyPatch) -> TellOtherwise:
    """As when a release of vLLM tells its workers something else than it does itself."""
    payload = nccl_engine.worker_init_payload

    def tell(other: dict[str, Any]) -> None:
        monkeypatch.setattr(nccl_engine, "worker_init_payload", lambda info: {**payload(info), **other})

    return tell


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


def test_the_order_of_admin_calls_and_collectives(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engine = make_engine()
    write_down(engine, journal)
    session, initialise = session_of(model, settings(), engine)
    initialise()
    session.refit(3)
    begins = [line.split()[1] for line in journal.lines if line.endswith("begins")]
    assert begins == ["/init_weight_transfer_engine", *ROUND]
    broadcasts = [index for index, line in enumerate(journal.lines) if line.startswith("broadcast")]
    assert min(broadcasts) > journal.place("POST /start_weight_update ends")
    assert max(broadcasts) < journal.place("POST /finish_weight_update begins")
    assert min(broadcasts) < journal.place("POST /update_weights ends"), "the update is open while weights are sent"
    assert body(engine, "/finish_weight_update") == {"weight_version": "3"}
    assert by_store.calls == []


def test_several_engines_get_their_offsets_and_the_same_broadcasts(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engines = [make_engine(), make_engine()]
    for engine in engines:
        write_down(engine, journal)
    session, initialise = session_of(model, settings(), *engines)
    initialise()
    session.refit(0)
    told = [body(engine, "/init_weight_transfer_engine")["init_info"] for engine in engines]
    assert [(one["rank_offset"], one["world_size"]) for one in told] == [(1, 3), (2, 3)]
    updates = [body(engine, "/update_weights") for engine in engines]
    assert updates[0] == updates[1]
    assert len(journal.broadcasts()) == count_messages(settings(), ParameterSource(model).metadata())
    finished = [index for index, line in enumerate(journal.lines) if line == "POST /finish_weight_update begins"]
    assert len(finished) == 2
    assert min(finished) > max(i for i, line in enumerate(journal.lines) if line == "POST /update_weights ends")


@pytest.mark.filterwarnings("ignore:Tensor .* exceeds buffer_size_bytes:UserWarning")
@pytest.mark.usefixtures("by_store")
@pytest.mark.parametrize("packing", list(itertools.product([1, 100, BUFFER, 1 << 30], [1, 2, 3])))
def test_both_ends_cut_the_weights_in_the_same_places(
    make_engine: MakeEngine, journal: Journal, model: torch.nn.Module, packing: tuple[int, int]
) -> None:
    engine = make_engine()
    write_down(engine, journal)
    chosen = settings(packing={"packed": True, "buffer_bytes": packing[0], "buffers": packing[1]})
    session, initialise = session_of(model, chosen, engine)
    initialise()
    session.refit(0)
    told = body(engine, "/init_weight_transfer_engine")["init_info"]
    assert (told["packed"], told["packed_buffer_size_bytes"], told["packed_num_buffers"]) == (True, *packing)
    received = replayed(journal, body(engine, "/update_weights")["update_info"], told)
    sent = dict(model.named_parameters())
    assert [name for name, _ in received] == list(sent)
    assert all(torch.equal(tensor, sent[name]) for name, tensor in received)
    assert len(journal.broadcasts()) == count_messages(chosen, ParameterSource(model).metadata())


def test_an_unpacked_refit_sends_each_tensor_alone(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engine = make_engine()
    write_down(engine, journal)
    chosen = settings(packing={"packed": False, "buffer_bytes": BUFFER, "buffers": 2})
    session, initialise = session_of(model, chosen, engine)
    initialise()
    session.refit(0)
    assert body(engine, "/init_weight_transfer_engine")["init_info"]["packed"] is False
    sizes = [one.numel() * one.element_size() for one in model.parameters()]
    assert journal.broadcasts() == sizes
    assert count_messages(chosen, ParameterSource(model).metadata()) == len(sizes)


def test_the_packing_is_a_gibibyte_twice_unless_it_is_told_otherwise() -> None:
    assert (packed_tensor.DEFAULT_PACKED_BUFFER_SIZE_BYTES, packed_tensor.DEFAULT_PACKED_NUM_BUFFERS) == (1 << 30, 2)


@pytest.mark.parametrize(
    "other", [{"packed": False}, {"packed_buffer_size_bytes": BUFFER + 1}, {"packed_num_buffers": 3}]
)
@pytest.mark.usefixtures("by_store")
def test_unequal_packing_is_refused_before_any_engine_hears_of_it(
    make_engine: MakeEngine, journal: Journal, model: torch.nn.Module, tell_otherwise: TellOtherwise, other: Any
) -> None:
    tell_otherwise(other)
    engine = make_engine()
    session, initialise = session_of(model, settings(), engine)
    with pytest.raises(RefitError, match="cut the weights in different ways: nothing was sent") as caught:
        initialise()
    assert str(*other.values()) in str(caught.value.found)
    assert engine.calls == []
    assert journal.broadcasts() == []
    assert session.state is State.POISONED


def test_unequal_packing_does_not_wait_for_a_group_that_nobody_joins(
    make_engine: MakeEngine, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, tell_otherwise: TellOtherwise
) -> None:
    never = threading.Event()
    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda _info: never.wait(timeout=20))
    tell_otherwise({"packed": False})
    _, initialise = session_of(model, settings(), make_engine())
    with pytest.raises(RefitError, match="different ways"):
        initialise()
    never.set()


def test_a_peer_that_is_gone_ends_in_an_abort_and_never_in_a_destroy(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engine = make_engine()
    write_down(engine, journal, update_waits=False)
    session, initialise = session_of(model, settings(), engine, limit_s=3)
    initialise()
    by_store.gone = True
    engine.fail("/update_weights", 500, "EngineCore died")
    with pytest.raises(RefitError, match="EngineCore died"):
        session.refit(1)
    assert by_store.calls == ["abort"]
    assert (by_store.available, by_store.disabled) == (False, True)
    assert "/resume" not in engine.paths
    assert session._engine._engine.model_update_group is None, "whoever sends again is refused at once"
    session.close()
    assert by_store.calls == ["abort"], "once, and nothing collective at the end"


def test_an_orderly_end_frees_the_group_without_its_peers(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engine = make_engine()
    write_down(engine, journal)
    session, initialise = session_of(model, settings(), engine)
    initialise()
    session.refit(0)
    session.close()
    assert by_store.calls == ["abort"]


def test_an_abort_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> None:
    monkeypatch.setattr(nccl, "ABORT_S", 0.05)
    stuck, communicator = threading.Event(), Communicator(journal)
    communicator.nccl.ncclCommAbort = lambda _comm: stuck.wait(timeout=20)
    begun = time.monotonic()
    nccl.abort(communicator)
    assert time.monotonic() - begun < 5
    assert communicator.disabled
    stuck.set()


def test_a_library_without_an_abort_is_left_to_the_end_of_the_process(journal: Journal) -> None:
    communicator = Communicator(journal)
    del communicator.nccl.ncclCommAbort
    nccl.abort(communicator)
    assert communicator.calls == []
    assert communicator.disabled
    nccl.abort(communicator)
    nccl.abort(None)


def test_vllms_own_communicator_has_the_names_that_an_abort_reaches_into() -> None:
    source = inspect.getsource(PyNcclCommunicator.destroy)
    for line in ("self.nccl.ncclCommAbort(self.comm)", "self.available = False", "self.disabled = True"):
        assert line in source


def test_an_id_of_nccls_library_becomes_its_bytes_and_joins_by_vllms_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pynccl_wrapper.ncclUniqueId()
    ctypes.memmove(ctypes.addressof(made), UID, len(UID))
    monkeypatch.setattr(pynccl_wrapper, "NCCLLibrary", lambda: SimpleNamespace(ncclGetUniqueId=lambda: made))
    joined: list[tuple[Any, ...]] = []
    monkeypatch.setattr(nccl_common, "uid_init_process_group", lambda *given: joined.append(given))
    unique_id, join = nccl._unique_id()
    assert unique_id == UID
    join(unique_id, 3)
    assert joined == [(UID, 0, 3, 0)]


def test_a_group_by_a_unique_id_is_made_by_that_id_on_both_ends(
    make_engine: MakeEngine, journal: Journal, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    communicator = Communicator(journal)
    joined: list[tuple[bytes, int]] = []

    def join(unique_id: bytes, world_size: int) -> Communicator:
        joined.append((unique_id, world_size))
        return communicator

    monkeypatch.setattr(nccl, "_unique_id", lambda: (UID, join))
    engine = make_engine()
    write_down(engine, journal)
    session, initialise = session_of(model, settings(rendezvous="unique-id"), engine)
    initialise()
    session.refit(0)
    told = body(engine, "/init_weight_transfer_engine")["init_info"]
    assert joined == [(UID, 2)]
    assert base64.b64decode(told["nccl_unique_id_b64"], validate=True) == UID
    assert "master_address" not in told
    parsed = nccl_common.NCCLWeightTransferInitInfo(**told)
    assert (parsed.nccl_unique_id_bytes, parsed.rank_offset, parsed.world_size) == (UID, 1, 2)
    received = replayed(journal, body(engine, "/update_weights")["update_info"], told)
    assert [name for name, _ in received] == [name for name, _ in model.named_parameters()]


def test_what_a_worker_is_told_is_what_vllms_own_worker_reads(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engine = make_engine()
    write_down(engine, journal)
    session, initialise = session_of(model, settings(), engine)
    initialise()
    session.refit(0)
    init = nccl_engine.NCCLWeightTransferEngine.init_info_cls(
        **body(engine, "/init_weight_transfer_engine")["init_info"]
    )
    assert (init.packed, init.packed_buffer_size_bytes, init.packed_num_buffers) == (True, BUFFER, 2)
    nccl_engine.NCCLWeightTransferEngine.update_info_cls(**body(engine, "/update_weights")["update_info"])


class Helpers:
    """The 0.26 line's interface: functions of the worker's class, which take a mapping and the group."""

    def __init__(self, journal: Journal, group: Communicator) -> None:
        self.journal, self.group = journal, group
        self.given: list[dict[str, Any]] = []

    def trainer_init(self, info: dict[str, Any]) -> Communicator:
        assert info == {"master_address": "127.0.0.1", "master_port": 29500, "world_size": 2}
        self.journal.lines.append("endpoint opened")
        return self.group

    def trainer_send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]], arguments: dict[str, Any]) -> None:
        self.given.append(arguments)
        packed_tensor.packed_nccl_broadcast_producer(
            iterator=iterator,
            group=arguments["group"],
            src=arguments["src"],
            post_iter_func=lambda pair: pair[1],
            buffer_size_bytes=arguments["packed_buffer_size_bytes"],
            num_buffers=arguments["packed_num_buffers"],
        )


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Helpers:
    made = Helpers(journal, Communicator(journal))
    monkeypatch.setattr(nccl, "_engines", lambda: SimpleNamespace(NCCLWeightTransferEngine=made))
    return made


def test_the_older_line_is_told_its_packing_with_each_update(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    engine = make_engine()
    write_down(engine, journal)
    packing = {"packed": True, "buffer_bytes": BUFFER, "buffers": 3}
    chosen = settings(transfer="static-helpers", packing=packing)
    session, initialise = session_of(model, chosen, engine)
    initialise()
    session.refit(5)
    told = body(engine, "/init_weight_transfer_engine")["init_info"]
    assert set(told) == {"master_address", "master_port", "rank_offset", "world_size"}
    update = body(engine, "/update_weights")["update_info"]
    for told_or_done in (update, helpers.given[0]):
        assert (told_or_done["packed"], told_or_done["packed_buffer_size_bytes"]) == (True, BUFFER)
        assert told_or_done["packed_num_buffers"] == 3
    begins = [line.split()[1] for line in journal.lines if line.endswith("begins")]
    assert begins == ["/init_weight_transfer_engine", *ROUND]
    broadcasts = [index for index, line in enumerate(journal.lines) if line.startswith("broadcast")]
    assert journal.place("POST /start_weight_update ends") < min(broadcasts)
    assert min(broadcasts) < journal.place("POST /update_weights ends")
    assert max(broadcasts) < journal.place("POST /finish_weight_update begins")
    received = replayed(journal, update, update)
    assert all(torch.equal(tensor, dict(model.named_parameters())[name]) for name, tensor in received)
    session.close()
    assert helpers.group.calls == ["abort"]


def test_the_older_line_reaches_workers_through_their_extension_as_well(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    """As the researcher's stack does it: no routes for weights, the same order of calls and collectives."""
    engine = make_engine()
    methods: list[str] = []

    def call(asked: Any) -> tuple[int, Any]:
        methods.append(asked["method"])
        if asked["method"] == "smokestack_update" and not journal.first.wait(timeout=5):
            return 500, {"error": "no broadcast came while the update was open"}
        return 200, {"results": [None]}

    engine.on("/collective_rpc", call)
    chosen = settings(transfer="static-helpers", refit="collective-rpc")
    there = plan(engine)
    source = ParameterSource(model)
    expected = Expected({one.name: one.shape for one in source.metadata()}, "bfloat16")
    session = RefitSession(EngineFleet(there.engines, protocol=protocol_of(chosen)), source, expected, 10)
    session.initialise(connector(chosen, there), 10)
    session.refit(2)
    order = ["init_transfer", "start_update", "update", "finish_update", "set_version"]
    assert methods == [f"smokestack_{name}" for name in order]
    update = next(
        body["kwargs"]["update_info"] for _, body in engine.calls if body and body.get("method") == methods[2]
    )
    assert all(
        torch.equal(one, dict(model.named_parameters())[name]) for name, one in replayed(journal, update, update)
    )


def test_the_older_line_aborts_as_well(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    engine = make_engine()
    session, initialise = session_of(model, settings(transfer="static-helpers"), engine, limit_s=3)
    initialise()
    helpers.group.gone = True
    engine.fail("/update_weights", 500, "gone")
    with pytest.raises(RefitError, match="gone"):
        session.refit(1)
    assert helpers.group.calls == ["abort"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"transfer": "static-helpers"}, "has no trainer_init"),
        ({"transfer": "static-helpers", "rendezvous": "unique-id"}, "no such way to make an NCCL group"),
        ({"transfer": "pigeon"}, "no such way to make an NCCL group"),
        ({"backend": "pigeon"}, "no such refit backend"),
    ],
)
def test_what_this_vllm_cannot_do_is_refused_before_any_engine_hears_of_it(
    make_engine: MakeEngine, model: torch.nn.Module, changes: dict[str, Any], said: str
) -> None:
    engine = make_engine()
    with pytest.raises((ProtocolError, RefitError), match=said):
        session_of(model, settings(**changes), engine)[1]()
    assert engine.calls == []


def test_a_source_that_yields_something_else_than_it_announced_sends_no_more(
    make_engine: MakeEngine, journal: Journal, helpers: Helpers, model: torch.nn.Module
) -> None:
    metas = ParameterSource(model).metadata()
    pairs = list(model.named_parameters())
    assert [name for name, _ in nccl._as_announced(pairs, metas)] == [meta.name for meta in metas]
    for wrong in (pairs[:-1], [*pairs, ("more", torch.zeros(1))], [pairs[1], *pairs[1:]]):
        with pytest.raises(ValueError, match="announced"):
            list(nccl._as_announced(wrong, metas))


@pytest.mark.parametrize(
    ("sizes", "buffer_bytes", "messages"),
    [
        ((10, 10, 10), 15, 2),
        ((10, 10, 10), 9, 3),
        ((10,), 100, 1),
        ((), 5, 0),
        ((10, 10, 10), 20, 1),
        ((5, 30, 5), 10, 2),
    ],
)
def test_messages_are_counted_as_vllm_makes_them(sizes: tuple[int, ...], buffer_bytes: int, messages: int) -> None:
    metas = [SimpleNamespace(dtype=torch.uint8, shape=(size,)) for size in sizes]
    assert nccl.count_messages(metas, PackingSettings(True, buffer_bytes, 2)) == messages
