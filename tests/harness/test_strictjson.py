"""Strict JSON, as either plane reads it: the two may not share code (ADR 0002), so both are held to the same cases."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings

from harness import strictjson
from tests.json_documents import BODIES, JSON

PAYLOAD = Path(__file__).resolve().parents[2] / "harness" / "payload" / "smokestack_payload" / "strictjson.py"
QUICK = settings(max_examples=100, deadline=None)


def of_the_payload() -> ModuleType:
    """Loaded by its path: the package itself is installed in the stack's environment only."""
    spec = importlib.util.spec_from_file_location("strictjson_of_the_payload", PAYLOAD)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


each = pytest.mark.parametrize("reader", [strictjson, of_the_payload()], ids=["harness", "payload"])


@each
@QUICK
@given(body=BODIES)
def test_any_bytes_are_json_or_a_value_error(reader: ModuleType, body: bytes) -> None:
    try:
        found = reader.decode(body)
    except ValueError:
        return
    assert json.loads(body) == found


@each
@QUICK
@given(value=JSON)
def test_whatever_is_finite_comes_back_as_it_was_sent(reader: ModuleType, value: Any) -> None:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return
    assert reader.decode(text.encode()) == value


@each
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'[{"a": 1, "b": 2, "a": 1}]', "names 'a' twice"),
        (b"[" * 100_000, "nested deeper than 64"),
        (b'{"a": ' * 65, "nested deeper than 64"),
        (b"\xff\xfe1\x00", "utf-8"),
        (b"1" * 5000, "digits"),
        (b"", "Expecting value"),
        (b"{} {}", "Extra data"),
    ],
    ids=["NaN", "Infinity", "twice", "endless depth", "deep objects", "no UTF-8", "long number", "nothing", "two"],
)
def test_what_is_no_json_is_refused_for_its_reason(reader: ModuleType, body: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reader.decode(body)


@each
def test_the_depth_that_is_allowed_is_what_it_says(reader: ModuleType) -> None:
    deep = reader.MAX_DEPTH
    assert reader.decode(b"[" * deep + b"]" * deep)
    with pytest.raises(ValueError, match="deeper"):
        reader.decode(b"[" * (deep + 1) + b"]" * (deep + 1))
    assert reader.decode(b'["' + b"[" * 500 + b'\\"[", 1]') == ["[" * 500 + '"[', 1]
