"""The options of runs on GPUs: which GPUs, and how an NCCL refit is made and packed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from harness import gpus
from harness.config import MIB, Packing, RefitKind
from harness.errors import UsageError
from harness.option_values import positive_int

BUFFERS = {"packed_buffer_mib": "--packed-buffer-mib", "packed_buffers": "--packed-buffers"}
OVER_NCCL: tuple[RefitKind, ...] = ("native", "collective-rpc")
"""The kinds of refit that go over a group, on a stack whose groups are NCCL's."""


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
    """How a run's refits go over NCCL. An option that is not given is not among the parsed ones."""
    packing = Packing()
    parser.add_argument(
        "--rendezvous",
        choices=["tcp", "unique-id"],
        default=argparse.SUPPRESS,
        help="how an NCCL group is made: over a store of the trainer's (default), or by an id that it hands out",
    )
    parser.add_argument(
        "--unpacked", action="store_true", default=argparse.SUPPRESS, help="an NCCL refit by single tensors"
    )
    parser.add_argument(
        "--packed-buffer-mib",
        type=positive_int,
        default=argparse.SUPPRESS,
        metavar="MIB",
        help=f"size of an NCCL refit's buffers; the workers are told (default: {packing.buffer_bytes // MIB})",
    )
    parser.add_argument(
        "--packed-buffers",
        type=positive_int,
        default=argparse.SUPPRESS,
        metavar="N",
        help=f"how many of them (default: {packing.buffers})",
    )


def packing_of(options: Mapping[str, Any]) -> Packing | None:
    """From the parsed options; None where nothing was said of it. Raises UsageError for packing in two ways at once."""
    default, given = Packing(), _buffers(options)
    if "unpacked" in options and given:
        raise UsageError(
            "trainer and workers are told to cut the weights in two ways",
            expected="single tensors, or buffers",
            found=" ".join(["--unpacked", *given]),
            hint="leave out --unpacked, or the size and the number of buffers",
        )
    if "unpacked" in options:
        return Packing(packed=False)
    if not given:
        return None
    return Packing(
        buffer_bytes=options.get("packed_buffer_mib", default.buffer_bytes // MIB) * MIB,
        buffers=options.get("packed_buffers", default.buffers),
    )


def about_nccl(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The given ones of `add_nccl`, with their values."""
    unpacked = ["--unpacked"] if "unpacked" in options else []
    rendezvous = [f"--rendezvous {options['rendezvous']}"] if "rendezvous" in options else []
    return (*unpacked, *_buffers(options), *rendezvous)


def _buffers(options: Mapping[str, Any]) -> list[str]:
    return [f"{option} {options[name]}" for name, option in BUFFERS.items() if name in options]


def require_nccl(said: Sequence[str], *, kind: RefitKind, backend: str, stack: str) -> None:
    """Raise UsageError for what was said of NCCL where the run's refits go another way: nobody would heed it."""
    if said and (backend != "nccl" or kind not in OVER_NCCL):
        raise UsageError(
            f"{', '.join(said)}: no refit of this run goes over NCCL, so its two ends would not heed it",
            expected=f"a stack whose refits go over NCCL, with --refit {' or '.join(OVER_NCCL)}",
            found=f"the stack {stack}, whose backend is {backend}, with --refit {kind}",
            hint=f"leave out {' '.join(said)}, or choose such a stack with --stack",
        )


def _gpus(text: str) -> tuple[str, ...]:
    try:
        return gpus.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
