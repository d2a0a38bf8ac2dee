"""The hook that signs `provenance.json`: a command of the caller's, which leaves a signature beside it.

Nothing here makes or judges a signature, and without the command there is none. docs/signing.md has commands for CI.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from scripts import commands
from scripts.console import Console
from scripts.environ import child_environment
from scripts.errors import BuildError, UsageError
from scripts.layout import Layout
from scripts.provenance import STATEMENT_NAME
from scripts.publish import publish_bytes, publishing, remove

VARIABLE = "SMOKESTACK_SIGN"
SIGNATURE_NAME = f"{STATEMENT_NAME}.sigstore.json"
"""Where Sigstore's own tools look for it. SHA256SUMS leaves it out: it differs from one signing to the next."""

_STATEMENT, _BUNDLE = "{statement}", "{bundle}"
_LIMIT_S = 300.0
_EXAMPLE = f"export {VARIABLE}='cosign sign-blob --yes --bundle {_BUNDLE} {_STATEMENT}'"


def hook(environ: Mapping[str, str]) -> list[str] | None:
    """The command's words, or None when there is none. Raises `UsageError` for one that cannot work.

    `build` asks before it begins: what is wrong with the hook should not come out after hours.
    """
    text = environ.get(VARIABLE)
    if text is None:
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"{VARIABLE} is not a command",
            expected="words as a shell reads them",
            found=str(error),
            hint=_EXAMPLE,
        ) from None
    missing = [place for place in (_STATEMENT, _BUNDLE) if not any(place in word for word in words)]
    if missing:
        raise UsageError(
            f"{VARIABLE} does not name {' and '.join(missing)}",
            expected=f"a command with {_STATEMENT}, the file to sign, and {_BUNDLE}, the file to write",
            found=text or "nothing",
            hint=_EXAMPLE,
        )
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"{VARIABLE} names a program that is not there",
            expected="a program on the PATH, or its whole path",
            found=words[0],
            hint=f"install {words[0]}, or unset {VARIABLE}: nothing is signed then, and that is said",
        )
    return words


def sentence(dist: Path) -> str:
    """What a reader of a build or of `verify` is told about the signature."""
    if (dist / SIGNATURE_NAME).is_file():
        return f"{STATEMENT_NAME} has a signature beside it, {SIGNATURE_NAME}, not checked here (docs/signing.md)"
    return f"{STATEMENT_NAME} is unsigned: nobody vouches for it (docs/signing.md)"


def is_due(layout: Layout) -> bool:
    """Whether a signature is asked for that is not there: such a build is not finished."""
    return hook(os.environ) is not None and not (layout.dist / SIGNATURE_NAME).is_file()


def put(layout: Layout, statement: bytes, console: Console) -> None:
    """Put `provenance.json` into `dist/<stack>`, and its signature if one is asked for.

    A signature of these very bytes is kept; one of others is removed. Raises `UsageError` for a hook that cannot work,
    and `BuildError` when the command fails or leaves nothing; then there is no signature.
    """
    target, signature = layout.dist / STATEMENT_NAME, layout.dist / SIGNATURE_NAME
    words = hook(os.environ)
    if not (target.is_file() and target.read_bytes() == statement):
        remove(signature)
        publish_bytes(target, statement)
    if words is None or signature.is_file():
        return
    with console.step(f"sign {STATEMENT_NAME}"), publishing(signature) as partial:
        places = {_STATEMENT: str(target), _BUNDLE: str(partial)}
        commands.check(
            [_filled(word, places) for word in words],
            cwd=layout.root,
            env=child_environment(os.environ, {}),
            log=layout.logs / f"sign-{layout.stack}.log",
            error=BuildError,
            what=f"signing {layout.relative(target)}",
            hint=f"unset {VARIABLE}   # builds without a signature, and says so",
            limit_s=_LIMIT_S,
        )
        if not partial.is_file() or partial.stat().st_size == 0:
            raise BuildError(
                f"the command of {VARIABLE} ended well and left no signature",
                expected=f"a file at {_BUNDLE}",
                found="an empty file" if partial.is_file() else "no file",
                log=layout.logs / f"sign-{layout.stack}.log",
            )


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, path in places.items():
        word = word.replace(place, path)
    return word
