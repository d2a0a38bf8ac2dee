"""The model's folder, where a run is given one: every file that serving and training need is there, and whole.

`harness.models` refuses an incomplete folder with the same rules; here it is said before anything is built.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from scripts.doctor.json_objects import parsed
from scripts.doctor.registry import Check, Finding, fail, ok, skip
from scripts.doctor.subject import Subject

_NAMED = frozenset({"tiny", "smollm2"})
_OBJECTS = ("config.json", "generation_config.json", "tokenizer_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_INDEX = "model.safetensors.index.json"
_POINTER = "version https://git-lfs"
_POINTER_LIMIT = 1024


def _model(subject: Subject) -> Finding:
    required = "config, generation config, tokenizer, chat template and all weights, in one folder"
    folder = subject.options.model
    if folder is None or str(folder) in _NAMED:
        return skip("a run makes its own model, unless it is given a folder", required)
    if not subject.machine.is_dir(folder):
        target = shlex.quote(f"models/{folder.name}")
        fix = (
            f"hf download {shlex.quote(str(folder))} --local-dir {target}   # then --model {target}; a run asks no hub"
        )
        return fail(f"{folder} is no folder", required, fix)
    missing = [*_missing_texts(subject, folder), *_missing_weights(subject, folder)]
    if missing:
        fix = f"hf download REPOSITORY --local-dir {shlex.quote(str(folder))}   # or save_pretrained() into it"
        return fail(f"{folder.name} lacks {'; '.join(missing)}", required, fix)
    return ok(f"{folder.name} is complete", required)


def _missing_texts(subject: Subject, folder: Path) -> list[str]:
    machine = subject.machine
    missing = [name for name in _OBJECTS if _object(subject, folder / name) is None]
    if not any(machine.size(folder / name) for name in _TOKENIZERS):
        missing.append(f"a tokenizer ({' or '.join(_TOKENIZERS)})")
    inline = (_object(subject, folder / "tokenizer_config.json") or {}).get("chat_template")
    if not inline and not any(machine.size(folder / name) for name in _TEMPLATES):
        missing.append(f"a chat template ({' or '.join(_TEMPLATES)})")
    return missing


def _missing_weights(subject: Subject, folder: Path) -> list[str]:
    """The shards that the index names, or any weights where there is no index; empty and unfetched ones are missing."""
    names = [name for name in subject.machine.entries(folder) or () if name.endswith(".safetensors")]
    total = 0
    if subject.machine.exists(folder / _INDEX):
        index = _object(subject, folder / _INDEX) or {}
        shards = index.get("weight_map")
        if not isinstance(shards, dict):
            return [f"weights ({_INDEX} has no weight_map)"]
        names = sorted({str(shard) for shard in shards.values()})
        total = _total(index)
    if not names:
        return ["weights (model.safetensors)"]
    wrong = [f"weights ({name}: {why})" for name in names if (why := _unusable(subject, folder / name))]
    have = sum(subject.machine.size(folder / name) or 0 for name in names)
    if not wrong and have < total:
        return [f"weights ({have} of {total} bytes: cut short)"]
    return wrong


def _total(index: dict[str, Any]) -> int:
    metadata = index.get("metadata")
    found = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(found) if isinstance(found, (int, float)) else 0


def _unusable(subject: Subject, path: Path) -> str:
    size = subject.machine.size(path)
    if size is None:
        return "absent"
    if size == 0:
        return "empty"
    if size < _POINTER_LIMIT and (subject.machine.read_text(path) or "").startswith(_POINTER):
        return "a Git LFS pointer: `git lfs pull` was not run"
    return ""


def _object(subject: Subject, path: Path) -> dict[str, Any] | None:
    return parsed(subject.machine.read_text(path))


CHECKS = (
    Check(
        id="runtime.model",
        title="model folder",
        group="runtime",
        why="a file that is missing shows late: as a download, a wrong answer, or an error at the first chat",
        symptom="`OSError: … is not a local folder`, attempts to reach a hub, or 400 at the first chat completion",
        cause="a partial copy: no tokenizer, no chat template, a shard that was not fetched",
        looks_at="the folder of `--model`: names and sizes, and the shards that its index names",
        fix="./noxw -s smoke -- --model FOLDER   # a whole copy: config, tokenizer, chat template, every shard",
        reference="https://github.com/ai-dynamo/dynamo/issues/2759",
        needed_for=("run",),
        look=_model,
        rows=(27,),
    ),
)
