"""The command-line flags that a stack's programs must know, by dialect.

The run plane builds its commands from the same dialect; a test holds this table to exactly the flags that its services
pass. Dynamo's sidecar has changed its flags between releases, and an unknown flag shows only when the stack is started:
so the install asks every program beforehand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A program of the environment: its command (relative to `bin/`) up to `--help`, and the flags it must know."""

    name: str
    argv: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Parser:
    """A program whose help is slow: the module (below `site-packages`) that declares its flags is read, not run."""

    name: str
    module: str
    flags: tuple[str, ...]


_ETCD = Program(
    "etcd",
    ("etcd", "--help"),
    (
        "--data-dir",
        "--listen-client-urls",
        "--advertise-client-urls",
        "--listen-peer-urls",
        "--initial-advertise-peer-urls",
        "--initial-cluster",
        "--unsafe-no-fsync",
    ),
)

_FRONTEND = Program(
    "frontend",
    ("python", "-m", "dynamo.frontend", "--help"),
    (
        "--http-host",
        "--http-port",
        "--namespace",
        "--discovery-backend",
        "--request-plane",
        "--event-plane",
        "--router-min-initial-workers",
    ),
)

DIALECTS: dict[str, tuple[Program | Parser, ...]] = {
    "dynamo-1.6": (
        _ETCD,
        Program(
            "engine",
            ("vllm-rs", "serve", "--help"),
            (
                "--served-model-name",
                "--host",
                "--port",
                "--grpc-port",
                "--enable-scale-out",
                "--enable-prompt-tokens-details",
                "--python",
            ),
        ),
        # The Rust front end passes on what follows `--` unseen. `--help` of this one imports vLLM: seconds.
        Parser(
            "python-engine",
            "vllm/engine/arg_utils.py",
            (
                "--dtype",
                "--max-model-len",
                "--enforce-eager",
                "--weight-transfer-config",
                "--tensor-parallel-size",
                "--worker-extension-cls",
                "--enable-lora",
                "--max-loras",
                "--max-lora-rank",
            ),
        ),
        Program(
            "sidecar",
            ("python", "-m", "dynamo.vllm.sidecar", "--help"),
            ("--grpc-endpoint", "--vllm-http-endpoint", "--namespace"),
        ),
        _FRONTEND,
    ),
    # The researcher's stack: the sidecar is a program of its own, and a worker extension receives the weights.
    "native-sidecar": (
        _ETCD,
        Program("engine", ("vllm-rs", "serve", "--help"), ("--host", "--port", "--grpc-port", "--python")),
        Parser("python-engine", "vllm/engine/arg_utils.py", ("--worker-extension-cls", "--tensor-parallel-size")),
        Program(
            "sidecar",
            ("dynamo-vllm-sidecar", "--help"),
            (
                "--vllm-endpoint",
                "--admin-endpoint",
                "--model-path",
                "--namespace",
                "--rl-discovery-model-name",
            ),
        ),
        _FRONTEND,
    ),
}


def unknown_flags(flags: Collection[str], help_text: str) -> list[str]:
    """The flags that a program's help does not list."""
    return [flag for flag in flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_text)]


def undeclared_flags(flags: Collection[str], source: str) -> list[str]:
    """The flags that no `add_argument` call of a module's source names. Raises SyntaxError for what is no Python."""
    declared = {
        argument.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    return [flag for flag in flags if flag not in declared]
