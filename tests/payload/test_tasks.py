"""Sums as prompts, and which completions count as right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from smokestack_payload.tasks import DIGITS, PRODUCTS, WORDS, probe_problems, task_for


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("18", 18), ("007", 7)])
def test_digits_take_a_bare_number(text: str, number: int) -> None:
    assert DIGITS.parse(text) == number


@pytest.mark.parametrize("text", ["", " 7", "7 ", "7a", "-7", "7.0", "+7", "\N{ARABIC-INDIC DIGIT SEVEN}", "1" * 10])
def test_digits_take_nothing_else(text: str) -> None:
    assert DIGITS.parse(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("The answer is 42.", 42),
        ("11 + 31 = 42", 42),
        ("1,042", 1042),
        ("-3", -3),
        ("It is 42.5", None),
        ("no idea", None),
    ],
)
def test_words_take_the_last_whole_number(text: str, number: int | None) -> None:
    assert WORDS.parse(text) == number


def test_a_reward_is_one_for_the_right_sum_and_zero_for_anything_else() -> None:
    problem = DIGITS.problem(3, 4)
    assert problem.prompt == "3+4="
    assert [DIGITS.reward(problem, text) for text in ("7", "8", "", "7!")] == [1.0, 0.0, 0.0, 0.0]


def test_problems_repeat_for_a_seed_and_differ_between_seeds() -> None:
    assert DIGITS.sample(8, 1) == DIGITS.sample(8, 1)
    assert DIGITS.sample(8, 1) != DIGITS.sample(8, 2)
    assert len({problem.prompt for problem in DIGITS.sample(100, 3)}) == 100
    assert len(DIGITS.sample(150, 3)) == 150


def test_probe_problems_are_four_distinct_ones_of_the_task() -> None:
    for task in (DIGITS, WORDS, PRODUCTS):
        assert len({problem.prompt for problem in probe_problems(task)}) == 4


def test_a_product_is_the_answer_of_a_product() -> None:
    problem = PRODUCTS.problem(12, 34)
    assert (problem.prompt, problem.answer) == ("What is 12 * 34? Reply with the number only.", 408)


def test_the_folder_decides_the_task(tmp_path: Path) -> None:
    assert task_for(tmp_path) is WORDS
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    assert task_for(tmp_path) is WORDS
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}), encoding="utf-8")
    assert task_for(tmp_path) is PRODUCTS
    (tmp_path / "smokestack.json").write_text(json.dumps({"kind": "tiny", "recipe": "x"}), encoding="utf-8")
    assert task_for(tmp_path) is DIGITS
