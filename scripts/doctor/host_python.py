"""Group host: the Pythons. One runs the tools, another one (or the same) the stack."""

from __future__ import annotations

from scripts.doctor import interpreters, versions
from scripts.doctor.registry import PURPOSES, Check, Finding, fail, ok, skip, warn
from scripts.doctor.subject import Subject

OLDEST_PYTHON = (3, 11)
OLDEST_NOX = (2024, 4, 15)


def _python3(subject: Subject) -> Finding:
    required = f"python3 {versions.dotted(OLDEST_PYTHON)} or newer"
    found = subject.machine.python_version()
    if found[:2] >= OLDEST_PYTHON:
        return ok(versions.dotted(found), required)
    return fail(versions.dotted(found), required, "sudo apt-get install -y python3 python3-venv")


def _venv(subject: Subject) -> Finding:
    required = "a python3 that can make virtual environments, for the first ./noxw"
    if any(name.startswith("py") for name in subject.machine.entries(subject.root / ".tool") or ()):
        return ok("the tool environment is there", required)
    python = subject.which("python3")
    if python is None:
        return fail("no python3 on PATH", required, "sudo apt-get install -y python3 python3-venv")
    answer = subject.ask(python, "-I", "-c", "import ensurepip, venv")
    if answer.good:
        return ok(f"{python} has venv and ensurepip", required)
    return fail(f"{python}: {answer.in_short}", required, "sudo apt-get install -y python3-venv")


def _nox(subject: Subject) -> Finding:
    required = (
        f"nothing: ./noxw brings nox and uv. Your own nox: {versions.dotted(OLDEST_NOX)} or newer, with uv beside it"
    )
    if subject.which("nox") is None:
        return ok("no nox of your own", required)
    answer = subject.ask("nox", "--version")
    version = versions.parse(answer.output) if answer.good else None
    if version is None:
        return warn(f"nox: {answer.in_short}", required, "./noxw -s doctor")
    if version < OLDEST_NOX:
        return warn(f"nox {versions.dotted(version)}", required, "pipx upgrade nox   # or use ./noxw")
    if subject.which("uv") is None:
        return warn(f"nox {versions.dotted(version)}, but no uv", required, "pipx install uv   # or use ./noxw")
    return ok(
        f"nox {versions.dotted(version)} with {(subject.says(['uv', '--version']) or 'uv').split(' (')[0]}", required
    )


def _stack_python(subject: Subject) -> Finding:
    minor = subject.stack.python
    required = f"Python {minor}, for which the stack's packages are locked"
    found = interpreters.find(subject, minor)
    if found is not None:
        return ok(found.shown, required)
    return fail(f"no python{minor} on PATH, nor managed by uv", required, _python_fix(subject, minor))


def _python_fix(subject: Subject, minor: str) -> str:
    """One of pyenv's that is not on PATH is nearer than a new one."""
    pyenv = f"{subject.environ.get('PYENV_ROOT') or f'{subject.machine.home}/.pyenv'}/versions"
    there = [name for name in subject.machine.entries(pyenv) or () if name.startswith(f"{minor}.")]
    if there:
        return f'export PATH="{pyenv}/{there[-1]}/bin:$PATH"'
    return f"{interpreters.install(subject, minor)}   # or: sudo apt-get install -y python{minor}"


def _headers(subject: Subject) -> Finding:
    if "vllm" not in subject.stack.recipes:
        return skip("vllm is not to be built" if subject.stack.from_source else subject.stack.assembled)
    minor = subject.stack.python
    required = f"Python.h of Python {minor}"
    found = interpreters.find(subject, minor)
    fix = f"sudo apt-get install -y python{minor}-dev   # Pythons of uv and of pyenv have it"
    if found is None:
        return fail(f"no Python {minor}", required, _python_fix(subject, minor))
    if not found.headers:
        return fail(f"no {found.include}/Python.h", required, fix)
    return ok(f"{found.include}/Python.h", required)


CHECKS = (
    Check(
        id="host.python3",
        title="python3",
        group="host",
        why="the tools are written for it",
        symptom="SyntaxError or ModuleNotFoundError before anything is done",
        cause="the system's python3 is older",
        looks_at="the version of the Python that runs the doctor",
        fix="sudo apt-get install -y python3 python3-venv",
        reference="https://docs.python.org/3/whatsnew/3.11.html",
        needed_for=PURPOSES,
        look=_python3,
    ),
    Check(
        id="host.venv",
        title="venv",
        group="host",
        why="./noxw makes its tool environment with it, once",
        symptom="ensurepip is not available",
        cause="Debian and Ubuntu ship python3 without venv and ensurepip",
        looks_at="the tool environment, or python3's modules venv and ensurepip",
        fix="sudo apt-get install -y python3-venv",
        reference="https://packages.debian.org/stable/python3-venv",
        needed_for=("build", "install"),
        look=_venv,
    ),
    Check(
        id="host.nox",
        title="nox and uv",
        group="host",
        why="whoever calls nox instead of ./noxw brings nox and uv along",
        symptom="noxfile: uv is not on PATH, or nox refuses the noxfile",
        cause="an old nox, or one without uv",
        looks_at="nox --version, uv --version",
        fix="pipx install nox uv   # or use ./noxw, which needs neither",
        reference="https://nox.thea.codes/en/stable/",
        needed_for=("build", "install"),
        look=_nox,
    ),
    Check(
        id="host.stack-python",
        title="the stack's Python",
        group="host",
        why="the stack's packages are locked for one minor version",
        symptom="no solution found, or no wheel with a matching Python tag",
        cause="the machine has another Python only",
        looks_at="Pythons that uv manages, and those on PATH (pyenv's too), each asked for its version",
        fix="./noxw --list >/dev/null && .tool/py*/bin/uv python install 3.11   # or your own uv",
        reference="https://docs.astral.sh/uv/concepts/python-versions/",
        needed_for=("build", "install"),
        look=_stack_python,
    ),
)

BUILD_CHECKS = (
    Check(
        id="build.python-headers",
        title="Python headers",
        group="build",
        why="the engine's extension modules are compiled against them",
        symptom="fatal error: Python.h: No such file or directory, or: Could NOT find Python (Development.Module)",
        cause="the system's Python comes without its development files",
        looks_at="the include folder of the stack's Python",
        fix="sudo apt-get install -y python3.12-dev   # Pythons of uv and of pyenv have it",
        reference="https://github.com/vllm-project/vllm/issues/5671",
        needed_for=("build",),
        look=_headers,
        rows=(11,),
    ),
)
