"""What is installed against what was built: versions, torch's CUDA, Dynamo's bounds. Nothing is imported."""

from __future__ import annotations

import re

from scripts.doctor import versions
from scripts.doctor.locked import normalised
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.runtime_installed import Installed, reinstall, requirements, when_installed, when_unchanged
from scripts.doctor.subject import Subject

_FIRST = ("vllm", "torch", "pydantic", "ai-dynamo", "ai-dynamo-runtime")
"""Named before all others, since people report these."""

_SHOWN = 4
_CUDA = re.compile(r"(?m)^cuda\b[^=\n]*=\s*(?:'([\d.]+)'|None)")
_BOUND = re.compile(r"(<=|>=|==|!=|<|>)\s*([\d.]+)(?![\d.*])")


def _versions(subject: Subject, installed: Installed) -> Finding:
    required = "exactly the manifest's packages, in its versions"
    pinned, found = installed.pinned, installed.packages
    names = [name for name in pinned.keys() | found.keys() if pinned.get(name) != found.get(name)]
    if not names:
        main = ", ".join(f"{name} {found[name]}" for name in _FIRST[:3] if name in found)
        return ok(f"{len(found)} packages, {main}", required)
    names.sort(key=lambda name: (name not in _FIRST, name))
    shown = [f"{name} {found.get(name, 'absent')} instead of {pinned.get(name, 'nothing')}" for name in names[:_SHOWN]]
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    # The next install notices too, and makes the environment afresh: nothing is lost but the change.
    return warn(f"{'; '.join(shown)}{more}", required, reinstall(subject))


def _torch(subject: Subject, installed: Installed) -> Finding:
    """`torch/version.py` is text: what torch was built for, without importing it."""
    backend = subject.stack.torch_backend
    required = f"a torch that is built for {backend}"
    if "torch" not in installed.pinned:
        return skip("this stack has no torch", required)
    text = subject.machine.read_text(subject.site_packages / "torch" / "version.py")
    told = _CUDA.search(text or "")
    if text is None or told is None:
        return fail("torch/version.py does not tell", required, reinstall(subject))
    found = told.group(1)
    shown = "torch is built without CUDA" if found is None else f"torch is built for CUDA {found}"
    wanted = subject.stack.torch_cuda
    have = tuple(int(part) for part in found.split(".")[:2]) if found else None
    if have == wanted:
        return ok(shown, required)
    name = subject.stack.name
    return fail(shown, required, f"./noxw -s lock -- --stack {name}   # its torch_backend and its lock disagree")


def _bounds(subject: Subject, installed: Installed) -> Finding:
    """Dynamo bounds pydantic tightly; a lock that was resolved with an override may be past it."""
    required = "packages within the bounds that ai-dynamo and ai-dynamo-runtime set"
    checked, outside = [], []
    for owner in ("ai-dynamo", "ai-dynamo-runtime"):
        for line in requirements(subject.machine, subject.site_packages, owner):
            name, bounds = _plain_requirement(line)
            version = installed.packages.get(name)
            if not bounds or version is None or name == "ai-dynamo-runtime":
                continue
            checked.append(name)
            if not all(_holds(version, operator, bound) for operator, bound in bounds):
                outside.append(f"{name} {version}, but {owner} wants {_written(bounds)}")
    if outside:
        return fail("; ".join(outside), required, f"./noxw -s lock -- --stack {subject.stack.name}")
    if not checked:
        return skip("they set no bounds on what is installed", required)
    pydantic = f", pydantic {installed.packages['pydantic']}" if "pydantic" in checked else ""
    return ok(f"{len(set(checked))} packages{pydantic}", required)


def _plain_requirement(line: str) -> tuple[str, list[tuple[str, str]]]:
    """The name and the bounds of an unconditional requirement; no bounds for one that has an `extra` or a marker."""
    head, marker, _ = line.partition(";")
    name = re.match(r"[A-Za-z0-9._-]+", head)
    if marker or name is None:
        return "", []
    return normalised(name.group()), _BOUND.findall(head[name.end() :])


def _holds(version: str, operator: str, bound: str) -> bool:
    have, limit = _release(version), _release(bound)
    return {
        "<": have < limit,
        "<=": have <= limit,
        ">": have > limit,
        ">=": have >= limit,
        "==": have == limit,
        "!=": have != limit,
    }[operator]


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at the end: 2.10 is 2.10.0."""
    numbers = list(versions.parse(version) or ())
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _written(bounds: list[tuple[str, str]]) -> str:
    return ",".join(operator + bound for operator, bound in bounds)


CHECKS = (
    Check(
        id="runtime.packages",
        title="packages as built",
        group="runtime",
        why="one `pip install` into the environment can exchange vLLM or torch without a word",
        symptom="another vLLM answers than the one that was built; undefined symbols after an upgrade of torch",
        cause="an extra such as ai-dynamo[vllm], or a package with a pin of its own, was installed afterwards",
        looks_at="the names of *.dist-info, against packages of dist/<stack>/manifest.json",
        fix="./noxw -s install -- --stack NAME --force",
        reference="https://github.com/ai-dynamo/dynamo/pull/4592",
        needed_for=("run",),
        look=when_installed(_versions),
        rows=(6, 13, 22),
    ),
    Check(
        id="runtime.torch-build",
        title="torch for this stack",
        group="runtime",
        why="vLLM's compiled parts work only with the build of torch that they were made for",
        symptom="`undefined symbol` in _C.abi3.so, or `Torch not compiled with CUDA enabled`",
        cause="the index gave another local version (+cpu, +cu130) than the stack names",
        looks_at="torch/version.py as text, against `torch_backend` of the stack file",
        fix="./noxw -s lock -- --stack NAME",
        reference="https://github.com/vllm-project/vllm/issues/13608",
        needed_for=("run",),
        look=when_unchanged(_torch),
        rows=(4, 6, 15),
    ),
    Check(
        id="runtime.dynamo-bounds",
        title="Dynamo's version bounds",
        group="runtime",
        why="Dynamo's runtime is tried with a narrow range of pydantic only",
        symptom="`ResolutionImpossible`, or a validation error when the frontend starts",
        cause="the newest pydantic is past the bound, and an override has put it in all the same",
        looks_at="Requires-Dist of ai-dynamo and ai-dynamo-runtime, against what is installed",
        fix="./noxw -s lock -- --stack NAME",
        reference="https://github.com/ai-dynamo/dynamo/pull/4865",
        needed_for=("run",),
        look=when_unchanged(_bounds),
        rows=(21,),
    ),
)
