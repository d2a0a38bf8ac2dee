"""What differs between the builds, and what has to stay: a build under another HOME still needs its package sources.

Imports nothing of the project but what starts a program and reads pip's settings.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts import commands, indexes
from scripts.environ import child_environment

# Locales whose numbers, order or letters differ most from English ones; what a machine has of them comes first.
_FARTHEST = ("tr_tr", "de_de", "fr_fr", "ja_jp")
_PLAIN = ("c.", "en_us", "en_gb")
_UTF8 = "C.UTF-8"


@dataclass(frozen=True)
class Conditions:
    """How one build differs from another. `folder` is relative; `dated` is the date of every input, in seconds."""

    folder: str
    umask: int
    locale: str
    time_zone: str
    hash_seed: int
    dated: int

    def document(self) -> dict[str, Any]:
        date = datetime.fromtimestamp(self.dated, UTC).date().isoformat()
        return {**asdict(self), "umask": f"{self.umask:03o}", "dated": date}


def pair(root: Path, environ: Mapping[str, str]) -> tuple[Conditions, Conditions]:
    """The conditions of the first and the second build. Zones are spelled out: not every machine knows the names."""
    first = Conditions("a", 0o022, _UTF8, "UTC0", hash_seed=1, dated=1_000_000_000)
    other = _another_locale(root, environ)
    second = Conditions(
        "in-another-place/with-a-longer-name", 0o077, other, "NPT-5:45", hash_seed=2, dated=1_500_000_000
    )
    return first, second


def variables(under: Conditions, place: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a build in the folder `place`, whose `home` and `tmp` are its own."""
    kept = {
        name: value for name, value in environ.items() if not name.startswith(("LC_", "LANG", "XDG_", "CCACHE_REMOTE_"))
    }
    added = {
        **_found_from_home(environ),
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "LANG": under.locale,
        "LC_ALL": under.locale,
        "TZ": under.time_zone,
        "PYTHONHASHSEED": str(under.hash_seed),
        # A compiler cache would hand the first build's objects to the second.
        "CCACHE_DIR": str(place / "ccache"),
        "SCCACHE_RECACHE": "1",
    }
    return child_environment(kept, added)


def common_folders(root: Path, environ: Mapping[str, str], *, compiled: bool) -> list[str]:
    """Folders that both builds have in common: the real project's, and, where anything is compiled, its tools' homes.

    What is put together from published files may well hold paths of the machine that they were made on.
    """
    homes = {**_found_from_home(environ), **environ}
    shared = [homes.get(name, "") for name in ("CARGO_HOME", "RUSTUP_HOME", "UV_CACHE_DIR", "PYENV_ROOT")]
    return [str(root), *(path for path in shared if compiled and path.startswith("/"))]


def _found_from_home(environ: Mapping[str, str]) -> dict[str, str]:
    """What programs find below the real home unless a variable names it: toolchains, caches, package sources."""
    home = Path(environ.get("HOME") or Path.home())
    config, cache, data = (
        Path(environ.get(f"XDG_{kind}_HOME") or home / usual)
        for kind, usual in (("CONFIG", ".config"), ("CACHE", ".cache"), ("DATA", ".local/share"))
    )
    places = {
        "CARGO_HOME": home / ".cargo",
        "GIT_CONFIG_GLOBAL": home / ".gitconfig",
        "NETRC": home / ".netrc",
        "PIP_CACHE_DIR": cache / "pip",
        "PYENV_ROOT": home / ".pyenv",
        "RUSTUP_HOME": home / ".rustup",
        "UV_CACHE_DIR": cache / "uv",
        "UV_CONFIG_FILE": config / "uv" / "uv.toml",
        "UV_PYTHON_INSTALL_DIR": data / "uv" / "python",
    }
    found = {name: str(path) for name, path in places.items() if path.exists()}
    # pip reads two files below the home, and one variable can name only one.
    settings = indexes.read_pip_config(sys.executable)
    found |= {f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings.items()}
    return {name: value for name, value in found.items() if name not in environ}


def _another_locale(root: Path, environ: Mapping[str, str]) -> str:
    answer = commands.ask(("locale", "-a"), cwd=root, env=child_environment(environ, {}))
    names = [] if answer is None or answer.returncode != 0 else answer.output.split()
    foreign = [name for name in names if not name.lower().startswith(_PLAIN) and "utf" in name.lower()]
    preferred = sorted(foreign, key=lambda name: (not name.lower().startswith(_FARTHEST), name))
    # Without any, the one in which not even names in UTF-8 can be written.
    return preferred[0] if preferred else "C"
