"""Typed clients of what the stack serves over HTTP: the engine's admin routes, the sidecar's controls, the frontend.

Synchronous, straight (no proxy, no redirect), with one time-out for each wait of a call (see `probes.fetch`), and never
more than `MAX_BODY_BYTES` of an answer. The admin routes carry no authentication of their own; headers and a key
are sent where a stack is configured to want them. Shapes: vLLM 0.32 (development mode) and Dynamo 1.6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from harness.answers import ChatAnswer, ChatCompletion, Generated, ModelList, Paused, Version, WeightVersion, WorldSize
from harness.errors import SmokestackError
from harness.probes import fetch

MAX_BODY_BYTES = 8 * 1024 * 1024
SHOWN_BODY_CHARS = 500

PauseMode = Literal["abort", "wait", "keep"]
Answer = TypeVar("Answer", bound=BaseModel)


class HttpStatusError(SmokestackError):
    """A request was not answered as it must be. `status` is None when there was no answer at all."""

    kind = "http"
    exit_code = 30

    def __init__(self, what: str, *, status: int | None, found: str, where: str) -> None:
        super().__init__(what, expected="HTTP 200", found=found, where=where)
        self.status = status


class HttpBodyError(SmokestackError):
    """A request was answered with 200 and a body that cannot be its answer."""

    kind = "http"
    exit_code = 30


def printable(body: bytes | str, limit: int = SHOWN_BODY_CHARS) -> str:
    """A server's text for a message: decoded leniently, control characters replaced, cut to `limit` characters."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body
    clean = " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())
    return clean if len(clean) <= limit else f"{clean[:limit]}… ({len(clean)} characters)"


@dataclass(frozen=True)
class HttpClient:
    """One base URL with its headers. `timeout_s` is that of `probes.fetch` and may be overridden per call."""

    base_url: str
    timeout_s: float = 10.0
    headers: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)

    def call(self, method: str, path: str, body: object = None, *, timeout_s: float | None = None) -> bytes:
        """Body of a request that must answer 200; raises HttpStatusError with the server's own text."""
        url = self.base_url + path
        try:
            answer = fetch(
                url,
                method=method,
                content=None if body is None else json.dumps(body, allow_nan=False).encode(),
                headers=self._headers(has_body=body is not None),
                timeout_s=timeout_s or self.timeout_s,
                limit_bytes=MAX_BODY_BYTES,
            )
        except httpx.TransportError as broken:
            reason = f"{type(broken).__name__}: {broken}"
            raise HttpStatusError(f"{method} {url} got no answer", status=None, found=reason, where=url) from broken
        if answer.status != 200:
            found = f"HTTP {answer.status}: {printable(answer.body)}"
            raise HttpStatusError(f"{method} {url} failed", status=answer.status, found=found, where=url)
        if answer.truncated:
            found = f"more than {MAX_BODY_BYTES} bytes"
            raise HttpStatusError(f"{method} {url} sent too much", status=answer.status, found=found, where=url)
        return answer.body

    def get(self, path: str, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        return self._parse(path, answer, self.call("GET", path, timeout_s=timeout_s))

    def post(self, path: str, body: object, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        return self._parse(path, answer, self.call("POST", path, body, timeout_s=timeout_s))

    def _headers(self, *, has_body: bool) -> dict[str, str]:
        headers = dict(self.headers)
        if has_body:
            headers["Content-Type"] = "application/json"
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def _parse(self, path: str, answer: type[Answer], content: bytes) -> Answer:
        try:
            return answer.model_validate_json(content)
        except ValidationError as invalid:
            problem = invalid.errors(include_url=False, include_input=False)[0]
            raise HttpBodyError(
                f"{self.base_url + path} answered something unexpected",
                expected=f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}",
                found=printable(content),
                where=self.base_url + path,
            ) from invalid


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
        self.http.call("POST", f"/pause?mode={mode}")

    def resume(self) -> None:
        self.http.call("POST", "/resume")

    def reset_prefix_cache(self) -> None:
        self.http.call("POST", "/reset_prefix_cache")

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
