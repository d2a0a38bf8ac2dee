"""An API key and further headers that every admin and rollout call of a run carries, and how they are kept to it.

Values come from the caller's environment, or (what is no secret) from the command line. Only where they came from is
ever written down. Imports nothing of the project but its errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from harness.errors import UsageError
from harness.plaintext import SHOWN_CHARACTERS, printable

AUTHORIZATION = "Authorization"
REFUSED = frozenset({401, 403})
"""Statuses that say: this key, or these headers, are not accepted."""

CONCEALED = "[concealed]"
SHORTEST_SECRET = 8
"""Characters. A shorter value could not be kept out of texts without spoiling them: it may be any word."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_KEY = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SECRET_NAMES = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
_OWN_NAMES = frozenset(
    {"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "accept-encoding"}
    | {"connection", "upgrade", "expect", "te", "trailer"}
)


@dataclass(frozen=True)
class Credentials:
    """`api_key` with the variable that it came from; `headers` by name, `sources` says of each where it came from."""

    api_key: str | None = field(default=None, repr=False)
    api_key_variable: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def given(
        cls,
        environment: Mapping[str, str],
        *,
        api_key_env: str | None,
        headers: Sequence[tuple[str, str]],
        headers_from_env: Sequence[tuple[str, str]],
    ) -> Credentials:
        """From the options: (name, value) and (name, variable). Raises UsageError for whatever could not be sent."""
        key = None if api_key_env is None else _api_key(api_key_env, environment)
        values: dict[str, str] = {}
        sources: dict[str, str] = {}
        for name, value in headers:
            _require_name(name, "--header", values, has_key=key is not None)
            if name.lower() in _SECRET_NAMES:
                raise UsageError(
                    f"--header {name}: a secret does not belong on a command line",
                    expected=f"--header-from-env {name}=VARIABLE",
                    found=f"--header {name}=… which every user of this machine can read",
                    hint=f"export VARIABLE with the value, then --header-from-env {name}=VARIABLE",
                )
            _require_value(value, f"--header {name}")
            values[name], sources[name] = value, "--header"
        for name, variable in headers_from_env:
            _require_name(name, "--header-from-env", values, has_key=key is not None)
            value = _variable(variable, environment, f"--header-from-env {name}={variable}")
            _require_value(value, f"the variable {variable}, for --header-from-env {name},")
            values[name], sources[name] = value, f"variable {variable}"
        return cls(key, api_key_env if key is not None else None, MappingProxyType(values), MappingProxyType(sources))

    def request_headers(self) -> dict[str, str]:
        """What each request carries."""
        key = {} if self.api_key is None else {AUTHORIZATION: f"Bearer {self.api_key}"}
        return {**self.headers, **key}

    def described(self) -> dict[str, str]:
        """Where each header comes from, by name: what may be written down."""
        key = {} if self.api_key is None else {AUTHORIZATION: f"API key of the variable {self.api_key_variable}"}
        return {**self.sources, **key}

    def refusal(self, status: int) -> str | None:
        """For people, when a server answered `status`: what it did not accept, and where that came from."""
        if status not in REFUSED:
            return None
        if self.api_key is not None:
            sent = f"the API key of the variable {self.api_key_variable} was sent and not accepted"
        elif self.headers:
            sent = "no API key was sent"
        else:
            return "no API key was sent: --api-key-env NAME sends that of a variable"
        others = ", ".join(f"{name} ({source})" for name, source in self.sources.items())
        return f"{sent}; further headers: {others}" if others else sent

    def conceal(self, text: str) -> str:
        """`text` without the secrets: a server may repeat what it was sent."""
        for secret in self._secrets():
            text = text.replace(secret, CONCEALED)
        return text

    def conceal_bytes(self, body: bytes) -> bytes:
        """The same for a body that is still to be read."""
        for secret in self._secrets():
            body = body.replace(secret.encode(), CONCEALED.encode())
        return body

    def shown(self, body: bytes, limit: int = SHOWN_CHARACTERS) -> str:
        """A server's text for a message; see `printable`. Concealed before it is cut, so that no half is left."""
        return printable(self.conceal(body.decode("utf-8", errors="replace")), limit)

    def _secrets(self) -> list[str]:
        """Longest first, so that no rest of one is left by another that is a part of it."""
        given = [value for name, value in self.headers.items() if self.sources.get(name) != "--header"]
        values = [*given, *([] if self.api_key is None else [self.api_key])]
        return sorted({value for value in values if len(value) >= SHORTEST_SECRET}, key=len, reverse=True)


NO_CREDENTIALS = Credentials()


def _api_key(variable: str, environment: Mapping[str, str]) -> str:
    key = _variable(variable, environment, f"--api-key-env {variable}")
    if len(key) < SHORTEST_SECRET or not _KEY.fullmatch(key):
        raise UsageError(
            f"--api-key-env {variable}: what is in that variable is no API key",
            expected=f"at least {SHORTEST_SECRET} characters, printable ASCII without spaces",
            found=f"{len(key)} characters" + ("" if _KEY.fullmatch(key) else ", some of others"),
            hint=f"export {variable} with the key alone: no quotes, no Bearer, no line end",
        )
    return key


def _variable(name: str, environment: Mapping[str, str], option: str) -> str:
    value = environment.get(name)
    if not value:
        raise UsageError(
            f"{option}: the variable {name} is {'not set' if value is None else 'empty'}",
            expected=f"{name} in the environment of this command",
            found="nothing" if value is None else "an empty value",
            hint=f"export {name}, then repeat the command",
        )
    return value


def _require_name(name: str, option: str, taken: Mapping[str, str], *, has_key: bool) -> None:
    others = {other.lower() for other in taken} | ({AUTHORIZATION.lower()} if has_key else set())
    if not _TOKEN.fullmatch(name):
        raise UsageError(
            f"{option}: what stands before the = is no name of a header",
            expected="letters, digits and -",
            found=f"{len(name)} characters, some of others",
            hint=f"write {option} NAME=…, without a colon or spaces",
        )
    if name.lower() in _OWN_NAMES:
        raise UsageError(
            f"{option}: {name} belongs to the request itself",
            expected="another header",
            found=name,
            hint=f"leave out {option} {name}=…",
        )
    if name.lower() in others:
        raise UsageError(
            f"{option}: {name} is given twice",
            expected="one source for each header",
            found=name,
            hint=f"leave out {option} {name}=…, or the option before it that gives the same header",
        )


def _require_value(value: str, where: str) -> None:
    if not _VALUE.fullmatch(value):
        raise UsageError(
            f"{where} holds what no header can carry",
            expected="printable ASCII, without spaces at its ends",
            found=f"{len(value)} characters, some of others" if value else "an empty value",
            hint="give it without line ends, spaces at its ends and letters that are not ASCII",
        )
