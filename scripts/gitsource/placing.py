"""`place`: a work copy of a source, for a build to write in. The cache is only read."""

from __future__ import annotations

from pathlib import Path

from scripts.errors import BuildError
from scripts.gitsource import verification
from scripts.gitsource.checkout import Checkout
from scripts.gitsource.copying import copy_tree, settle
from scripts.gitsource.git import Git, Repository
from scripts.publish import publishing, remove


def place(checkout: Checkout, target: Path) -> None:
    """Make `target` anew: the source's files, verified again, all dated when the revision was committed.

    It shares no file with the cache. Its `.git` is a repository of its own with HEAD at the revision (and the tags,
    when the version comes from them), so that a build's git looks into no other, such as that of the project above.
    What pins nested sources is not copied: each is placed by itself. Raises `BuildError`.
    """
    # The logs lie beside the cache of sources: `Layout.logs`.
    # Named by the target, as builds of two stacks may place the same source at the same time.
    git = Git(checkout.path.parents[1] / "logs", "-".join(("place", *target.parts[-4:])))
    remove(target)
    with publishing(target) as partial:
        copy_tree(checkout.path, partial)
        _check(git, checkout, partial)
        settle(partial, checkout.epoch)
        for path in ("", *(each.path for each in checkout.submodules)):
            # Otherwise a plain `git diff-index` takes every file for changed, as their times are others.
            at = Repository.own(partial / path)
            git.ask(at, "update-index", "-q", "--refresh", what=f"bringing the index of {target} up to date")


def _check(git: Git, checkout: Checkout, copy: Path) -> None:
    if not checkout.dirty:
        found = verification.check(git, copy, checkout.revision).facts.tree
    else:
        found = verification.flattened(copy, [each.path for each in checkout.submodules])
    if found != checkout.tree:
        raise BuildError(
            f"{checkout.path.name} is not what it was when it was fetched",
            expected=checkout.tree,
            found=found,
            where=str(checkout.path),
            hint="run the same command again: it is looked at anew",
        )
