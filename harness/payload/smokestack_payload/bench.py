"""How long a refit takes, against the engine's own load of the same tensors.

`python -m smokestack_payload.bench --model DIR --admin-url URL` refits a running engine that serves DIR and prints
one JSON document. The references are measured in the engine's worker, in the same process and on the same tensors: the
time in vLLM's `load_weights` when everything was received before the first load, so that nothing else disturbs it;
once with one call a tensor (as vLLM's own unpacked transfers do) and once with one call a bucket. Then come the real
refits. The ratios are median pause -> resume over each reference's median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import sys
from pathlib import Path
from typing import Any

from smokestack_payload.settings import EngineAddress

LIMIT_S = 120.0


def measure(model_dir: Path, admin_url: str, rounds: int, bucket_bytes: int) -> dict[str, Any]:
    """All series of refits, on one engine with one worker. Times in seconds."""
    import torch
    from vllm.distributed.weight_transfer.base import ModuleSource

    from smokestack_payload import model as models
    from smokestack_payload.plugin import register

    torch.set_num_threads(1)
    register()
    model, _ = models.load(model_dir, "cpu")
    source = ModuleSource(model)
    address = EngineAddress(admin_url.rstrip("/"), world_size=1, rank_offset=1)
    each = _series(source, model_dir, address, rounds, bucket_bytes=1, overlap=False)
    packed = _series(source, model_dir, address, rounds, bucket_bytes, overlap=False)
    refits = _series(source, model_dir, address, rounds, bucket_bytes, overlap=True)
    load_each = statistics.median(one["load_s"] for one in each)
    load_packed = statistics.median(one["load_s"] for one in packed)
    pause_to_resume = statistics.median(one["total"] for one in refits)
    return {
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "pause_to_resume_s": pause_to_resume,
        "load_by_tensor_s": load_each,
        "load_by_bucket_s": load_packed,
        "ratio_to_load_by_tensor": pause_to_resume / load_each,
        "ratio_to_load_by_bucket": pause_to_resume / load_packed,
        "rounds": {"load_by_tensor": each, "load_by_bucket": packed, "refit": refits},
    }


def _series(
    source: Any, model_dir: Path, address: EngineAddress, rounds: int, bucket_bytes: int, *, overlap: bool
) -> list[dict[str, float]]:
    """A group of its own, one refit to warm up, then `rounds` measured ones."""
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    from smokestack_payload.refit.admin import EngineFleet
    from smokestack_payload.refit.manifest import read_expected
    from smokestack_payload.refit.session import RefitSession
    from smokestack_payload.refit.wire import GlooTrainerInitInfo

    session = RefitSession(EngineFleet([address]), source, read_expected(model_dir, "float32"), LIMIT_S)
    init_info = GlooTrainerInitInfo(
        rank=0,
        master_address="127.0.0.1",
        master_port=_free_port(),
        world_size=2,
        bucket_bytes=bucket_bytes,
        overlap=overlap,
    )
    session.initialise(
        lambda fleet, weights: WeightTransferTrainerFactory.trainer_init(init_info, client=fleet, source=weights),
        LIMIT_S,
    )
    reports = [session.refit(version) for version in range(rounds + 1)][1:]
    session.close()
    return [{**report.seconds, **report.workers[1]} for report in reports]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smokestack_payload.bench", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the folder that the engine serves")
    parser.add_argument("--admin-url", required=True, help="the engine's HTTP address")
    parser.add_argument("--rounds", type=int, default=5, help="measured refits a series (default: 5)")
    parser.add_argument("--bucket-bytes", type=int, default=64 * 1024 * 1024, help="default: 64 MiB")
    options = parser.parse_args(argv)
    result = measure(options.model, options.admin_url, options.rounds, options.bucket_bytes)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
