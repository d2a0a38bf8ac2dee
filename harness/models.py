"""Which model a run serves: a named recipe, a local folder, or one that the hub's cache on this machine has.

Checked for completeness before anything starts, and never fetched. Knows file names only; weights are read by the
engine and the trainer, never here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import DoctorError, UsageError

ModelKind = Literal["tiny", "smollm2", "hub", "folder"]
NAMED: tuple[ModelKind, ...] = ("tiny", "smollm2")
HUB_MODELS = ("Qwen/Qwen3-0.6B",)
"""Names that are known to be a hub's. Another one is accepted where the cache has it."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_TRAINING_DEFAULTS: dict[ModelKind, dict[str, float | int]] = {
    "hub": {"learning_rate": 1e-5, "prompts_per_step": 8, "group_size": 8, "max_new_tokens": 12},
    "smollm2": {"learning_rate": 1e-5, "prompts_per_step": 4, "group_size": 8, "max_new_tokens": 12},
    "folder": {"learning_rate": 1e-5, "prompts_per_step": 4, "group_size": 8, "max_new_tokens": 12},
}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


@dataclass(frozen=True)
class ModelChoice:
    """What `--model` named. `folder` is set where there is one already: a local folder, or that of a hub's cache.

    `hub_cache` is the cache of a model of kind `hub`, whether the model is in it or not.
    """

    kind: ModelKind
    served_name: str
    folder: Path | None = None
    hub_cache: Path | None = None

    @property
    def name(self) -> str:
        """What it is called in `config.json` and in the verdict."""
        return self.served_name if self.kind == "hub" else str(self.folder or self.kind)

    def require_there(self) -> None:
        """Raise DoctorError for a model that would have to be fetched: a run fetches none."""
        if self.kind == "hub" and self.folder is None:
            raise DoctorError(
                f"the model {self.served_name} is not on this machine, and a run downloads none",
                expected=f"a snapshot of {self.served_name} in the hub's cache, or a local folder",
                found=f"no such snapshot in {self.hub_cache}",
                hint=f"hf download {self.served_name}   # or: --model FOLDER",
            )

    @property
    def training_defaults(self) -> dict[str, float | int]:
        """Hyperparameters that fit this model better than the general defaults."""
        return dict(_TRAINING_DEFAULTS.get(self.kind, {}))

    @property
    def starts_untrained(self) -> bool:
        """Whether the engine first serves weights other than the trainer's version 0."""
        return self.kind == "tiny"


def choose(text: str, base: Path, environ: Mapping[str, str]) -> ModelChoice:
    """Resolve `--model`: `tiny`, `smollm2`, a folder (absolute, or relative to `base`), or a name on the hub.

    A name of `HUB_MODELS` may be missing from the cache: that is said once the machine was looked at.
    """
    for kind in NAMED:
        if text == kind:
            return ModelChoice(kind=kind, served_name=kind)
    folder = base / Path(text).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        _require_complete(text, folder)
        return ModelChoice(kind="folder", served_name=folder.name, folder=folder)
    if _HUB_NAME.fullmatch(text):
        cache = hub_cache(environ)
        snapshot = cached_snapshot(cache, text)
        if snapshot is not None:
            _require_complete(text, snapshot)
        if snapshot is not None or text in HUB_MODELS:
            return ModelChoice(kind="hub", served_name=text, folder=snapshot, hub_cache=cache)
    raise UsageError(
        f"--model {text}: no such model",
        expected=f"{', '.join((*NAMED, *HUB_MODELS))}, a name that the hub's cache has, or a local folder",
        found=f"neither a known name nor a folder: {folder}",
        hint="give the path of a folder that holds config.json, a tokenizer and *.safetensors",
    )


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where the caller's hub client keeps what it fetched: its own variables, in its own order."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def cached_snapshot(cache: Path, name: str) -> Path | None:
    """The folder of the revision that the cache has as `main`; None without one."""
    model = cache / f"models--{name.replace('/', '--')}"
    try:
        revision = (model / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    snapshot = model / "snapshots" / revision
    return snapshot if revision and snapshot.is_dir() else None


def _require_complete(text: str, folder: Path) -> None:
    missing = missing_files(folder)
    if missing:
        raise UsageError(
            f"--model {text}: the folder is not complete",
            expected="config.json, generation_config.json, a tokenizer, a chat template and weights",
            found="missing: " + "; ".join(missing),
            where=str(folder),
            hint="save model and tokenizer with save_pretrained() into this folder, or copy the missing file there",
        )


def missing_files(folder: Path) -> list[str]:
    """Names of what `folder` lacks to be served with a chat template; empty when it is complete."""
    missing = [name for name in ("config.json", "generation_config.json") if not _is_json_object(folder / name)]
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        missing.append(f"tokenizer ({' or '.join(_TOKENIZERS)})")
    if not _is_json_object(folder / "tokenizer_config.json"):
        missing.append("tokenizer_config.json")
    if not _has_chat_template(folder):
        missing.append(f"chat template ({' or '.join(_TEMPLATES)}, or chat_template in tokenizer_config.json)")
    return missing + _missing_weights(folder)


def _missing_weights(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [] if any(folder.glob("*.safetensors")) else ["weights (model.safetensors)"]
    parsed = _read_object(index)
    shards = parsed.get("weight_map") if parsed is not None else None
    if not isinstance(shards, dict):
        return ["weights (model.safetensors.index.json has no weight_map)"]
    return [f"weights ({name})" for name in sorted({str(s) for s in shards.values()}) if not (folder / name).is_file()]


def _has_chat_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in _TEMPLATES):
        return True
    parsed = _read_object(folder / "tokenizer_config.json")
    return bool(parsed and parsed.get("chat_template"))


def _is_json_object(path: Path) -> bool:
    return _read_object(path) is not None


def _read_object(path: Path) -> dict[str, object] | None:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return parsed if isinstance(parsed, dict) else None
