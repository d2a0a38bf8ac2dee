"""Lock files: everything hashed, no address of any index, no path of any machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import locks, pins, requirements_file
from scripts.errors import PinError
from scripts.layout import PROJECT_ROOT, Layout

LOCKS = sorted([*PROJECT_ROOT.glob("stacks/*/requirements.lock"), *PROJECT_ROOT.glob("scripts/requirements/*.lock")])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_line_is_an_exact_pin_with_hashes_and_nothing_names_a_place(lock: Path) -> None:
    assert requirements_file.read(lock)
    text = lock.read_text()
    assert not re.search(r"://|--index-url|--find-links|(^|[ =])/[a-z]", text, re.MULTILINE)
    assert text.splitlines()[1] == "#    ./noxw -s lock"


def test_every_source_has_its_lock() -> None:
    layout = Layout.of("cpu")
    listed = {lock.target for lock in locks.locks(layout, pins.load(layout.stack_file), {})}
    assert listed == set(LOCKS)


def test_the_stack_has_none_of_the_packages_that_its_overrides_remove() -> None:
    stack = PROJECT_ROOT / "stacks" / "cpu"
    locked = requirements_file.read(stack / "requirements.lock")
    lines = (stack / "overrides.txt").read_text().splitlines()
    removed = {line.split(";")[0].strip() for line in lines if line and not line.startswith("#")}
    assert removed == {"aisimulate", "torchvision", "torchaudio", "torchcodec", "triton"}
    assert not removed & locked.keys()


def test_every_override_says_why() -> None:
    blocks = (PROJECT_ROOT / "stacks" / "cpu" / "overrides.txt").read_text().strip().split("\n\n")
    assert all(block.startswith("# ") for block in blocks)


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


def test_no_lock_is_resolved_with_a_path_or_an_address_in_its_command() -> None:
    layout = Layout.of("cpu")
    for lock in locks.locks(layout, pins.load(layout.stack_file), {}):
        arguments = locks.command(layout, lock, lock.target)[1:]
        assert "--generate-hashes" in arguments
        assert "--no-emit-index-url" in arguments
        assert not [argument for argument in arguments if argument.startswith("/") or "://" in argument]


def test_torch_comes_from_its_own_builds_unless_a_wheelhouse_has_it(tmp_path: Path) -> None:
    layout = Layout.of("cpu")
    stack = pins.load(layout.stack_file)
    version = stack.packages["torch"].version

    def options(environ: dict[str, str]) -> tuple[str, ...]:
        return next(lock.options for lock in locks.locks(layout, stack, environ) if lock.target == layout.lock)

    assert options({})[-2:] == ("--torch-backend", "cpu")
    (tmp_path / f"torch-{version}-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    assert "--torch-backend" not in options({"UV_FIND_LINKS": str(tmp_path)})
