"""`verify` as a whole: one report of dist, artifacts and environment; it changes nothing, and says what to do."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import machine_code
import verified
from synthetic import PYTHON, Project

from scripts.build_inputs import read_inputs
from scripts.console import Console
from scripts.manifest import Manifest, SourceRevision
from scripts.verify import inputs, programs, verify
from scripts.verify.findings import Report
from tests.tampering import absent, changed, flipped

SITE = f".venv-mini/lib/python{PYTHON}/site-packages"
ENGINE = "vllm-1.0.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl"


def run(project: Project, *, environment: bool = True) -> Report:
    return verify(project.layout, Console(io.StringIO()), environment=environment)


def command(project: Project, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "scripts", "verify", "--stack", "mini", *options]
    return subprocess.run(argv, cwd=project.root, capture_output=True, text=True, check=False, timeout=60)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {path: path.lstat() for path in root.rglob("*")}
    return {str(path): (status.st_mtime_ns, status.st_ctime_ns, status.st_size) for path, status in found.items()}


def test_everything_as_recorded_is_one_line_and_says_how_long_it_took(whole: Project) -> None:
    report = run(whole)
    assert report.ok
    assert report.findings == []
    assert set(report.checked) == {"files in dist", "entries in the environment", "artifacts"}
    assert report.checked["artifacts"] == 2
    last = report.lines()[-1]
    assert last.startswith("verify mini: as recorded (6 files in dist, ")
    assert last.endswith(f"{report.seconds:.1f} s)")


def test_it_changes_nothing_on_disk(whole: Project) -> None:
    before = snapshot(whole.root)
    assert run(whole).ok
    assert snapshot(whole.root) == before


def test_an_environment_in_use_may_be_looked_at(whole: Project) -> None:
    whole.layout.in_use.parent.mkdir(parents=True, exist_ok=True)
    with whole.layout.in_use.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        assert run(whole).ok


def test_every_changed_file_is_in_the_one_answer(whole: Project, tmp_path: Path) -> None:
    layout = whole.layout
    paths = [
        layout.dist / ENGINE,
        layout.dist / "sbom.cdx.json",
        layout.environment / "bin" / "activate",
        layout.root / SITE / "torch" / "__init__.py",
    ]
    (tmp_path / "four").mkdir()
    with (
        flipped(paths[0], 100, tmp_path),
        flipped(paths[1], 100, tmp_path),
        flipped(paths[2], 100, tmp_path),
        changed(paths[3], b"x", tmp_path / "four"),
    ):
        answer = command(whole, "--json")
        told = "\n".join(run(whole).lines())
    assert answer.returncode == 1
    document = json.loads(answer.stdout)
    assert document["ok"] is False
    assert {each["file"] for each in document["findings"]} == {layout.relative(path) for path in paths}
    assert all(each.keys() == {"kind", "file", "problem", "expected", "found"} for each in document["findings"])
    assert all(layout.relative(path) in told for path in paths)
    assert "verify mini: 4 files not as recorded" in told


def test_the_answer_of_a_whole_stack(whole: Project) -> None:
    answer = command(whole, "--json")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert (document["ok"], document["stack"], document["findings"]) == (True, "mini", [])
    assert "read dist/mini: done in" in answer.stderr


def test_the_environment_is_left_out_on_request(whole: Project, tmp_path: Path) -> None:
    with flipped(whole.layout.environment / "pyvenv.cfg", 0, tmp_path):
        answer = command(whole, "--dist-only")
    assert answer.returncode == 0, answer.stdout
    assert "environment" not in answer.stdout


def test_each_kind_of_harm_has_its_own_remedy(whole: Project, tmp_path: Path) -> None:
    with flipped(whole.layout.dist / ENGINE, 0, tmp_path):
        assert run(whole).fixes == ["./noxw -s build -- --stack mini --force"]
    with flipped(whole.layout.environment / "pyvenv.cfg", 0, tmp_path):
        (fix,) = run(whole).fixes
    assert fix.startswith("./noxw -s install -- --stack mini --force\n")
    assert "/uv cache clean   # before it" in fix
    stranger = whole.layout.dist / "a stranger"
    stranger.write_text("x")
    try:
        assert run(whole).fixes == ["rm -r 'dist/mini/a stranger'"]
    finally:
        stranger.unlink()


def test_a_name_that_is_no_line_of_text_is_written_so_that_it_is_one(whole: Project) -> None:
    paths = [whole.layout.environment / "bin" / os.fsdecode(name) for name in (b"a\nfix: rm -r .", b"\xff")]
    for path in paths:
        path.touch()
    report = run(whole)
    for path in paths:
        path.unlink()
    shown = "\n".join(report.lines()).encode().decode().splitlines()
    assert r"EXTRA     '.venv-mini/bin/a\nfix: rm -r .'" in shown
    assert r"EXTRA     '.venv-mini/bin/\udcff'" in shown
    assert report.fixes == ["look at what is extra in dist/mini and .venv-mini, and delete it"]


def test_an_altered_artifact_is_not_looked_into(whole: Project, tmp_path: Path) -> None:
    """Everything in it might be the change: its name is enough."""
    with changed(whole.layout.dist / ENGINE, b"no wheel", tmp_path):
        report = run(whole)
    assert [(each.kind, each.file) for each in report.findings] == [("altered", f"dist/mini/{ENGINE}")]


def test_an_install_that_did_not_end_is_told(whole: Project, tmp_path: Path) -> None:
    with absent(whole.layout.stamp, tmp_path):
        files = {each.file for each in run(whole).findings}
    assert files == {".venv-mini/smokestack-install.json"}


def test_that_nobody_has_signed_is_told(whole: Project) -> None:
    (sentence,) = [note for note in run(whole).notes if note.startswith("provenance.json")]
    assert "unsigned" in sentence


# What it was built from


def differences(project: Project, path: Path, old: str, new: str, aside: Path) -> list[tuple[str, str]]:
    """What is told of a manifest whose build has read `path` as it was before."""
    text = path.read_text()
    assert old in text
    manifest = Manifest.model_validate_json(project.layout.manifest.read_text())
    with changed(path, text.replace(old, new).encode(), aside):
        present = inputs.read(project.layout)
        found = [*present.findings, *inputs.compare(project.layout, present, manifest)]
    return [(each.kind, each.file) for each in found]


def test_a_stack_file_that_has_changed_since(whole: Project, tmp_path: Path) -> None:
    found = differences(whole, whole.layout.stack_file, "a stack in miniature", "another", tmp_path)
    assert found == [("inputs", "dist/mini/manifest.json")]


def test_a_lock_that_has_changed_since(whole: Project, tmp_path: Path) -> None:
    found = differences(whole, whole.layout.lock, "torch==", "Torch==", tmp_path)
    assert found == [("inputs", "stacks/mini/requirements.lock")]


def test_a_payload_that_has_changed_since(whole: Project, tmp_path: Path) -> None:
    source = whole.layout.payload / "smokestack_payload" / "__init__.py"
    assert differences(whole, source, "Payload", "Another", tmp_path) == [("inputs", "dist/mini/manifest.json")]


def test_a_stack_file_that_is_none_does_not_hide_the_rest(whole: Project, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    with (
        changed(whole.layout.stack_file, b'schema = "one"\n', tmp_path),
        flipped(whole.layout.dist / ENGINE, 0, tmp_path / "dist"),
    ):
        report = run(whole)
        found, fixes = {(each.kind, each.file) for each in report.findings}, report.fixes
    assert ("inputs", "stacks/mini/stack.toml") in found
    assert ("altered", f"dist/mini/{ENGINE}") in found
    assert fixes[-1] == "./noxw -s install -- --stack mini   # builds what has changed, too"


def test_a_manifest_of_another_stack(whole: Project) -> None:
    manifest = Manifest.model_validate_json(whole.layout.manifest.read_text()).model_copy(update={"stack": "other"})
    (finding,) = inputs.compare(whole.layout, inputs.read(whole.layout), manifest)
    assert (finding.problem, finding.expected, finding.found) == ("is of another stack", "mini", "other")


def test_sources_that_were_changed_on_purpose_are_a_note(whole: Project) -> None:
    manifest = Manifest.model_validate_json(whole.layout.manifest.read_text())
    source = SourceRevision(name="vllm", repository="https://example.invalid/vllm", revision="0" * 40, dirty=True)
    of_it = manifest.model_copy(update={"sources": [source], "inputs": "0" * 64})
    present = inputs.read(whole.layout)
    assert present.inputs == read_inputs(whole.layout).digest
    assert list(inputs.compare(whole.layout, present, of_it)) == []
    assert inputs.dirty(of_it) == ["vllm"]
    (finding,) = inputs.compare(whole.layout, present, manifest.model_copy(update={"inputs": "0" * 64}))
    assert (finding.found, finding.expected) == ("0" * 64, present.inputs)


# What the outside programs may say


def test_a_complaint_that_is_not_allowed_is_a_finding(whole: Project, tmp_path: Path) -> None:
    with absent(whole.layout.stack_dir / "verify.toml", tmp_path):
        (finding,) = run(whole).findings
    assert (finding.kind, finding.file, finding.found) == ("wheel", f"dist/mini/{ENGINE}", "dynamo/")
    assert finding.problem.startswith("check-wheel-contents.W009: ")


def test_an_allowance_for_an_artifact_that_was_not_looked_into_is_left_alone(whole: Project, tmp_path: Path) -> None:
    with flipped(whole.layout.dist / ENGINE, 5, tmp_path):
        assert {each.kind for each in run(whole).findings} == {"altered"}


def test_a_wheel_whose_library_comes_from_outside(tmp_path: Path) -> None:
    """`auditwheel show` itself, on a wheel that is named better than it is."""
    library = machine_code.library({"libc.so.6": ["GLIBC_2.14"], "libtorch_cpu.so": []})
    wheel = verified.wheel(tmp_path, "demo", "1.0", {"demo/__init__.py": b"", "demo/_C.abi3.so": library})
    complaints, needs = programs.show_platform("demo", wheel, ["manylinux_2_28_x86_64"])
    assert [(each.check, each.of) for each in complaints] == [("auditwheel.library", "libtorch_cpu.so")]
    assert needs == {"libtorch_cpu.so": None}
    complaints, _ = programs.show_platform("demo", wheel, ["linux_x86_64"])
    assert complaints == []
    assert list(tmp_path.iterdir()) == [wheel]
