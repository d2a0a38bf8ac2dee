"""What the user sees: plain lines or a live view, a summary in 80 columns, a failure that says what to do."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as RichConsole

from harness import events
from harness.credentials import NO_CREDENTIALS
from harness.evidence import CHECKS
from harness.plaintext import plain
from harness.report.console import Console, wants_plain
from harness.report.failure import failure_body
from harness.report.progress import Progress
from harness.report.verdict import judge_run
from tests.harness.event_factory import Fields, edited, failure, passing_run, run_config, the, without

SOUND = passing_run()
ESCAPE = "\x1b"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)


def shown(run: list[Fields], stream: io.StringIO | None = None, **options: Any) -> str:
    stream = stream or io.StringIO()
    config = run_config(Path.cwd() / "runs" / "r1")
    with Console(stream, clock=lambda: 0.0, **options) as console:
        for event in run:
            console.on_event(event)
        console.summary(judge_run(run, config))
    return stream.getvalue()


def test_without_a_terminal_every_line_is_plain_and_carries_its_time() -> None:
    text = shown(SOUND)
    assert ESCAPE not in text
    assert "[  15.0s] engine-0 ready (28.1 s)\n" in text
    assert "step 2: reward 0.500, loss -0.0200 (1.6 s)" in text
    assert "version 4: engine says 4, sidecar says 4" in text


def test_plain_output_is_narrow_ascii_without_trailing_blanks() -> None:
    for line in shown(SOUND).splitlines():
        assert len(line) <= 80
        assert line == line.rstrip()
        assert line.isascii()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [("TERM", "xterm", False), ("TERM", "dumb", True), ("NO_COLOR", "1", True), ("NO_COLOR", "", False)],
)
def test_the_users_environment_chooses_between_live_and_plain(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: bool
) -> None:
    monkeypatch.setenv(variable, value)
    assert wants_plain(Terminal()) is expected
    assert wants_plain(io.StringIO()) is True


def test_on_a_terminal_the_same_words_come_in_colour() -> None:
    text = shown(SOUND, Terminal())
    assert ESCAPE in text
    readable = plain(text)
    for words in ("engine-0 ready (28.1 s)", "PASS  policy versions 0 1 2 3 4", "waiting for engine-0"):
        assert words in readable


def test_the_live_line_is_gone_and_the_cursor_is_back_after_an_exception() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Console(stream, clock=lambda: 0.0) as console:
        console.on_event(SOUND[0])
        raise KeyboardInterrupt
    assert stream.getvalue().count(f"{ESCAPE}[?25h") == stream.getvalue().count(f"{ESCAPE}[?25l") == 1


class Gone(Terminal):
    """A terminal that was closed after its first lines."""

    def write(self, text: str) -> int:
        if self.tell() > 200:
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.mark.parametrize("plain_output", [True, False])
def test_a_terminal_that_goes_away_ends_nothing(plain_output: bool) -> None:
    assert len(shown(SOUND, Gone(), plain=plain_output)) < 1000


def test_a_quiet_run_still_warns() -> None:
    stream = io.StringIO()
    with Console(stream, quiet=True) as console:
        console.note("nothing of interest")
        console.warn("junit.xml could not be written")
    assert stream.getvalue().split() == ["junit.xml", "could", "not", "be", "written"]


def test_a_log_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.log").write_text("secret")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "x.log (cannot be read: Permission denied)" in failure_body(
        failure(log="x.log").error, tmp_path, NO_CREDENTIALS.conceal
    )


def test_the_summary_has_a_row_for_each_version_and_each_check() -> None:
    text = shown(SOUND)
    rows = re.findall(r"^ +([0-4]) .* (0\.1\d s)$", text, flags=re.MULTILINE)
    assert rows == [(str(version), f"0.1{version} s") for version in range(5)]
    assert len(re.findall(r"^PASS  [a-z]+\.[a-z-]+  ", text, flags=re.MULTILINE)) == len(CHECKS)


def test_the_verdict_comes_last_with_the_path_of_the_evidence_relative_to_here() -> None:
    assert shown(SOUND).endswith(
        f"PASS  policy versions 0 1 2 3 4, {SOUND[-1]['t']:.1f} s\n"
        "      install 0.4 s, ready 31.2 s, train 11.7 s, teardown 2.4 s\n"
        "      evidence in runs/r1\n"
    )


def test_quiet_leaves_the_outcome() -> None:
    assert len(shown(SOUND, quiet=True).splitlines()) == 4


def test_a_failed_check_is_explained_once_below_the_table() -> None:
    text = shown(without(SOUND, "generation", when="after"))
    assert re.search(r"^FAIL  generation\.after-update +no evidence: ", text, flags=re.MULTILINE)
    assert text.count("FAIL generation.after-update") == 1
    assert "  found     no evidence: no generation after the last refit\n" in text


def failed_run(run_dir: Path) -> list[Fields]:
    log = run_dir / "logs" / "engine-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(60)))
    return [*SOUND[:20], failure(log=str(log)).fields()]


def test_a_failure_says_what_was_expected_and_found_shows_the_log_and_what_to_do() -> None:
    text = shown(failed_run(Path.cwd() / "runs" / "r1"))
    assert "ERROR refit: refit 2 failed: the engine refused an update\n" in text
    assert "  expected  HTTP 200 from POST /update_weights\n" in text
    assert "  found     HTTP 500: no parameter named model.layers.7.mlp\n" in text
    assert "  log       runs/r1/logs/engine-0.log (last 40 lines)\n    | line 20\n" in text
    assert "    | line 59\n  fix       send the names that the engine's model has\n" in text
    assert "line 19\n" not in text


def test_a_log_that_is_not_there_is_said_to_be_empty(tmp_path: Path) -> None:
    assert "gone.log (nothing in it)" in failure_body(
        failure(log="logs/gone.log").error, tmp_path, NO_CREDENTIALS.conceal
    )


def test_a_fix_of_several_lines_stays_as_it_was_written(tmp_path: Path) -> None:
    command = "./noxw -s doctor -- " + "--stack cpu " * 10
    body = failure_body(failure(hint=f"first run\n{command}").error, tmp_path, NO_CREDENTIALS.conceal)
    assert body.endswith(f"  fix       first run\n            {command}")


def test_escapes_of_other_programs_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("\x1b[2J\x1b]0;title\x07gone \x9b31m\n")
    body = failure_body(failure(log="x.log", found="\x1b[1mbold\x1b[0m").error, tmp_path, NO_CREDENTIALS.conceal)
    assert ESCAPE not in body
    assert "    | gone 31m" in body
    assert "  found     bold" in body


def test_an_event_that_cannot_be_read_is_shown_and_ends_nothing() -> None:
    text = shown(edited(SOUND, lambda run: the(run, "topology").update(surprise=1)))
    assert "unreadable event 'topology': surprise: Extra inputs are not permitted" in text


def test_markup_in_a_models_answer_is_only_text() -> None:
    run = edited(SOUND, lambda run: the(run, "generation", when="after").update(text="[red]7[/red] :smile:"))
    assert "'[red]7[/red] :smile:'" in shown(run)


def test_a_run_that_did_not_pass_says_so_with_its_exit_status() -> None:
    of = f"1 of {len(CHECKS)} checks"
    assert f"\nFAIL  {of}, exit status 1, policy versions 0 1 2 3 4, {SOUND[-1]['t']:.1f} s\n" in shown(
        without(SOUND, "generation", when="after")
    )
    assert "\nERROR  refit, exit status 40, policy versions none, " in shown([SOUND[0], failure().fields()])


def test_the_live_line_says_what_the_run_is_doing() -> None:
    text = plain(shown(SOUND, Terminal()))
    for words in (
        "train  0 s  refit 0",
        "train  0 s  step 1 of 4",
        "train  0 s  a refit to the same weights",
        "train  0 s  a last generation",
        "teardown  0 s",
    ):
        assert words in text
    assert "None" not in text
    assert "step 5" not in text


def test_the_live_line_tells_the_refits_of_the_perturbation_apart() -> None:
    progress, said = Progress(lambda: 0.0), []
    for fields in SOUND:
        progress.follow(events.parse_fields(fields))
        if fields["kind"].startswith("perturbation"):
            view = io.StringIO()
            RichConsole(file=view, width=80).print(progress)
            said.append(view.getvalue().split("  ")[-1].strip())
    assert said == [
        "observing the repeated weights",
        "a refit to perturbed weights",
        "observing the perturbed weights",
        "a refit back",
        "observing the restored weights",
        "a last generation",
    ]


def test_the_live_line_tells_of_an_adapter_where_one_is_tried() -> None:
    progress, said = Progress(lambda: 0.0), []
    for fields in passing_run(run_config(lora=True)):
        progress.follow(events.parse_fields(fields))
        if fields["kind"] in {"perturbation.observed", "adapter", "adapter.observed"}:
            view = io.StringIO()
            RichConsole(file=view, width=80).print(progress)
            said.append(view.getvalue().split("  ")[-1].strip())
    assert said[-3:] == ["a LoRA adapter", "trying the LoRA adapter", "a last generation"]
