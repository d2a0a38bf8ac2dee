"""A model folder that cannot be served is refused, with the missing file's name, before anything starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.errors import DoctorError, UsageError
from harness.models import choose, hub_cache, missing_files


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
    choice = choose(str(folder), folder, {})
    assert (choice.kind, choice.folder, choice.served_name) == ("folder", folder, "model with spaces")
    assert not choice.starts_untrained


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_named_models_need_no_folder(name: str, tmp_path: Path) -> None:
    assert choose(name, tmp_path, {}).kind == name


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
        choose(str(folder), folder, {})
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
        choose("nobody/knows-it", tmp_path, {"HF_HUB_CACHE": str(tmp_path)})
    assert "tiny, smollm2, Qwen/Qwen3-0.6B" in str(caught.value.expected)


def cached(folder: Path, cache: Path, name: str) -> Path:
    """`folder` as a hub's client keeps it."""
    model = cache / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / ("c" * 40)
    shutil.copytree(folder, snapshot)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("c" * 40)
    return snapshot


def test_a_hubs_name_is_the_snapshot_that_its_cache_has(folder: Path, tmp_path: Path) -> None:
    snapshot = cached(folder, tmp_path / "hub", "some-one/their.model")
    choice = choose("some-one/their.model", tmp_path, {"HF_HOME": str(tmp_path)})
    assert (choice.kind, choice.served_name, choice.folder) == ("hub", "some-one/their.model", snapshot)
    assert (choice.name, choice.hub_cache) == ("some-one/their.model", tmp_path / "hub")
    choice.require_there()


def test_a_known_name_that_is_not_there_is_told_with_the_command_that_gets_it(tmp_path: Path) -> None:
    choice = choose("Qwen/Qwen3-0.6B", tmp_path, {"HF_HUB_CACHE": str(tmp_path)})
    assert choice.folder is None
    with pytest.raises(DoctorError) as caught:
        choice.require_there()
    assert str(caught.value.hint).startswith("hf download Qwen/Qwen3-0.6B ")


def test_a_snapshot_that_lacks_a_file_is_refused(folder: Path, tmp_path: Path) -> None:
    (cached(folder, tmp_path, "Qwen/Qwen3-0.6B") / "generation_config.json").unlink()
    with pytest.raises(UsageError, match="not complete"):
        choose("Qwen/Qwen3-0.6B", tmp_path, {"HF_HUB_CACHE": str(tmp_path)})


@pytest.mark.parametrize(
    ("environ", "cache"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, str(Path("~/.cache/huggingface/hub").expanduser())),
    ],
)
def test_the_cache_is_where_the_hubs_own_variables_put_it(environ: dict[str, str], cache: str) -> None:
    assert hub_cache(environ) == Path(cache)
