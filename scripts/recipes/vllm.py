"""The engine's wheel, with its Rust front end in it. Pure.

Known from the source archive of the release 0.26.0: setup.py asks setuptools-scm for the version, CMake compiles for
`VLLM_TARGET_DEVICE`, setuptools-rust builds `vllm/vllm-rs` from `rust/` and skips it in silence when it cannot, unless
`VLLM_REQUIRE_RUST_FRONTEND` is set. `MAX_JOBS` is divided by `NVCC_THREADS`. The version gets a suffix for the CUDA
release where that is not vLLM's main one (13.0), `+empty` or `+cpu` for those devices. Not compiled here: no GPU build
of the stack's revision was run.
"""

from __future__ import annotations

from scripts.recipes import nested
from scripts.recipes.steps import Product, RecipePlan
from scripts.recipes.workplace import Workplace
from scripts.stackfile import VllmRecipe

WHEEL = "vllm-*.whl"
FRONT_END = "vllm/vllm-rs"


def plan(place: Workplace, recipe: VllmRecipe, pinned_version: str | None) -> RecipePlan:
    """The steps for one device."""
    cargo = place.src / "rust"
    lock = cargo / "Cargo.lock"
    steps = [
        *place.environment_steps(),
        *place.cargo_steps(cargo / "Cargo.toml", lock),
        place.wheel_step("build the wheel", variables(place, recipe, pinned_version), (lock,), WHEEL),
        place.normalise_step(WHEEL),
    ]
    wheel = Product("vllm", "wheel", place.out / WHEEL, members=(FRONT_END,), executables=(FRONT_END,))
    return place.plan(steps, (wheel,), nested.states(recipe.device, place.source.nested))


def variables(place: Workplace, recipe: VllmRecipe, pinned_version: str | None) -> dict[str, str]:
    """vLLM's own knobs."""
    folders = {name: place.nested(name) for name in place.source.nested}
    found = {
        **place.rust_variables(),
        **nested.variables(recipe.device, folders),
        "VLLM_TARGET_DEVICE": recipe.device,
        "VLLM_REQUIRE_RUST_FRONTEND": "1",
        "MAX_JOBS": str(place.jobs.compilers),
        # A Python may have its own folder among its linker flags, where a wheel must not look for libraries.
        "LDSHARED": "gcc -shared",
        "LDCXXSHARED": "g++ -shared",
    }
    if pinned_version is not None:
        # setup.py asks setuptools-scm without naming the distribution, and is then told by the general variable only;
        # setuptools-scm's own hook asks for the distribution by name.
        found["SETUPTOOLS_SCM_PRETEND_VERSION"] = pinned_version
        found["SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM"] = pinned_version
    if recipe.device == "cuda":
        found["NVCC_THREADS"] = str(place.jobs.nvcc_threads)
        found["TORCH_CUDA_ARCH_LIST"] = ";".join(recipe.cuda_archs)
        if place.toolchain.cuda_home:
            found["CUDA_HOME"] = place.toolchain.cuda_home
    return found
