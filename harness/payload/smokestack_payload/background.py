"""Calls that may never return: run in a daemon thread that can be abandoned, watched through a future.

`concurrent.futures`' own pools are joined at interpreter exit; a collective without a peer would then hang the
process for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_background(name: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Start `call` in a daemon thread called `name`; its result or exception lands in the future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, as any executor does
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
