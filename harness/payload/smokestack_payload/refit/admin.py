"""The engines' admin routes: a small bounded client for one engine, and all engines of a run as one client.

`EngineFleet` has the four methods of vLLM's `VLLMWeightSyncClient`, so every trainer-side transfer engine of vLLM can
drive it; around them it adds what a refit needs (pause, cache reset, resume), the version and the time of each phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, InvalidStateError, wait
from typing import Any

import httpx

from smokestack_payload.background import in_background
from smokestack_payload.calls import CLIENT_OPTIONS, MAX_BODY_BYTES, Carried, says_error
from smokestack_payload.errors import ProtocolError
from smokestack_payload.refit.protocols import Call, RefitProtocol, WeightRoutes
from smokestack_payload.settings import EngineAddress
from smokestack_payload.strictjson import decode

WAIT, ABORT, KEEP = "wait", "abort", "keep"
PAUSE_MODES = (WAIT, ABORT, KEEP)
"""What a pause may do with generations that run."""

LAST_WORDS_S = 1.0
"""How long after its time limit a call may still say how it failed; then it is left alone."""


def pause_mode(command: Mapping[str, Any]) -> str:
    """How the next refit is to pause the engines; raises ProtocolError for a way that there is not."""
    mode = command.get("pause", WAIT)
    if mode not in PAUSE_MODES:
        raise ProtocolError("no such way to pause", expected=", ".join(PAUSE_MODES), found=str(mode)[:200])
    return str(mode)


class AdminError(RuntimeError):
    """An admin call failed. `status` is None when there was no answer."""

    def __init__(self, url: str, status: int | None, text: str) -> None:
        self.url = url
        self.status = status
        self.text = text
        super().__init__(f"POST {url}: {'no answer' if status is None else f'status {status}'}: {self.text}")


class EngineAdmin:
    """One engine's routes. Every call has a limit on its time and on the size of its answer; see `calls`."""

    def __init__(self, address: EngineAddress, carried: Carried) -> None:
        self.address = address
        self._carried = carried
        self._client = httpx.Client(headers=carried.all(), **CLIENT_OPTIONS)

    def post(self, call: Call, timeout_s: float) -> None:
        """Make the call. Raises AdminError for anything but a success with a good answer.

        Each route that is asked here answers a success with a JSON object, in vLLM's Rust front end as in its Python
        server: a page or an empty body with status 200 comes from somebody else, who has done nothing.
        """
        url = self.url_of(call)
        try:
            status, content = self._read(url, timeout_s, call.body, call.params)
        except httpx.TimeoutException as error:
            raise AdminError(url, None, f"{type(error).__name__} after {timeout_s:.1f} s") from error
        except httpx.HTTPError as error:
            raise AdminError(url, None, self._carried.shown(f"{type(error).__name__}: {error}")) from error
        if not 200 <= status < 300:
            raise AdminError(url, status, self._carried.shown(content) + self._carried.refusal(status))
        try:
            answer = decode(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            told = self._carried.shown(content) or "an empty body"
            raise AdminError(url, status, f"no answer of an engine, which is a JSON object: {told}")
        if says_error(answer):
            raise AdminError(url, status, f"refused: {self._carried.shown(content)}")
        fault = call.fault(answer)
        if fault is not None:
            raise AdminError(url, status, f"{fault}: {self._carried.shown(content)}")

    def url_of(self, call: Call) -> str:
        return self.address.admin_url + call.path

    def _read(self, url: str, timeout_s: float, body: Any, params: Mapping[str, str] | None) -> tuple[int, bytes]:
        """Status and body; a body that is too large or too slow is a failure, however it would have ended."""
        ends = time.monotonic() + timeout_s
        content = bytearray()
        with self._client.stream("POST", url, json=body, params=params, timeout=timeout_s) as answer:
            for chunk in answer.iter_raw():
                content += chunk
                if len(content) > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"an answer of more than {MAX_BODY_BYTES} bytes")
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("the answer came too slowly")
            return answer.status_code, bytes(content)

    def close(self) -> None:
        self._client.close()


PAUSING = ("pause", "resume")
"""The phases in which some engines may be paused and others not; between them all are."""

HOLD_S = 1.0
"""How long a failed refit waits for an engine to say that it is paused; a dead one never will."""


class FleetError(RuntimeError):
    """A phase failed on at least one engine; the text has each failed engine's own answer."""

    def __init__(self, phase: str, errors: Sequence[AdminError]) -> None:
        self.phase = phase
        self.errors = tuple(errors)
        super().__init__(f"{phase}: " + "; ".join(map(str, errors)))


