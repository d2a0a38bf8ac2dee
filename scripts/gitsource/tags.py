"""A version that comes from tags: the facts that setuptools-scm starts from, or a refusal when they are not there.

The revision does not pin them: a tag can be moved or added. What was found is recorded, and `version` in stack.toml is
the way to have it exact.
"""

from __future__ import annotations

import re
import shlex

from scripts.errors import BuildError
from scripts.gitsource.git import Git, Repository

MATCH = "*[0-9]*"
"""The tags that setuptools-scm looks at unless a project says otherwise."""

_AT_THE_TAG = re.compile(r".*-0-g[0-9a-f]{40}")
_PIN = "or pin `version` in stack.toml"


def described(git: Git, at: Repository, revision: str, *, name: str, where: str, fetchable: bool) -> str:
    """The nearest tag, the number of commits since, and the revision: `v1.2.0-14-g<40 hex digits>`.

    A shallow clone is refused also when it has a tag further back: the commits in between are not all there, so that
    their number, and with it the version, would be wrong. `fetchable`: `where` is a repository that the user can fetch
    into. Raises `BuildError`.
    """
    answer = git.attempt(at, "describe", "--tags", "--long", "--abbrev=40", "--match", MATCH, revision)
    shallow = git.ask(at, "rev-parse", "--is-shallow-repository", what="reading the history").text == "true"
    if answer.returncode == 0 and (not shallow or _AT_THE_TAG.fullmatch(answer.text)):
        return answer.text
    fetch = f"git -C {shlex.quote(where)} fetch {'--unshallow ' if shallow else ''}--tags   # "
    raise BuildError(
        f"the version of {name} has to come from tags, and they are not there",
        expected=f"a tag with a number in the whole history of {revision}",
        found=_found(answer.text if answer.returncode == 0 else None, shallow=shallow),
        where=where,
        hint=f"{fetch}{_PIN}" if fetchable else _PIN.removeprefix("or "),
        log=answer.log,
    )


def _found(text: str | None, *, shallow: bool) -> str:
    if not shallow:
        return "no such tag in its history"
    if text is None:
        return "a shallow clone: its history ends early, with no such tag in it"
    tag = text.rsplit("-", 2)[0]
    return f"a shallow clone: its history ends early, so that the commits since {tag} cannot be counted"
