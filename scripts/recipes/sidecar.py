"""The binary `dynamo-vllm-sidecar`, out of Dynamo's main workspace. Pure. Not compiled here."""

from __future__ import annotations

from scripts.recipes.dynamo import DOWNLOADED
from scripts.recipes.steps import Product, RecipePlan
from scripts.recipes.workplace import Workplace

BINARY = "dynamo-vllm-sidecar"


def plan(place: Workplace) -> RecipePlan:
    """The steps. The build environment is there for its CMake, which some crates compile C code with."""
    manifest, lock = place.src / "Cargo.toml", place.src / "Cargo.lock"
    product = place.target / "release" / BINARY
    steps = [
        *place.environment_steps(),
        place.cargo_jobs_step(),
        *place.cargo_steps(manifest, lock),
        place.step(
            "compile the sidecar",
            ("cargo", "build", "--release", "--frozen", "--manifest-path", str(manifest), "--package", BINARY),
            env=place.rust_variables(),
            inputs=(lock,),
            outputs=(product,),
        ),
    ]
    return place.plan(steps, (Product(BINARY, "binary", product),), DOWNLOADED)
