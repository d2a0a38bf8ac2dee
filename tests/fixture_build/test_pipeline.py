"""From git repositories to an environment that runs, by the real tools: build, manifest, verify, install, verify."""

from __future__ import annotations

import json
import subprocess
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fixture_project import Project, contents

from tests.sources import repositories
from tests.tampering import absent

RECORDS = {"SHA256SUMS", "manifest.json", "provenance.json", "sbom.cdx.json"}


def test_dist_has_every_artifact_and_its_records_and_nothing_else(installed: Project) -> None:
    artifacts = {(each["name"], each["kind"]): each["file"] for each in installed.manifest["artifacts"]}
    assert set(artifacts) == {
        ("vllm", "wheel"),
        ("ai-dynamo", "wheel"),
        ("ai-dynamo-runtime", "wheel"),
        ("dynamo-vllm-sidecar", "binary"),
        ("smokestack-payload", "wheel"),
    }
    assert set(contents(installed.layout.dist)) == {*artifacts.values(), *RECORDS}


def test_sha256sum_agrees_with_the_sums(installed: Project) -> None:
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=installed.layout.dist,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    covered = {line.split(": ")[0] for line in checked.stdout.splitlines()}
    assert covered == set(contents(installed.layout.dist)) - {"SHA256SUMS"}


def test_the_manifest_names_the_revisions_that_git_knows(installed: Project) -> None:
    recorded = {each["name"]: each for each in installed.manifest["sources"]}
    for name in ("vllm", "dynamo"):
        repository = installed.sources[name]
        assert recorded[name]["repository"] == repository.address
        assert recorded[name]["revision"] == repository.revision
        assert recorded[name]["tree"] == repositories.git(repository.folder, "rev-parse", "HEAD^{tree}")
        assert recorded[name]["dirty"] is False
    assert recorded["vllm"]["submodules"] == [
        {"path": repositories.SUBMODULE, "revision": installed.sources["frames"].revision}
    ]


def test_the_engines_version_is_that_of_its_tag(installed: Project) -> None:
    assert installed.manifest["packages"]["vllm"] == repositories.VERSIONS["vllm"]


def test_every_wheel_has_the_one_date_that_all_have(installed: Project) -> None:
    for wheel in installed.layout.dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}, wheel.name


def test_the_sbom_inside_a_wheel_has_the_date_of_its_source(installed: Project) -> None:
    (wheel,) = installed.layout.dist.glob("ai_dynamo_runtime-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/sboms/" in name)
        document = json.loads(archive.read(name))
    committed = datetime.fromtimestamp(repositories.EPOCH, UTC)
    assert datetime.fromisoformat(document["metadata"]["timestamp"]) == committed
    assert {each["name"] for each in document["components"]} == {"dynamo-runtime", "pyo3-ffi"}


def test_nothing_in_dist_says_where_it_was_built(installed: Project) -> None:
    places = [installed.root, installed.root.parent, Path.home()]
    for file, data in unpacked(installed.layout.dist).items():
        for place in places:
            assert str(place).encode() not in data, f"{file} contains {place}"


def unpacked(dist: Path) -> dict[str, bytes]:
    """Every file of dist, and every member of its wheels."""
    found = contents(dist)
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            found |= {f"{wheel.name}/{name}": archive.read(name) for name in archive.namelist()}
    return found


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("vllm-rs", "--version"), "vllm-rs 0.0.0\n"),
        (("dynamo-vllm-sidecar", "--version"), "dynamo-vllm-sidecar 1.3.0\n"),
        (("python", "-c", "import vllm._C as c; print(c.describe()[2])"), "1048576\n"),
        (("python", "-c", "import vllm; print(vllm.__file__ is not None)"), "True\n"),
    ],
)
def test_what_is_installed_runs(installed: Project, argv: tuple[str, ...], said: str) -> None:
    program = installed.layout.environment / "bin" / argv[0]
    assert subprocess.run([program, *argv[1:]], capture_output=True, text=True, check=True).stdout == said


def test_the_compiled_modules_know_their_sources_by_a_place_of_no_machine(installed: Project) -> None:
    python = installed.layout.environment / "bin" / "python"
    code = "import vllm._C as c, dynamo._core as d; print(*c.describe()[:2], d.describe().split()[0])"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [Path(path).name for path in said] == ["sources.h", "frames.h", "lib.rs"]
    assert not [path for path in said if path.startswith(str(installed.root))]


def test_what_was_built_and_installed_is_verified(installed: Project) -> None:
    assert installed.run("verify").document["ok"]


def test_a_second_build_and_install_do_nothing(installed: Project) -> None:
    def state() -> dict[str, int]:
        places = (installed.layout.dist, installed.layout.environment)
        return {str(path): path.lstat().st_mtime_ns for place in places for path in place.rglob("*")}

    before = state()
    assert installed.run("build").document["cached"]
    assert installed.run("install").document["cached"]
    assert state() == before


def test_a_dry_run_says_every_command_and_changes_nothing(fresh: Project) -> None:
    before = contents(fresh.root)
    document = fresh.run("build", "--dry-run").document
    assert {path: data for path, data in contents(fresh.root).items() if "__pycache__" not in path} == before
    assert not fresh.layout.dist.exists()
    assert [product["name"] for product in document["products"]] == ["vllm", "dynamo", "sidecar", "payload"]
    assert not any(product["cached"] for product in document["products"])


def test_a_dry_run_says_what_force_would_do_and_what_is_kept(installed: Project, tmp_path: Path) -> None:
    def would(*options: str) -> list[str]:
        steps: list[str] = installed.run("build", "--dry-run", *options).document["would"]
        return steps

    assert would() == []
    assert "sidecar: compile the sidecar" in would("--force", "--only", "sidecar")
    assert not [step for step in would("--force", "--only", "sidecar") if step.startswith("vllm: ")]
    with absent(installed.layout.dist / "dynamo-vllm-sidecar", tmp_path / "aside"):
        assert "sidecar: take what is kept under its key" in would()
        assert not [step for step in would() if "compile" in step]


def test_a_checkout_and_a_mirror_of_this_machine_give_the_same_bytes(
    installed: Project, fresh: Project, tmp_path: Path
) -> None:
    """Where nothing can be fetched from the address that the stack file names."""
    checkout = repositories.clone(fresh.sources["vllm"], tmp_path / "a checkout")
    mirror = repositories.clone(fresh.sources["dynamo"], tmp_path / "mirror.git", "--mirror")
    for name in ("vllm", "dynamo"):
        fresh.edit_stack(fresh.sources[name].address, f"https://code.example.invalid/{name}")
    given = ("--source", f"vllm={checkout}", "--source", f"dynamo={mirror}")
    fresh.run("build", "--only", "vllm", "--only", "sidecar", *given)
    built = contents(fresh.layout.dist)
    assert len(built) == 2
    assert {name: contents(installed.layout.dist)[name] for name in built} == built
