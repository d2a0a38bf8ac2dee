"""vLLM's own NCCL engine, driven by the real session and the real fan-out client: what is sent, told and counted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nccl_peers import (
    BUFFER,
    Communicator,
    Journal,
    MakeEngine,
    body,
    check_order,
    refitted,
    replayed,
    session_of,
    settings,
)
from smokestack_payload.errors import ProtocolError, RefitError
from smokestack_payload.refit import nccl
from smokestack_payload.refit.backends import count_messages
from smokestack_payload.refit.session import State
from smokestack_payload.refit.source import ParameterSource
from smokestack_payload.settings import PackingSettings
from vllm.distributed.weight_transfer import nccl_engine, packed_tensor

TellOtherwise = Callable[[dict[str, Any]], None]

pytestmark = pytest.mark.usefixtures("streams")


@pytest.fixture
def tell_otherwise(monkeypatch: pytest.MonkeyPatch) -> TellOtherwise:
    """As when a release of vLLM tells its workers something else than it does itself."""
    payload = nccl_engine.worker_init_payload

    def tell(other: dict[str, Any]) -> None:
        monkeypatch.setattr(nccl_engine, "worker_init_payload", lambda info: {**payload(info), **other})

    return tell


def test_the_order_of_admin_calls_and_collectives(
    make_engine: MakeEngine, journal: Journal, by_store: Communicator, model: torch.nn.Module
) -> None:
    engine = make_engine()
    refitted(journal, model, settings(), engine, version=3)
    check_order(journal)
    assert body(engine, "/finish_weight_update") == {"weight_version": "3"}
    assert by_store.calls == []


@pytest.mark.usefixtures("by_store")
def test_several_engines_get_their_offsets_and_the_same_broadcasts(
    make_engine: MakeEngine, journal: Journal, model: torch.nn.Module
) -> None:
    engines = [make_engine(), make_engine()]
    refitted(journal, model, settings(), *engines)
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
    chosen = settings(packing={"packed": True, "buffer_bytes": packing[0], "buffers": packing[1]})
    refitted(journal, model, chosen, engine)
    told = body(engine, "/init_weight_transfer_engine")["init_info"]
    assert (told["packed"], told["packed_buffer_size_bytes"], told["packed_num_buffers"]) == (True, *packing)
    received = replayed(journal, body(engine, "/update_weights")["update_info"], told)
    sent = dict(model.named_parameters())
    assert [name for name, _ in received] == list(sent)
    assert all(torch.equal(tensor, sent[name]) for name, tensor in received)
    assert len(journal.broadcasts()) == count_messages(chosen, ParameterSource(model).metadata())


@pytest.mark.usefixtures("by_store")
def test_an_unpacked_refit_sends_each_tensor_alone(
    make_engine: MakeEngine, journal: Journal, model: torch.nn.Module
) -> None:
    engine = make_engine()
    chosen = settings(packing={"packed": False, "buffer_bytes": BUFFER, "buffers": 2})
    refitted(journal, model, chosen, engine)
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


@pytest.mark.usefixtures("by_store")
def test_what_a_worker_is_told_is_what_vllms_own_worker_reads(
    make_engine: MakeEngine, journal: Journal, model: torch.nn.Module
) -> None:
    engine = make_engine()
    refitted(journal, model, settings(), engine)
    init = nccl_engine.NCCLWeightTransferEngine.init_info_cls(
        **body(engine, "/init_weight_transfer_engine")["init_info"]
    )
    assert (init.packed, init.packed_buffer_size_bytes, init.packed_num_buffers) == (True, BUFFER, 2)
    nccl_engine.NCCLWeightTransferEngine.update_info_cls(**body(engine, "/update_weights")["update_info"])


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
