"""A plan as plain data, for `--dry-run`: every command, every variable that it gets, and what it must leave. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from scripts.recipes import variables
from scripts.recipes.keys import key
from scripts.recipes.steps import RecipePlan, SourceFacts


def document(plan: RecipePlan) -> dict[str, Any]:
    """The whole plan. Of the caller's own variables the names alone: values may hold passwords of an index."""
    inherited = set(variables.inherited(plan.environment)) - {"PATH"}
    own = {name: value for name, value in plan.environment.items() if name not in inherited}
    return {
        "recipe": plan.recipe,
        "key": key(plan),
        "source": _source(plan.source),
        "nested": [
            {"name": state.name, "repository": state.repository, "revision": state.revision, "floating": state.floating}
            for state in plan.nested
        ],
        "tools": dict(plan.tools),
        "platform": plan.platform,
        "locks": dict(plan.locks),
        "rust": plan.rust,
        "jobs": {
            "compilers": plan.jobs.compilers,
            "nvcc_threads": plan.jobs.nvcc_threads,
            "rust": plan.jobs.rust,
            "limit": plan.jobs.limit,
        },
        "compiler_cache": plan.compiler_cache,
        "umask": f"{variables.UMASK:03o}",
        "inherited": sorted(inherited),
        "copies": [
            {"source": each.source, "nested": each.nested, "revision": each.revision, "to": str(each.target)}
            for each in plan.placements
        ],
        "steps": [
            {
                "name": step.name,
                "argv": list(step.argv),
                "env": dict(sorted({**own, **step.env}.items())),
                "cwd": str(step.cwd),
                "inputs": [str(path) for path in step.inputs],
                "outputs": [str(path) for path in step.outputs],
            }
            for step in plan.steps
        ],
        "products": [
            {"name": each.name, "kind": each.kind, "path": str(each.path), "must_contain": list(each.members)}
            for each in plan.products
        ],
    }


def lines(shown: Mapping[str, Any]) -> list[str]:
    """A plan's document for people: the variables that all steps have, then each step with its own."""
    steps = shown["steps"]
    common = dict(set.intersection(*(set(step["env"].items()) for step in steps)))
    found = ["  every step, beside the caller's own " + (", ".join(shown["inherited"]) or "none") + ":"]
    found += _variables(common)
    for step in steps:
        found += [f"  {step['name']}, in {step['cwd']}:"]
        found += _variables({name: value for name, value in step["env"].items() if name not in common})
        found.append(f"    $ {shlex.join(step['argv'])}")
    return found


def _variables(env: Mapping[str, str]) -> list[str]:
    return [f"    {name}={shlex.quote(value)}" for name, value in sorted(env.items())]


def _source(source: SourceFacts) -> dict[str, Any]:
    return {
        "name": source.name,
        "repository": source.repository,
        "revision": source.revision,
        "version": source.version,
        "dirty": source.dirty,
        "nested": {name: _source(each) for name, each in source.nested.items()},
    }
