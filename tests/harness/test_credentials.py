"""Keys and headers: where they may come from, that every call carries them, and that they are written nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.admin import FrontendClient
from harness.bringup import observer_of
from harness.calling import HttpClient
from harness.cli import build_parser, main
from harness.config import RunConfig
from harness.credentials import CONCEALED, Credentials
from harness.dryrun import _shown
from harness.errors import UsageError
from harness.eventlog import EventLog
from harness.request import Request
from harness.services import engine, frontend, sidecar
from harness.services.context import ServiceContext
from harness.startup import discovery_probe
from harness.training import Plan
from tests.harness import fakes
from tests.harness.test_services import PORTS

KEY = "sk-very-secret-0123456789"
ENVIRONMENT = {"MY_KEY": KEY, "TRACE": "trace-0815-abcdef", "EMPTY": "", "SHORT": "abc", "LINES": "a\r\nX-Evil: 1"}


def credentials(
    key: str | None = None, headers: tuple[tuple[str, str], ...] = (), from_env: tuple[tuple[str, str], ...] = ()
) -> Credentials:
    return Credentials.given(ENVIRONMENT, api_key_env=key, headers=headers, headers_from_env=from_env)


FULL = credentials("MY_KEY", (("X-Tenant", "blue"),), (("X-Trace", "TRACE"),))


class TestGiven:
    def test_a_key_and_headers_from_both_sources_are_sent_together(self) -> None:
        assert FULL.request_headers() == {
            "Authorization": f"Bearer {KEY}",
            "X-Tenant": "blue",
            "X-Trace": "trace-0815-abcdef",
        }

    def test_only_where_they_came_from_is_told(self) -> None:
        assert FULL.described() == {
            "Authorization": "API key of the variable MY_KEY",
            "X-Tenant": "--header",
            "X-Trace": "variable TRACE",
        }
        assert KEY not in repr(FULL)
        assert "trace-0815" not in repr(FULL)

    def test_nothing_is_the_default(self) -> None:
        assert credentials().request_headers() == {}
        assert credentials().described() == {}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"key": "NOBODY"}, "is not set"),
            ({"key": "EMPTY"}, "is empty"),
            ({"key": "SHORT"}, "no API key"),
            ({"key": "LINES"}, "no API key"),
            ({"from_env": (("X-A", "NOBODY"),)}, "is not set"),
            ({"from_env": (("X-A", "LINES"),)}, "no header can carry"),
            ({"headers": (("X-A", "1"), ("x-a", "2"))}, "given twice"),
            ({"headers": (("X-A", "1"),), "from_env": (("X-a", "TRACE"),)}, "given twice"),
            ({"key": "MY_KEY", "from_env": (("authorization", "TRACE"),)}, "given twice"),
            ({"headers": (("Authorization", "Bearer x"),)}, "does not belong on a command line"),
            ({"headers": (("X-API-Key", "x"),)}, "does not belong on a command line"),
            ({"headers": (("Host", "x"),)}, "belongs to the request"),
            ({"from_env": (("content-length", "TRACE"),)}, "belongs to the request"),
            ({"headers": (("X A", "1"),)}, "no name of a header"),
            ({"headers": (("X-A:", "1"),)}, "no name of a header"),
            ({"headers": (("X-A", "a\nb"),)}, "no header can carry"),
            ({"headers": (("X-A", " a"),)}, "no header can carry"),
            ({"headers": (("X-A", "ü"),)}, "no header can carry"),
        ],
    )
    def test_what_cannot_be_sent_is_refused_without_being_shown(self, given: Any, said: str) -> None:
        with pytest.raises(UsageError, match=said) as caught:
            credentials(**given)
        assert caught.value.hint, "what to type instead"
        assert "Evil" not in str(caught.value)
        assert "Bearer x" not in str(caught.value)

    def test_a_header_of_its_own_may_take_the_keys_place(self) -> None:
        own = credentials(from_env=(("Authorization", "TRACE"),))
        assert own.request_headers() == {"Authorization": "trace-0815-abcdef"}


class TestCommandLine:
    def test_the_options_reach_the_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MY_KEY", KEY)
        monkeypatch.setenv("TRACE", "trace-0815-abcdef")
        for command in ("smoke", "up"):
            options = ["--api-key-env", "MY_KEY", "--header", "X-Tenant=blue", "--header-from-env", "X-Trace=TRACE"]
            asked = Request.from_args(build_parser().parse_args([command, *options]))
            assert asked.credentials == FULL
            assert KEY not in repr(asked)

    @pytest.mark.parametrize(
        "options", [["--api-key-env", "NOBODY"], ["--header-from-env", "X-A=NOBODY"], ["--header", "Cookie=x"]]
    )
    def test_what_is_not_set_is_refused_at_once(
        self, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("NOBODY", raising=False)
        assert main(["smoke", *options]) == 2
        assert options[0] in capsys.readouterr().err

    @pytest.mark.parametrize("option", ["--header", "--header-from-env"])
    @pytest.mark.parametrize("value", ["X-A", "X-A=", "=x"])
    def test_half_a_header_is_a_usage_error(self, option: str, value: str) -> None:
        with pytest.raises(SystemExit):
            build_parser().parse_args(["smoke", option, value])


class TestCarried:
    def context(self, root: Path) -> ServiceContext:
        made = fakes.context(root, ports=PORTS)
        return ServiceContext(made.config, made.manifest, made.caller, FULL)

    def test_the_engine_gets_the_key_by_its_environment_and_no_argument(self, tmp_path: Path) -> None:
        spec = engine.spec(self.context(tmp_path), 0)
        assert spec.env["VLLM_API_KEY"] == KEY
        assert KEY not in " ".join(spec.argv)
        assert "VLLM_API_KEY" not in engine.spec(fakes.context(tmp_path, ports=PORTS), 0).env

    def test_no_other_service_is_given_it(self, tmp_path: Path) -> None:
        context = self.context(tmp_path)
        for spec in (frontend.spec(context), sidecar.spec(context, 0)):
            assert KEY not in repr((spec.argv, dict(spec.env)))

    def test_every_probe_of_the_stack_carries_it(self, tmp_path: Path) -> None:
        context = self.context(tmp_path)
        specs = (engine.spec(context, 0), frontend.spec(context), sidecar.spec(context, 0))
        asking = [probe for spec in specs for probe in spec.probes if hasattr(probe, "url")]
        asking += [frontend.model_probe(context), discovery_probe(context)]
        assert len(asking) == 6
        assert all(probe.credentials == FULL for probe in asking)  # type: ignore[attr-defined]

    def test_the_observer_carries_it(self, tmp_path: Path) -> None:
        class Ready:
            context = self.context(tmp_path)
            topology = None

            def watch(self) -> None:
                """Nothing runs here."""

        class Open:
            config = Ready.context.config
            clock = None

        assert observer_of(Open(), Ready()).credentials == FULL  # type: ignore[arg-type]

    def test_every_call_of_a_client_carries_it(self, httpserver: Any) -> None:
        answer = {"choices": [{"message": {"content": "7"}}], "usage": {"completion_tokens": 1}}
        wanted = FULL.request_headers()
        httpserver.expect_request("/v1/chat/completions", headers=wanted).respond_with_json(answer)
        client = FrontendClient(HttpClient(httpserver.url_for("").rstrip("/"), credentials=FULL))
        assert client.chat("tiny", "3+4=", max_tokens=1).text == "7"

    def test_the_trainer_hears_of_it_over_its_pipe_alone(self) -> None:
        plan = Plan("http://f", "tiny", [], 2, "127.0.0.1", 1, FULL.request_headers(), FULL.described())
        assert plan.command()["headers"] == FULL.request_headers()
        assert KEY not in repr(plan)

    def test_a_dry_run_names_the_variable(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("MY_KEY", KEY)
        asked = Request.from_args(build_parser().parse_args(["up", "--api-key-env", "MY_KEY"]))
        shown = _shown(engine.spec(self.context(tmp_path), 0).env, asked)
        assert shown["VLLM_API_KEY"] == "<value of MY_KEY>"
        assert KEY not in repr(shown)


class TestWrittenNowhere:
    def test_the_configuration_has_names_and_sources(self, tmp_path: Path) -> None:
        made = fakes.context(tmp_path, ports=PORTS, headers=FULL.described()).config
        assert isinstance(made, RunConfig)
        assert made.headers["Authorization"] == "API key of the variable MY_KEY"
        assert KEY not in made.model_dump_json()

    def test_an_event_that_repeats_it_is_recorded_without(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        with EventLog(path, monotonic=lambda: 0.0, conceal=FULL.conceal) as log:
            log.emit("failure", error={"found": f"HTTP 401: Bearer {KEY}"}, errors={f"x {KEY}": 1}, numbers=[1.5])
        [kept] = log.events
        assert kept["error"] == {"found": f"HTTP 401: Bearer {CONCEALED}"}
        assert kept["numbers"] == [1.5]
        assert KEY not in path.read_text()
        assert json.loads(path.read_text())["errors"] == {f"x {CONCEALED}": 1}

    def test_an_errors_texts_are_rewritten_before_they_are_told(self) -> None:
        error = UsageError(f"a {KEY}", expected=KEY, found=None, hint=f"try {KEY}")
        error.rewrite(FULL.conceal)
        assert KEY not in str(error)
        assert (error.found, error.hint) == (None, f"try {CONCEALED}")

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=20), st.text(max_size=20), st.integers(1, 60))
    def test_no_cut_leaves_half_of_it(self, before: str, after: str, limit: int) -> None:
        shown = FULL.shown(f"{before}{KEY}{after}".encode(errors="replace"), limit)
        assert KEY[:12] not in shown
