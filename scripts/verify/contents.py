"""What has to lie in an artifact, and what must not, by distribution. Data, and one function over names and sizes.

Patterns are those of fnmatch: a star also stands for slashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scripts.verify.archive import Problem

# ai-dynamo ships tests inside its packages, so that only a folder of that name beside the packages is refused.
_NEVER = (
    *("*.pyc", "*.pyo", "*__pycache__*", ".git/*", "*/.git/*", ".hg/*", "*/.hg/*"),
    *("tests/*", "test/*", "*.orig", "*.rej", "*/.DS_Store"),
    # These tell of the machine on which something was installed or built.
    *("*.dist-info/INSTALLER", "*.dist-info/REQUESTED", "*.dist-info/direct_url.json", "*.dist-info/uv_*.json"),
)

# What vLLM compiles for a device; "empty" is a build without any.
_KERNELS = {
    "cpu": ("vllm/_C*.so",),
    "cuda": ("vllm/_C*.so", "vllm/_moe_C*.so", "vllm/vllm_flash_attn/*.so"),
    "empty": (),
}


@dataclass(frozen=True)
class Contents:
    """`programs` are executables of machine code; each of `expected` matches some file."""

    programs: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = _NEVER


def of(distribution: str, device: str) -> Contents:
    """The rules for one wheel of a stack whose engine runs on `device`."""
    if distribution == "vllm":
        return Contents(programs=("vllm/vllm-rs",), expected=("vllm/__init__.py", *_KERNELS[device]))
    return _OTHERS.get(distribution, Contents())


_OTHERS = {
    "ai-dynamo": Contents(expected=("dynamo/frontend/*.py",)),
    "ai-dynamo-runtime": Contents(expected=("dynamo/_core*.so",)),
    "smokestack-payload": Contents(expected=("smokestack_payload/__init__.py",), forbidden=(*_NEVER, "*/tests/*")),
}


def problems(contents: Contents, sizes: Mapping[str, int]) -> Iterator[Problem]:
    """What is missing, empty or not allowed; `sizes` are all members with their bytes."""
    for pattern in (*contents.programs, *contents.expected):
        if not any(fnmatchcase(name, pattern) for name in sizes):
            yield Problem(pattern, "is not in the wheel", "a file of this name")
    for name, size in sizes.items():
        if size == 0 and is_library(name):
            yield Problem(name, "is an empty library", "some bytes", "0 bytes")
        refused = [pattern for pattern in contents.forbidden if fnmatchcase(name, pattern)]
        if refused:
            yield Problem(name, "must not be in a wheel", f"nothing like {refused[0]}")


def is_library(name: str) -> bool:
    """Whether a file is named as a shared library."""
    return name.endswith(".so") or ".so." in name.rpartition("/")[2]
