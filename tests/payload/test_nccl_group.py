"""How the group of NCCL's ranks is made by a unique id, and how it ends: by an abort, whoever is gone."""

from __future__ import annotations

import base64
import ctypes
import inspect
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nccl_peers import (
    Communicator,
    Journal,
    MakeEngine,
    body,
    refitted,
    replayed,
    session_of,
    settings,
    write_down,
)
from smokestack_payload.errors import RefitError
from smokestack_payload.refit import nccl
from vllm.distributed.device_communicators import pynccl_wrapper
from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
from vllm.distributed.weight_transfer import nccl_common

pytestmark = pytest.mark.usefixtures("streams")
UID = bytes(range(128))


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
    refitted(journal, model, settings(), make_engine()).close()
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
    refitted(journal, model, settings(rendezvous="unique-id"), engine)
    told = body(engine, "/init_weight_transfer_engine")["init_info"]
    assert joined == [(UID, 2)]
    assert base64.b64decode(told["nccl_unique_id_b64"], validate=True) == UID
    assert "master_address" not in told
    parsed = nccl_common.NCCLWeightTransferInitInfo(**told)
    assert (parsed.nccl_unique_id_bytes, parsed.rank_offset, parsed.world_size) == (UID, 1, 2)
    received = replayed(journal, body(engine, "/update_weights")["update_info"], told)
    assert [name for name, _ in received] == [name for name, _ in model.named_parameters()]
