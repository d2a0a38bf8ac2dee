"""How long a request takes through the serving side, and how long at the engine itself."""

from __future__ import annotations

from collections.abc import Sequence

from harness.admin import EngineAdmin
from harness.calling import HttpClient
from harness.events import RequestTimes
from harness.inspection import ObservationError
from harness.observer import Observer

WARM_UP, TIMED = 5, 50
"""Requests that are sent first and not counted, and those that are."""


def time_requests(observer: Observer, prompt: Sequence[int]) -> tuple[RequestTimes, ...]:
    """How long one token takes of the serving side, and of the first engine itself: turn by turn.

    In turns, so that whatever slows the machine down slows both. Where both are the same, it is asked alone.
    """
    engine_url = observer.topology.workers[0].admin_url
    urls = {"engine": engine_url} if observer.frontend_url == engine_url else {"frontend": observer.frontend_url}
    urls["engine"] = engine_url
    taken: dict[str, list[float]] = {via: [] for via in urls}

    def ask() -> None:
        for _ in range(WARM_UP + TIMED):
            for via, url in urls.items():
                server = HttpClient(url, observer.request_s, credentials=observer.credentials)
                began = observer.clock.monotonic()
                EngineAdmin(server).generate(observer.model, prompt, {"temperature": 0.0, "max_tokens": 1})
                taken[via].append(observer.clock.monotonic() - began)

    late = ObservationError(
        "the timed requests did not end in time",
        expected=f"{WARM_UP + TIMED} answers each within {observer.observe_s:g} s",
        found="a request without an answer",
        where=", ".join(urls.values()),
    )
    observer.vigil.call(ask, observer.observe_s, late)
    return tuple(
        RequestTimes.model_validate({"via": via, "seconds": seconds[WARM_UP:]}) for via, seconds in taken.items()
    )
