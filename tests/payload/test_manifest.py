"""A weight source that does not fit is refused by name before anything is sent (F07)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from smokestack_payload.errors import ModelError, RefitError
from smokestack_payload.refit.manifest import Expected, check_source, read_expected


@dataclass(frozen=True)
class Meta:
    name: str
    shape: tuple[int, ...] = (2, 3)
    dtype: torch.dtype = torch.float32


EXPECTED = Expected(shapes={"a": (2, 3), "b": (2, 3), "head": (2, 3)}, dtype="float32", tied=frozenset({"head"}))


def refusal(*metas: Meta) -> str:
    with pytest.raises(RefitError) as caught:
        check_source(metas, EXPECTED)
    assert caught.value.poisoned == ()
    return str(caught.value.found)


def test_all_names_fit_with_or_without_the_tied_one() -> None:
    check_source([Meta("b"), Meta("a")], EXPECTED)
    check_source([Meta("a"), Meta("b"), Meta("head")], EXPECTED)


def test_half_of_the_names_are_missing() -> None:
    assert refusal(Meta("a")) == "1 missing: b"


def test_a_wrappers_prefix_shows_as_missing_and_extra() -> None:
    assert refusal(Meta("module.a"), Meta("module.b")) == "2 missing: a, b; 2 extra: module.a, module.b"


def test_a_name_given_twice() -> None:
    assert refusal(Meta("a"), Meta("b"), Meta("a")) == "1 doubled: a"


def test_another_type_or_shape() -> None:
    found = refusal(Meta("a", dtype=torch.bfloat16), Meta("b", shape=(3, 2)))
    assert found == "2 mismatching: a (bfloat16 [2, 3], not float32 [2, 3]), b (float32 [3, 2], not float32 [2, 3])"


def test_expectations_come_from_the_files_headers(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(2, 2)}, tmp_path / "model-1.safetensors")
    save_file({"y": torch.zeros(3, dtype=torch.bfloat16)}, tmp_path / "model-2.safetensors")
    assert read_expected(tmp_path, "float32").shapes == {"x": (2, 2), "y": (3,)}


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_expected(tmp_path, "float32")
    assert caught.value.where == str(tmp_path)
