"""What a failed build's log says, as people have reported it, leads to the cause and to what to do."""

from __future__ import annotations

import pytest

from scripts.jobs import Jobs
from scripts.recipes.complaints import ROWS
from scripts.recipes.diagnosis import FULL_BYTES, Evidence, Likely, diagnose

JOBS = Jobs(compilers=16, nvcc_threads=2, rust=8, limit="cores: 16")
ROOM = 100 << 30

# name of the row -> the end of a log.
LOGS = {
    "memory": [
        "[212/421] Building CXX object CMakeFiles/_C.dir/csrc/cache_kernels.cpp.o\n"
        "FAILED: [code=1] CMakeFiles/_C.dir/csrc/cache_kernels.cpp.o\n"
        "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"
        "ninja: build stopped: subcommand failed.\n",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\nninja: build stopped: subcommand failed.\n",
        "error: could not compile `dynamo-llm` (lib)\n\nCaused by:\n  process didn't exit successfully: `rustc "
        "--crate-name dynamo_llm` (signal: 9, SIGKILL: kill)\n",
        "subprocess.CalledProcessError: Command '['cmake', '--build', '.', '-j=16']' died with <Signals.SIGKILL: 9>.\n",
        "collect2: fatal error: ld terminated with signal 9 [Killed]\ncompilation terminated.\n",
        "cc1plus: out of memory allocating 65536 bytes after a total of 9371648 bytes\n",
        "virtual memory exhausted: Cannot allocate memory\n",
        "error: command '/usr/bin/gcc' failed with exit code -9\n",
        "Killed\n",
        "./build.sh: line 12: 41773 Killed                  cargo build --release\n",
    ],
    "disk": [
        "fatal error: error writing to /tmp/ccXb2.s: No space left on device\ncompilation terminated.\n",
        "error: failed to write `/x/target/release/deps/a.o`: No space left on device (os error 28)\n",
        "OSError: [Errno 28] No space left on device: '/x/out'\n",
        "cp: error writing 'x': Disk quota exceeded\n",
    ],
    "nested-source": [
        "Cloning into 'cutlass-src'...\nfatal: unable to access 'https://github.com/nvidia/cutlass.git/': Could not "
        "resolve host: github.com\nCMake Error at cutlass-subbuild/cutlass-populate-prefix/tmp/"
        "cutlass-populate-gitclone.cmake:39 (message):\n  Failed to clone repository: "
        "'https://github.com/nvidia/cutlass.git'\n",
        "CMake Error at /x/share/cmake-3.31/Modules/FetchContent.cmake:1918 (message):\n"
        "  Build step for flashmla failed: 2\n",
    ],
    "crates": [
        "error: failed to get `serde` as a dependency of package `app v0.1.0`\n\nCaused by:\n  "
        "failed to load source for "
        "dependency `serde`\n\nCaused by:\n  Unable to update registry `crates-io`\n",
        "warning: spurious network error (3 tries remaining): [6] Could not resolve hostname\n",
    ],
    "cargo-lock": [
        "error: the lock file /x/src/rust/Cargo.lock needs to be updated but --locked was passed to prevent this\n",
        "error: cannot update the lock file /x/Cargo.lock because --locked was passed to prevent this\n",
        "error: failed to parse lock file at: /x/Cargo.lock\n\nCaused by:\n  lock file version `4` was found, but this "
        "version of Cargo does not understand this lock file, perhaps Cargo needs to be updated?\n",
    ],
    "protoc": [
        '  --- stderr\n  Error: Custom { kind: NotFound, error: "Could not find `protoc`. If '
        "`protoc` is installed, try "
        'setting the `PROTOC` environment variable" }\n',
        "  protoc failed: google/protobuf/struct.proto: File not found.\n  vllm_grpc.proto:5:1: Import "
        '"google/protobuf/struct.proto" was not found or had errors.\n',
        "  protoc failed: Unknown flag: --experimental_allow_proto3_optional\n",
    ],
    "libclang": [
        "  thread 'main' panicked at bindgen/lib.rs:616:27:\n  Unable to find libclang: \"couldn't "
        "find any valid shared "
        "libraries matching: ['libclang.so', 'libclang-*.so']\"\n",
        "  /usr/include/stdint.h:9:16: fatal error: 'stddef.h' file not found\n",
    ],
    "python-headers": [
        "csrc/cumem_allocator.cpp:3:10: fatal error: Python.h: No such file or directory\n",
        "CMake Error at FindPackageHandleStandardArgs.cmake:233 (message):\n  Could NOT find Python (missing: "
        "Python_INCLUDE_DIRS Development.Module)\n",
    ],
    "cmake": [
        "CMake Error at CMakeLists.txt:1 (cmake_minimum_required):\n  CMake 3.26 or higher is "
        "required.  You are running "
        "version 3.22.1\n",
    ],
    "gpu-architecture": [
        "nvcc fatal   : Unsupported gpu architecture 'compute_100a'\n",
        "ValueError: Unknown CUDA arch (12.1a) or GPU not supported\n",
    ],
    "cuda-mismatch": [
        "RuntimeError: \nThe detected CUDA version (12.4) mismatches the version that was used to compile\n"
        "PyTorch (13.0). Please make sure to use the same CUDA versions.\n",
    ],
    "cuda-home": [
        "AssertionError: CUDA_HOME is not set\n",
        "  No CMAKE_CUDA_COMPILER could be found.\n\n  Tell CMake where to find the compiler\n",
    ],
    "scm-version": [
        "LookupError: setuptools-scm was unable to detect version for /x/src.\n\nMake sure you're "
        "either building from a "
        "fully intact git repository\n",
    ],
    "patchelf": [
        "💥 maturin failed\n  Caused by: Failed to execute 'patchelf', did you install it? Hint: Try `pip install "
        "maturin[patchelf]`\n",
        "ValueError: Cannot find required utility `patchelf` in PATH\n",
    ],
    "nightly": [
        "error[E0554]: `#![feature]` may not be used on the stable release channel\n --> src/lib.rs:1:12\n",
        "error: rustc 1.90.0 is not supported by the following package:\n  vllm-cmd@0.1.0 requires rustc 1.95\n",
    ],
    "rust-toolchain": [
        "error: toolchain 'nightly-2026-03-10-x86_64-unknown-linux-gnu' is not installed\nhelp: run `rustup toolchain "
        "install nightly-2026-03-10-x86_64-unknown-linux-gnu` to install it\n",
    ],
    "vllm-rs": [
        "error: can't find Rust compiler\n\nIf you are using an outdated pip version, it is "
        "possible a prebuilt wheel is "
        "available\n",
        "ModuleNotFoundError: No module named 'setuptools_rust'\n",
    ],
    "perl": [
        "  Can't locate FindBin.pm in @INC (you may need to install the FindBin module)\n",
        "  sh: 1: perl: not found\n",
    ],
    "system-library": [
        "  The system library `hwloc` required by crate `hwloc-sys` was not found.\n  The file `hwloc.pc` needs to be "
        "installed\n",
    ],
    "hashes": [
        "error: Failed to fetch `cmake==3.31.10`\n  Caused by: Hash mismatch for `cmake==3.31.10`\n\nExpected:\n"
        "  sha256:aaa\n\nComputed:\n  sha256:bbb\n",
    ],
    "packages": [
        "  x No solution found when resolving dependencies:\n  Because torch was not found in the package registry\n",
        "error: Failed to fetch: `https://example.invalid/simple/cmake/`\n  Caused by: error sending request for url\n",
    ],
}
CASES = [(name, log) for name, logs in LOGS.items() for log in logs]


