"""Dynamo's two wheels: `ai_dynamo_runtime` (Rust behind a Python module) and `ai_dynamo` (Python). Pure.

Known from public revisions near the stack's: the bindings in `lib/bindings/python` are a Cargo workspace of their own
with a lock file of their own; their dependencies are crates in folders above. protoc and libclang must be on the
machine. Not compiled here.
"""

from __future__ import annotations

from scripts.recipes.steps import NestedState, Product, RecipePlan
from scripts.recipes.workplace import Workplace
from scripts.stackfile import DynamoRecipe

RUNTIME_WHEEL, DYNAMO_WHEEL = "ai_dynamo_runtime-*.whl", "ai_dynamo-*.whl"
FRONTEND = "dynamo/frontend/__main__.py"

# The build script of a crate (utoipa-swagger-ui) downloads a web page's files with curl at the version that it names;
# no lock file has their hash.
DOWNLOADED = (NestedState("swagger-ui", None, None),)


def plan(place: Workplace, recipe: DynamoRecipe) -> RecipePlan:
    """Both wheels, each in its fixed form."""
    bindings = place.src / "lib" / "bindings" / "python"
    manifest, lock = bindings / "Cargo.toml", bindings / "Cargo.lock"
    compile_runtime = (
        *(str(place.env / "bin" / "maturin"), "build", "--release", "--locked", "--offline"),
        *("--manifest-path", str(manifest), "--interpreter", str(place.python), "--out", str(place.wheels)),
        *(("--features", ",".join(recipe.features)) if recipe.features else ()),
    )
    steps = [
        *place.environment_steps(),
        place.cargo_jobs_step(),
        *place.cargo_steps(manifest, lock),
        place.step(
            "build the wheel of the runtime",
            compile_runtime,
            env=place.rust_variables(),
            cwd=bindings,
            inputs=(lock,),
            outputs=(place.wheels / RUNTIME_WHEEL,),
        ),
        place.normalise_step(RUNTIME_WHEEL),
        place.wheel_step("build the wheel of the Python part", {}, (), DYNAMO_WHEEL),
        place.normalise_step(DYNAMO_WHEEL),
    ]
    products = (
        Product("ai-dynamo-runtime", "wheel", place.out / RUNTIME_WHEEL, members=("dynamo/_core*.so",)),
        Product("ai-dynamo", "wheel", place.out / DYNAMO_WHEEL, members=(FRONTEND,)),
    )
    return place.plan(steps, products, DOWNLOADED)
