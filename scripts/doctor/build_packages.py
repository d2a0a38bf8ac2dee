"""Group build: where packages come from, and whether the locks fit each other."""

from __future__ import annotations

from collections.abc import Mapping

from scripts import indexes
from scripts.doctor.host_paths import quoted
from scripts.doctor.locked import BUILD, REQUIREMENTS, normalised, versions
from scripts.doctor.registry import Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject, means_on

_SHOWN = 4


def _index(subject: Subject) -> Finding:
    required = "an index, or a wheelhouse that has every locked package"
    settings = _pip_settings(subject)
    if settings is None:
        return fail("pip does not say what it is set to", required, "python3 -m pip config list")
    environ = subject.environ
    links = indexes.split_links(
        environ.get("UV_FIND_LINKS") or environ.get("PIP_FIND_LINKS") or settings.get("find-links", "")
    )
    local = [link.removeprefix("file://") for link in links if "://" not in link or link.startswith("file://")]
    gone = [folder for folder in local if not subject.machine.is_dir(folder)]
    if environ.get("UV_FIND_LINKS") and gone:
        return fail(f"UV_FIND_LINKS names {', '.join(gone)}, which is no folder", required, "unset UV_FIND_LINKS")
    closed = [name for name in ("PIP_NO_INDEX", "UV_OFFLINE") if means_on(environ.get(name, ""))]
    if means_on(settings.get("no-index", "")):
        closed.append("pip.conf's no-index")
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or environ.get("PIP_INDEX_URL")
    index = index or settings.get("index-url")
    found = [f"index closed by {', '.join(closed)}" if closed else f"index {index or 'of the installers themselves'}"]
    found += [f"wheelhouse {', '.join(links)}"] if links else []
    found += [f"not there: {', '.join(gone)}"] if gone else []
    shown = "; ".join(found)
    if closed and not links:
        return fail(
            f"{shown}; no wheelhouse", required, f"unset {' '.join(closed)}   # or: export UV_FIND_LINKS=FOLDER"
        )
    if closed and len(local) == len(links):
        return _offline(subject, local, shown, required)
    if gone:
        return warn(shown, required, "python3 -m pip config list; env | grep FIND_LINKS")
    return ok(shown, required)


def _pip_settings(subject: Subject) -> Mapping[str, str] | None:
    """pip's configuration files, by pip itself; empty where there is no pip, None where it did not answer."""
    python = subject.which("python3")
    if python is None:
        return {}
    answer = subject.ask(python, "-m", "pip", "config", "list", "--disable-pip-version-check")
    if answer.status is None:
        return None
    return indexes.parse_pip_config(line for line in answer.output.splitlines() if "='" in line) if answer.good else {}


def _offline(subject: Subject, folders: list[str], shown: str, required: str) -> Finding:
    """With no index, every locked package must lie in a wheelhouse, or in uv's cache, which cannot be seen here."""
    pins = versions(subject, REQUIREMENTS) or {}
    there = _wheels(subject, folders)
    missing = [f"{name}=={version}" for name, version in pins.items() if (name, version.lower()) not in there]
    if not missing:
        return ok(f"{shown}: all {len(pins)} packages", required)
    listed = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
    fix = f"python3 -m pip download --no-deps --dest {quoted(folders[0])} -r stacks/{subject.stack.name}/{REQUIREMENTS}"
    return warn(
        f"{shown}: {len(missing)} of {len(pins)} are not in it ({listed})",
        required,
        f"{fix}   # on a machine with an index",
    )


def _wheels(subject: Subject, folders: list[str]) -> set[tuple[str, str]]:
    """Normalised distribution and version of every wheel in the folders."""
    names = [name for folder in folders for name in subject.machine.entries(folder) or () if name.endswith(".whl")]
    parts = [name.split("-") for name in names]
    return {(normalised(each[0]), each[1].lower()) for each in parts if len(each) >= 5}


