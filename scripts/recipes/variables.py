"""Variables of a build: what is kept of the caller's, and what is the same on every machine."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

# Where things are fetched from, through what, and where they are kept: a site's business. Where a tool lies: its
# version is asked for, and is part of the key. Everything else of the caller's (CFLAGS, RUSTFLAGS, CC, VLLM_*,
# MAX_JOBS, PYTHON*, CMAKE_*, SETUPTOOLS_*, …) would change what is built, and nobody would see it afterwards.
_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|XDG_CACHE_HOME"
    r"|CARGO_HOME|CARGO_HTTP_\w+|CARGO_NET_\w+|CARGO_REGISTRIES_\w+|RUSTUP_HOME|RUSTUP_DIST_SERVER"
    r"|(?i:https?_proxy|all_proxy|no_proxy)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|GIT_SSL_CAINFO|GIT_SSL_CAPATH"
    r"|GIT_SSH_COMMAND|SSH_AUTH_SOCK"
    r"|UV_CACHE_DIR|UV_DEFAULT_INDEX|UV_INDEX|UV_INDEX_URL|UV_INDEX_\w+_(USERNAME|PASSWORD)|UV_EXTRA_INDEX_URL"
    r"|UV_FIND_LINKS|UV_OFFLINE|UV_NATIVE_TLS|UV_INSECURE_HOST|UV_HTTP_TIMEOUT|UV_LINK_MODE|UV_KEYRING_PROVIDER"
    r"|UV_PYTHON_DOWNLOADS|UV_PYTHON_INSTALL_DIR|UV_NO_PROGRESS|UV_TORCH_BACKEND"
    r"|SCCACHE_\w+|CCACHE_DIR|CCACHE_MAXSIZE|CCACHE_REMOTE_STORAGE|CCACHE_CONFIGPATH"
    r"|LIBCLANG_PATH|PROTOC|PROTOC_INCLUDE"
)

UMASK = 0o022

FIXED: Mapping[str, str] = {
    # The same texts, times and hash order everywhere.
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Incremental compilation makes other code than a whole one.
    "CARGO_INCREMENTAL": "0",
    # What is read from a log must not depend on a terminal, and nothing may wait for an answer.
    "CARGO_TERM_COLOR": "never",
    "CARGO_TERM_PROGRESS_WHEN": "never",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    # The crate `cc` splits flags at white space unless it is told to read them as a shell does.
    "CC_SHELL_ESCAPED_FLAGS": "1",
    # The compilers whose versions are asked for and are in the key. `cc` may be another one.
    "CC": "gcc",
    "CXX": "g++",
    # A toolchain that is missing is said to be missing, not fetched in the middle of a build.
    "RUSTUP_AUTO_INSTALL": "0",
}

# Variables that must not change what comes out: how many compilers, where tools and caches lie.
# The toolchain's release is in the key, not the name that rustup has for it; the epoch is the revision's; the flags
# only take the machine's paths out, and what stands for these is in the key.
NOT_IN_KEY = frozenset(
    {"MAX_JOBS", "NVCC_THREADS", "CARGO_BUILD_JOBS", "PATH", "RUSTUP_TOOLCHAIN", "SMOKESTACK_RUSTC_CACHE"}
    | {"SOURCE_DATE_EPOCH", "CFLAGS", "CXXFLAGS", "CUDAFLAGS"}
)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What a build keeps of the caller's variables."""
    return {name: value for name, value in environ.items() if _KEPT.fullmatch(name)}


def prefix_flags(prefixes: Sequence[tuple[Path, str]]) -> dict[str, str]:
    """Flags that make C, C++ and CUDA compilers write `TO` where they would write a path below `FROM`.

    nvcc hands what follows `-Xcompiler` to the host compiler, for its preprocessing as well.
    """
    flags = [f"-ffile-prefix-map={prefix}={shown}" for prefix, shown in prefixes]
    plain = shlex.join(flags)
    return {
        "CFLAGS": plain,
        "CXXFLAGS": plain,
        "CUDAFLAGS": shlex.join([f"-Xcompiler={flag}" for flag in flags]),
    }


def platform_tag() -> str:
    """The machine as far as built code depends on it: system, processor family, C library."""
    libc, version = platform.libc_ver()
    return f"{platform.system().lower()}-{platform.machine()}-{libc}{version}"
