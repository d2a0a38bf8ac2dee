"""Which GPU is whose: who sees which, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.gpus import assigned, engine_gpus, parse, trainer_gpus, visible
from harness.request import require_platform
from harness.services import engine, etcd, frontend, sidecar, trainer
from harness.services.context import ServiceContext
from harness.services.spec import ServiceSpec
from tests.harness import fakes
from tests.harness.test_services import PORTS

FASTEST = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


def on_gpus(root: Path, **changes: object) -> ServiceContext:
    settings = {"platform": "cuda", "gpus": ("0", "1"), **changes}
    return fakes.context(root, ports=PORTS, **settings)  # type: ignore[arg-type]


def specs(context: ServiceContext) -> dict[str, ServiceSpec]:
    engines = range(context.config.engines)
    named = [etcd.spec(context), frontend.spec(context)]
    named += [engine.spec(context, index) for index in engines] + [sidecar.spec(context, index) for index in engines]
    named.append(trainer.spec(context, config_file=Path("trainer.json"), events_fd=3, commands_fd=4))
    return {spec.name: spec for spec in named}


def test_the_engine_sees_the_first_gpu_the_trainer_the_second_and_nobody_else_any(tmp_path: Path) -> None:
    seen = {name: spec.env["CUDA_VISIBLE_DEVICES"] for name, spec in specs(on_gpus(tmp_path)).items()}
    assert seen == {"etcd": "", "frontend": "", "engine-0": "0", "sidecar-0": "", "trainer": "1"}


def test_several_ranks_and_engines_get_theirs_in_order(tmp_path: Path) -> None:
    config = on_gpus(tmp_path, tensor_parallel=(2, 2), gpus=("4", "5", "6", "7", "0")).config
    assert [engine_gpus(config, index) for index in (0, 1)] == [("4", "5"), ("6", "7")]
    assert trainer_gpus(config) == ("0",)


def test_both_ends_of_a_refit_reach_each_other_in_the_same_way(tmp_path: Path) -> None:
    both = [spec.env for name, spec in specs(on_gpus(tmp_path)).items() if name in {"engine-0", "trainer"}]
    settings = [{name: value for name, value in env.items() if name.startswith("NCCL_")} for env in both]
    assert settings == [{"NCCL_SOCKET_IFNAME": "lo"}] * 2


def test_neither_the_callers_own_choice_nor_its_order_reaches_a_process(tmp_path: Path) -> None:
    caller = {"CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    for name, spec in specs(on_gpus(tmp_path, caller=caller)).items():
        assert spec.env["CUDA_VISIBLE_DEVICES"] != "7", name
        assert spec.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", name


def test_a_run_without_gpus_says_nothing_of_them(tmp_path: Path) -> None:
    for spec in specs(fakes.context(tmp_path, ports=PORTS)).values():
        assert not [name for name in spec.env if name.startswith(("CUDA_", "NCCL_"))]


def test_the_numbers_are_those_of_nvidia_smi() -> None:
    assert visible(("1",)) == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("asked", "caller", "ranks", "gpus"),
    [
        (None, {}, 1, ("0", "1")),
        (None, {}, 3, ("0", "1", "2", "3")),
        (None, {"CUDA_VISIBLE_DEVICES": "4, 6,7"}, 1, ("4", "6")),
        (("2", "3"), {"CUDA_VISIBLE_DEVICES": "4,6,7"}, 1, ("2", "3")),
        (("2", "3"), FASTEST, 1, ("2", "3")),
        (None, FASTEST, 1, ("0", "1")),
        (None, {"CUDA_VISIBLE_DEVICES": "GPU-1a2b,GPU-3c4d", **FASTEST}, 1, ("GPU-1a2b", "GPU-3c4d")),
    ],
)
def test_a_run_takes_those_asked_for_or_the_first_that_are_visible(
    asked: tuple[str, ...] | None, caller: dict[str, str], ranks: int, gpus: tuple[str, ...]
) -> None:
    assert assigned(asked, caller, platform="cuda", ranks=ranks) == gpus


@pytest.mark.parametrize(
    ("asked", "caller", "platform", "said"),
    [
        (("0",), {}, "cuda", "the number of GPUs does not fit"),
        (("0", "1", "2"), {}, "cuda", "the number of GPUs does not fit"),
        (None, {"CUDA_VISIBLE_DEVICES": "3"}, "cuda", "fewer GPUs are visible"),
        (None, {"CUDA_VISIBLE_DEVICES": ""}, "cuda", "fewer GPUs are visible"),
        (None, {"CUDA_VISIBLE_DEVICES": "1,0", **FASTEST}, "cuda", "counts by CUDA_DEVICE_ORDER=FASTEST_FIRST"),
        (("0", "1"), {}, "cpu", "runs without a GPU"),
    ],
)
def test_what_does_not_fit_is_refused(
    asked: tuple[str, ...] | None, caller: dict[str, str], platform: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        assigned(asked, caller, platform=platform, ranks=1)


def test_a_stack_without_gpus_takes_none() -> None:
    assert assigned(None, {"CUDA_VISIBLE_DEVICES": "0,1"}, platform="cpu", ranks=1) == ()


@pytest.mark.parametrize("text", ["", "0,", "a", "0,0", "-1", "0;1", "GPU-"])
def test_what_names_no_gpu_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="GPU"):
        parse(text)


def test_a_gpu_may_be_named_by_its_uuid() -> None:
    assert parse("GPU-8a56a4bc-1184-9ac7-f5e1-6d4a84e1a9c0, 1") == ("GPU-8a56a4bc-1184-9ac7-f5e1-6d4a84e1a9c0", "1")


def test_another_platforms_stack_is_never_run_instead() -> None:
    require_platform(None, "cpu", "cpu")
    require_platform("cuda", "cuda", "prime-rl")
    with pytest.raises(UsageError) as caught:
        require_platform("cuda", "cpu", "cpu")
    assert (caught.value.expected, caught.value.found) == ("a stack for cuda", "cpu is for cpu")
