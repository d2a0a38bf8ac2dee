"""The environment of the build plane's children: the caller's, without what would change what an installer does."""

from __future__ import annotations

from collections.abc import Mapping

# Variables of the caller that would change what an installer or a Python child does; a site's index, proxy,
# certificate and cache settings stay.
_DROPPED = frozenset(
    {
        # With it nothing ever compiles bytecode, and importing vLLM takes twice as long in every process.
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "UV_BUILD_CONSTRAINT",
        "UV_CONSTRAINT",
        "UV_EXCLUDE_NEWER",
        "UV_NO_VERIFY_HASHES",
        "UV_OVERRIDE",
        "UV_PRERELEASE",
        "UV_PYTHON",
        "UV_RESOLUTION",
        "UV_SYSTEM_PYTHON",
        "PIP_CONSTRAINT",
        "PIP_PREFIX",
        "PIP_REQUIRE_VIRTUALENV",
        "PIP_TARGET",
        "PIP_USER",
    }
)


def child_environment(environ: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would change the outcome, and with `added`."""
    kept = {name: value for name, value in environ.items() if name not in _DROPPED}
    return {**kept, **added}
