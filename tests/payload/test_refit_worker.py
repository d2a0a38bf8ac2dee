"""The worker extension that receives weights without the engine's routes: its methods' order, and its label."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import vllm.config
from smokestack_payload.refit import worker as extension
from smokestack_payload.refit.worker import UNNAMED, RefitWorker
from smokestack_payload.worker import ContentWorker


class Receiver:
    """Stands where an engine of vLLM's registry stands."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def parse_init_info(self, init_info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return ("parsed", init_info)

    def init_transfer_engine(self, init_info: Any) -> None:
        self.done.append(init_info)

    def start_weight_update(self) -> None:
        self.done.append("start")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        if update_info.get("names") == ["nobody"]:
            raise KeyError("nobody")
        self.done.append(update_info)

    def finish_weight_update(self) -> None:
        self.done.append("finish")


class Worker(RefitWorker):
    """vLLM mixes the extension into its own worker class."""

    vllm_config = None


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    made = Receiver()
    monkeypatch.setattr(extension, "_receiver", lambda backend, worker: made)
    monkeypatch.setattr(vllm.config, "set_current_vllm_config", lambda _: nullcontext())
    return made


def ready(receiver: Receiver) -> Worker:
    worker = Worker()
    worker.smokestack_init_transfer("gloo", {"rank_offset": 1})
    assert receiver.done == [("parsed", {"rank_offset": 1})]
    receiver.done.clear()
    return worker


def test_an_update_goes_through_the_receiver_and_every_order_answers_null(receiver: Receiver) -> None:
    worker = ready(receiver)
    assert worker.smokestack_start_update() is None
    assert worker.smokestack_update_open() is True
    assert worker.smokestack_update({"names": ["w"]}) is None
    assert worker.smokestack_finish_update() is None
    assert worker.smokestack_set_version("4") is None
    assert (worker.smokestack_update_open(), worker.smokestack_weight_version()) == (False, "4")
    assert receiver.done == ["start", {"names": ["w"]}, "finish"]


def test_weights_that_nobody_named_are_called_as_vllm_calls_them() -> None:
    assert Worker().smokestack_weight_version() == UNNAMED
    assert Worker().smokestack_update_open() is False


def test_methods_out_of_order_are_refused(receiver: Receiver) -> None:
    with pytest.raises(RuntimeError, match="no transfer group"):
        Worker().smokestack_start_update()
    worker = ready(receiver)
    with pytest.raises(RuntimeError, match="no weight update is active"):
        worker.smokestack_update({})
    with pytest.raises(RuntimeError, match="no weight update is active"):
        worker.smokestack_finish_update()
    worker.smokestack_start_update()
    with pytest.raises(RuntimeError, match="already active"):
        worker.smokestack_start_update()
    assert receiver.done == ["start"]


def test_half_replaced_weights_get_no_name(receiver: Receiver) -> None:
    worker = ready(receiver)
    worker.smokestack_set_version("1")
    worker.smokestack_start_update()
    with pytest.raises(KeyError, match="nobody"):
        worker.smokestack_update({"names": ["nobody"]})
    with pytest.raises(RuntimeError, match="cannot be called '2' yet"):
        worker.smokestack_set_version("2")
    assert (worker.smokestack_update_open(), worker.smokestack_weight_version()) == (True, "1")


def test_nothing_of_it_hides_what_vllms_own_worker_has() -> None:
    """vLLM asserts the same when it mixes the class in; there it would end the engine."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    own = {name for name in dir(RefitWorker) if not name.startswith("__")}
    assert own > {name for name in dir(ContentWorker) if not name.startswith("__")}
    assert not own & set(dir(CPUWorker))
