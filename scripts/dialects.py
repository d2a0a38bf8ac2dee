"""The command-line flags that a stack's programs must know, by dialect.

The run plane builds its commands from the same dialect. Dynamo's sidecar has changed its flags between releases, and an
unknown flag shows only when the stack is started: so the install asks every program's own `--help`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A program of the environment: its command (relative to `bin/`) up to `--help`, and the flags it must know."""

    name: str
    argv: tuple[str, ...]
    flags: tuple[str, ...]


DIALECTS: dict[str, tuple[Program, ...]] = {
    "dynamo-1.6": (
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
        Program(
            "sidecar",
            ("python", "-m", "dynamo.vllm.sidecar", "--help"),
            (
                "--grpc-endpoint",
                "--vllm-http-endpoint",
                "--namespace",
                "--discovery-backend",
                "--request-plane",
                "--event-plane",
            ),
        ),
        Program(
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
        ),
    )
}


def unknown_flags(program: Program, help_text: str) -> list[str]:
    """The flags that the program's help does not list."""
    return [flag for flag in program.flags if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_text)]
