"""A LoRA adapter on the real CPU stack: workers advertise the routes, the engine cannot take one, and that is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoke.runner import assert_nothing_left, harness

CHECK = "generation.lora-adapter"
ROUTES = ["update/list_loras", "update/load_lora", "update/unload_lora"]


@pytest.mark.slow
def test_the_released_engine_fails_at_the_adapter_and_at_nothing_else(tmp_path: Path) -> None:
    """The day that this is red because the run passes, README and ADR 0035 have to say something else."""
    outcome = harness("smoke", "--steps", "1", "--lora", run_dir=tmp_path / "run")
    assert outcome.returncode == 1, outcome.explain()
    red = {check["id"]: check["found"] for check in outcome.verdict["checks"] if check["status"] != "pass"}
    assert list(red) == [CHECK], red
    assert "/engine/update/load_lora" in red[CHECK]
    assert "HTTP 200" in red[CHECK]
    assert "add_lora" in red[CHECK]
    [engine] = outcome.only("adapter.observed")["engines"]
    assert engine["advertised"] == ROUTES
    assert (engine["refusal"], engine["loaded"]) == (None, [])
    assert_nothing_left(outcome)