def _torch_index(subject: Subject) -> Finding:
    version = subject.stack.packages.get("torch", "")
    required = (
        f"torch {version or 'as locked'} from PyTorch's index {subject.stack.torch_backend}, or from a wheelhouse"
    )
    if "+" not in version:
        return skip("torch is locked without a local version: every index has it", required)
    label = version.partition("+")[2]
    chosen = subject.environ.get("UV_TORCH_BACKEND")
    if chosen and chosen != subject.stack.torch_backend:
        return warn(f"UV_TORCH_BACKEND={chosen}, and the stack wants {label}", required, "unset UV_TORCH_BACKEND")
    if label != subject.stack.torch_backend:
        fix = f"${{EDITOR:-vi}} stacks/{subject.stack.name}/stack.toml   # torch_backend, or [packages.torch]"
        return fail(
            f"torch_backend is {subject.stack.torch_backend}, and [packages] pins torch {version}", required, fix
        )
    return ok(f"torch {version} by --torch-backend {subject.stack.torch_backend}", required)


def _locks(subject: Subject) -> Finding:
    stack = subject.stack
    required = f"{REQUIREMENTS} with every version of [packages]" + (
        f", and {BUILD} with the same torch" if stack.from_source else ""
    )
    relock = f"./noxw -s lock -- --stack {stack.name}"
    locked = versions(subject, REQUIREMENTS)
    if locked is None:
        return fail(f"no stacks/{stack.name}/{REQUIREMENTS}", required, relock)
    wrong = [
        f"{name} {locked.get(name, 'not at all')}" for name, pin in stack.packages.items() if locked.get(name) != pin
    ]
    if wrong:
        return fail(f"{REQUIREMENTS} has {', '.join(wrong)}", required, relock)
    if not stack.from_source:
        return ok(f"{len(locked)} packages, with the {len(stack.packages)} of the stack file", required)
    building = versions(subject, BUILD)
    if building is None:
        return fail(f"no stacks/{stack.name}/{BUILD}", required, relock)
    torch, run = building.get("torch"), locked.get("torch")
    if "vllm" in stack.recipes and torch != run:
        return fail(f"torch {torch} to build with, torch {run} to run with", required, relock)
    return ok(f"{len(locked)} packages to run, {len(building)} to build, torch {run} in both", required)


CHECKS = (
    Check(
        id="build.package-index",
        title="package index",
        group="build",
        why="every package is fetched from there, by its locked hash",
        symptom="no matching distribution, or no solution found when resolving dependencies",
        cause="a closed index, a wheelhouse that is not there or lacks a file",
        looks_at="UV_* and PIP_* variables, pip's configuration files, the wheelhouse's folder",
        fix="unset PIP_NO_INDEX UV_OFFLINE   # or: export UV_FIND_LINKS=FOLDER, with every locked wheel in it",
        reference="https://docs.astral.sh/uv/concepts/indexes/",
        needed_for=("build", "install"),
        look=_index,
        rows=(15,),
    ),
    Check(
        id="build.torch-index",
        title="torch's index",
        group="build",
        why="a torch with a local version such as +cpu is not on the default index",
        symptom="there is no version of torch==2.13.0+cpu",
        cause="local versions lie on PyTorch's own index, one for each backend",
        looks_at="[packages.torch], torch_backend and UV_TORCH_BACKEND",
        fix="unset UV_TORCH_BACKEND",
        reference="https://github.com/vllm-project/vllm/issues/15822",
        needed_for=("build", "install"),
        look=_torch_index,
        rows=(15,),
    ),
    Check(
        id="build.locks",
        title="locks",
        group="build",
        why="what is compiled against one torch does not load beside another",
        symptom="undefined symbol in _C.abi3.so, torch replaced in the middle of a build, or conflicting dependencies",
        cause="two environments resolved at two times; here both are locked, and installed without resolving",
        looks_at="requirements.lock and build.lock: the stack file's versions, and torch the same in both",
        fix="./noxw -s lock -- --stack NAME",
        reference="https://github.com/vllm-project/vllm/issues/12577",
        needed_for=("build", "install"),
        look=_locks,
        rows=(6, 13, 21),
    ),
)