class EngineFleet:
    """Every call goes to all engines at the same time, and fails as soon as the first of them fails.

    `protocol` says what the phases of an update are on the wire; the other phases are the same for all.

    `begin` opens a round with a time limit. `failure` is a future that ends with the round's first error, so that
    whoever started a collective learns of it while the collective still blocks.
    """

    def __init__(
        self,
        engines: Sequence[EngineAddress],
        carried: Carried | None = None,
        protocol: RefitProtocol | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._protocol = protocol or WeightRoutes()
        self._engines = [EngineAdmin(engine, carried or Carried()) for engine in engines]
        self._clock = clock
        self._held = False
        self._calls: list[Future[None]] = []
        self.begin(None, 0.0)

    @property
    def nothing(self) -> Any:
        """The information of an update that moves no weight."""
        return self._protocol.nothing

    @property
    def urls(self) -> list[str]:
        return [engine.address.admin_url for engine in self._engines]

    def begin(self, version: str | None, limit_s: float) -> None:
        """Open a round of at most `limit_s` seconds that will set `version`; forget the times of the last one."""
        self.version = version
        self.phase = "idle"
        self.seconds: dict[str, float] = {}
        self.failure: Future[None] = Future()
        self._ends = self._clock() + limit_s

    def pause(self, mode: str = WAIT) -> None:
        """Hold all further generations; those that run finish first (`wait`), end (`abort`) or stand still (`keep`).

        Those that stand still go on under the new weights. The engine drops its caches in each mode, the keys and
        values of such generations included.
        """
        self._each("pause", lambda _: [Call("/pause", params={"mode": mode})])

    def resume(self) -> None:
        self._each("resume", lambda _: [Call("/resume")])

    def reset_prefix_cache(self) -> None:
        """Drop cached keys and values: the old weights computed them."""
        self._each("reset", lambda _: [Call("/reset_prefix_cache")])

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._each("init", lambda engine: self._protocol.init(engine, init_info))

    def start_weight_update(self) -> None:
        self._each("start", self._protocol.start)

    def update_weights(self, update_info: Any) -> None:
        self._each("update", lambda engine: self._protocol.update(engine, update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Finish under the given version, else under the round's."""
        self.finish(self.version if weight_version is None else weight_version)

    def finish(self, version: str | None) -> None:
        """Finish under the given version; under none for None."""
        self._each("finish", lambda engine: self._protocol.finish(engine, version))

    def hold(self) -> list[str]:
        """After a failure: no phase ever again, and every engine paused. Returns those that did not confirm it.

        An engine that fails to resume may have peers that did: they would go on serving beside one that does not.
        """
        self._held = True
        if self.phase not in PAUSING:
            return []
        # Whatever is still on its way would undo this.
        wait(self._calls, timeout=HOLD_S / 2)

        def pause(engine: EngineAdmin) -> None:
            engine.post(Call("/pause", params={"mode": "abort"}), HOLD_S)

        calls = [in_background(f"hold {url}", pause, one) for url, one in zip(self.urls, self._engines, strict=True)]
        done, _ = wait(calls, timeout=HOLD_S)
        return [
            url for url, call in zip(self.urls, calls, strict=True) if call not in done or call.exception() is not None
        ]

    def fail(self, error: BaseException) -> None:
        """End the round with an error of the caller's own, as an engine's would: whoever watches it stops waiting."""
        self._report(error)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def _each(self, phase: str, calls_of: Callable[[EngineAddress], Sequence[Call]]) -> None:
        """Make the calls of a phase: those of one engine in their order, the engines side by side."""
        if self._held:
            raise RuntimeError(f"{phase}: a refit of these engines has failed before")
        self.phase = phase
        begun = self._clock()
        left = max(self._ends - begun, 0.001)

        def call(engine: EngineAdmin) -> None:
            for one in calls_of(engine.address):
                if self._held:
                    return
                engine.post(one, max(self._ends - self._clock(), 0.001))

        calls = [in_background(f"{phase} {engine.address.admin_url}", call, engine) for engine in self._engines]
        self._calls = calls
        # A peer that sends a byte now and then keeps a call beyond its own limit: such a call is left alone.
        done, _ = wait(calls, timeout=left + LAST_WORDS_S, return_when=FIRST_EXCEPTION)
        self.seconds[phase] = self._clock() - begun
        errors = [error for one in done if (error := one.exception()) is not None]
        if not errors:
            errors = [
                AdminError(engine.url_of(calls_of(engine.address)[-1]), None, f"no whole answer after {left:.1f} s")
                for engine, call_ in zip(self._engines, calls, strict=True)
                if call_ not in done
            ]
        unexpected = [error for error in errors if not isinstance(error, AdminError)]
        if unexpected:
            self._report(unexpected[0])
            raise unexpected[0]
        if errors:
            failed = FleetError(phase, [error for error in errors if isinstance(error, AdminError)])
            self._report(failed)
            raise failed

    def _report(self, error: BaseException) -> None:
        try:
            self.failure.set_exception(error)
        except InvalidStateError:
            return  # only the round's first failure counts
