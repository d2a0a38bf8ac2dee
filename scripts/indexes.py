"""Where packages come from is the site's business; this module carries that over from pip to uv and back.

uv reads none of pip's settings. A site that has a wheelhouse or a mirror has usually told pip, by `PIP_*` variables or
`pip.conf`. What is set for one installer and not for the other is passed on; what is set for both is left alone.
`extra-index-url` is not passed on: uv asks an extra index first and stops there, where pip asks them all.

Standard library only, and importable by an old Python: the noxfile uses it before the tool environment exists.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping

PIP_LIMIT_S = 60.0
_SEPARATORS = re.compile(r"[\s,]+")


class PipSilentError(TimeoutError):
    """pip did not say what its configuration is."""


def uv_variables(environ: Mapping[str, str], pip_config: Mapping[str, str]) -> dict[str, str]:
    """The `UV_*` variables to add for every call of uv. `pip_config` is what `read_pip_config` gives."""
    added: dict[str, str] = {}
    if not environ.get("UV_FIND_LINKS"):
        links = split_links(environ.get("PIP_FIND_LINKS") or pip_config.get("find-links", ""))
        # pip ignores a wheelhouse that is not there, uv stops.
        usable = [link for link in links if "://" in link or os.path.isdir(link)]  # noqa: PTH112
        if usable:
            added["UV_FIND_LINKS"] = ",".join(usable)
    if not any(environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        index = environ.get("PIP_INDEX_URL") or pip_config.get("index-url")
        if index:
            added["UV_DEFAULT_INDEX"] = index
    # uv knows no environment variable for "no index"; without one, only the wheelhouse is left to ask either way.
    if environ.get("PIP_NO_INDEX", "") not in {"", "0", "false", "no"} and not environ.get("UV_OFFLINE"):
        added["UV_OFFLINE"] = "1"
    return added


def pip_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The `PIP_*` variables to add for every call of pip: the other direction."""
    added: dict[str, str] = {}
    if environ.get("UV_FIND_LINKS") and not environ.get("PIP_FIND_LINKS"):
        added["PIP_FIND_LINKS"] = " ".join(split_links(environ["UV_FIND_LINKS"]))
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
    if index and not environ.get("PIP_INDEX_URL"):
        added["PIP_INDEX_URL"] = index
    return added


def torch_arguments(version: str, backend: str, environ: Mapping[str, str]) -> list[str]:
    """What uv must be told to find a torch build with a local label, which the default index does not have.

    uv's `--torch-backend` asks PyTorch's own index and nothing else, so it is left out where a wheelhouse has the
    file, and where the caller has chosen by `UV_TORCH_BACKEND`. `environ` includes `uv_variables`. A wheelhouse given
    as an address cannot be looked into and is trusted to have it. A version without a label is on the default index.
    """
    if "+" not in version or environ.get("UV_TORCH_BACKEND"):
        return []
    for link in split_links(environ.get("UV_FIND_LINKS", "")):
        if "://" in link and not link.startswith("file://"):
            return []
        if _has_wheel(link[len("file://") :] if link.startswith("file://") else link, f"torch-{version}-"):
            return []
    return ["--torch-backend", backend]


def split_links(value: str) -> list[str]:
    """The entries of a find-links setting: pip separates by white space, uv by commas."""
    return [entry for entry in _SEPARATORS.split(value) if entry]


@functools.cache
def read_pip_config(python: str) -> dict[str, str]:
    """The settings of pip's configuration files, as the pip of `python` reads them; empty without a pip.

    Raises PipSilentError when pip does not answer: a configuration that was not read must not count as an empty one.
    """
    question = [python, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    try:
        listed = subprocess.run(
            question, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=PIP_LIMIT_S
        )
    except subprocess.TimeoutExpired as expired:
        raise PipSilentError(f"`python -m pip config list` did not end within {PIP_LIMIT_S:g} s") from expired
    return parse_pip_config(listed.stdout.splitlines())


def parse_pip_config(lines: Iterable[str]) -> dict[str, str]:
    """`global.index-url='…'` lines to a mapping; what applies to all of pip's commands, and to `install`."""
    found: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition("=")
        section, dot, key = name.partition(".")
        if separator and dot and section in {"global", "install"}:
            found[key] = str(ast.literal_eval(value))
    return found


def _has_wheel(folder: str, prefix: str) -> bool:
    return os.path.isdir(folder) and any(  # noqa: PTH112
        name.startswith(prefix) and name.endswith(".whl")
        for name in os.listdir(folder)  # noqa: PTH208
    )
