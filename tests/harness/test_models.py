"""A model folder that cannot be served is refused, with the missing file's name, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models import choose, missing_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model with spaces"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "model.safetensors").write_bytes(b"\0")
    return folder


def test_a_complete_folder_is_served_under_its_own_name(folder: Path) -> None:
    choice = choose(str(folder), folder)
    assert (choice.kind, choice.folder, choice.served_name) == ("folder", folder, "model with spaces")
    assert not choice.starts_untrained


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_named_models_need_no_folder(name: str, tmp_path: Path) -> None:
    assert choose(name, tmp_path).kind == name


@pytest.mark.parametrize(
    ("removed", "named"),
    [
        ("config.json", "config.json"),
        ("generation_config.json", "generation_config.json"),
        ("tokenizer.json", "tokenizer ("),
        ("tokenizer_config.json", "tokenizer_config.json"),
        ("chat_template.jinja", "chat template ("),
        ("model.safetensors", "weights ("),
    ],
)
def test_the_missing_file_is_named(folder: Path, removed: str, named: str) -> None:
    (folder / removed).unlink()
    with pytest.raises(UsageError) as caught:
        choose(str(folder), folder)
    assert named in str(caught.value.found)
    assert len(missing_files(folder)) == 1


def test_a_chat_template_inside_the_tokenizer_config_counts(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert missing_files(folder) == []


def test_a_missing_shard_is_named(folder: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"\0")
    assert missing_files(folder) == ["weights (model-00002-of-00002.safetensors)"]


def test_truncated_json_counts_as_missing(folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab_size": ')
    assert missing_files(folder) == ["config.json"]


def test_an_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such model") as caught:
        choose("Qwen/Qwen3-0.6B", tmp_path)
    assert "tiny, smollm2" in str(caught.value.expected)
