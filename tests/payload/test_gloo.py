"""The Gloo pair over loopback, between a real trainer side and real worker sides, without an engine around them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from smokestack_payload.background import in_background
from smokestack_payload.refit.gloo import (
    GlooTrainerWeightTransferEngine,
    GlooWeightTransferEngine,
    refresh_tied_layers,
)
from smokestack_payload.refit.rendezvous import RendezvousError, host_group, join_group
from smokestack_payload.refit.wire import GlooInitInfo, GlooTrainerInitInfo, GlooUpdateInfo

WAIT_S = 20


class Recorder(torch.nn.Module):
    """Stands in for vLLM's model: keeps a copy of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: dict[str, torch.Tensor] = {}
        self.calls = 0

    def load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        self.calls += 1
        self.loaded.update({name: tensor.clone() for name, tensor in weights})


def worker(rank: int = 0, world_size: int = 1, dp_index: int = 0) -> GlooWeightTransferEngine:
    parallel = SimpleNamespace(rank=rank, world_size=world_size, data_parallel_index=dp_index)
    config: Any = SimpleNamespace(parallel_config=parallel, model_config=None)
    return GlooWeightTransferEngine(SimpleNamespace(), config, torch.device("cpu"), Recorder())  # type: ignore[arg-type]


class Client:
    """Calls the workers directly where HTTP would: all at once, the answer when all are done."""

    def __init__(self, workers: list[tuple[GlooWeightTransferEngine, int]]) -> None:
        self.workers = workers
        self.finished: list[str | None] = []

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._all(
            lambda engine, offset: engine.init_transfer_engine(
                engine.parse_init_info({**init_info, "rank_offset": offset})
            )
        )

    def start_weight_update(self) -> None:
        return

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self._all(lambda engine, _: engine.update_weights(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.finished.append(weight_version)

    def _all(self, call: Callable[[GlooWeightTransferEngine, int], None]) -> None:
        for future in [in_background("worker", call, engine, offset) for engine, offset in self.workers]:
            future.result(timeout=WAIT_S)


class Source:
    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def metadata(self) -> list[Any]:
        return [
            SimpleNamespace(name=name, dtype=tensor.dtype, shape=tuple(tensor.shape))
            for name, tensor in self.tensors.items()
        ]

    def __iter__(self) -> Any:
        return iter(self.tensors.items())


def trainer(client: Client, source: Any, port: int, world_size: int, **options: Any) -> GlooTrainerWeightTransferEngine:
    init_info = GlooTrainerInitInfo(
        rank=0,
        master_address="127.0.0.1",
        master_port=port,
        world_size=world_size,
        **{"rendezvous_s": WAIT_S, "transfer_s": WAIT_S, **options},
    )
    return GlooTrainerWeightTransferEngine.trainer_init(init_info, client=client, source=source)


def weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (5, 3), "b": (700,), "c": (1,), "d": (0, 2), "e": (64, 64), "f": (3,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("overlap", [True, False])
def test_two_engines_receive_every_round_exactly(free_port: int, overlap: bool) -> None:
    one, two = worker(), worker()
    client, source = Client([(one, 1), (two, 2)]), Source(weights(0))
    engine = trainer(client, source, free_port, 3, bucket_bytes=1000, overlap=overlap)
    for seed in range(3):
        source.tensors = weights(seed)
        engine.send_weights()
        for receiver in (one, two):
            loaded = receiver.model.loaded
            assert list(loaded) == list(source.tensors)
            assert all(torch.equal(loaded[name], tensor) for name, tensor in source.tensors.items())
    assert one.model.calls > 3, "more than one bucket a round"
    assert len(client.finished) == 3
    assert set(engine.worker_reports) == {1, 2}
    assert engine.worker_reports[1]["receive_and_load_s"] >= engine.worker_reports[1]["load_s"] >= 0


def test_ranks_of_a_data_parallel_engine_follow_its_offset(free_port: int) -> None:
    ranks = [worker(rank=0, world_size=2, dp_index=1), worker(rank=1, world_size=2, dp_index=1)]
    first = [worker(rank=0, world_size=2), worker(rank=1, world_size=2)]
    client = Client([(engine, 1) for engine in first + ranks])
    source = Source(weights(1))
    trainer(client, source, free_port, 5).send_weights()
    assert all(torch.equal(engine.model.loaded["e"], source.tensors["e"]) for engine in first + ranks)


def test_a_new_trainer_may_attach_to_a_living_worker(free_port: int) -> None:
    receiver = worker()
    for round_ in range(2):
        source = Source(weights(round_))
        engine = trainer(Client([(receiver, 1)]), source, free_port, 2)
        engine.send_weights()
        engine.shutdown()
        del engine
        assert torch.equal(receiver.model.loaded["e"], source.tensors["e"])


def test_a_missing_rank_ends_the_rendezvous_on_both_sides_with_expected_and_joined_ranks(free_port: int) -> None:
    """F08: the world size is one too large."""
    client = Client([(worker(), 1)])
    with pytest.raises(RendezvousError, match=r"expected ranks \[1, 2\], joined \[1\], missing \[2\]"):
        trainer(client, Source(weights(0)), free_port, 3, rendezvous_s=0.5)


def test_a_rank_outside_the_group_is_refused_by_the_worker(free_port: int) -> None:
    """F08: the rank offset is wrong."""
    client = Client([(worker(), 5)])
    with pytest.raises(RendezvousError, match=r"rank 5 is outside the group.*expected ranks \[1\], joined \[\]"):
        trainer(client, Source(weights(0)), free_port, 2)


def test_two_workers_of_the_same_rank_are_noticed(free_port: int) -> None:
    client = Client([(worker(), 1), (worker(), 1)])
    with pytest.raises(RendezvousError, match=r"joined already|missing \[2\]"):
        trainer(client, Source(weights(0)), free_port, 3, rendezvous_s=0.5)


def test_a_worker_told_that_the_trainer_gave_up_stops_waiting(free_port: int) -> None:
    waiting = in_background("worker", join_group, "127.0.0.1", free_port, 1, 3, rendezvous_s=WAIT_S, transfer_s=WAIT_S)
    with pytest.raises(RendezvousError, match=r"missing \[2\]"):
        host_group("127.0.0.1", free_port, 3, rendezvous_s=0.5, transfer_s=WAIT_S)
    with pytest.raises(RendezvousError, match="the trainer gave up"):
        waiting.result(timeout=5)


def test_a_master_that_nobody_answers_for_is_named(free_port: int) -> None:
    with pytest.raises(RendezvousError, match=f"rank 1: nobody answers at 127.0.0.1:{free_port}"):
        join_group("127.0.0.1", free_port, 1, 2, rendezvous_s=0.3, transfer_s=1)


def test_the_trainer_says_when_it_cannot_listen_there() -> None:
    with pytest.raises(RendezvousError, match=r"cannot listen on 192\.0\.2\.1:1"):
        host_group("192.0.2.1", 1, 2, rendezvous_s=0.3, transfer_s=1)


def test_a_source_that_yields_something_else_than_announced_is_refused(free_port: int) -> None:
    source = Source(weights(0))
    engine = trainer(Client([(worker(), 1)]), source, free_port, 2, transfer_s=1)
    announced = source.metadata()
    source.metadata = lambda: announced  # type: ignore[method-assign]
    source.tensors = {**source.tensors, "b": torch.zeros(700, dtype=torch.bfloat16)}
    with pytest.raises(ValueError, match=r"'b'.*announced"):
        engine.send_weights()


def test_update_info_is_checked_before_anything_is_received() -> None:
    with pytest.raises(ValueError, match="differ in length: 2, 1, 1"):
        GlooUpdateInfo(["a", "b"], ["float32"], [[1]]).specs()
    with pytest.raises(ValueError, match=r"named twice: \['a'\]"):
        GlooUpdateInfo(["a", "a"], ["float32"] * 2, [[1], [1]]).specs()
    with pytest.raises(ValueError, match="'floaty' is not a torch dtype"):
        GlooUpdateInfo(["a"], ["floaty"], [[1]]).specs()


def test_an_update_without_a_group_is_refused() -> None:
    with pytest.raises(RuntimeError, match="init_weight_transfer_engine comes first"):
        worker().update_weights({"names": [], "dtype_names": [], "shapes": []})


def test_unknown_init_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="buckets"):
        worker().parse_init_info({"buckets": 1})
    assert GlooInitInfo("127.0.0.1", 1, 1, 2).bucket_bytes > 0


def test_a_layer_that_borrows_a_parameter_is_processed_again() -> None:
    """F06: a tied head is never loaded itself, and on the CPU multiplies by a packed copy of its weight."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    class Method(QuantizeMethodBase):
        def create_weights(self, *_: Any, **__: Any) -> None:
            return

        def apply(self, *_: Any, **__: Any) -> torch.Tensor:
            raise NotImplementedError

        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            layer.packed = layer.weight.detach().clone()

    model = torch.nn.Module()
    model.embedding, model.other, model.head = (torch.nn.Linear(2, 2, bias=False) for _ in range(3))
    for layer in (model.embedding, model.other, model.head):
        layer.quant_method = Method()
    model.head.weight = model.embedding.weight
    refresh_tied_layers(model)
    assert torch.equal(model.head.packed, model.embedding.weight)
    assert not hasattr(model.other, "packed")


def test_registering_twice_is_harmless() -> None:
    from smokestack_payload.plugin import register
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    register()
    register()
    assert WeightTransferEngineFactory._registry["gloo"]() is GlooWeightTransferEngine
    assert WeightTransferTrainerFactory._registry["gloo"]() is GlooTrainerWeightTransferEngine
