"""A plan's key: the digest of everything that decides what comes out, and of nothing else. Pure.

In it: every command and variable, the code of ours that has a hand in the products, the source and what it fetches, the
versions of all tools, the build environment's lock, the platform. Not in it: how many compilers work side by side, and
any path of the machine.

A clean source counts by its revision, which determines tree, submodules and commit time: the key of a plan is the same
before and after the source is fetched. A dirty one counts by its tree as well. A version taken from tags is known only
afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.digests import files_sha256, json_sha256
from scripts.recipes import variables
from scripts.recipes.steps import RecipePlan, SourceFacts

_PLANE = Path(__file__).parent.parent
# What runs while a plan is carried out and decides bytes. The code that makes plans counts by the plans that it makes.
_AT_WORK = (
    *(
        "build_paths.py",
        "embedded_sbom.py",
        "gitsource/copying.py",
        "gitsource/placing.py",
        "normalise.py",
        "strict_wheel.py",
        "wheels.py",
    ),
    *("recipes/cargo_jobs.py", "recipes/rustc.py"),
)

_TORCH_FROM = "--torch-backend"


def key(plan: RecipePlan) -> str:
    """The content address of what this plan makes."""
    return json_sha256(parts(plan))


def parts(plan: RecipePlan) -> dict[str, object]:
    """What the key is the digest of, for those who ask why it is another."""
    own = {name: value for name, value in plan.environment.items() if name not in _inherited(plan)}
    return {
        "recipe": plan.recipe,
        "code": _code(),
        "source": _source(plan.source),
        "nested": {state.name: state.revision for state in plan.nested},
        "steps": [
            {"name": step.name, "argv": _command(step.argv, plan), "env": _effective(step.env, plan)}
            for step in plan.steps
        ],
        "environment": _effective(own, plan),
        "products": [[product.name, product.kind] for product in plan.products],
        "tools": dict(plan.tools),
        "platform": plan.platform,
        "locks": dict(plan.locks),
    }


def _code() -> str:
    return files_sha256(_PLANE, [_PLANE / name for name in _AT_WORK])


def _inherited(plan: RecipePlan) -> frozenset[str]:
    """Variables of the site and of the user: where from, through what, where to keep it."""
    fixed = {*variables.FIXED, *variables.prefix_flags([]), "VIRTUAL_ENV"}
    return frozenset(plan.environment) - fixed


def _source(source: SourceFacts) -> dict[str, object]:
    return {
        "revision": source.revision,
        "changed": source.tree if source.dirty else None,
        "version": source.version,
        "nested": {name: _source(each) for name, each in source.nested.items()},
    }


def _effective(env: Mapping[str, str], plan: RecipePlan) -> dict[str, str]:
    return {name: _shown(value, plan) for name, value in env.items() if name not in variables.NOT_IN_KEY}


def _command(argv: Sequence[str], plan: RecipePlan) -> list[str]:
    epoch = plan.environment["SOURCE_DATE_EPOCH"]
    parts = list(argv)
    if _TORCH_FROM in parts:
        # Where torch is fetched from is the site's business: build.lock has its digest.
        place = parts.index(_TORCH_FROM)
        del parts[place : place + 2]
    return ["<epoch>" if part == epoch else _shown(part, plan) for part in parts]


def _shown(text: str, plan: RecipePlan) -> str:
    """`text` with the machine's paths replaced by what they are, the longest first."""
    known = sorted((path for path in plan.tokens if path), key=len, reverse=True)
    return re.sub("|".join(map(re.escape, known)), lambda match: plan.tokens[match[0]], text)
