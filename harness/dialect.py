"""Dialects: how the programs of one Dynamo release are called, as data.

Flags and variable names move between releases. The service modules read them from here, so that a stack file names
a dialect and no service asks for a version. `scripts.dialects` has the same flags, for an install to ask the programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.config import RefitKind, Rendezvous
from harness.errors import UsageError

TransferInterface = Literal["trainer-engine", "static-helpers"]
"""How the trainer's side of vLLM moves weights: an engine object (0.27 and later), or functions of a class (0.26)."""


@dataclass(frozen=True)
class Dialect:
    """`frontend` and `sidecar` are commands whose first word is a program of the environment's `bin`.

    `front_end_options` of `vllm-rs` stand before `--`, `engine_options` of the Python engine behind it; the values are
    the services'. Without `--served-model-name` among the former a model is served under what it is called with.
    """

    name: str
    frontend: tuple[str, ...]
    sidecar: tuple[str, ...]
    sidecar_options: tuple[str, ...]
    sidecar_variables: tuple[str, ...]
    front_end_options: tuple[str, ...]
    engine_options: tuple[str, ...]
    transfer: TransferInterface

    def require(self, rendezvous: Rendezvous | None) -> None:
        """Raise UsageError for a way to make an NCCL group that this release of vLLM does not have."""
        if rendezvous == "unique-id" and self.transfer == "static-helpers":
            raise UsageError(
                "--rendezvous unique-id: the stack's release of vLLM has no such way",
                expected="--rendezvous tcp",
                found=f"{rendezvous} with the dialect {self.name}",
                hint="leave --rendezvous out",
            )

    @property
    def renames_models(self) -> bool:
        return "--served-model-name" in self.front_end_options

    @property
    def weight_routes(self) -> bool:
        """Whether the engine's front end has vLLM's routes for weights, and for their label.

        Without them weights go through a worker extension, the workers keep the label, and the sidecar has none to
        tell.
        """
        return "--weight-transfer-config" in self.engine_options

    @property
    def counts_cached_tokens(self) -> bool:
        """Whether the engine's answers say how much of a prompt came from its prefix cache."""
        return "--enable-prompt-tokens-details" in self.front_end_options

    @property
    def adapters(self) -> bool:
        """Whether the engine is known to take LoRA adapters."""
        return "--enable-lora" in self.engine_options

    @property
    def refit(self) -> RefitKind:
        """How weights reach the engines unless the caller says otherwise."""
        return "native" if self.weight_routes else "collective-rpc"


DYNAMO_1_6 = Dialect(
    name="dynamo-1.6",
    frontend=("python", "-m", "dynamo.frontend"),
    sidecar=("python", "-m", "dynamo.vllm.sidecar"),
    sidecar_options=("--grpc-endpoint", "--vllm-http-endpoint", "--namespace"),
    sidecar_variables=(),
    front_end_options=(
        "--served-model-name",
        "--host",
        "--port",
        "--grpc-port",
        # Without it `/inference/v1/generate` answers 403.
        "--enable-scale-out",
        "--enable-prompt-tokens-details",
        "--python",
    ),
    engine_options=(
        "--dtype",
        "--max-model-len",
        "--enforce-eager",
        "--worker-extension-cls",
        "--weight-transfer-config",
        "--tensor-parallel-size",
        "--enable-lora",
        "--max-loras",
        "--max-lora-rank",
    ),
    transfer="trainer-engine",
)

NATIVE_SIDECAR = Dialect(
    name="native-sidecar",
    frontend=("python", "-m", "dynamo.frontend"),
    sidecar=("dynamo-vllm-sidecar",),
    sidecar_options=(
        "--vllm-endpoint",
        "--admin-endpoint",
        "--model-path",
        "--namespace",
        "--rl-discovery-model-name",
    ),
    sidecar_variables=("VLLM_HTTP_ENDPOINT",),
    front_end_options=("--host", "--port", "--grpc-port", "--python"),
    engine_options=("--worker-extension-cls", "--tensor-parallel-size"),
    transfer="static-helpers",
)

_KNOWN = {dialect.name: dialect for dialect in (DYNAMO_1_6, NATIVE_SIDECAR)}


def dialect_named(name: str) -> Dialect:
    """The dialect that a manifest names; raises UsageError for one that this version cannot speak."""
    if name not in _KNOWN:
        raise UsageError(
            f"unknown dialect {name!r}",
            expected=", ".join(sorted(_KNOWN)),
            found=name,
            hint="correct `dialect` in the stack's stack.toml, then ./noxw -s install -- --stack NAME",
        )
    return _KNOWN[name]
