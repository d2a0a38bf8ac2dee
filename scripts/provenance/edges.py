"""Who needs what in the environment: the lock's word for locked packages, the wheels' own for what `build` made."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.errors import BuildError
from scripts.provenance.facts import Facts
from scripts.provenance.lockgraph import ROOT
from scripts.requirements_file import normalised


def dependency_edges(facts: Facts) -> Iterator[tuple[str, str]]:
    """Pairs of a requirer, which may be `ROOT`, and what it requires. Raises `BuildError` for an unknown requirer."""
    ours = {artifact.name for artifact in facts.manifest.artifacts}
    yield from ((ROOT, name) for name in ours)
    for name, required in facts.required.items():
        # An override of the resolution may have removed one: the environment does not have it.
        yield from ((name, each) for each in required if each in facts.locked or each in ours)
    for name in facts.locked:
        for requirer in facts.requirers.get(name) or {ROOT}:
            if requirer == ROOT or requirer in facts.locked:
                yield requirer, name
            elif requirer not in {*ours, _resolved_for(facts)}:
                raise BuildError(
                    f"the lock has {name} for {requirer}, which is neither in it nor built",
                    where=facts.manifest.lock.path,
                    hint=f"./noxw -s lock -- --stack {facts.manifest.stack}",
                )


def _resolved_for(facts: Facts) -> str | None:
    """What the lock was resolved for and leaves out: the assembled wheel takes its place, with its requirements."""
    return None if facts.stack.engine is None else normalised(facts.stack.engine.base.distribution)
