"""What a build of the researcher's stack would run: every command, every knob, in full."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import recipes_example as example
from recipes_example import STACK, WORK, plan, step_of

from scripts import recipes
from scripts.jobs import GIB, Resources
from scripts.recipes import RECIPES, RecipeName, nested, variables

VLLM, DYNAMO, SIDECAR = WORK / "vllm", WORK / "dynamo", WORK / "sidecar"
UV, TOOL_PYTHON = example.MACHINE.uv, example.MACHINE.tool_python


def names(recipe: RecipeName) -> list[str]:
    return [step.name for step in plan(recipe).steps]


class TestEveryRecipe:
    @pytest.mark.parametrize("recipe", RECIPES)
    def test_nothing_of_the_disk_is_looked_at(self, recipe: RecipeName, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("stat", "open", "iterdir", "glob", "exists", "read_text"):
            monkeypatch.delattr(Path, name)
        assert plan(recipe).steps

    @pytest.mark.parametrize(("recipe", "revision"), [("vllm", example.VLLM), ("dynamo", example.DYNAMO)])
    def test_sources_are_named_by_their_full_revision(self, recipe: RecipeName, revision: str) -> None:
        (copy,) = plan(recipe).placements
        assert (copy.revision, copy.target) == (revision, WORK / recipe / "src")

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_the_build_environment_is_the_lock_with_every_hash_checked(self, recipe: RecipeName) -> None:
        env = WORK / recipe / "env"
        make, fill = plan(recipe).steps[:2]
        assert make.argv == (UV, "venv", "--no-project", "--python", "/usr/bin/python3.12", str(env))
        assert fill.argv == (
            *(UV, "pip", "sync", "--python", str(env / "bin/python"), "--require-hashes", "--only-binary", ":all:"),
            "/builder/smokestack/stacks/prime-rl/build.lock",
        )

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_crates_are_fetched_by_the_lock_and_compiled_offline(self, recipe: RecipeName) -> None:
        made = plan(recipe)
        fetch = step_of(made, "fetch the crates of Cargo.lock")
        assert fetch.argv[:3] == ("cargo", "fetch", "--locked")
        assert "CARGO_NET_OFFLINE" not in fetch.env
        compiling = [step for step in made.steps if "CARGO_BUILD_JOBS" in step.env and step is not fetch]
        assert compiling
        for step in compiling:
            assert step.env["CARGO_NET_OFFLINE"] == "true"
            assert fetch.inputs[0] in step.inputs, "the lock file is held to be unchanged"

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_each_recipe_calls_the_rust_that_the_stack_names_for_it(self, recipe: RecipeName) -> None:
        wanted = "1.95.0" if recipe == "vllm" else "1.96.1"
        assert plan(recipe).rust == wanted
        assert {step.env["RUSTUP_TOOLCHAIN"] for step in plan(recipe).steps if step.env} == {wanted}

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_locale_time_zone_hashing_and_dates_are_the_same_everywhere(self, recipe: RecipeName) -> None:
        environment = plan(recipe).environment
        expected = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "CARGO_INCREMENTAL": "0"}
        assert expected.items() <= environment.items()
        assert environment["SOURCE_DATE_EPOCH"] == str(example.EPOCH)

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_compilers_are_told_to_write_no_path_of_the_machine(self, recipe: RecipeName) -> None:
        made = plan(recipe)
        rust = f"/builder/.rustup/toolchains/{made.rust}"
        folders = [str(WORK / recipe), "/builder/.cargo", rust, "/usr/include/python3.12"]
        wrapper = step_of(made, "write what cargo calls for rustc").argv
        for folder in folders:
            assert any(part.startswith(f"{folder}=/build") for part in wrapper)
            for name in ("CFLAGS", "CXXFLAGS", "CUDAFLAGS"):
                assert f"-ffile-prefix-map={folder}=/build" in made.environment[name]
        assert all(flag.startswith("-Xcompiler=") for flag in made.environment["CUDAFLAGS"].split())

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_the_flags_that_a_source_gives_rustc_are_left_alone(self, recipe: RecipeName) -> None:
        """RUSTFLAGS, and its like, would replace build.rustflags of the source's own cargo configuration."""
        made = plan(recipe)
        every = {name for step in made.steps for name in {**made.environment, **step.env}}
        assert not {"RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"} & every
        assert "RUSTC_WRAPPER" in every

    def test_before_a_source_is_fetched_its_time_is_named_by_what_it_will_be(self) -> None:
        made = plan("vllm", sources=recipes.facts(STACK))
        assert made.environment["SOURCE_DATE_EPOCH"] == f"<commit time of {example.VLLM}>"


