"""Buckets: what goes in comes out, whatever its size and type; and memory is not reused too early."""

from __future__ import annotations

import pytest
import torch
from smokestack_payload.refit import buffers
from smokestack_payload.refit.buffers import BufferPool
from smokestack_payload.refit.packing import ALIGNMENT, Bucket, TensorSpec, pack, plan_buckets, take, unpack

TENSORS = {
    "odd": torch.arange(7, dtype=torch.uint8),
    "half": torch.randn(3, 5, dtype=torch.bfloat16),
    "single": torch.tensor(2.5),
    "double": torch.randn(2, 3, dtype=torch.float64),
    "empty": torch.empty(0, 4),
    "flags": torch.tensor([True, False, True]),
    "transposed": torch.randn(6, 4).t(),
    "large": torch.randn(40, 40),
    "last": torch.arange(9, dtype=torch.int64),
}


def specs_of(tensors: dict[str, torch.Tensor]) -> list[TensorSpec]:
    return [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]


def round_trip(tensors: dict[str, torch.Tensor], bucket_bytes: int) -> dict[str, torch.Tensor]:
    pool = BufferPool(bucket_bytes)
    received: dict[str, torch.Tensor] = {}
    for bucket in plan_buckets(specs_of(tensors), bucket_bytes):
        packed = pack(bucket, [tensors[slot.spec.name] for slot in bucket.slots], pool)
        assert packed.dtype == torch.uint8
        assert packed.shape == (bucket.nbytes,)
        arrived = take(bucket, pool)
        arrived.copy_(packed)
        received.update(unpack(bucket, arrived))
    return received


@pytest.mark.parametrize("bucket_bytes", [1, 64, 100, 1000, 1 << 20])
def test_every_tensor_arrives_as_it_was(bucket_bytes: int) -> None:
    received = round_trip(TENSORS, bucket_bytes)
    assert list(received) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert received[name].dtype == tensor.dtype
        assert torch.equal(received[name], tensor), name


def test_buckets_keep_the_order_and_the_size() -> None:
    buckets = plan_buckets(specs_of(TENSORS), 256)
    assert [slot.spec.name for bucket in buckets for slot in bucket.slots] == list(TENSORS)
    assert all(bucket.nbytes <= 256 or len(bucket.slots) == 1 for bucket in buckets)


def test_a_tensor_larger_than_the_bucket_travels_alone_and_uncopied() -> None:
    large = TENSORS["large"]
    before, alone, after = plan_buckets(
        specs_of({"small": torch.zeros(4), "large": large, "small2": torch.zeros(4)}), 1024
    )
    assert (len(before.slots), len(alone.slots), len(after.slots)) == (1, 1, 1)
    assert pack(alone, [large], BufferPool(1024)).data_ptr() == large.data_ptr()


def test_slots_are_aligned() -> None:
    (bucket,) = plan_buckets(specs_of(TENSORS), 1 << 20)
    assert all(slot.offset % ALIGNMENT == 0 for slot in bucket.slots)


def test_no_tensors_make_no_buckets_and_empty_ones_an_empty_bucket() -> None:
    assert plan_buckets([], 64) == []
    (bucket,) = plan_buckets(specs_of({"empty": torch.empty(0)}), 64)
    assert bucket == Bucket(bucket.slots, 0)


def test_a_bucket_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        plan_buckets([], 0)


def test_a_buffer_is_not_reused_while_a_view_of_it_lives() -> None:
    pool = BufferPool(1024)
    first = pool.take(100)
    view = first.view(torch.float32).view(5, 5)[2:4]
    where = first.data_ptr()
    del first
    second = pool.take(100)
    assert second.data_ptr() != where
    del view
    assert pool.take(100).data_ptr() == where
    assert len(pool) == 2


def test_a_python_that_counts_references_differently_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (buffers.REFERENCES_OF_A_FREE_ARENA, buffers.REFERENCES_OF_A_FREE_ARENA + 1):
        with monkeypatch.context() as patch:
            patch.setattr(buffers.sys, "getrefcount", lambda _, count=count: count)
            with pytest.raises(RuntimeError, match="does not count references"):
                BufferPool(1024)


def test_a_buffer_larger_than_the_arena_gets_room() -> None:
    assert BufferPool(16).take(5000).shape == (5000,)
