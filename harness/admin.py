"""Typed clients of what the stack serves over HTTP: the engine's admin routes, the sidecar's controls, the frontend.

Synchronous, straight (no proxy, no redirect), with one time-out for each call (see `fetching`), and never more than
`MAX_BODY_BYTES` of an answer. The admin routes ask for no key of their own; every call carries what the run was given
(see `credentials`). A 200 that says of itself that it is an error is one. Shapes: vLLM 0.32 (development mode) and
Dynamo 1.6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from harness.answers import (
    ChatAnswer,
    ChatCompletion,
    Checksums,
    Contents,
    Generated,
    ModelList,
    Obeyed,
    Paused,
    RankContents,
    Version,
    WeightVersion,
    WorldSize,
)
from harness.credentials import Credentials
from harness.errors import SmokestackError
from harness.fetching import fetch
from harness.plaintext import printable
from harness.strictjson import decode

MAX_BODY_BYTES = 8 * 1024 * 1024

ALREADY_OPEN = "already active"
"""What vLLM answers to the start of a weight update while another one is open."""

PauseMode = Literal["abort", "wait", "keep"]
Answer = TypeVar("Answer", bound=BaseModel)


class HttpStatusError(SmokestackError):
    """A request was not answered as it must be. `status` is None when there was no answer at all."""

    kind = "http"
    exit_code = 30

    def __init__(self, what: str, *, status: int | None, found: str, where: str, hint: str | None = None) -> None:
        super().__init__(what, expected="HTTP 200", found=found, where=where, hint=hint)
        self.status = status


class HttpBodyError(SmokestackError):
    """A request was answered with 200 and a body that cannot be its answer."""

    kind = "http"
    exit_code = 30


@dataclass(frozen=True)
class HttpClient:
    """One base URL with what its requests carry. `timeout_s` bounds a whole call, and may be overridden for one."""

    base_url: str
    timeout_s: float = 10.0
    credentials: Credentials = field(kw_only=True)

    def call(self, method: str, path: str, body: object = None, *, timeout_s: float | None = None) -> bytes:
        """Body of a request that must answer 200; raises HttpStatusError with the server's own text."""
        url = self.base_url + path
        content_type = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = fetch(
                url,
                method=method,
                content=None if body is None else json.dumps(body, allow_nan=False).encode(),
                headers={**self.credentials.request_headers(), **content_type},
                timeout_s=timeout_s or self.timeout_s,
                limit_bytes=MAX_BODY_BYTES,
            )
        except httpx.TransportError as broken:
            reason = f"{type(broken).__name__}: {printable(str(broken))}"
            raise HttpStatusError(f"{method} {url} got no answer", status=None, found=reason, where=url) from broken
        if answer.status != 200:
            raise HttpStatusError(
                f"{method} {url} failed",
                status=answer.status,
                found=f"HTTP {answer.status}: {self.credentials.shown(answer.body)}",
                where=url,
                hint=self.credentials.refusal(answer.status),
            )
        if answer.truncated:
            found = f"more than {MAX_BODY_BYTES} bytes"
            raise HttpStatusError(f"{method} {url} sent too much", status=answer.status, found=found, where=url)
        return answer.body

    def get(self, path: str, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        return self._parse(path, answer, self.call("GET", path, timeout_s=timeout_s))

    def post(self, path: str, body: object, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        return self._parse(path, answer, self.call("POST", path, body, timeout_s=timeout_s))

    def order(self, path: str) -> None:
        """A POST whose answer says nothing but that it was done. Raises HttpBodyError when it says the opposite."""
        content = self.call("POST", path)
        try:
            document = decode(content)
        except ValueError:
            return  # an empty body, or a word
        if says_error(document):
            raise self._unexpected(path, content, "an answer that is no error")

    def _parse(self, path: str, answer: type[Answer], content: bytes) -> Answer:
        try:
            document = decode(content)
            if says_error(document):
                raise self._unexpected(path, content, "an answer that is no error")
            return answer.model_validate_json(content)
        except ValidationError as invalid:
            problem = invalid.errors(include_url=False, include_input=False)[0]
            place = ".".join(printable(str(part), 80) for part in problem["loc"])
            raise self._unexpected(path, content, f"{place}: {problem['msg']}") from invalid
        except (ValueError, RecursionError) as broken:
            raise self._unexpected(path, content, f"JSON ({printable(str(broken), 200)})") from broken

    def _unexpected(self, path: str, content: bytes, expected: str) -> HttpBodyError:
        url = self.base_url + path
        found = self.credentials.shown(content)
        return HttpBodyError(f"{url} answered something unexpected", expected=expected, found=found, where=url)


def says_error(document: object) -> bool:
    """Whether an answer that came with status 200 says of itself that the request failed."""
    if not isinstance(document, dict):
        return False
    status = document.get("status")
    failed = status in ("error", "failed", "failure") if isinstance(status, str) else _is_error_code(status)
    return bool(document.get("error")) or document.get("success") is False or failed


def _is_error_code(status: object) -> bool:
    return isinstance(status, int) and not isinstance(status, bool) and status >= 400


@dataclass(frozen=True)
class EngineAdmin:
    """The engine's own HTTP server, with vLLM's development-mode routes."""

    http: HttpClient

    def version(self) -> str:
        return self.http.get("/version", Version).version

    def models(self) -> list[str]:
        return [entry.id for entry in self.http.get("/v1/models", ModelList).data]

    def is_paused(self) -> bool:
        return self.http.get("/is_paused", Paused).is_paused

    def weight_version(self) -> str:
        """The label as served: "default" until a refit sets one. A label alone proves no weights."""
        return str(self.http.get("/weight_info", WeightVersion).weight_version)

    def world_size(self) -> int:
        return self.http.get("/get_world_size", WorldSize).world_size

    def pause(self, mode: PauseMode = "abort") -> None:
        self.http.order(f"/pause?mode={mode}")

    def resume(self) -> None:
        self.http.order("/resume")

    def has_open_update(self) -> bool:
        """Whether a weight update is open. No route tells, so one is opened, and closed again without a version.

        An engine that refuses for another reason has none; what that reason is shows at the first refit.
        """
        try:
            self.http.call("POST", "/start_weight_update")
        except HttpStatusError as refused:
            return refused.status == 500 and ALREADY_OPEN in (refused.found or "")
        self.http.call("POST", "/finish_weight_update", {})
        return False

    def reset_prefix_cache(self) -> None:
        self.http.order("/reset_prefix_cache")

    def checksums(self) -> dict[str, str]:
        """vLLM's own SHA-256 of every tensor that its workers still hold; that of nothing where they do not."""
        return self.http.post("/weight_checker", {"action": "checksum"}, Checksums).checksums

    def contents(self) -> list[RankContents]:
        """What each rank's model holds, in the trainer's terms: our worker extension tells it."""
        return self.http.post("/collective_rpc", {"method": "smokestack_contents"}, Contents).results

    def destroy_weights(self) -> None:
        """Make every weight zero, the repacked ones included. The next refit must bring all of them."""
        self.http.post("/collective_rpc", {"method": "smokestack_destroy"}, Obeyed)

    def generate(
        self, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], *, timeout_s: float | None = None
    ) -> Generated:
        """Token ids in, token ids out. Hangs until `timeout_s` while the engine is paused."""
        return _generate(self.http, model, token_ids, sampling, timeout_s)


@dataclass(frozen=True)
class SidecarControl:
    """The sidecar's system server: engine controls that it forwards over gRPC."""

    http: HttpClient

    def weight_version(self) -> str:
        return str(self.http.post("/engine/control/get_weight_version", {}, WeightVersion).weight_version)

    def is_paused(self) -> bool:
        return self.http.post("/engine/control/is_paused", {}, Paused).is_paused


@dataclass(frozen=True)
class FrontendClient:
    """The Dynamo frontend's public routes."""

    http: HttpClient

    def models(self) -> list[str]:
        return [entry.id for entry in self.http.get("/v1/models", ModelList).data]

    def chat(self, model: str, prompt: str, *, max_tokens: int, timeout_s: float | None = None) -> ChatCompletion:
        """One greedy chat completion with a single user message."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0.0,
        }
        answer = self.http.post("/v1/chat/completions", body, ChatAnswer, timeout_s=timeout_s)
        first = answer.choices[0]
        return ChatCompletion(
            text=first.message.content or "",
            finish_reason=first.finish_reason,
            completion_tokens=answer.usage.completion_tokens,
        )

    def generate(
        self, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], *, timeout_s: float | None = None
    ) -> Generated:
        return _generate(self.http, model, token_ids, sampling, timeout_s)


def _generate(
    http: HttpClient, model: str, token_ids: Sequence[int], sampling: Mapping[str, object], timeout_s: float | None
) -> Generated:
    body = {"model": model, "token_ids": list(token_ids), "sampling_params": dict(sampling)}
    return http.post("/inference/v1/generate", body, Generated, timeout_s=timeout_s)
