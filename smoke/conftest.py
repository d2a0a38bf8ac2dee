"""One real run is shared by every test that only reads its evidence."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from smoke.bystanders import Bystanders
from smoke.runner import ROOT, Outcome, harness

# A shell starts a background job with SIGINT ignored, nohup one with SIGHUP, and every child would inherit that. The
# tests send both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Set, it names nox, which started this suite; the runs are to end with the suite.
if "SMOKESTACK_DIE_WITH_PARENT" in os.environ:
    os.environ["SMOKESTACK_DIE_WITH_PARENT"] = str(os.getpid())


@pytest.fixture(scope="session")
def model_folder(default_run: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model folder of the caller's own: a copy of the warmed-up tiny model."""
    assert default_run.returncode == 0, default_run.explain()
    folder = tmp_path_factory.mktemp("models") / "a model of my own"
    shutil.copytree(next((ROOT / ".cache" / "models").glob("tiny-*/warm")), folder)
    return folder


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A default run (four steps) with its verdict on stdout."""
    return harness("smoke", "--json", run_dir=tmp_path_factory.mktemp("default") / "run")


@pytest.fixture(scope="session")
def bystanders() -> Iterator[Bystanders]:
    started = Bystanders.start()
    yield started
    started.end()
