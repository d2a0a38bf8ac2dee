"""Dialects: how the programs of one Dynamo release are called, as data.

Flags and variable names move between releases. The service modules read them from here, so that a stack file names
a dialect and no service asks for a version.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UsageError


@dataclass(frozen=True)
class Dialect:
    """`*_module` run as `python -m MODULE`; `*_flag` are the sidecar's options for the engine's two addresses."""

    name: str
    frontend_module: str
    sidecar_module: str
    grpc_flag: str
    engine_http_flag: str


DYNAMO_1_6 = Dialect(
    name="dynamo-1.6",
    frontend_module="dynamo.frontend",
    sidecar_module="dynamo.vllm.sidecar",
    grpc_flag="--grpc-endpoint",
    engine_http_flag="--vllm-http-endpoint",
)

_KNOWN = {dialect.name: dialect for dialect in (DYNAMO_1_6,)}


def dialect_named(name: str) -> Dialect:
    """The dialect that a manifest names; raises UsageError for one that this version cannot speak."""
    if name not in _KNOWN:
        raise UsageError(f"unknown dialect {name!r}", expected=", ".join(sorted(_KNOWN)), found=name)
    return _KNOWN[name]
