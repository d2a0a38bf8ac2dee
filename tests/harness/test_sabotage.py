"""What `--sabotage` can name is what the payload can do, and it reaches the trainer's configuration alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import build_parser
from harness.config import RunConfig
from harness.request import Request
from harness.sabotage import TRAINER_SABOTAGES

PAYLOAD = Path(__file__).resolve().parents[2] / "harness" / "payload" / "smokestack_payload" / "sabotage.py"


def test_the_names_are_those_of_the_payload() -> None:
    names = re.findall(r'^[A-Z_]+ = "([a-z-]+)"$', PAYLOAD.read_text(), re.MULTILINE)
    assert names == list(TRAINER_SABOTAGES)


@pytest.mark.parametrize("name", TRAINER_SABOTAGES)
def test_each_can_be_asked_for(name: str) -> None:
    assert Request.from_args(build_parser().parse_args(["smoke", "--sabotage", name])).sabotage == name


def test_by_default_there_is_none() -> None:
    assert Request.from_args(build_parser().parse_args(["smoke"])).sabotage is None
    assert RunConfig.model_fields["sabotage"].default is None


def test_nonsense_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as left:
        build_parser().parse_args(["smoke", "--sabotage", "nonsense"])
    assert left.value.code == 2


def test_the_rendezvous_takes_no_longer_than_a_refit_may() -> None:
    def deadlines(*options: str) -> tuple[float, float]:
        asked = Request.from_args(build_parser().parse_args(["smoke", *options])).deadlines
        return asked.rendezvous_s, asked.refit_s

    assert deadlines() == (60.0, 120.0)
    assert deadlines("--refit-timeout", "20") == (20.0, 20.0)
    assert deadlines("--refit-timeout", "200") == (60.0, 200.0)
