"""What each verb of `python -m scripts` does, and what it answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from scripts import build as building
from scripts import clean as cleaning
from scripts import doctor, recipes
from scripts import install as installing
from scripts import options as opts
from scripts.build_inputs import Inputs, read_inputs
from scripts.console import Console
from scripts.exclusion import exclusive
from scripts.layout import Layout
from scripts.locks import lock_all
from scripts.models import fetch_model
from scripts.repro import repro
from scripts.verify import verify

NOT_OK = 1


@dataclass(frozen=True)
class Answer:
    """`document` is the `--json` answer; `lines` are for people, on stdout; `status` is the exit status."""

    document: Mapping[str, Any]
    lines: tuple[str, ...] = ()
    status: int = 0


class Report(Protocol):
    """The outcome of a verb that judges."""

    @property
    def ok(self) -> bool: ...

    def document(self) -> dict[str, Any]: ...

    def lines(self) -> list[str]: ...


def answer(options: argparse.Namespace, console: Console) -> Answer:
    """Run the verb that `options` name. Raises `BuildPlaneError`."""
    layout = Layout.of(options.stack)
    return _VERBS[options.verb](options, layout, console)


def _build(options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    inputs = read_inputs(layout, opts.choices(options), None if options.dry_run else console)
    if options.dry_run:
        steps = building.plan(layout, inputs, force=options.force, only=options.only)
        return _dry_run(options, layout, inputs, steps, only=tuple(options.only))
    if options.force or building.plan(layout, inputs, only=options.only):
        _examine("build", options, layout, console, only=tuple(options.only) or None)
    with exclusive(layout.mutex, console):
        built = building.build(layout, inputs, console, force=options.force, only=options.only)
    if built.manifest is None:
        console.say(f"no manifest yet: {', '.join(built.missing)} still to be built")
    return _done("build", layout, console, cached=built.cached, missing=list(built.missing))


def _install(options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    inputs = read_inputs(layout, opts.choices(options), None if options.dry_run else console)
    if options.dry_run:
        steps = [*building.plan(layout, inputs), *installing.plan(layout, force=options.force)]
        return _dry_run(options, layout, inputs, steps)
    to_build = building.plan(layout, inputs)
    if to_build:
        _examine("build", options, layout, console)
    if options.force or to_build or installing.plan(layout):
        _examine("install", options, layout, console)
    with exclusive(layout.mutex, console):
        built = building.build(layout, inputs, console)
        installed = installing.install(layout, built.whole(), inputs.stack.torch_backend, console, force=options.force)
    return _done("install", layout, console, cached=built.cached and installed)


def _examine(
    purpose: str,
    options: argparse.Namespace,
    layout: Layout,
    console: Console,
    only: tuple[str, ...] | None = None,
) -> None:
    """Ask the doctor before anything is changed. Raises `DoctorError` with all that this machine lacks."""
    chosen = opts.choices(options)
    asked = doctor.Options(jobs=chosen.jobs, sources=chosen.sources, recipes=only)
    results = doctor.require(layout.root, layout.stack, purpose, asked, ignored=chosen.ignored_checks)
    for ignored in doctor.failures(results):
        console.say(f"  {ignored.check.id}: {ignored.finding.found} (ignored)")


def _lock(_options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    with exclusive(layout.mutex, console):
        changed = lock_all(layout, console)
    return Answer({"stack": layout.stack, "changed": changed, "cached": not changed})


def _fetch_model(options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    with exclusive(layout.mutex, console):
        path, cached = fetch_model(layout, options.model, console)
    return Answer({"stack": layout.stack, "gguf": str(path), "cached": cached})


def _verify(options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    with exclusive(layout.mutex, console):
        return _judged(verify(layout, console, environment=not options.dist_only))


def _repro(options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    return _judged(repro(layout, console, opts.choices(options)))


def _clean(options: argparse.Namespace, layout: Layout, console: Console) -> Answer:
    report = cleaning.clean(
        layout,
        console,
        cache=options.cache or options.all,
        runs=options.runs or options.all,
        everything=options.all,
        older_than_days=options.older_than,
        delete=options.yes,
    )
    return _judged(report)


_VERBS: dict[str, Callable[[argparse.Namespace, Layout, Console], Answer]] = {
    "build": _build,
    "install": _install,
    "lock": _lock,
    "fetch-model": _fetch_model,
    "verify": _verify,
    "repro": _repro,
    "clean": _clean,
}


def _judged(report: Report) -> Answer:
    return Answer(report.document(), tuple(report.lines()), 0 if report.ok else NOT_OK)


def _done(verb: str, layout: Layout, console: Console, *, cached: bool, **more: Any) -> Answer:
    place = layout.relative(layout.manifest if verb == "build" else layout.environment)
    state = "is up to date" if cached else "is ready"
    console.say(f"{verb} {layout.stack}: {place} {state} ({console.elapsed_s():.1f} s)")
    document = {
        "stack": layout.stack,
        "manifest": layout.relative(layout.manifest),
        "environment": layout.relative(layout.environment),
        "cached": cached,
    }
    return Answer({**document, **more})


def _dry_run(
    options: argparse.Namespace,
    layout: Layout,
    inputs: Inputs,
    steps: list[str],
    only: tuple[str, ...] = (),
) -> Answer:
    products = building.explain(layout, inputs)
    would = [*_looks(opts.choices(options)), *steps]
    document = {
        "stack": layout.stack,
        "would": would,
        "cached": not steps,
        "products": products,
        "manifest": building.preview(layout, inputs).model_dump(by_alias=True),
    }
    lines = [f"would {step}" for step in would]
    if not steps:
        lines.append(f"nothing to do: {layout.relative(layout.manifest)} is up to date")
    for product in products:
        there = "in dist" if product["cached"] else "kept in .cache/built" if product.get("kept") else "not there"
        lines.append(f"{product['name']}: key {product['key']}, {there}")
        made = options.force or there == "not there"
        if made and options.verb == "build" and product["name"] in (only or (product["name"],)) and "steps" in product:
            lines += recipes.lines(product)
    return Answer(document, tuple(lines))


def _looks(chosen: opts.Choices) -> list[str]:
    """What is done first with the checkouts that the caller gave, which a dry run does not look into."""
    more = ", and take its changes: with any, what is made of it has another key" if chosen.allow_dirty else ""
    return [f"verify {name} in {path}{more}" for name, path in chosen.sources.items()]
