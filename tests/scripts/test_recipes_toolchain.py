"""Asking a machine for its tools, and saying what it lacks before anything is compiled."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
import recipes_example as example
from recipes_example import MACHINE, STACK, plan

from scripts import cargo_settings, recipes
from scripts.errors import DoctorError, PinError
from scripts.recipes import RecipeName, Toolchain
from scripts.recipes.requirements import Lack, check, check_toolchain_file, lacking
from scripts.recipes.toolchain import Rust, find


class Programs:
    """A folder of small programs that stands alone on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(self, name: str, script: str, folder: Path | None = None) -> Programs:
        path = (folder or self.folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return self

    def find(self, **variables: str) -> Toolchain:
        environ = {"PATH": f"{self.folder}:/bin", "HOME": str(self.folder), **variables}
        return find(example.LAYOUT, STACK, environ)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    for name in ("CARGO_HOME", "CUDA_HOME", "PROTOC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("scripts.environment.uv_environment", lambda: {})
    monkeypatch.setattr("scripts.environment.uv_program", lambda: str(tmp_path / "programs" / "uv"))
    return Programs(tmp_path / "programs")


RUSTC = """\
case "$RUSTUP_TOOLCHAIN" in {known}) ;; *) exit 1;; esac
case "$1" in --version) echo "{name} {version} (abc 2026-01-01)";; --print) echo /rust/$RUSTUP_TOOLCHAIN;; esac
"""


class TestFinding:
    def test_versions_are_what_the_programs_say(self, programs: Programs) -> None:
        programs.add("gcc", "echo 13.3.0").add("protoc", "echo libprotoc 25.3")
        programs.add("ld", "echo 'GNU ld (GNU Binutils for Debian) 2.40'")
        found = programs.find()
        assert found.versions["gcc"] == "13.3.0"
        assert found.versions["protoc"] == "25.3"
        assert found.versions["ld"] == "2.40"

    def test_a_program_that_is_not_there_or_fails_has_none(self, programs: Programs) -> None:
        programs.add("protoc", "echo libprotoc 25.3; exit 1")
        assert programs.find().versions["protoc"] is None

    def test_protoc_may_be_named(self, programs: Programs, tmp_path: Path) -> None:
        programs.add("protoc", "echo libprotoc 3.12")
        programs.add("protoc", "echo libprotoc 25.3", tmp_path / "other")
        assert programs.find(PROTOC=str(tmp_path / "other/protoc")).versions["protoc"] == "25.3"

    def test_each_rust_of_the_stack_is_asked_by_its_name(self, programs: Programs) -> None:
        for name in ("cargo", "rustc"):
            programs.add(name, RUSTC.format(known="1.95.0|1.96.1", name=name, version="$RUSTUP_TOOLCHAIN"))
        found = programs.find().rust
        assert set(found) == {"1.95.0", "1.96.1"}
        assert found["1.96.1"].rustc == "1.96.1 (abc 2026-01-01)"
        assert found["1.96.1"].sysroot == "/rust/1.96.1"

    def test_the_one_in_use_serves_if_it_is_of_that_release_under_another_name(self, programs: Programs) -> None:
        programs.add("rustup", "echo 'stable-x86_64 (default)'")
        for name in ("cargo", "rustc"):
            programs.add(name, RUSTC.format(known="stable-x86_64", name=name, version="1.95.0"))
        found = programs.find().rust
        assert (found["1.95.0"].selector, found["1.95.0"].sysroot) == ("stable-x86_64", "/rust/stable-x86_64")
        assert found["1.96.1"].rustc is None, "it is of another release"

    def test_a_rust_without_rustup_serves_as_well(self, programs: Programs) -> None:
        for name in ("cargo", "rustc"):
            programs.add(name, RUSTC.format(known="''", name=name, version="1.95.0"))
        rust = programs.find().rust["1.95.0"]
        assert (rust.selector, rust.rustc) == ("", "1.95.0 (abc 2026-01-01)")

    def test_of_several_cuda_toolkits_the_pinned_release_is_taken(self, programs: Programs, tmp_path: Path) -> None:
        for release in ("12.9", "13.0"):
            programs.add("nvcc", f"echo 'release {release}, V{release}.88'", tmp_path / f"cuda-{release}" / "bin")
        (programs.folder / "nvcc").symlink_to(tmp_path / "cuda-13.0/bin/nvcc")
        found = programs.find(CUDA_HOME=str(tmp_path / "cuda-12.9"))
        assert found.versions["nvcc"] == "13.0"
        assert found.cuda_home.endswith("cuda-13.0")

    def test_sccache_comes_before_ccache(self, programs: Programs) -> None:
        assert programs.find().compiler_cache is None
        programs.add("ccache", "true")
        assert programs.find().compiler_cache == str(programs.folder / "ccache")
        programs.add("sccache", "true")
        assert programs.find().compiler_cache == str(programs.folder / "sccache")

    def test_nothing_is_written(self, programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        before = {path: path.stat().st_mtime_ns for path in example.LAYOUT.root.glob("*")}
        programs.find()
        assert {path: path.stat().st_mtime_ns for path in example.LAYOUT.root.glob("*")} == before

    def test_without_a_build_lock_the_fix_is_named(self, tmp_path: Path) -> None:
        layout = dataclasses.replace(example.LAYOUT, root=tmp_path)
        with pytest.raises(PinError, match="there is no lock file"):
            find(layout, STACK, os.environ)


class TestLacking:
    def test_a_machine_that_has_everything_lacks_nothing(self) -> None:
        for recipe in recipes.RECIPES:
            assert lacking(STACK, recipe, MACHINE) == []
            check(STACK, recipe, MACHINE)

    @pytest.mark.parametrize("tool", ["gcc", "g++", "ld", "git", "python", "protoc", "nvcc"])
    def test_a_missing_tool_is_named_with_its_fix(self, tool: str) -> None:
        (lack,) = lacks(versions={**MACHINE.versions, tool: None})
        assert lack.what == tool
        assert lack.fix

    @pytest.mark.parametrize(("tool", "other"), [("protoc", "30.2"), ("nvcc", "12.9")])
    def test_another_release_is_not_the_pinned_one(self, tool: str, other: str) -> None:
        (lack,) = lacks(versions={**MACHINE.versions, tool: other})
        assert (lack.found, lack.expected) == (other, MACHINE.versions[tool])

    def test_a_missing_toolchain_is_installed_by_rustup(self) -> None:
        (lack,) = lacks(rust={**MACHINE.rust, "1.95.0": Rust("1.95.0", "1.95.0", None, None, "<>")})
        assert lack.fix == "rustup toolchain install 1.95.0 --profile minimal"

    def test_a_rustc_that_rustup_does_not_manage_is_noticed(self) -> None:
        other = dataclasses.replace(MACHINE.rust["1.95.0"], rustc="1.63.0 (abc)")
        (lack,) = lacks(rust={**MACHINE.rust, "1.95.0": other})
        assert "1.63.0" in lack.found

    @pytest.mark.parametrize("recipe", ["dynamo", "sidecar"])
    def test_only_the_engine_needs_cuda_and_a_cpp_compiler(self, recipe: RecipeName) -> None:
        assert lacks(recipe, versions={**MACHINE.versions, "nvcc": None, "g++": None}) == []

    @pytest.mark.parametrize("path", ["/a=b", "/a,b", "/it's", "/a b"])
    def test_a_folder_whose_name_flags_cannot_hold(self, path: str) -> None:
        (lack,) = lacks(root=Path(path))
        assert lack.found == path

    def test_a_blank_is_refused_only_where_nvcc_gets_it(self) -> None:
        assert STACK.tools is not None
        without = STACK.model_copy(update={"tools": STACK.tools.model_copy(update={"cuda": None})})
        assert lacking(without, "vllm", dataclasses.replace(MACHINE, root=Path("/a b"))) == []

    def test_everything_is_said_at_once(self) -> None:
        machine = dataclasses.replace(MACHINE, versions={**MACHINE.versions, "gcc": None, "protoc": "3.12.4"})
        with pytest.raises(DoctorError) as caught:
            check(STACK, "vllm", machine)
        assert "gcc: no such program; protoc: 3.12.4" in str(caught.value)
        assert "apt-get install build-essential" in str(caught.value)


def lacks(recipe: RecipeName = "vllm", **changes: object) -> list[Lack]:
    return lacking(STACK, recipe, dataclasses.replace(MACHINE, **changes))  # type: ignore[arg-type]


class TestCargoSettings:
    """A person's own cargo configuration must not end up in a product."""

    @pytest.mark.parametrize(
        ("text", "foreign"),
        [
            ('[build]\nrustflags = ["-C", "target-cpu=native"]\n', ["build.rustflags"]),
            ('[target.x86_64-unknown-linux-gnu]\nlinker = "clang"\n', ["target"]),
            ("[profile.release]\nlto = true\n[patch.crates-io]\n", ["profile", "patch"]),
            ('[source.crates-io]\nreplace-with = "mirror"\n[net]\nretry = 5\n[term]\nquiet = true\n', []),
            ('[build]\njobs = 4\nrustc-wrapper = "sccache"\n', []),
            ("not TOML", ["no TOML (Expected '=' after a key in a key/value pair (at line 1, column 5))"]),
        ],
    )
    def test_what_changes_a_product_is_foreign(self, tmp_path: Path, text: str, foreign: list[str]) -> None:
        file = tmp_path / "config.toml"
        file.write_text(text)
        assert cargo_settings.foreign([tmp_path]) == [f"{setting} in {file}" for setting in foreign]

    def test_the_folders_above_count_as_cargo_reads_them(self, tmp_path: Path) -> None:
        config = tmp_path / ".cargo" / "config.toml"
        config.parent.mkdir()
        config.write_text('[env]\nX = "1"\n')
        assert cargo_settings.foreign(cargo_settings.above(tmp_path / "project" / ".cache")) == [f"env in {config}"]

    def test_they_are_refused_with_the_file(self) -> None:
        (lack,) = lacks(foreign=("build.rustflags in /me/.cargo/config.toml",))
        assert lack.found == "build.rustflags in /me/.cargo/config.toml"
        assert "CARGO_HOME" in lack.fix


class TestToolchainFile:
    """A source that names its own Rust must be built with that one."""

    def refused(self, work: Path, text: str) -> PinError | None:
        made = plan("vllm", work=work)
        made.toolchain_file.parent.mkdir(parents=True)
        made.toolchain_file.write_text(text)
        try:
            check_toolchain_file(made)
        except PinError as error:
            return error
        return None

    @pytest.mark.parametrize("channel", ["1.95.0", "1.95"])
    def test_the_same_one_is_fine(self, tmp_path: Path, channel: str) -> None:
        assert self.refused(tmp_path, f'[toolchain]\nchannel = "{channel}"\ncomponents = ["rustfmt"]\n') is None

    @pytest.mark.parametrize("channel", ["nightly-2026-03-10", "1.9", "1.95.1"])
    def test_another_one_is_refused_with_what_to_write(self, tmp_path: Path, channel: str) -> None:
        error = self.refused(tmp_path, f'[toolchain]\nchannel = "{channel}"\n')
        assert error is not None
        assert channel in (error.expected or "")
        assert error.found == "1.95.0"
        assert "[recipes.vllm] rust" in (error.hint or "")

    def test_a_source_without_one_takes_what_the_stack_names(self, tmp_path: Path) -> None:
        check_toolchain_file(plan("vllm", work=tmp_path))
        assert not plan("vllm", work=tmp_path).toolchain_file.exists()
