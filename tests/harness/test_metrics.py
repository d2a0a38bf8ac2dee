"""An engine's count of finished requests, read from its metrics."""

from __future__ import annotations

import pytest

from harness.metrics import finished_requests

OTHERS = 'vllm:generation_tokens_total{model_name="tiny"} 12\n'


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('vllm:request_success_total{model_name="tiny",finished_reason="stop"} 11', 11),
        (
            'vllm:request_success_total{finished_reason="stop"} 3\n'
            'vllm:request_success_total{finished_reason="length"} 4.0\n'
            'vllm:request_success_total{finished_reason="abort"} 1e1\n',
            17,
        ),
        ("vllm:request_success_total 2", 2),
        (f"# TYPE vllm:request_success counter\n{OTHERS}", 0),
    ],
)
def test_finished_requests_are_added_up_over_all_reasons(text: str, count: int) -> None:
    assert finished_requests(OTHERS + text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "process_cpu_seconds_total 1",
        *(f"vllm:request_success_total {value}" for value in ("x", "-1", "1.5", "NaN", "+Inf", "1e30")),
    ],
)
def test_what_is_no_count_is_none(text: str) -> None:
    assert finished_requests(text) is None


def test_another_metric_of_a_longer_name_is_not_counted() -> None:
    assert finished_requests(OTHERS + "vllm:request_success_total_created 5") == 0
