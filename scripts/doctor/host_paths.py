"""Group host: the temporary folder and the checkout, with paths that sockets, shells and compilers can take."""

from __future__ import annotations

import re
import shlex

from scripts.doctor.registry import PURPOSES, Check, Finding, fail, ok, warn
from scripts.doctor.subject import Subject

LONGEST_TMPDIR = 38
"""Bytes of a folder in which Unix sockets of a run's scratch folder still fit; `harness.scratch` says how it counts."""

LONGEST_CHECKOUT = 200
"""Bytes: build trees go a hundred and more below it, and the kernel reads 255 of a script's first line."""

UNFIT = re.compile(r"[=,'\"\\*?\[\]\n]")
"""What has a meaning in compilers' flags, into which paths are written; the same as in `recipes.requirements`."""

SHORT_TMPDIR = "/tmp"


def quoted(path: object) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


def _tmpdir(subject: Subject) -> Finding:
    required = f"an absolute path without spaces, at most {LONGEST_TMPDIR} bytes, to write to and to run programs from"
    chosen = subject.environ.get("TMPDIR") or SHORT_TMPDIR
    trouble = _unusable(subject, chosen)
    if trouble:
        return fail(
            f"{chosen} {trouble}", required, "unset TMPDIR" if chosen != SHORT_TMPDIR else "sudo mkdir -m 1777 /tmp"
        )
    space = subject.machine.space(chosen)
    if space is not None and space.noexec and subject.stack.from_source and subject.asks_for("build"):
        fix = 'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"'
        return fail(f"{chosen} is mounted noexec: no build can run what it makes there", required, fix)
    if len(chosen.encode()) <= LONGEST_TMPDIR and not any(map(str.isspace, chosen)):
        return ok(chosen, required)
    trouble = _unusable(subject, SHORT_TMPDIR)
    if trouble:
        return fail(
            f"{chosen} is too long or has spaces, and {SHORT_TMPDIR} {trouble}", required, "sudo mkdir -m 1777 /tmp"
        )
    return warn(f"{chosen} is too long or has spaces: runs use {SHORT_TMPDIR}", required, "export TMPDIR=/tmp")


def _unusable(subject: Subject, folder: str) -> str:
    if not folder.startswith("/"):
        return "is no absolute path"
    if not subject.machine.is_dir(folder):
        return "is no folder"
    return "" if subject.machine.may_write(folder) else "may not be written"


def _checkout(subject: Subject) -> Finding:
    root = str(subject.root)
    required = f"a folder to write to and to run programs from, at most {LONGEST_CHECKOUT} bytes long"
    compiled = subject.stack.from_source and subject.asks_for("build")
    if compiled:
        required += ", of letters and digits that compilers' flags do not give a meaning"
    if not subject.machine.may_write(root):
        return fail(f"{root} may not be written", required, f'sudo chown -R "$(id -u)" {quoted(root)}')
    space = subject.machine.space(root)
    elsewhere = f'cp -a {quoted(root)} "$HOME/smokestack" && cd "$HOME/smokestack"'
    if space is not None and space.noexec:
        return fail(f"{root} is mounted noexec", required, elsewhere)
    if compiled and (UNFIT.search(root) or (" " in root and "cuda" in subject.stack.tools)):
        return fail(f"{root}: compilers would split it", required, elsewhere)
    length = len(root.encode())
    if length > LONGEST_CHECKOUT:
        return warn(f"{length} bytes: {root}", required, elsewhere)
    return ok(f"{root} ({length} bytes)", required)


CHECKS = (
    Check(
        id="host.tmpdir",
        title="TMPDIR",
        group="host",
        why="Unix sockets lie there, whose paths have at most 107 bytes",
        symptom="AF_UNIX path too long, or permission denied for a program just compiled",
        cause="a long TMPDIR as batch systems set it, one with spaces, or one mounted noexec",
        looks_at="TMPDIR (or /tmp): length, spaces, permissions, how it is mounted",
        fix="export TMPDIR=/tmp",
        reference="https://man7.org/linux/man-pages/man7/unix.7.html",
        needed_for=PURPOSES,
        look=_tmpdir,
    ),
    Check(
        id="host.checkout",
        title="checkout",
        group="host",
        why="everything that is made lies below it",
        symptom="permission denied, bad interpreter, or a compiler that takes half a path for a file",
        cause="a checkout of another user, on a file system mounted noexec, with a long path or one with spaces",
        looks_at="the project's folder: permissions, length, spaces, how it is mounted",
        fix='cp -a . "$HOME/smokestack" && cd "$HOME/smokestack"',
        reference="https://man7.org/linux/man-pages/man2/execve.2.html",
        needed_for=PURPOSES,
        look=_checkout,
    ),
)
