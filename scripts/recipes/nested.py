"""Sources that vLLM fetches while it is built, and how each is replaced by a pinned copy.

Read from the build files of the release 0.26.0, the nearest one to the researcher stack's revision that is published as
a source archive: each is fetched by CMake at a tag or revision written there, unless a variable names a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.recipes.steps import NestedState, SourceFacts

CMAKE_ARGS = "CMAKE_ARGS"
"""vLLM's setup appends this variable, split at white space, to CMake's arguments."""


@dataclass(frozen=True)
class Override:
    """How one nested source is replaced: a variable that holds a folder, `subfolder` of the copy.

    With `cmake` it is an argument of CMake instead.
    """

    devices: frozenset[str]
    variable: str
    subfolder: str = ""
    cmake: bool = False


_CUDA, _CPU = frozenset({"cuda"}), frozenset({"cpu"})

OVERRIDES: Mapping[str, Override] = {
    "cutlass": Override(_CUDA, "VLLM_CUTLASS_SRC_DIR"),
    "deepgemm": Override(_CUDA, "DEEPGEMM_SRC_DIR"),
    # vLLM's own variable, VLLM_FLASH_ATTN_SRC_DIR, is meant for work on that source in place: with it the Python part
    # of FlashAttention 4 is linked instead of copied, and its imports are not rewritten to vLLM's package, so that the
    # wheel holds modules that cannot be imported. CMake's override of the download itself has no such effect.
    "flash-attention": Override(_CUDA, "FETCHCONTENT_SOURCE_DIR_VLLM-FLASH-ATTN", cmake=True),
    "flashmla": Override(_CUDA, "FLASH_MLA_SRC_DIR"),
    "fmha-sm100": Override(_CUDA, "FMHA_SM100_SRC_DIR"),
    "onednn": Override(_CPU, "FETCHCONTENT_SOURCE_DIR_ONEDNN"),
    "qutlass": Override(_CUDA, "QUTLASS_SRC_DIR"),
    "tml-fa4": Override(_CUDA, "TML_FA4_SRC_DIR"),
    # Not the source's root: the package's own folder in Triton's repository.
    "triton-kernels": Override(_CUDA, "TRITON_KERNELS_SRC_DIR", "python/triton_kernels/triton_kernels"),
}


def wanted(device: str) -> list[str]:
    """The nested sources that a build for this device fetches."""
    return [name for name, override in OVERRIDES.items() if device in override.devices]


def states(device: str, pinned: Mapping[str, SourceFacts]) -> tuple[NestedState, ...]:
    """Every nested source of a build for this device, pinned or floating."""
    return tuple(
        NestedState(name, pinned[name].repository, pinned[name].revision)
        if name in pinned
        else NestedState(name, None, None)
        for name in wanted(device)
    )


def floating(device: str, pinned: Mapping[str, SourceFacts]) -> list[str]:
    """The nested sources that the stack leaves to vLLM's build files."""
    return [state.name for state in states(device, pinned) if state.floating]


def variables(device: str, folders: Mapping[str, Path]) -> dict[str, str]:
    """The variables that make vLLM's build take these folders instead of fetching."""
    found: dict[str, str] = {}
    arguments = []
    for name in wanted(device):
        if name in folders:
            override = OVERRIDES[name]
            folder = folders[name] / override.subfolder
            if override.cmake:
                arguments.append(f"-D{override.variable}={folder}")
            else:
                found[override.variable] = str(folder)
    if arguments:
        found[CMAKE_ARGS] = " ".join(arguments)
    return found
