"""One revision and its submodules into a new folder: fetched by their full ids, and checked out.

From the recorded repository, or from what is `present` on this machine. Nothing else than the revision is asked for.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from scripts.errors import BuildError
from scripts.gitsource import submodules
from scripts.gitsource.git import Git, Repository, create, failed
from scripts.gitsource.present import Present

_PINNED = "refs/heads/pinned"
_LOCAL = (("protocol.file.allow", "always"),)


@dataclass(frozen=True)
class Origin:
    """Where a repository's objects come from. Relative addresses of submodules are relative to `repository`."""

    repository: str
    present: Present | None = None

    def submodule(self, recorded: submodules.Recorded) -> Origin:
        """Where a submodule comes from: a checkout has it, a mirror or a server does not."""
        if self.present is not None and not self.present.bare:
            return Origin(recorded.address or recorded.path, self.present.submodules[recorded.path])
        return Origin(submodules.address(self.repository, recorded))


def fetch(git: Git, folder: Path, origin: Origin, revision: str, *, history: bool) -> None:
    """Fill `folder`, which is not there yet. With `history` all commits before the revision, and their tags, come too.

    Raises `BuildError` naming the likely cause. Nothing is verified here.
    """
    at = create(folder)
    _fetch(git, at, origin, revision, history=history)
    git.ask(
        at,
        "checkout",
        "--quiet",
        "--force",
        "--detach",
        revision,
        what=f"checking out {revision} of {origin.repository}",
    )
    for recorded in submodules.recorded(git, at, revision):
        fetch(git, folder / recorded.path, origin.submodule(recorded), recorded.revision, history=False)


def _fetch(git: Git, at: Repository, origin: Origin, revision: str, *, history: bool) -> None:
    present = origin.present
    url = origin.repository if present is None else present.store.as_uri()
    if submodules.has_secret(url):
        raise BuildError(
            "an address with a password or token in it",
            expected="an address that may be written into logs and manifests",
            found="one that may not",
            hint="git config --global credential.helper store   # keep the credential there",
        )
    options = ["--quiet", "--no-recurse-submodules"]
    if history:
        # With a place of its own for what is fetched git takes the tags of that history along, and no other tag.
        options += ["--update-shallow", "--", url, f"+{revision}:{_PINNED}"]
    else:
        options += ["--depth=1", "--no-tags", "--", url, revision]
    if present is not None:
        options.insert(0, f"--upload-pack={_trusting(present)}")
    answer = git.attempt(at, "fetch", *options, settings=_LOCAL if submodules.is_local(url) else ())
    if answer.returncode != 0:
        raise failed(f"fetching the revision {revision}", answer, subject=url if present is None else str(present.path))
    (at.folder / ".git" / "FETCH_HEAD").unlink(missing_ok=True)


def _trusting(present: Present) -> str:
    """Git has said that the user trusts this checkout; what serves its objects asks again, by the name of its .git."""
    return f"git -c {shlex.quote(f'safe.directory={present.store}')} upload-pack"
