"""The Python of a stack on this machine, as uv finds it: managed by uv, or on PATH; never one of an environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.doctor import versions
from scripts.doctor.subject import Subject

LIMIT_S = 2.0
"""For each Python that is there."""

_QUESTION = (
    "import importlib.util as u, os, sys, sysconfig as s;"
    "print(repr((sys.version_info[:3], sys.prefix == sys.base_prefix, s.get_path('include'),"
    " os.path.isfile(os.path.join(s.get_path('include'), 'Python.h')),"
    " bool(u.find_spec('venv') and u.find_spec('ensurepip')))))"
)


@dataclass(frozen=True)
class Interpreter:
    """What a Python says of itself. `include` is where its C headers belong; `headers`, whether they are there."""

    path: str
    version: tuple[int, int, int]
    include: str
    headers: bool
    makes_environments: bool

    @property
    def shown(self) -> str:
        return f"{self.path} ({versions.dotted(self.version)})"


def install(subject: Subject, minor: str) -> str:
    """The command that gets one: by the uv on PATH, or by the tool environment's, which `./noxw` makes first."""
    uv = subject.which("uv")
    tools = f"{subject.root}/.tool/"
    if uv is not None and not uv.startswith(tools):
        return f"uv python install {minor}"
    made = [name for name in subject.machine.entries(tools) or () if name.startswith("py")]
    if len(made) == 1:
        return f".tool/{made[0]}/bin/uv python install {minor}"
    return f"./noxw --list >/dev/null && .tool/py*/bin/uv python install {minor}"


def find(subject: Subject, minor: str) -> Interpreter | None:
    """The first one of the minor version `3.11`; None when there is none."""
    wanted = tuple(int(part) for part in minor.split("."))
    for path in _candidates(subject, minor):
        found = ask(subject, path)
        if found is not None and found.version[:2] == wanted:
            return found
    return None


def ask(subject: Subject, path: str) -> Interpreter | None:
    """The Python at `path`; None when it does not run, or belongs to an environment."""
    answer = subject.ask(path, "-I", "-S", "-c", _QUESTION, limit_s=LIMIT_S)
    if not answer.good:
        return None
    try:
        version, own, include, headers, makes = ast.literal_eval(answer.output.strip())
    except (ValueError, SyntaxError):
        return None
    return Interpreter(path, version, include, headers, makes) if own else None


def _candidates(subject: Subject, minor: str) -> Iterator[str]:
    environ, machine = subject.environ, subject.machine
    data = environ.get("XDG_DATA_HOME") or f"{machine.home}/.local/share"
    managed = environ.get("UV_PYTHON_INSTALL_DIR") or f"{data}/uv/python"
    for name in reversed(machine.entries(managed) or ()):
        if name.startswith((f"cpython-{minor}.", f"cpython-{minor}-")):
            yield f"{managed}/{name}/bin/python{minor}"
    folders = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    for program in (f"python{minor}", "python3", "python"):
        for folder in dict.fromkeys(folders):
            if machine.exists(f"{folder}/{program}"):
                yield f"{folder}/{program}"
