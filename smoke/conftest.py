"""One real run is shared by every test that only reads its evidence."""

from __future__ import annotations

import signal

import pytest

from smoke.runner import Outcome, harness

# A shell starts a background job with SIGINT ignored, and every child would inherit that. The tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A default run (four steps) with its verdict on stdout."""
    return harness("smoke", "--json", run_dir=tmp_path_factory.mktemp("default") / "run")