def found(log: str, returncode: int = 1, free: int = ROOM, jobs: Jobs = JOBS) -> Likely | None:
    return diagnose(Evidence(returncode, log, free, jobs), stack="prime-rl", recipe="vllm")


@pytest.mark.parametrize(("name", "log"), CASES, ids=[f"{name}-{index}" for index, (name, _) in enumerate(CASES)])
def test_a_log_leads_to_its_cause(name: str, log: str) -> None:
    likely = found(log)
    assert likely is not None
    assert likely.name == name
    assert "{" not in likely.cause + likely.fix


def test_every_row_of_the_table_has_a_log() -> None:
    assert [row.name for row in ROWS] == list(dict.fromkeys(row.name for row in ROWS))
    assert {row.name for row in ROWS} == set(LOGS)


def test_every_row_says_where_people_reported_it() -> None:
    for row in ROWS:
        assert row.reference.startswith("https://") or "#" in row.reference


@pytest.mark.parametrize("returncode", [137, -9])
def test_a_killed_build_ran_out_of_memory_whatever_its_log_says(returncode: int) -> None:
    likely = found("[3/9] Building CUDA object a.cu.o\n", returncode)
    assert likely is not None
    assert likely.name == "memory"


def test_lack_of_memory_names_the_jobs_used_and_the_number_to_use() -> None:
    likely = found("c++: fatal error: Killed signal terminated program cc1plus\n")
    assert likely is not None
    assert "16 compilers" in likely.cause
    assert likely.fix.startswith("./noxw -s build -- --stack prime-rl --jobs 8 ")


def test_one_compiler_that_was_killed_needs_more_memory() -> None:
    likely = found("", 137, jobs=Jobs(1, 1, 1, ""))
    assert likely is not None
    assert "memory or swap" in likely.fix
    assert "--jobs" not in likely.fix


def test_a_full_disk_is_told_even_where_the_log_could_not_be_written() -> None:
    likely = found("[3/9] Building", free=FULL_BYTES - 1)
    assert likely is not None
    assert likely.name == "disk"
    assert "No space left on device" in likely.cause


def test_the_toolchain_to_install_is_named() -> None:
    likely = found(LOGS["rust-toolchain"][0])
    assert likely is not None
    assert likely.fix.startswith("rustup toolchain install nightly-2026-03-10-x86_64-unknown-linux-gnu ")


@pytest.mark.parametrize(
    "log",
    [
        "error[E0308]: mismatched types\n  --> src/lib.rs:4:5\n",
        "  Compiling killed v1.0.0\nerror: expected `;`\n",
        "remark: 9 Killed processes were seen in the last test run\nerror: syntax\n",
    ],
)
def test_what_nobody_knows_is_left_to_the_log(log: str) -> None:
    assert found(log) is None