class TestVllm:
    def test_the_steps(self) -> None:
        assert names("vllm") == [
            "make the build environment",
            "fill the build environment from build.lock",
            "write what cargo calls for rustc",
            "fetch the crates of Cargo.lock",
            "build the wheel",
            "put vllm into its fixed form",
        ]

    def test_the_wheel_is_built_in_the_build_environment_without_isolation(self) -> None:
        step = step_of(plan("vllm"), "build the wheel")
        assert step.argv == (
            *(UV, "build", "--wheel", "--no-build-isolation", "--python", str(VLLM / "env/bin/python")),
            *("--out-dir", str(VLLM / "wheel"), str(VLLM / "src")),
        )

    def test_the_knobs(self) -> None:
        assert dict(step_of(plan("vllm"), "build the wheel").env) == {
            "CARGO_BUILD_JOBS": "64",
            "CARGO_NET_OFFLINE": "true",
            "CARGO_TARGET_DIR": str(VLLM / "target"),
            "CUDA_HOME": "/usr/local/cuda-13.0",
            "LDCXXSHARED": "g++ -shared",
            "LDSHARED": "gcc -shared",
            "MAX_JOBS": "64",
            "NVCC_THREADS": "2",
            "RUSTC_WRAPPER": str(VLLM / "bin/rustc"),
            "RUSTUP_TOOLCHAIN": "1.95.0",
            "SETUPTOOLS_SCM_PRETEND_VERSION": "0.26.1.dev0+ge74fc3f1b",
            "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM": "0.26.1.dev0+ge74fc3f1b",
            "TORCH_CUDA_ARCH_LIST": "8.0;8.9;9.0a;10.0a",
            "VLLM_REQUIRE_RUST_FRONTEND": "1",
            "VLLM_TARGET_DEVICE": "cuda",
        }

    def test_without_a_pinned_version_the_tags_say_it(self) -> None:
        source = STACK.sources["vllm"].model_copy(update={"version": None})
        env = step_of(plan("vllm", stack=example.with_source("vllm", source)), "build the wheel").env
        assert not [name for name in env if name.startswith("SETUPTOOLS_SCM")]

    @pytest.mark.parametrize("device", ["cpu", "empty"])
    def test_another_device_gets_nothing_of_cuda(self, device: str) -> None:
        stack = example.with_vllm(device=device, cuda_archs=[])
        env = step_of(plan("vllm", stack=stack), "build the wheel").env
        assert env["VLLM_TARGET_DEVICE"] == device
        assert not {"NVCC_THREADS", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME"} & env.keys()

    def test_jobs_come_from_memory_as_well_as_cores_unless_the_user_says_otherwise(self) -> None:
        small = Resources(cores=64, memory=21 * GIB)
        env = step_of(plan("vllm", resources=small), "build the wheel").env
        assert (env["MAX_JOBS"], env["NVCC_THREADS"], env["CARGO_BUILD_JOBS"]) == ("4", "2", "10")
        env = step_of(plan("vllm", resources=small, jobs=3), "build the wheel").env
        assert (env["MAX_JOBS"], env["CARGO_BUILD_JOBS"]) == ("3", "3")

    def test_the_wheel_must_have_its_front_end_in_it(self) -> None:
        (wheel,) = plan("vllm").products
        assert (wheel.name, wheel.kind) == ("vllm", "wheel")
        assert wheel.members == wheel.executables == ("vllm/vllm-rs",)

    def test_the_last_step_writes_the_wheel_in_its_fixed_form(self) -> None:
        step = plan("vllm").steps[-1]
        assert step.argv[:5] == (
            *(TOOL_PYTHON, "-m", "scripts.normalise"),
            *(str(VLLM / "wheel/vllm-*.whl"), str(VLLM / "out")),
        )
        assert step.argv[5:7] == ("--epoch", str(example.EPOCH))
        assert str(VLLM) in step.argv


class TestNestedSources:
    def test_those_of_a_cuda_build(self) -> None:
        assert nested.floating("cuda", {}) == [
            *("cutlass", "deepgemm", "flash-attention", "flashmla", "fmha-sm100", "qutlass", "tml-fa4"),
            "triton-kernels",
        ]

    def test_a_cpu_build_fetches_onednn_and_one_without_a_device_nothing(self) -> None:
        assert nested.floating("cpu", {}) == ["onednn"]
        assert nested.floating("empty", {}) == []

    def test_one_that_the_stack_leaves_out_floats_and_is_listed(self) -> None:
        made = plan("vllm", stack=example.with_nested("cutlass"))
        states = {state.name: state for state in made.nested}
        assert not states["cutlass"].floating
        assert states["cutlass"].revision == "d" * 40
        assert states["flashmla"].floating
        assert states["flashmla"].repository is None

    @pytest.mark.parametrize(
        ("name", "variable", "folder"),
        [
            ("cutlass", "VLLM_CUTLASS_SRC_DIR", "cutlass"),
            ("deepgemm", "DEEPGEMM_SRC_DIR", "deepgemm"),
            ("flashmla", "FLASH_MLA_SRC_DIR", "flashmla"),
            ("fmha-sm100", "FMHA_SM100_SRC_DIR", "fmha-sm100"),
            ("qutlass", "QUTLASS_SRC_DIR", "qutlass"),
            ("tml-fa4", "TML_FA4_SRC_DIR", "tml-fa4"),
            ("triton-kernels", "TRITON_KERNELS_SRC_DIR", "triton-kernels/python/triton_kernels/triton_kernels"),
        ],
    )
    def test_a_pinned_one_is_copied_and_passed_by_its_own_variable(self, name: str, variable: str, folder: str) -> None:
        made = plan("vllm", stack=example.with_nested(name))
        assert made.placements[1].target == VLLM / "nested" / name
        assert made.placements[1].revision == "d" * 40
        assert step_of(made, "build the wheel").env[variable] == str(VLLM / "nested" / folder)

    def test_flash_attention_is_passed_to_cmake_as_its_variable_would_break_the_wheel(self) -> None:
        env = step_of(plan("vllm", stack=example.with_nested("flash-attention")), "build the wheel").env
        assert env["CMAKE_ARGS"] == f"-DFETCHCONTENT_SOURCE_DIR_VLLM-FLASH-ATTN={VLLM / 'nested/flash-attention'}"
        assert "VLLM_FLASH_ATTN_SRC_DIR" not in env

    def test_onednn_is_passed_to_a_cpu_build(self) -> None:
        folders = {"onednn": Path("/n/onednn"), "cutlass": Path("/n/cutlass")}
        assert nested.variables("cpu", folders) == {"FETCHCONTENT_SOURCE_DIR_ONEDNN": "/n/onednn"}

    def test_what_dynamos_crates_download_by_themselves_is_listed(self) -> None:
        for recipe in ("dynamo", "sidecar"):
            assert [(state.name, state.floating) for state in plan(recipe).nested] == [("swagger-ui", True)]


class TestDynamo:
    def test_the_runtime_is_built_by_the_locked_maturin_with_the_bindings_own_lock(self) -> None:
        bindings = DYNAMO / "src/lib/bindings/python"
        made = plan("dynamo")
        step = step_of(made, "build the wheel of the runtime")
        assert step.argv == (
            *(str(DYNAMO / "env/bin/maturin"), "build", "--release", "--locked", "--offline"),
            *("--manifest-path", str(bindings / "Cargo.toml"), "--interpreter", str(DYNAMO / "env/bin/python")),
            *("--out", str(DYNAMO / "wheel")),
        )
        assert step.inputs == (bindings / "Cargo.lock",)
        assert step_of(made, "fetch the crates of Cargo.lock").argv[-1] == str(bindings / "Cargo.toml")

    def test_features_are_passed_on(self) -> None:
        assert STACK.recipes is not None
        recipe = STACK.recipes.dynamo.model_copy(update={"features": ["kv-indexer", "slot-tracker"]})
        stack = STACK.model_copy(update={"recipes": STACK.recipes.model_copy(update={"dynamo": recipe})})
        argv = step_of(plan("dynamo", stack=stack), "build the wheel of the runtime").argv
        assert argv[-2:] == ("--features", "kv-indexer,slot-tracker")

    def test_both_wheels_come_out_in_their_fixed_form(self) -> None:
        made = plan("dynamo")
        assert [product.name for product in made.products] == ["ai-dynamo-runtime", "ai-dynamo"]
        assert [product.path.parent for product in made.products] == [DYNAMO / "out"] * 2
        assert sum("scripts.normalise" in step.argv for step in made.steps) == 2

    def test_one_wheels_name_is_not_taken_for_the_others(self) -> None:
        runtime, dynamo = (product.path.name for product in plan("dynamo").products)
        file = Path("ai_dynamo_runtime-1.3.0-cp310-abi3-manylinux_2_28_x86_64.whl")
        assert file.match(runtime)
        assert not file.match(dynamo)

    @pytest.mark.parametrize("recipe", ["dynamo", "sidecar"])
    def test_the_number_of_jobs_that_maturin_refuses_is_taken_out_first(self, recipe: RecipeName) -> None:
        steps = names(recipe)
        assert steps.index("leave the number of jobs to CARGO_BUILD_JOBS") < steps.index(
            "fetch the crates of Cargo.lock"
        )


def test_the_sidecar_is_built_frozen_out_of_the_main_workspace() -> None:
    made = plan("sidecar")
    assert step_of(made, "compile the sidecar").argv == (
        *("cargo", "build", "--release", "--frozen", "--manifest-path", str(SIDECAR / "src/Cargo.toml")),
        *("--package", "dynamo-vllm-sidecar"),
    )
    (binary,) = made.products
    assert (binary.kind, binary.path) == ("binary", SIDECAR / "target/release/dynamo-vllm-sidecar")


class TestCaches:
    def test_sccache_is_put_before_rustc(self) -> None:
        made = plan("sidecar", machine=dataclasses.replace(example.MACHINE, compiler_cache="/usr/bin/sccache"))
        assert step_of(made, "compile the sidecar").env["SMOKESTACK_RUSTC_CACHE"] == "/usr/bin/sccache"
        assert made.compiler_cache == "sccache"

    def test_ccache_cannot_be_used_for_rust(self) -> None:
        made = plan("sidecar", machine=dataclasses.replace(example.MACHINE, compiler_cache="/usr/bin/ccache"))
        assert "SMOKESTACK_RUSTC_CACHE" not in step_of(made, "compile the sidecar").env
        assert made.compiler_cache == "ccache"


class TestTheCallersVariables:
    @pytest.mark.parametrize(
        "name",
        [
            *("CFLAGS", "CXXFLAGS", "LDFLAGS", "CC", "CXX", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER"),
            *("CARGO_BUILD_TARGET", "CARGO_PROFILE_RELEASE_LTO", "MAX_JOBS", "NVCC_THREADS", "VLLM_TARGET_DEVICE"),
            *("VLLM_USE_PRECOMPILED", "TORCH_CUDA_ARCH_LIST", "CMAKE_ARGS", "CMAKE_BUILD_TYPE", "MAKEFLAGS"),
            *("PYTHONPATH", "PYTHONHOME", "SETUPTOOLS_SCM_PRETEND_VERSION", "MATURIN_PEP517_ARGS", "LD_PRELOAD"),
            *("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT", "PIP_CONSTRAINT", "LC_ALL", "TZ", "SOURCE_DATE_EPOCH"),
        ],
    )
    def test_what_would_change_the_outcome_is_dropped(self, name: str) -> None:
        assert variables.inherited({name: "x"}) == {}

    @pytest.mark.parametrize(
        "name",
        [
            *(
                "PATH",
                "HOME",
                "CARGO_HOME",
                "RUSTUP_HOME",
                "https_proxy",
                "NO_PROXY",
                "SSL_CERT_FILE",
                "GIT_SSL_CAINFO",
            ),
            *("UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_OFFLINE", "UV_CACHE_DIR", "CARGO_NET_GIT_FETCH_WITH_CLI"),
            *("SCCACHE_DIR", "CCACHE_DIR", "PROTOC", "LIBCLANG_PATH", "TMPDIR"),
        ],
    )
    def test_what_says_where_things_are_is_kept(self, name: str) -> None:
        assert variables.inherited({name: "x"}) == {name: "x"}


class TestDocument:
    """The data of `--dry-run --json`."""

    def test_every_step_has_its_command_and_all_of_its_variables(self) -> None:
        made = plan("vllm")
        shown = recipes.document(made)
        assert [step["argv"] for step in shown["steps"]] == [list(step.argv) for step in made.steps]
        build = shown["steps"][4]["env"]
        assert {"VLLM_TARGET_DEVICE", "TZ", "CFLAGS", "PATH", "SOURCE_DATE_EPOCH"} <= build.keys()
        assert shown["source"]["revision"] == example.VLLM
        assert shown["key"] == recipes.key(made)
        assert shown["umask"] == "022"

    def test_the_callers_own_values_are_not_shown(self) -> None:
        text = json.dumps(recipes.document(plan("vllm")))
        assert "secret" not in text
        assert "UV_DEFAULT_INDEX" in text
