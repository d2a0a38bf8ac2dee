"""Which model a run serves: a named recipe or a local folder, checked for completeness before anything starts.

Knows file names only; weights are read by the engine and the trainer, never here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import UsageError

ModelKind = Literal["tiny", "smollm2", "folder"]
NAMED: tuple[ModelKind, ...] = ("tiny", "smollm2")

_TRAINING_DEFAULTS: dict[ModelKind, dict[str, float | int]] = {
    "smollm2": {"learning_rate": 1e-5, "prompts_per_step": 4, "group_size": 8, "max_new_tokens": 12},
    "folder": {"learning_rate": 1e-5, "prompts_per_step": 4, "group_size": 8, "max_new_tokens": 12},
}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


@dataclass(frozen=True)
class ModelChoice:
    """What `--model` named. `folder` is set for a local folder only."""

    kind: ModelKind
    served_name: str
    folder: Path | None = None

    @property
    def training_defaults(self) -> dict[str, float | int]:
        """Hyperparameters that fit this model better than the general defaults."""
        return dict(_TRAINING_DEFAULTS.get(self.kind, {}))

    @property
    def starts_untrained(self) -> bool:
        """Whether the engine first serves weights other than the trainer's version 0."""
        return self.kind == "tiny"


def choose(text: str, base: Path) -> ModelChoice:
    """Resolve `--model`: `tiny`, `smollm2`, or a folder (absolute, or relative to `base`)."""
    for kind in NAMED:
        if text == kind:
            return ModelChoice(kind=kind, served_name=kind)
    folder = base / Path(text).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"--model {text}: no such model",
            expected=f"{', '.join(NAMED)}, or a local folder with a model in it",
            found=f"neither a known name nor a folder: {folder}",
            hint="give the path of a folder that holds config.json, a tokenizer and *.safetensors",
        )
    folder = folder.resolve()
    missing = missing_files(folder)
    if missing:
        raise UsageError(
            f"--model {text}: the folder is not complete",
            expected="config.json, generation_config.json, a tokenizer, a chat template and weights",
            found="missing: " + "; ".join(missing),
            where=str(folder),
            hint="save model and tokenizer with save_pretrained() into this folder, or copy the missing file there",
        )
    return ModelChoice(kind="folder", served_name=folder.name, folder=folder)


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
