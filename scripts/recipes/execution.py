"""Carries a plan out: a fresh folder, the sources, step after step, the products checked and kept by their key.

The only module of the recipes that compiles. On a failure the folder stays for a look; the next build begins afresh.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import commands, gitsource
from scripts.commands import Finished
from scripts.console import Console
from scripts.digests import file_sha256
from scripts.errors import BuildError, log_tail
from scripts.exclusion import exclusive, working_in
from scripts.gitsource import Checkout
from scripts.layout import Layout
from scripts.publish import remove
from scripts.recipes import contents, variables
from scripts.recipes.diagnosis import Evidence, diagnose
from scripts.recipes.keys import key
from scripts.recipes.progress import Progress
from scripts.recipes.requirements import check_toolchain_file
from scripts.recipes.steps import FIRST_OF, RecipePlan, Step
from scripts.recipes.store import BuiltFile, Store

STEP_LIMIT_S = 12 * 3600.0
"""A CUDA build takes hours where few compilers fit side by side; a hung one must still end."""


@dataclass(frozen=True)
class Made:
    """What a recipe has made, and where it is kept."""

    key: str
    cached: bool
    files: dict[Path, BuiltFile]


def store(layout: Layout) -> Store:
    """Where products are kept by their key."""
    return Store(layout.cache / "built")


def is_kept(plan: RecipePlan, layout: Layout) -> bool:
    """Whether `run` would find its products kept, every byte read."""
    return kept(plan, layout) is not None


def kept(plan: RecipePlan, layout: Layout) -> Made | None:
    """What an earlier build of exactly this plan has left, every byte read."""
    digest = key(plan)
    files = store(layout).get(digest)
    return None if files is None else _made(layout, digest, files, cached=True)


def run(
    plan: RecipePlan, checkouts: Mapping[str, Checkout], layout: Layout, console: Console, *, force: bool = False
) -> Made:
    """Make the products, unless they are kept. Raises `BuildError` with the likely cause, `PinError` for a wrong Rust.

    `checkouts` has the plan's source; its facts must be those that the plan was made with.
    """
    # Stacks with the same sources have the same keys: the second one waits, and then finds what the first one made.
    mutex = layout.cache / "locks" / f"built-{key(plan)}.lock"
    with exclusive(mutex, console, len(plan.steps) * STEP_LIMIT_S, f"build of the same {plan.recipe}"):
        present = None if force else kept(plan, layout)
        if present is not None:
            console.cached(f"build {plan.recipe}")
            return present
        if not force and store(layout).has(key(plan)):
            console.say(f"  build {plan.recipe}: what was kept is not what its record says, and is made again")
        return _build(plan, checkouts, layout, console)


def _build(plan: RecipePlan, checkouts: Mapping[str, Checkout], layout: Layout, console: Console) -> Made:
    with console.step(f"build {plan.recipe} of {plan.source.name} at {plan.source.revision[:12]}"):
        _say_how(plan, console)
        _refuse_leftovers(plan)
        remove(plan.work)
        plan.work.mkdir(parents=True)
        _place(plan, checkouts[plan.source.name])
        check_toolchain_file(plan)
        for number, step in enumerate(plan.steps, 1):
            log = layout.logs / f"{plan.stack}-{plan.recipe}-{number:02}-{_slug(step.name)}.log"
            with console.step(f"  {step.name}"):
                _carry_out(plan, step, log, console)
        products = [(product, _the_one(product.path, plan)) for product in plan.products]
        for product, path in products:
            contents.check(product, path)
        digest = key(plan)
        files = store(layout).put(digest, plan.recipe, products, plan.source.version or plan.source.revision)
        remove(plan.work)
    return _made(layout, digest, files, cached=False)


def _made(layout: Layout, digest: str, files: list[BuiltFile], *, cached: bool) -> Made:
    return Made(digest, cached, {store(layout).path(digest, file): file for file in files})


def _say_how(plan: RecipePlan, console: Console) -> None:
    jobs = plan.jobs
    console.say(f"    {jobs.compilers} compilers side by side ({jobs.limit}), {jobs.rust} for Rust")
    console.say(f"    compiler cache: {plan.compiler_cache or 'none (neither sccache nor ccache is on PATH)'}")


def _refuse_leftovers(plan: RecipePlan) -> None:
    """After a SIGKILL of a build its compilers may go on, and would write into the folder of the next one."""
    left = working_in(plan.work.resolve(), f"VIRTUAL_ENV={plan.environment['VIRTUAL_ENV']}")
    if left:
        raise BuildError(
            f"processes of a former build of {plan.recipe}, which was killed, are still at work",
            expected="none that writes into the folder of this build",
            found="\n    ".join(f"pid {pid}: {command}" for pid, command in left.items()),
            where=str(plan.work),
            hint=f"kill {' '.join(map(str, left))}   # or wait for their end",
        )


def _place(plan: RecipePlan, checkout: Checkout) -> None:
    if checkout.revision != plan.source.revision or checkout.tree != plan.source.tree:
        raise BuildError(
            f"the source {checkout.name} is not the one that was planned with",
            expected=f"{plan.source.revision}, tree {plan.source.tree}",
            found=f"{checkout.revision}, tree {checkout.tree}",
            where=str(checkout.path),
        )
    for placement in plan.placements:
        source = checkout if placement.nested is None else checkout.nested[placement.nested]
        placement.target.parent.mkdir(parents=True, exist_ok=True)
        gitsource.place(source, placement.target)


def _carry_out(plan: RecipePlan, step: Step, log: Path, console: Console) -> None:
    argv = tuple(_the_argument(argument, plan) for argument in step.argv)
    before = {path: file_sha256(path) for path in step.inputs if path.is_file()}
    progress = Progress(console, log)
    finished = commands.run(
        argv,
        cwd=step.cwd,
        env={**plan.environment, **step.env},
        log=log,
        limit_s=STEP_LIMIT_S,
        umask=variables.UMASK,
        watch=progress,
    )
    progress.end()
    if finished.returncode != 0 or finished.expired:
        raise _failure(plan, step, finished, log)
    for path, digest in before.items():
        if not path.is_file() or file_sha256(path) != digest:
            raise BuildError(f"{step.name}: it changed {path.name}, which it may only read", where=str(path), log=log)
    for path in step.outputs:
        if _the_one(path, plan, log).stat().st_size == 0:
            raise BuildError(f"{step.name}: it left {path.name} empty", where=str(path), log=log)


def _failure(plan: RecipePlan, step: Step, finished: Finished, log: Path) -> BuildError:
    free = shutil.disk_usage(plan.work).free
    evidence = Evidence(finished.returncode, finished.output, free, plan.jobs)
    likely = diagnose(evidence, stack=plan.stack, recipe=plan.recipe)
    status = f"{finished.returncode}" if finished.returncode >= 0 else f"ended by signal {-finished.returncode}"
    tail = "\n    ".join(["it still ran" if finished.expired else status, *log_tail(log)])
    cause = "" if likely is None else f": probably {likely.cause}"
    return BuildError(
        f"building {plan.recipe} failed in the step '{step.name}'{cause}",
        expected=f"its end within {STEP_LIMIT_S:g} s" if finished.expired else "exit status 0",
        found=tail,
        where=str(plan.work),
        hint=None if likely is None else likely.fix,
        log=log,
    )


def _the_argument(argument: str, plan: RecipePlan) -> str:
    """An argument with a `*` below the work folder is the one file that it matches."""
    if FIRST_OF not in argument or not Path(argument).is_relative_to(plan.work):
        return argument
    return str(_the_one(Path(argument), plan))


def _the_one(path: Path, plan: RecipePlan, log: Path | None = None) -> Path:
    found = sorted(path.parent.glob(path.name)) if FIRST_OF in path.name else [path] if path.exists() else []
    if len(found) != 1:
        raise BuildError(
            f"building {plan.recipe} left {len(found)} files {path.name}, not one",
            expected=path.name,
            found=", ".join(each.name for each in sorted(path.parent.glob("*"))[:10]) or "nothing",
            where=str(path.parent),
            log=log,
        )
    return found[0]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
