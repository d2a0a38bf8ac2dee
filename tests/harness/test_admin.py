"""The clients say what a server answered, bounded in time and size, and go straight to it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from harness import calling
from harness.admin import EngineAdmin, FrontendClient, Progress, SidecarControl
from harness.answers import GeneratedChoice
from harness.calling import HttpBodyError, HttpClient, HttpStatusError
from harness.credentials import NO_CREDENTIALS, Credentials
from harness.errors import SmokestackError
from harness.plaintext import SHOWN_CHARACTERS, printable


def client(server: HTTPServer, **options: object) -> HttpClient:
    return HttpClient(server.url_for("").rstrip("/"), **{"credentials": NO_CREDENTIALS, **options})  # type: ignore[arg-type]


class TestErrors:
    def test_the_servers_own_text_is_kept(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/is_paused").respond_with_data("start_weight_update\x1b[0m first\n", status=500)
        with pytest.raises(HttpStatusError) as caught:
            EngineAdmin(client(httpserver)).is_paused()
        assert caught.value.status == 500
        assert caught.value.found == "HTTP 500: start_weight_update first"
        assert caught.value.where == httpserver.url_for("/is_paused")

    def test_no_answer_has_no_status(self) -> None:
        with pytest.raises(HttpStatusError, match="no answer") as caught:
            EngineAdmin(HttpClient("http://127.0.0.1:1", credentials=NO_CREDENTIALS)).is_paused()
        assert caught.value.status is None

    def test_a_call_that_hangs_ends_at_its_time_out(self, httpserver: HTTPServer) -> None:
        def slow(_request: Request) -> Response:
            time.sleep(0.6)
            return Response("{}")

        httpserver.expect_request("/inference/v1/generate").respond_with_handler(slow)
        began = time.monotonic()
        with pytest.raises(HttpStatusError, match="no answer"):
            EngineAdmin(client(httpserver)).generate("tiny", [1], {}, timeout_s=0.1)
        assert time.monotonic() - began < 0.5

    def test_an_answer_of_another_shape_is_shown(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/is_paused").respond_with_json({"paused": False})
        with pytest.raises(SmokestackError, match="unexpected") as caught:
            EngineAdmin(client(httpserver)).is_paused()
        assert caught.value.expected == "is_paused: Field required"
        assert '"paused"' in (caught.value.found or "")

    def test_a_body_without_end_is_refused(self, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calling, "MAX_BODY_BYTES", 1000)
        httpserver.expect_request("/is_paused").respond_with_data(b"x" * 5000)
        with pytest.raises(HttpStatusError, match="too much"):
            EngineAdmin(client(httpserver)).is_paused()

    def test_a_redirect_is_a_failure(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/is_paused").respond_with_data(status=307, headers={"Location": "/health"})
        with pytest.raises(HttpStatusError) as caught:
            EngineAdmin(client(httpserver)).is_paused()
        assert caught.value.status == 307

    def test_long_texts_are_cut(self) -> None:
        assert printable("x" * 900, limit=10) == "xxxxxxxxxx… (900 characters)"


class TestRequests:
    def test_a_proxy_of_the_environment_is_not_used(
        self, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        httpserver.expect_request("/is_paused").respond_with_json({"is_paused": True})
        assert EngineAdmin(client(httpserver)).is_paused() is True

    def test_headers_and_key_are_sent(self, httpserver: HTTPServer) -> None:
        wanted = {"X-Tenant": "a", "Authorization": "Bearer secret"}
        httpserver.expect_request("/v1/models", headers=wanted).respond_with_json({"data": [{"id": "tiny"}]})
        http = client(
            httpserver, credentials=Credentials("secret", "MY_KEY", {"X-Tenant": "a"}, {"X-Tenant": "--header"})
        )
        assert FrontendClient(http).models() == ["tiny"]

    def test_the_key_is_not_printed(self) -> None:
        assert "secret" not in repr(HttpClient("http://127.0.0.1:1", credentials=Credentials("secret", "MY_KEY")))


class TestAnswers:
    @pytest.mark.parametrize(("served", "label"), [("default", "default"), ("3", "3"), (3, "3")])
    def test_labels_are_strings_as_served(self, httpserver: HTTPServer, served: object, label: str) -> None:
        httpserver.expect_request("/weight_info").respond_with_json({"weight_version": served})
        assert EngineAdmin(client(httpserver)).weight_version() == label

    def test_world_size_and_pause(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/get_world_size").respond_with_json({"world_size": 2})
        httpserver.expect_request("/is_paused").respond_with_json({"is_paused": True})
        engine = EngineAdmin(client(httpserver))
        assert (engine.world_size(), engine.is_paused()) == (2, True)

    def test_the_sidecars_controls_are_posts(self, httpserver: HTTPServer) -> None:
        for route, answer in (("get_weight_version", {"weight_version": "2"}), ("is_paused", {"is_paused": False})):
            httpserver.expect_request(f"/engine/control/{route}", method="POST", json={}).respond_with_json(answer)
        sidecar = SidecarControl(client(httpserver))
        assert (sidecar.weight_version(), sidecar.is_paused()) == ("2", False)

    def test_a_chat_is_greedy_and_flattened(self, httpserver: HTTPServer) -> None:
        asked: list[dict[str, object]] = []

        def answer(request: Request) -> Response:
            asked.append(json.loads(request.data))
            choice = {"message": {"role": "assistant", "content": "7"}, "finish_reason": "stop"}
            return Response(json.dumps({"choices": [choice], "usage": {"completion_tokens": 2}}))

        httpserver.expect_request("/v1/chat/completions").respond_with_handler(answer)
        found = FrontendClient(client(httpserver)).chat("tiny", "3+4=", max_tokens=5)
        assert (found.text, found.finish_reason, found.completion_tokens) == ("7", "stop", 2)
        assert asked[0]["temperature"] == 0.0
        assert asked[0]["max_tokens"] == 5

    @pytest.mark.parametrize(
        "entry",
        [{"token_id": 5, "logprob": -0.5, "rank": 1}, {"token": "token_id:5", "logprob": -0.5}],
        ids=["engine", "frontend"],
    )
    def test_engine_and_frontend_generate_in_the_same_shape(
        self, httpserver: HTTPServer, entry: dict[str, object]
    ) -> None:
        choice = {"token_ids": [5], "finish_reason": "length", "logprobs": {"content": [entry]}}
        httpserver.expect_request("/inference/v1/generate").respond_with_json({"choices": [choice]})
        found = EngineAdmin(client(httpserver)).generate("tiny", [1, 2], {"max_tokens": 1})
        assert found.choices[0].token_logprobs() == [-0.5]

    def test_nan_is_not_sent(self, httpserver: HTTPServer) -> None:
        with pytest.raises(ValueError, match="JSON"):
            EngineAdmin(client(httpserver)).generate("tiny", [1], {"temperature": float("nan")})


class TestOrders:
    """What is told to be done is done when the engine says so, and not when anything else answers."""

    @pytest.mark.parametrize("body", [b"", b"\n", b'{"status": "paused"}', b"{}"])
    def test_no_body_or_an_object_that_is_no_error_is_done(self, httpserver: HTTPServer, body: bytes) -> None:
        httpserver.expect_request("/pause", method="POST").respond_with_data(body)
        EngineAdmin(client(httpserver)).hold()
        assert [request.path for request, _ in httpserver.log] == ["/pause"]

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (b"<html>welcome</html>", "JSON"),
            (b"OK", "JSON"),
            (b"\xff", "JSON"),
            (b'{"status": "resu', "JSON"),
            (b'"resumed"', "an object"),
            (b"null", "an object"),
            (b"[]", "an object"),
            (b'{"success": false}', "no error"),
            (b'{"error": "not now"}', "no error"),
            (b'{"status": "failed"}', "no error"),
        ],
    )
    def test_anything_else_is_no_engines_and_is_shown(self, httpserver: HTTPServer, body: bytes, expected: str) -> None:
        httpserver.expect_request("/resume", method="POST").respond_with_data(body)
        with pytest.raises(HttpBodyError, match="answered something unexpected") as caught:
            EngineAdmin(client(httpserver)).resume()
        assert expected in (caught.value.expected or "")
        assert caught.value.found == body.decode(errors="replace")


class TestStreams:
    """Answers that are read as they come, within the same bounds as all others."""

    TOKENS = b'data: {"choices": [{"token_ids": [5, 6]}]}\n\ndata:{"choices": [{"token_ids": [7]}]}\n\n: note\n\n'
    DONE = b"data: [DONE]\n\n"

    def generated(self, server: HTTPServer, body: bytes, status: int = 200) -> tuple[GeneratedChoice, Progress]:
        server.expect_request("/inference/v1/generate").respond_with_data(body, status=status)
        progress = Progress()
        return EngineAdmin(client(server)).generate_streamed("tiny", [1], {}, progress), progress

    def test_tokens_are_counted_as_they_come_and_kept_together(self, httpserver: HTTPServer) -> None:
        span = {"version": "3", "start": 0, "end": 3}
        last = {"choices": [{"token_ids": [], "finish_reason": "length", "weight_versions": [span]}]}
        body = self.TOKENS + b"data: " + json.dumps(last).encode() + b"\n\n" + self.DONE + b"data: ignored\n\n"
        choice, progress = self.generated(httpserver, body)
        assert (choice.token_ids, choice.finish_reason, progress.pieces) == ([5, 6, 7], "length", 3)
        assert [part.model_dump() for part in choice.weight_versions or []] == [span]

    def test_a_frontends_pieces_of_text_and_its_count_of_tokens(self, httpserver: HTTPServer) -> None:
        parts: list[Any] = [
            {"choices": [{"text": "a", "finish_reason": None}]},
            {"choices": [{"text": "", "finish_reason": "stop"}], "usage": None},
            {"choices": [], "usage": {"completion_tokens": 9}},
        ]
        body = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts) + self.DONE
        httpserver.expect_request("/v1/completions").respond_with_data(body)
        progress = Progress()
        answer = FrontendClient(client(httpserver)).complete_streamed("tiny", [1], {}, progress)
        assert (answer.tokens, answer.finish_reason, progress.pieces) == (9, "stop", 3)

    def test_a_refusal_has_the_servers_words(self, httpserver: HTTPServer) -> None:
        with pytest.raises(HttpStatusError) as caught:
            self.generated(httpserver, b"request was\ncancelled", status=499)
        assert (caught.value.status, caught.value.found) == (499, "HTTP 499: request was cancelled")

    def test_a_stream_that_breaks_off_is_no_answer(self, httpserver: HTTPServer) -> None:
        with pytest.raises(HttpBodyError, match="broke off") as caught:
            self.generated(httpserver, b": note\n\n" + self.TOKENS)
        assert caught.value.found == "an end after 2"

    @pytest.mark.parametrize(
        ("body", "shown"),
        [
            (b"", "no body"),
            (b"\r\n\n", "no body"),
            (b'{"error":\n"\x1b[31mno room"}', '{"error": "no room"}'),
            (b"<html>\n<p>welcome</p>", "<html> <p>welcome</p>"),
            (b"x" * 5000, f"{'x' * SHOWN_CHARACTERS}… (5000 characters)"),
        ],
        ids=["empty", "blank", "json", "html", "long"],
    )
    def test_an_answer_without_any_event_is_shown(self, httpserver: HTTPServer, body: bytes, shown: str) -> None:
        with pytest.raises(HttpBodyError, match="sent no events") as caught:
            self.generated(httpserver, body)
        assert caught.value.found == shown

    def test_an_event_that_is_no_answer_is_shown(self, httpserver: HTTPServer) -> None:
        with pytest.raises(HttpBodyError) as caught:
            self.generated(httpserver, b"data: oops\n\n" + self.DONE)
        assert caught.value.found == "oops"

    def test_a_stream_without_end_is_refused(self, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calling, "MAX_BODY_BYTES", 1000)
        with pytest.raises(HttpStatusError, match="too much"):
            self.generated(httpserver, b"x" * 5000)

    def test_a_server_that_is_not_there_has_no_status(self) -> None:
        engine = EngineAdmin(HttpClient("http://127.0.0.1:1", credentials=NO_CREDENTIALS))
        with pytest.raises(HttpStatusError, match="no answer") as caught:
            engine.generate_streamed("tiny", [1], {}, Progress())
        assert caught.value.status is None


def test_what_came_from_the_cache_is_0_where_the_engine_counts_none(httpserver: HTTPServer) -> None:
    answer = {"choices": [{"logprobs": {"token_logprobs": [-0.5]}}], "usage": {"prompt_tokens": 3}}
    httpserver.expect_request("/v1/completions").respond_with_json(answer)
    first = EngineAdmin(client(httpserver)).first_token("tiny", [1, 2, 3])
    assert (first.cached_tokens, first.first_logprob, first.usage.prompt_tokens) == (0, -0.5, 3)


@pytest.mark.parametrize(
    ("logprob", "cached"), [(0.5, 0), ("NaN", 0), (-0.5, -1), (-0.5, True), (-0.5, "256")], ids=str
)
def test_a_first_token_with_impossible_numbers_is_refused(
    logprob: object, cached: object, httpserver: HTTPServer
) -> None:
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": cached}}
    answer = {"choices": [{"logprobs": {"token_logprobs": [logprob]}}], "usage": usage}
    httpserver.expect_request("/v1/completions").respond_with_json(answer)
    with pytest.raises(HttpBodyError):
        EngineAdmin(client(httpserver)).first_token("tiny", [1, 2, 3])
