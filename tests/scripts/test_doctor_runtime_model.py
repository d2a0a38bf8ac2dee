"""A model's folder is complete, or every file that it lacks is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor_fakes import CPU, FakeMachine, look

from scripts.doctor import runtime_model
from scripts.doctor.registry import Finding
from scripts.doctor.subject import Options

(MODEL,) = runtime_model.CHECKS
FOLDER = "/data/my model"
WHOLE = {
    "config.json": "{}",
    "generation_config.json": "{}",
    "tokenizer_config.json": "{}",
    "tokenizer.json": "{}",
    "chat_template.jinja": "x",
    "model.safetensors": "w" * 2000,
}
INDEX = "model.safetensors.index.json"


def model(files: dict[str, str], folder: str = FOLDER) -> Finding:
    fake = FakeMachine(files={f"{FOLDER}/{name}": text for name, text in files.items()}, folders={FOLDER})
    return look(MODEL, fake, CPU, options=Options(model=Path(folder)))


def without(*names: str, **more: str) -> dict[str, str]:
    return {**{name: text for name, text in WHOLE.items() if name not in names}, **more}


def sharded(total: int = 0, **shards: str) -> dict[str, str]:
    index = {"metadata": {"total_size": total}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    files = {name.replace("_", "") + ".safetensors": text for name, text in shards.items()}
    return {**without("model.safetensors"), INDEX: json.dumps(index), **files}


@pytest.mark.parametrize("folder", [None, "tiny", "smollm2"])
def test_a_run_with_its_own_model_is_not_asked_for_a_folder(folder: str | None) -> None:
    options = Options(model=None if folder is None else Path(folder))
    assert look(MODEL, FakeMachine(), CPU, options=options).status == "skip"


def test_a_whole_folder_is_fine() -> None:
    found = model(WHOLE)
    assert (found.status, found.found) == ("ok", "my model is complete")


def test_a_name_of_a_hub_is_downloaded_first() -> None:
    found = model({}, "Qwen/Qwen3-0.6B")
    assert (found.status, found.found) == ("fail", "Qwen/Qwen3-0.6B is no folder")
    assert found.fix.startswith("hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B ")


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (without("config.json"), "config.json"),
        (without("config.json", **{"config.json": "[]"}), "config.json"),
        (without("generation_config.json"), "generation_config.json"),
        (without("tokenizer_config.json"), "tokenizer_config.json"),
        (without("tokenizer.json"), "a tokenizer (tokenizer.json or tokenizer.model or vocab.json)"),
        (without("chat_template.jinja"), "a chat template (chat_template.jinja or chat_template.json)"),
        (without("model.safetensors"), "weights (model.safetensors)"),
        (without(**{"model.safetensors": ""}), "weights (model.safetensors: empty)"),
        (
            without(**{"model.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"}),
            "weights (model.safetensors: a Git LFS pointer: `git lfs pull` was not run)",
        ),
        (without(**{INDEX: "{}"}), f"weights ({INDEX} has no weight_map)"),
        (sharded(_1="x"), "weights (2.safetensors: absent)"),
        (sharded(_1="x", _2=""), "weights (2.safetensors: empty)"),
        (sharded(1000, _1="x" * 500, _2="x" * 499), "weights (999 of 1000 bytes: cut short)"),
    ],
)
def test_what_is_missing_is_named(files: dict[str, str], missing: str) -> None:
    found = model(files)
    assert (found.status, found.found) == ("fail", f"my model lacks {missing}")
    assert found.fix.startswith("hf download REPOSITORY --local-dir '/data/my model'")


def test_everything_that_is_missing_is_named_at_once() -> None:
    assert model({}).found.count(";") == 5


@pytest.mark.parametrize(
    "files",
    [
        without("chat_template.jinja", **{"tokenizer_config.json": '{"chat_template": "x"}'}),
        without("tokenizer.json", **{"tokenizer.model": "x"}),
        sharded(1000, _1="x" * 500, _2="x" * 500),
        sharded(_1="x", _2="x"),
    ],
)
def test_other_whole_forms_are_fine(files: dict[str, str]) -> None:
    assert model(files).status == "ok"
