"""The options of runs on GPUs: which GPUs, and how an NCCL refit is made and packed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from harness import gpus
from harness.config import MIB, Packing
from harness.option_values import positive_int


def add_platform(parser: argparse.ArgumentParser) -> None:
    """What a stack is started on."""
    parser.add_argument("--platform", choices=["cpu", "cuda"], help="what the stack has to be for; any when left out")
    parser.add_argument(
        "--gpus",
        type=_gpus,
        metavar="N,N",
        help="which GPUs: one for each engine rank, then the trainer's; the first visible ones when left out",
    )


def add_nccl(parser: argparse.ArgumentParser) -> None:
    """How a run's refits go over NCCL."""
    packing = Packing()
    parser.add_argument(
        "--rendezvous",
        choices=["tcp", "unique-id"],
        default="tcp",
        help="how an NCCL group is made: over a store of the trainer's, or by an id that it hands out",
    )
    parser.add_argument("--unpacked", action="store_true", help="an NCCL refit by single tensors")
    parser.add_argument(
        "--packed-buffer-mib",
        type=positive_int,
        default=packing.buffer_bytes // MIB,
        metavar="MIB",
        help="size of an NCCL refit's buffers; the workers are told",
    )
    parser.add_argument(
        "--packed-buffers", type=positive_int, default=packing.buffers, metavar="N", help="how many of them"
    )


def packing_of(options: Mapping[str, Any]) -> Packing:
    """From the parsed options; those of a command that lacks them are the defaults."""
    default = Packing()
    if options.get("unpacked"):
        return Packing(packed=False)
    return Packing(
        buffer_bytes=options.get("packed_buffer_mib", default.buffer_bytes // MIB) * MIB,
        buffers=options.get("packed_buffers", default.buffers),
    )


def _gpus(text: str) -> tuple[str, ...]:
    try:
        return gpus.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
