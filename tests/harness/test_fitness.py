"""Engines that cannot run are refused before anything is started; what only takes turns is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.fitness import GIB, Machine, require_bearable
from tests.harness.event_factory import run_config

LARGE = Machine(cores=64, memory=512 * GIB)
TINY: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    return tmp_path


def remarks(model: Path, sizes: tuple[int, ...], machine: Machine = LARGE, **changes: Any) -> list[str]:
    return require_bearable(run_config(tensor_parallel=sizes, model_dir=model, **changes), machine)


@pytest.mark.parametrize("sizes", [(1,), (2,), (4,), (2, 1), (1, 1, 1)])
def test_what_fits_is_not_remarked_upon(model: Path, sizes: tuple[int, ...]) -> None:
    """Four ranks share two key and value heads, two each."""
    assert remarks(model, sizes) == []


def test_a_model_that_cannot_be_divided_is_named_with_its_engine(model: Path) -> None:
    with pytest.raises(UsageError, match="engine-1 cannot divide this model over 3 ranks") as caught:
        remarks(model, (2, 3))
    assert caught.value.found == "4 attention heads, 2 key value heads, 256 intermediate size"
    assert caught.value.where == str(model / "config.json")


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_model_is_divided_on_any_platform(model: Path, platform: str) -> None:
    with pytest.raises(UsageError, match="cannot divide"):
        remarks(model, (8,), platform=platform)


def test_ranks_beyond_the_memory_are_refused_with_the_numbers(model: Path) -> None:
    with pytest.raises(UsageError, match="do not fit into this machine's memory") as caught:
        remarks(model, (2, 2), Machine(cores=8, memory=6 * GIB))
    assert str(caught.value.expected).startswith("at least 7.3 GiB")
    assert caught.value.found == "6.0 GiB"
    assert remarks(model, (2, 2), Machine(cores=8, memory=8 * GIB)) == []


def test_the_weights_count_once_for_each_engine(model: Path) -> None:
    with (model / "model.safetensors").open("wb") as file:
        file.truncate(3 * GIB)
    assert remarks(model, (2,), Machine(cores=8, memory=7 * GIB)) == []
    with pytest.raises(UsageError, match="memory"):
        remarks(model, (1, 1), Machine(cores=8, memory=7 * GIB))


def test_ranks_beyond_the_cores_are_a_remark(model: Path) -> None:
    [remark] = remarks(model, (2, 1), Machine(cores=2, memory=512 * GIB))
    assert remark.startswith("3 ranks on 2 cores take turns")
    assert remarks(model, (1,), Machine(cores=1, memory=512 * GIB)) == []


def test_a_gpus_memory_is_not_the_machines(model: Path) -> None:
    assert remarks(model, (2, 2), Machine(cores=1, memory=GIB), platform="cuda") == []


@pytest.mark.parametrize("text", ["", "{", "\0"])
def test_a_model_without_a_configuration_is_refused(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    with pytest.raises(UsageError, match="configuration cannot be read"):
        remarks(model, (1,))


def test_this_machine_can_be_read() -> None:
    here = Machine.here()
    assert here.cores >= 1
    assert here.memory > 0
