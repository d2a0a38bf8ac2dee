"""What all kinds of events share: frozen, closed models that keep NaN and infinity."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Source = Literal["harness", "trainer", "observer"]

Count = Annotated[int, Field(strict=True, ge=0)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class BaseEvent(Data):
    """`t` is in seconds since the run's start; whoever records the event sets it.

    Each kind comes from one `source` only, so that what one says can never be taken for another's word.
    """

    t: float = 0.0
    source: Source

    def line(self) -> str:
        """One line of `events.jsonl`, without the newline."""
        return self.model_dump_json(exclude=self._unset())

    def fields(self) -> dict[str, Any]:
        """The same as a dict of JSON values; without `t` while nobody has set it."""
        fields: dict[str, Any] = json.loads(self.line())
        return fields

    def _unset(self) -> set[str]:
        return {"t"} - self.model_fields_set


class HarnessEvent(BaseEvent):
    """Of what this program does itself."""

    source: Literal["harness"] = "harness"


class ObserverEvent(BaseEvent):
    """Of what the stack answered when the harness asked it."""

    source: Literal["observer"] = "observer"


class TrainerEvent(BaseEvent):
    """Of what the trainer says of itself."""

    source: Literal["trainer"] = "trainer"
