"""Failures that people reported of such stacks, in our own words, by the numbers that checks name as their `rows`.

Each is found early by a check, or says why no look at a machine can find it.
"""

from __future__ import annotations

from dataclasses import dataclass

_VLLM = "https://github.com/vllm-project/vllm/issues/{}"
_DYNAMO = "https://github.com/ai-dynamo/dynamo/issues/{}"


@dataclass(frozen=True)
class Report:
    """One kind of failure. `elsewhere` says what finds it, when the doctor cannot."""

    row: int
    symptom: str
    references: tuple[str, ...]
    elsewhere: str = ""


def _vllm(*numbers: int) -> tuple[str, ...]:
    return tuple(_VLLM.format(number) for number in numbers)


def _dynamo(*numbers: int) -> tuple[str, ...]:
    return tuple(_DYNAMO.format(number) for number in numbers)


REPORTS = (
    Report(1, "the compiler is killed, exit status 137", _vllm(3180, 14452, 42204)),
    Report(2, "more or fewer parallel jobs than were asked for", _vllm(20079)),
    Report(3, "setuptools-scm finds no version, or an odd one", _vllm(9182, 13130, 18583)),
    Report(4, "CUDA of the toolkit and of torch differ", _vllm(129, 1548, 25226)),
    Report(5, "CUDA_HOME is not set", ("https://github.com/LMCache/LMCache/issues/388",)),
    Report(6, "undefined symbol in _C.abi3.so", _vllm(12577, 13608, 15010)),
    Report(7, "the precompiled wheel is gone, or is of another commit", _vllm(50215, 50216, 14358)),
    Report(8, "a wheel without vllm-rs", ("https://github.com/vllm-project/tpu-inference/pull/3523",)),
    Report(9, "rustc refuses unstable features", _vllm(40848)),
    Report(10, "illegal instruction", _vllm(5317, 4654, 33991)),
    Report(11, "Python.h is missing, or CMake is too old", _vllm(5671, 981, 27890)),
    Report(12, "the configuration stops while it clones a source", _vllm(13424, 7368, 9354)),
    Report(13, "torch is replaced in the middle of a build", _vllm(2615, 21745, 9701)),
    Report(14, "unsupported GPU architecture", _vllm(8665, 3309, 803)),
    Report(15, "torch with a local version is not found", _vllm(15822)),
    Report(16, "GLIBC or GLIBCXX not found", _dynamo(287, 773, 1437)),
    Report(17, "a shared library is not found: libpython, NIXL, Dynamo's own", _dynamo(1500, 936, 2092)),
    Report(18, "the sidecar's protocol files do not compile", _dynamo(12535, 12584)),
    Report(19, "patchelf is not found", _dynamo(10792)),
    Report(20, "a compiled library of no bytes", ("https://github.com/PyO3/maturin/issues/3188",)),
    Report(21, "the resolver finds a conflict, mostly about pydantic", _dynamo(4865)),
    Report(22, "another vLLM is installed than was built", _dynamo(4592)),
    Report(23, "etcd refuses connections", _dynamo(1188, 851, 1699)),
    Report(24, "errors of NATS, which nobody meant to use", _dynamo(2577, 3612, 429)),
    Report(
        25,
        "500 or 404 just after the frontend was ready",
        _dynamo(11855, 2296, 14686),
        elsewhere="a property of the running stack, not of the machine: the run's readiness probe generates for real",
    ),
    Report(26, "the engine's world size is 0", _dynamo(14840)),
    Report(27, "a model is looked for on a hub", _dynamo(2759, 1235, 4748)),
    Report(28, "GPU memory is still held by a process that should have ended", _vllm(55510, 34643, 43060)),
    Report(29, "address already in use", _vllm(8204, 43206, 11617)),
    Report(30, "a refit hangs without a word", ("https://github.com/huggingface/trl/issues/6796",)),
    Report(31, "NCCL: unhandled system error", ("https://github.com/NVIDIA/nccl/issues/606", *_vllm(4383, 7466))),
    Report(32, "a build is slow, or fails for lack of room", _vllm(15827, 18040)),
)
