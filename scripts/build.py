"""`build`: a stack file's artifacts into `dist/<stack>`, each only when something that goes into it has changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import executables, provenance
from scripts import manifest as manifests
from scripts.build_inputs import Inputs
from scripts.cache import Cache
from scripts.console import Console
from scripts.errors import BuildError, UsageError
from scripts.layout import Layout
from scripts.manifest import Artifact, LockFile, Manifest
from scripts.products import Product
from scripts.provenance import facts, signing
from scripts.publish import remove, sweep_partials


@dataclass(frozen=True)
class Built:
    """A build's outcome. `manifest` is None when `--only` has left products unmade, which `missing` names."""

    manifest: Manifest | None
    cached: bool
    missing: tuple[str, ...] = ()

    def whole(self) -> Manifest:
        """The manifest of a build that left nothing out."""
        if self.manifest is None:
            raise BuildError("the build is not complete", expected="every product", found=f"without {self.missing}")
        return self.manifest


def build(layout: Layout, inputs: Inputs, console: Console, *, force: bool = False, only: Sequence[str] = ()) -> Built:
    """Bring `dist/<stack>` up to date, or only the products named. The caller holds the stack's lock."""
    wanted = _wanted(inputs, only)
    signing.hook(os.environ)
    if inputs.workshop is not None:
        inputs.workshop.verify_given(console)
    cache = Cache.load(layout.build_state, layout.dist)
    current = None if force else _current(layout, inputs, cache)
    if current is not None:
        return Built(current, cached=True)
    # From here until the new manifest there is no finished build.
    remove(layout.manifest)
    layout.dist.mkdir(parents=True, exist_ok=True)
    sweep_partials(layout.dist)
    artifacts: list[Artifact] = []
    missing, cached = [], True
    for product in inputs.products:
        kept = None if force and product.name in wanted else cache.reusable(product.key)
        if kept is not None:
            console.cached(product.title)
            artifacts += kept
        elif product.name in wanted:
            artifacts += cache.record(product.key, product.make(console, force=force))
            cache.save()
            cached = False
        else:
            missing.append(product.name)
    _drop_former(layout, inputs, cache)
    if missing:
        return Built(None, cached, tuple(missing))
    return Built(_publish(layout, inputs, artifacts, console), cached=False)


def _publish(layout: Layout, inputs: Inputs, artifacts: list[Artifact], console: Console) -> Manifest:
    """Write what tells about the artifacts, and the manifest last. The order is that of `provenance`."""
    manifest = _describe(layout, inputs, artifacts, console)
    documents = provenance.documents(facts.read(layout, manifest, inputs.stack, inputs.locked))
    signing.put(layout, documents[provenance.STATEMENT_NAME], console)
    manifest.publish(layout.manifest, documents)
    console.say(f"  {signing.sentence(layout.dist)}")
    return manifest


def plan(layout: Layout, inputs: Inputs, *, force: bool = False, only: Sequence[str] = ()) -> list[str]:
    """What `build` would do, in words; nothing when `dist/<stack>` is up to date."""
    wanted = _wanted(inputs, only)
    cache = Cache.load(layout.build_state, layout.dist)
    if not force and _current(layout, inputs, cache) is not None:
        return []
    forced = wanted if force else frozenset()
    unmade = [each for each in inputs.products if each.name in forced or cache.reusable(each.key) is None]
    steps = [step for product in unmade if product.name in wanted for step in product.plan(force=force)]
    if any(product.name not in wanted for product in unmade):
        return steps
    return [*steps, f"write {layout.relative(layout.manifest)}"]


def explain(layout: Layout, inputs: Inputs) -> list[dict[str, Any]]:
    """Each product with its key, whether it is there already, and how it would be made."""
    cache = Cache.load(layout.build_state, layout.dist)
    return [
        {
            "name": product.name,
            "key": product.key,
            "cached": cache.reusable(product.key) is not None,
            **product.explain(),
        }
        for product in inputs.products
    ]


def preview(layout: Layout, inputs: Inputs) -> Manifest:
    """The manifest that `build` would lead to, but for the artifacts: their hashes are known once they are made."""
    return _describe(layout, inputs, [], None)


def _wanted(inputs: Inputs, only: Sequence[str]) -> frozenset[str]:
    names = [product.name for product in inputs.products]
    for name in only:
        if name not in names:
            raise UsageError(
                f"the stack builds nothing named {name!r}",
                expected=" or ".join(names),
                found=name,
                hint="give --only one of these, or leave it out for all",
            )
    return frozenset(only or names)


def _current(layout: Layout, inputs: Inputs, cache: Cache) -> Manifest | None:
    """The present manifest, if it is of these inputs and its artifacts are whole."""
    manifest = manifests.load(layout.manifest)
    if manifest is None or manifest.inputs != inputs.digest or signing.is_due(layout):
        return None
    documents = {name: layout.dist / name for name in (provenance.SBOM_NAME, provenance.STATEMENT_NAME)}
    if not all(path.is_file() for path in documents.values()):
        return None
    if manifest.sums({name: path.read_bytes() for name, path in documents.items()}) != _read(layout.sums):
        return None
    made = [cache.reusable(product.key) for product in inputs.products]
    whole = [artifact for artifacts in made if artifacts is not None for artifact in artifacts]
    return manifest if None not in made and whole == manifest.artifacts else None


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _drop_former(layout: Layout, inputs: Inputs, cache: Cache) -> None:
    """Remove what former builds made here. Anything else in the folder is not ours, and is never installed."""
    for file in cache.retain({product.key for product in inputs.products}):
        remove(layout.dist / file)
    cache.save()


def _describe(layout: Layout, inputs: Inputs, artifacts: list[Artifact], console: Console | None) -> Manifest:
    stack = inputs.stack
    packages = {name: pin.version for name, pin in inputs.locked.items()}
    packages |= {artifact.name: artifact.version for artifact in artifacts if artifact.kind == "wheel"}
    return Manifest(
        stack=stack.name,
        summary=stack.summary,
        platform=stack.platform,
        python=stack.python,
        dialect=stack.dialect,
        refit_backend=stack.refit_backend,
        planes=stack.planes,
        inputs=inputs.digest,
        environment=layout.relative(layout.environment),
        lock=LockFile(path=layout.relative(layout.lock), sha256=inputs.lock_sha256),
        artifacts=artifacts,
        binaries=executables.named(layout.dist, stack, artifacts),
        packages=dict(sorted(packages.items())),
        sources=[] if inputs.workshop is None else inputs.workshop.revisions(console),
        tools=_tools(inputs.products),
    )


def _tools(products: Sequence[Product]) -> dict[str, str]:
    """Tool -> version; one that products use in different versions is named with the product."""
    versions: dict[str, dict[str, str]] = {}
    for product in products:
        for tool, version in product.tools.items():
            versions.setdefault(tool, {})[product.name] = version
    found = {}
    for tool, by_product in sorted(versions.items()):
        if len(set(by_product.values())) == 1:
            found[tool] = next(iter(by_product.values()))
        else:
            found |= {f"{tool} ({product})": version for product, version in by_product.items()}
    return found
