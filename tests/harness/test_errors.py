"""The exit status tells how far a run came; the same cause has the same status whoever noticed it first."""

from __future__ import annotations

import pytest

from harness import errors
from harness.calling import HttpBodyError, HttpStatusError
from harness.errors import SmokestackError, during_training
from harness.inspection import ObservationError
from harness.session import InternalError

NO_ANSWER = HttpStatusError("no answer", status=None, found="ConnectError", where="http://e")


@pytest.mark.parametrize(
    "error",
    [
        errors.ServiceDiedError("engine-0 ended"),
        errors.NotReadyError("late"),
        NO_ANSWER,
        HttpBodyError("not an answer"),
        ObservationError("half an answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_30_before_the_training_ends_the_training_with_40(error: SmokestackError) -> None:
    assert type(error).exit_code == 30
    with pytest.raises(SmokestackError) as caught, during_training():
        raise error
    assert caught.value is error
    assert error.exit_code == 40
    assert type(error).exit_code == 30


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.DiscoveryError("changed"), 31),
        (errors.RefitError("500"), 40),
        (errors.Interrupted("Ctrl-C"), 130),
        (InternalError("a fault"), 70),
        (SmokestackError("nobody gave it a status"), 70),
    ],
)
def test_all_others_keep_their_status(error: SmokestackError, status: int) -> None:
    with pytest.raises(SmokestackError), during_training():
        raise error
    assert error.exit_code == status


def test_no_error_says_that_a_check_failed() -> None:
    def below(kind: type[SmokestackError]) -> list[type[SmokestackError]]:
        return [kind, *(found for one in kind.__subclasses__() for found in below(one))]

    assert all(kind.exit_code not in {0, 1} for kind in below(SmokestackError))
