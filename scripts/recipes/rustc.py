"""What cargo calls in the place of rustc: the same call, with nothing of this machine in what it leaves.

Two things are changed, whatever flags the source asks for:

- `--remap-path-prefix` is appended. Not by RUSTFLAGS or a configuration: cargo takes rustflags from one place only
  (CARGO_ENCODED_RUSTFLAGS, else RUSTFLAGS, else target.*.rustflags, else build.rustflags), so that flags of ours in one
  of the first switch off those that a source needs in a later one, such as `--cfg tokio_unstable`.
- `-C metadata`, which ends up in every symbol's name, is derived anew. cargo derives it from absolute paths for a
  dependency outside the workspace's folder, and the Python bindings of Dynamo are a workspace of their own whose
  dependencies all lie outside. The new value is made of the call itself: name, features, options, the input's path as
  remapped, and the values of the crates it depends on, which each call leaves beside its output for the next ones.

`python -m scripts.recipes.rustc TARGET --remap FROM=TO …` writes the program that cargo calls (RUSTC_WRAPPER).
Standard library only, and quick to start: it runs once for each crate.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
import sys
from pathlib import Path

CACHE_VARIABLE = "SMOKESTACK_RUSTC_CACHE"
"""A program, such as sccache, that is put before rustc."""

SUFFIX = ".stable-metadata"

# Options of `-C` that name places of this machine, or that are replaced here.
_OF_THE_MACHINE = frozenset({"metadata", "extra-filename", "incremental", "linker", "link-arg", "link-args"})


def rewritten(call: list[str], remaps: list[str], package: str) -> list[str]:
    """The call of rustc to make. `package` tells packages of the same name apart: its version."""
    call = _separate(call)
    out_dir, extra = _value(call, "--out-dir"), _codegen(call, "extra-filename")
    if "metadata" in _codegen_names(call):
        stable = _stable_metadata(call, remaps, package)
        place = call.index(f"metadata={_codegen(call, 'metadata')}")
        call = [*call[:place], f"metadata={stable}", *call[place + 1 :]]
        name = _value(call, "--crate-name")
        if out_dir and name:
            Path(out_dir, f"{name}{extra or ''}{SUFFIX}").write_text(stable, encoding="ascii")
    return [*call, *(f"--remap-path-prefix={remap}" for remap in remaps)]


def script(python: str, remaps: list[str]) -> str:
    """The text of the program that cargo calls."""
    given = shlex.join([python, "-I", "-S", str(Path(__file__).resolve()), *remaps, "--"])
    return f'#!/bin/sh\nexec {given} "$@"\n'


def _separate(call: list[str]) -> list[str]:
    """`-Cname=value` as `-C name=value`, in which form cargo has it."""
    parts: list[str] = []
    for argument in call:
        parts += ["-C", argument[2:]] if argument.startswith("-C") and len(argument) > 2 else [argument]
    return parts


def _stable_metadata(call: list[str], remaps: list[str], package: str) -> str:
    told = [package]
    following = iter(call[1:])
    for argument in following:
        if argument in {"-L", "--out-dir", "--json", "--error-format", "--diagnostic-width", "--color"}:
            next(following, None)
        elif argument == "-C":
            option = next(following, "")
            if option.split("=", 1)[0] not in _OF_THE_MACHINE:
                told.append(f"-C{option}")
        elif argument == "--extern":
            told.append(_dependency(next(following, "")))
        elif not argument.startswith(("-L", "--json=", "--error-format=", "--color=", "--diagnostic-width=")):
            told.append(_remapped(argument, remaps))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _dependency(extern: str) -> str:
    """A crate that this one is compiled against, by its own value instead of by its path."""
    name, separator, path = extern.partition("=")
    if not separator:
        return f"extern {name}"
    stem = Path(path).stem.removeprefix("lib")
    try:
        return f"extern {name} {Path(path).with_name(stem + SUFFIX).read_text(encoding='ascii')}"
    except FileNotFoundError:
        return f"extern {name}"


def _remapped(argument: str, remaps: list[str]) -> str:
    for remap in sorted(remaps, key=len, reverse=True):
        prefix, _, shown = remap.rpartition("=")
        if argument.startswith(prefix + os.sep):
            return shown + argument[len(prefix) :]
    return argument


def _value(call: list[str], option: str) -> str | None:
    return call[call.index(option) + 1] if option in call[:-1] else None


def _codegen_names(call: list[str]) -> dict[str, str]:
    options = [after for before, after in itertools.pairwise(call) if before == "-C"]
    return dict(option.partition("=")[::2] for option in options)


def _codegen(call: list[str], name: str) -> str | None:
    return _codegen_names(call).get(name)


def main(argv: list[str]) -> int:
    if "--" in argv:
        end = argv.index("--")
        call = rewritten(argv[end + 1 :], argv[:end], os.environ.get("CARGO_PKG_VERSION", ""))
        cache = os.environ.get(CACHE_VARIABLE)
        call = [cache, *call] if cache else call
        os.execvp(call[0], call)
    target = Path(argv[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(script(sys.executable, [each for each in argv[1:] if each != "--remap"]), encoding="utf-8")
    target.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
