"""Group build: the CUDA toolkit against torch, the recipe's architectures and the host compiler.

Read from NVIDIA's own files and programs; not measured with a GPU.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from scripts.doctor import versions
from scripts.doctor.build_compilers import device, switch_to_gcc
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

LIMIT_S = 2.0
"""For the nvcc of each place."""

NEWEST_HOST_COMPILER = re.compile(r"gcc versions later than (\d+) are not supported")


@dataclass(frozen=True)
class Toolkit:
    """A folder with a CUDA toolkit, and the release that its nvcc says."""

    home: str
    release: tuple[int, ...]


def toolkit(subject: Subject) -> Toolkit | None:
    """As the build finds it: of the usual places the first with the pinned release, else the first with any."""
    pinned = subject.stack.tools.get("cuda", "")
    on_path = subject.which("nvcc")
    places = [subject.environ.get("CUDA_HOME", ""), f"/usr/local/cuda-{pinned}", "/usr/local/cuda"]
    places += [_resolved(subject, on_path).rpartition("/bin/")[0]] if on_path else []
    found = []
    for place in dict.fromkeys(filter(None, places)):
        answer = subject.ask(f"{place}/bin/nvcc", "--version", limit_s=LIMIT_S)
        release = re.search(r"release (\d+\.\d+)", answer.output)
        if answer.good and release:
            found.append(Toolkit(place, versions.parse(release.group(1)) or ()))
    return next((each for each in found if each.release == versions.parse(pinned)), found[0] if found else None)


def _resolved(subject: Subject, path: str) -> str:
    """Where a chain of links ends, such as that of /etc/alternatives."""
    for _ in range(8):
        target = subject.machine.link(path)
        if target is None:
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - text
    return path


def _not_for_cuda(subject: Subject) -> Finding:
    stack = subject.stack
    return skip(f"{stack.name} compiles nothing for CUDA" if stack.from_source else stack.assembled)


def _toolkit_fix(subject: Subject) -> str:
    release = subject.stack.tools.get("cuda") or versions.dotted(subject.stack.torch_cuda or (13, 0))
    package = f"cuda-toolkit-{release.replace('.', '-')}"
    return (
        f"sudo apt-get install -y {package} && export CUDA_HOME=/usr/local/cuda-{release}   # from NVIDIA's repository"
    )


def _cuda_home(subject: Subject) -> Finding:
    if device(subject) != "cuda":
        return _not_for_cuda(subject)
    required = "a CUDA toolkit: nvcc, cuda_runtime.h and libcudart.so"
    found = toolkit(subject)
    if found is None:
        named = subject.environ.get("CUDA_HOME")
        shown = f"CUDA_HOME={named}" if named else "no CUDA_HOME"
        return fail(f"{shown}, and no nvcc there, in /usr/local/cuda or on PATH", required, _toolkit_fix(subject))
    home, target = found.home, f"{found.home}/targets/x86_64-linux"
    places = {
        "cuda_runtime.h": (f"{home}/include", f"{target}/include"),
        "libcudart.so": (f"{home}/lib64", f"{target}/lib"),
    }
    missing = [
        name
        for name, folders in places.items()
        if not any(subject.machine.exists(f"{folder}/{name}") for folder in folders)
    ]
    if missing:
        return fail(f"{found.home} has nvcc, but no {' and no '.join(missing)}", required, _toolkit_fix(subject))
    return ok(found.home, required)


def _nvcc(subject: Subject) -> Finding:
    if device(subject) != "cuda":
        return _not_for_cuda(subject)
    torch, pinned = subject.stack.torch_cuda, subject.stack.tools.get("cuda")
    wanted = versions.parse(pinned) if pinned else torch
    required = f"nvcc {versions.dotted(wanted or ())}; torch is built for CUDA {versions.dotted(torch or ())}"
    found = toolkit(subject)
    if found is None:
        return fail("no nvcc", required, _toolkit_fix(subject))
    shown = f"nvcc {versions.dotted(found.release)} in {found.home}"
    if torch is not None and found.release[0] != torch[0]:
        return fail(f"{shown}: another major release than torch's", required, _toolkit_fix(subject))
    if wanted is not None and found.release != wanted:
        return fail(shown, required, _toolkit_fix(subject))
    return ok(shown, required)


def _architectures(subject: Subject) -> Finding:
    if device(subject) != "cuda":
        return _not_for_cuda(subject)
    wanted = [str(each) for each in subject.stack.recipes["vllm"].get("cuda_archs", ())]
    required = f"an nvcc that compiles for {' '.join(wanted) or 'the architectures that vLLM chooses'}"
    edit = f"${{EDITOR:-vi}} stacks/{subject.stack.name}/stack.toml   # [recipes.vllm] cuda_archs"
    if not wanted:
        return warn("the stack file names none, and vLLM takes all that it knows", required, edit)
    found = toolkit(subject)
    if found is None:
        return skip("no nvcc to ask", required)
    answer = subject.ask(f"{found.home}/bin/nvcc", "--list-gpu-arch")
    known = set(re.findall(r"compute_(\d+[a-z]?)", answer.output))
    if not answer.good or not known:
        return fail(f"nvcc: {answer.in_short}", required, f"{found.home}/bin/nvcc --list-gpu-arch")
    unknown = [each for each in wanted if not _knows(known, each)]
    if unknown:
        shown = f"nvcc does not know {' '.join(unknown)}; it knows {' '.join(sorted(known, key=_order))}"
        return fail(shown, required, f"{edit}, or a newer toolkit")
    return ok(" ".join(wanted), required)


def _knows(known: set[str], architecture: str) -> bool:
    """`9.0a+PTX` is compute_90a; the list leaves out the suffixes of what it knows, such as 100a beside 100."""
    number = architecture.partition("+")[0].replace(".", "")
    return number in known or number.rstrip("abcdefghijklmnopqrstuvwxyz") in known


def _order(architecture: str) -> int:
    return int(re.sub(r"\D", "", architecture))


def _host_compiler(subject: Subject) -> Finding:
    if device(subject) != "cuda":
        return _not_for_cuda(subject)
    found = toolkit(subject)
    text = "" if found is None else subject.machine.read_text(f"{found.home}/include/crt/host_config.h") or ""
    newest = NEWEST_HOST_COMPILER.search(text)
    if found is None or newest is None:
        return skip("no CUDA toolkit that names its newest gcc", "a gcc that nvcc works with")
    required = f"gcc {newest.group(1)} or older, as {found.home} wants"
    gcc = versions.parse(subject.says(["gcc", "-dumpfullversion"]) or "")
    if gcc is None:
        return fail("no gcc", required, "sudo apt-get install -y build-essential")
    if gcc[0] > int(newest.group(1)):
        return fail(f"gcc {versions.dotted(gcc)}", required, switch_to_gcc(int(newest.group(1))))
    return ok(f"gcc {versions.dotted(gcc)}", required)


CHECKS = (
    Check(
        id="build.cuda-home",
        title="CUDA toolkit",
        group="build",
        why="the engine's kernels are compiled with it",
        symptom="CUDA_HOME is not set, or cuda_runtime.h: No such file or directory",
        cause="the driver alone is no toolkit, and torch's packages have no nvcc",
        looks_at="CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda; nvcc, header and library in it",
        fix="sudo apt-get install -y cuda-toolkit-13-0 && export CUDA_HOME=/usr/local/cuda-13.0",
        reference="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        needed_for=("build",),
        look=_cuda_home,
        rows=(5,),
    ),
    Check(
        id="build.nvcc",
        title="nvcc",
        group="build",
        why="the engine's kernels and torch share one CUDA runtime",
        symptom="The detected CUDA version mismatches the version that was used to compile PyTorch",
        cause="nvcc is of another release than the torch that is pinned",
        looks_at="nvcc --version, against the stack file's torch_backend and [tools].cuda",
        fix="sudo apt-get install -y cuda-toolkit-13-0 && export CUDA_HOME=/usr/local/cuda-13.0",
        reference="https://github.com/vllm-project/vllm/issues/129",
        needed_for=("build",),
        look=_nvcc,
        rows=(4,),
    ),
    Check(
        id="build.cuda-architectures",
        title="GPU architectures",
        group="build",
        why="nvcc compiles for the architectures of its time only",
        symptom="nvcc fatal: Unsupported gpu architecture 'compute_120'",
        cause="nvcc is older than an architecture of the list",
        looks_at="nvcc --list-gpu-arch, against cuda_archs of the stack file",
        fix="${EDITOR:-vi} stacks/NAME/stack.toml   # [recipes.vllm] cuda_archs, or a newer toolkit",
        reference="https://github.com/vllm-project/vllm/issues/8665",
        needed_for=("build",),
        look=_architectures,
        rows=(14,),
    ),
    Check(
        id="build.cuda-host-compiler",
        title="gcc for nvcc",
        group="build",
        why="nvcc refuses a host compiler that is newer than itself",
        symptom="#error -- unsupported GNU version! gcc versions later than 13 are not supported!",
        cause="the distribution's gcc is newer than the CUDA toolkit",
        looks_at="the limit in the toolkit's host_config.h, and gcc's version",
        fix="sudo apt-get install -y gcc-12 g++-12   # and make them the default, with update-alternatives",
        reference="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#host-compiler-support-policy",
        needed_for=("build",),
        look=_host_compiler,
    ),
)
