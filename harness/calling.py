"""One call over HTTP that must be answered with 200 and a body of the expected shape, or is an error of the run.

Synchronous, straight (no proxy, no redirect), with one time-out for the whole call (see `fetching`), and never more
than `MAX_BODY_BYTES` of an answer. A 200 that says of itself that it is an error is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from harness.credentials import Credentials
from harness.errors import SmokestackError
from harness.fetching import fetch, streamed
from harness.plaintext import printable
from harness.strictjson import decode

MAX_BODY_BYTES = 8 * 1024 * 1024
EVENT, END_OF_EVENTS = b"data:", b"[DONE]"

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
            raise _no_answer(method, url, broken) from broken
        if answer.status != 200:
            raise self._refused(method, url, answer.status, answer.body)
        if answer.truncated:
            raise _too_much(method, url)
        return answer.body

    def events(self, path: str, body: object) -> Iterator[bytes]:
        """The data of each server-sent event that a POST is answered with, as it comes.

        Raises HttpStatusError, and HttpBodyError for a stream that ends without saying that it does, or is none.
        """
        url = self.base_url + path
        content = json.dumps(body, allow_nan=False).encode()
        headers = {**self.credentials.request_headers(), "Content-Type": "application/json"}
        count, instead = 0, []
        try:
            with streamed(url, method="POST", content=content, headers=headers, timeout_s=self.timeout_s) as answer:
                status, chunks = answer
                lines = whole_lines(chunks, url)
                if status != 200:
                    raise self._refused("POST", url, status, b" ".join(lines))
                for line in lines:
                    data = line.removeprefix(EVENT).strip()
                    if not line.startswith(EVENT):
                        instead += [] if count else [line]
                    elif data == END_OF_EVENTS:
                        return
                    else:
                        count += 1
                        yield data
        except httpx.TransportError as broken:
            raise _no_answer("POST", url, broken) from broken
        raise self._without_end(url, count, b" ".join(instead))

    def get(self, path: str, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        return self.parse(path, answer, self.call("GET", path, timeout_s=timeout_s))

    def post(self, path: str, body: object, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        return self.parse(path, answer, self.call("POST", path, body, timeout_s=timeout_s))

    def order(self, path: str) -> None:
        """A POST whose answer says nothing but that it was done: no body, or an object such as {"status": "paused"}.

        Raises HttpBodyError when it says the opposite, and for what no engine answers: a page, a word.
        """
        content = self.call("POST", path)
        if not content.strip():
            return
        try:
            document = decode(content)
        except ValueError as broken:
            raise self._unexpected(path, content, f"JSON ({printable(str(broken), 200)})") from broken
        if not isinstance(document, dict):
            raise self._unexpected(path, content, "an object, or no body at all")
        if says_error(document):
            raise self._unexpected(path, content, "an answer that is no error")

    def parse(self, path: str, answer: type[Answer], content: bytes) -> Answer:
        """`content`, which `path` sent, as an `answer`; raises HttpBodyError when it cannot be one."""
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

    def _refused(self, method: str, url: str, status: int, body: bytes) -> HttpStatusError:
        return HttpStatusError(
            f"{method} {url} failed",
            status=status,
            found=f"HTTP {status}: {self.credentials.shown(body)}",
            where=url,
            hint=self.credentials.refusal(status),
        )

    def _without_end(self, url: str, count: int, instead: bytes) -> HttpBodyError:
        expected = "events up to the last, [DONE]"
        if count:
            return HttpBodyError(f"{url} broke off", expected=expected, found=f"an end after {count}", where=url)
        found = self.credentials.shown(instead) or "no body"
        return HttpBodyError(f"{url} sent no events", expected=expected, found=found, where=url)

    def _unexpected(self, path: str, content: bytes, expected: str) -> HttpBodyError:
        url = self.base_url + path
        found = self.credentials.shown(content)
        return HttpBodyError(f"{url} answered something unexpected", expected=expected, found=found, where=url)


def whole_lines(chunks: Iterator[bytes], url: str) -> Iterator[bytes]:
    """Whole lines out of pieces; raises HttpStatusError for more than `MAX_BODY_BYTES` of them."""
    rest, size = b"", 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _too_much("POST", url)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    yield rest


def _too_much(method: str, url: str) -> HttpStatusError:
    found = f"more than {MAX_BODY_BYTES} bytes"
    return HttpStatusError(f"{method} {url} sent too much", status=200, found=found, where=url)


def _no_answer(method: str, url: str, broken: httpx.TransportError) -> HttpStatusError:
    reason = f"{type(broken).__name__}: {printable(str(broken))}"
    return HttpStatusError(f"{method} {url} got no answer", status=None, found=reason, where=url)


def says_error(document: object) -> bool:
    """Whether an answer that came with status 200 says of itself that the request failed."""
    if not isinstance(document, dict):
        return False
    status = document.get("status")
    failed = status in ("error", "failed", "failure") if isinstance(status, str) else _is_error_code(status)
    return bool(document.get("error")) or document.get("success") is False or failed


def _is_error_code(status: object) -> bool:
    return isinstance(status, int) and not isinstance(status, bool) and status >= 400
