"""`install`: a real environment of a stack in miniature, filled from its lock and its manifest alone."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from synthetic import PYTHON, Project, module, of_published_wheels, parser, program, published_wheel, sha256

from scripts import assertions, build, environment, install, inventory
from scripts import manifest as manifests
from scripts.build_inputs import read_inputs
from scripts.console import Console
from scripts.dialects import DIALECTS, undeclared_flags, unknown_flags
from scripts.environment import Environment
from scripts.errors import DoctorError, InstallError
from scripts.manifest import Artifact


def run(project: Project, console: Console, *, force: bool = False) -> bool:
    built = build.build(project.layout, read_inputs(project.layout), console)
    return install.install(project.layout, built.whole(), "cpu", console, force=force)


@pytest.fixture
def installed(project: Project, console: Console) -> Environment:
    assert not run(project, console)
    return Environment(project.layout, PYTHON)


def test_the_environment_has_the_manifests_packages_and_no_others(installed: Environment) -> None:
    assert installed.distributions() == {"smokestack-payload": "0.1.0", "torch": "1.0.0+cpu", "vllm": "1.0.0+cpu"}


def test_the_binary_is_on_the_environments_bin(project: Project, installed: Environment) -> None:
    link = installed.bin / "vllm-rs"
    assert sha256(link) == read_inputs(project.layout).stack.engine.binaries["vllm-rs"].sha256
    assert not link.readlink().is_absolute()
    assert os.access(link, os.X_OK)


def test_an_executable_of_a_published_package_is_on_the_environments_bin(project: Project, console: Console) -> None:
    of_published_wheels(project)
    assert not run(project, console)
    env = Environment(project.layout, PYTHON)
    link = env.bin / "vllm-rs"
    assert link.resolve() == env.site_packages / "vllm" / "vllm-rs"
    assert sha256(link) == read_inputs(project.layout).stack.binaries["vllm-rs"].sha256
    assert os.access(link, os.X_OK)


def test_a_torch_without_a_label_is_installed_beside_one_with_a_label_in_the_wheelhouse(
    project: Project, console: Console
) -> None:
    etcd = {"torch/__init__.py": "", "torch-1.0.0.data/scripts/etcd": program("etcd", DIALECTS["dynamo-1.6"][0].flags)}
    plain = sha256(published_wheel(project.wheelhouse, "torch", "1.0.0", etcd))
    labelled = sha256(project.wheelhouse / "torch-1.0.0+cpu-py3-none-any.whl")
    for file in (project.layout.stack_file, project.layout.lock):
        text = file.read_text().replace(labelled, plain)
        file.write_text(text.replace('torch = { version = "1.0.0+cpu"', 'torch = { version = "1.0.0"'))
    project.edit(project.layout.lock, "torch==1.0.0+cpu", "torch==1.0.0")
    project.edit(
        project.layout.stack_file,
        'distribution = "torch"\nversion = "1.0.0+cpu"',
        'distribution = "torch"\nversion = "1.0.0"',
    )
    assert not run(project, console)
    assert Environment(project.layout, PYTHON).distributions()["torch"] == "1.0.0"


def with_shared_file(project: Project) -> None:
    """Two published packages that each bring a file of the same name, as careless ones do."""
    with project.layout.lock.open("a") as lock:
        for name in ("one", "other"):
            wheel = published_wheel(project.wheelhouse, name, "1.0.0", {"build_backend.py": f"OF = '{name}'\n"})
            lock.write(f"{name}==1.0.0 \\\n    --hash=sha256:{sha256(wheel)}\n")


def test_a_file_that_two_packages_bring_is_that_of_either(project: Project, console: Console) -> None:
    with_shared_file(project)
    assert not run(project, console)
    env = Environment(project.layout, PYTHON)
    shared = env.site_packages / "build_backend.py"
    assert shared.read_text() in {"OF = 'one'\n", "OF = 'other'\n"}
    manifest = build.preview(project.layout, read_inputs(project.layout))
    assertions.assert_files(env, manifest, inventory.take(env.path))
    shared.unlink()
    shared.write_text("OF = 'nobody'\n")
    with pytest.raises(InstallError) as caught:
        assertions.assert_files(env, manifest, inventory.take(env.path))
    assert "build_backend.py" in str(caught.value.found)


def test_bytecode_is_compiled_although_the_caller_forbids_it(
    project: Project, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    run(project, console)
    assert list(Environment(project.layout, PYTHON).site_packages.glob("vllm/__pycache__/kernels.*.pyc"))


def test_the_stamp_says_what_was_installed_and_asserted(project: Project, installed: Environment) -> None:
    stamp = json.loads(project.layout.stamp.read_text())
    assert stamp.keys() == {"schema", "stack", "manifest_sha256", "inputs", "python", "packages", "asserted"}
    assert stamp["manifest_sha256"] == sha256(project.layout.manifest)
    assert stamp["python"] == ".".join(map(str, sys.version_info[:3]))
    assert stamp["asserted"][0] == "3 packages have the locked versions, and there are no others"
    asked = ["etcd", "engine", "python-engine", "sidecar", "frontend"]
    assert [line.split()[1] for line in stamp["asserted"][-5:]] == asked


def test_nothing_is_done_when_nothing_changed(project: Project, console: Console, installed: Environment) -> None:
    before = project.layout.stamp.stat().st_mtime_ns
    assert run(project, console)
    assert project.layout.stamp.stat().st_mtime_ns == before


def test_a_changed_payload_is_replaced_in_place(project: Project, console: Console, installed: Environment) -> None:
    made_before = (installed.path / "pyvenv.cfg").stat().st_ino
    (project.layout.payload / "smokestack_payload" / "__init__.py").write_text('"""Changed."""\n')
    assert not run(project, console)
    assert (installed.site_packages / "smokestack_payload" / "__init__.py").read_text() == '"""Changed."""\n'
    assert (installed.path / "pyvenv.cfg").stat().st_ino == made_before
    assert run(project, console)


def test_a_changed_lock_is_a_fresh_environment(project: Project, console: Console, installed: Environment) -> None:
    (installed.path / "stray").write_text("from before")
    project.edit(project.layout.lock, "torch==", "Torch==")
    assert not run(project, console)
    assert not (installed.path / "stray").exists()


def test_force_is_a_fresh_environment(project: Project, console: Console, installed: Environment) -> None:
    (installed.path / "stray").write_text("from before")
    assert not run(project, console, force=True)
    assert not (installed.path / "stray").exists()


def test_a_package_that_somebody_removed_is_noticed(project: Project, console: Console, installed: Environment) -> None:
    (installed.site_packages / "torch-1.0.0+cpu.dist-info" / "METADATA").rename(project.root / "METADATA")
    (installed.site_packages / "torch-1.0.0+cpu.dist-info").rename(project.root / "gone")
    assert not run(project, console)
    assert "torch" in installed.distributions()


@pytest.fixture
def user(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody who runs the environment: a process that inherited the lock from a harness that has ended."""
    project.layout.in_use.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(project.layout.in_use, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_SH)
    with subprocess.Popen(["sleep", "600"], pass_fds=[handle]) as process:
        os.close(handle)
        yield process
        process.kill()


@pytest.mark.parametrize("force", [True, False])
def test_an_environment_in_use_is_not_changed_and_its_users_are_named(
    project: Project, console: Console, installed: Environment, user: subprocess.Popen[bytes], force: bool
) -> None:
    before = project.layout.stamp.read_bytes()
    (project.layout.payload / "smokestack_payload" / "__init__.py").write_text('"""Changed."""\n')
    with pytest.raises(InstallError, match=r"\.venv-mini has to be changed, and a run is using it") as caught:
        run(project, console, force=force)
    assert (caught.value.exit_code, caught.value.found) == (20, f"pid {user.pid}: sleep 600")
    assert "./noxw -s down" in str(caught.value.hint)
    assert project.layout.stamp.read_bytes() == before
    assert (installed.site_packages / "smokestack_payload" / "__init__.py").read_text() == '"""Payload."""\n'


def test_an_environment_in_use_that_is_current_is_left_in_peace(
    project: Project, console: Console, installed: Environment, user: subprocess.Popen[bytes]
) -> None:
    assert run(project, console)


def test_an_environment_is_free_again_when_its_last_user_has_ended(
    project: Project, console: Console, installed: Environment, user: subprocess.Popen[bytes]
) -> None:
    user.kill()
    user.wait()
    assert not run(project, console, force=True)


@pytest.mark.parametrize("stage", ["create", "fill", "_put_binaries", "assert_installed"])
def test_an_interrupted_install_is_not_taken_for_a_finished_one(
    project: Project, console: Console, installed: Environment, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    owner = environment if stage in {"create", "fill"} else install
    with monkeypatch.context() as patch:
        patch.setattr(owner, stage, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(project, console, force=True)
    assert install.read_stamp(project.layout) is None
    assert not run(project, console)
    assert install.read_stamp(project.layout) is not None


def test_a_folder_without_a_stamp_is_made_afresh(project: Project, console: Console) -> None:
    project.layout.environment.mkdir()
    (project.layout.environment / "left").write_text("by something else")
    run(project, console)
    assert not (project.layout.environment / "left").exists()


def test_a_stale_wheel_in_dist_is_never_installed(project: Project, console: Console) -> None:
    published_wheel(project.layout.dist, "vllm", "1.0.0+zzz", {"vllm/stale.py": ""})
    published_wheel(project.layout.dist, "torch", "9.9", {"torch/stale.py": ""})
    run(project, console)
    env = Environment(project.layout, PYTHON)
    assert env.distributions()["vllm"] == "1.0.0+cpu"
    assert env.distributions()["torch"] == "1.0.0+cpu"


def test_an_artifact_that_is_not_the_manifests_is_refused_before_anything_is_touched(
    project: Project, console: Console, installed: Environment
) -> None:
    manifest = manifests.load(project.layout.manifest)
    assert manifest is not None
    wheel = project.layout.dist / manifest.artifacts[0].file
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(InstallError, match="not the file of the manifest") as caught:
        install.install(project.layout, manifest, "cpu", console, force=True)
    assert (caught.value.expected, caught.value.found) == (manifest.artifacts[0].sha256, sha256(wheel))
    assert install.read_stamp(project.layout) is not None


def test_a_locked_package_that_no_index_has_is_an_error_with_the_log(project: Project, console: Console) -> None:
    (project.wheelhouse / "torch-1.0.0+cpu-py3-none-any.whl").unlink()
    published_wheel(project.wheelhouse, "torch", "1.0.0+cpu", {"torch/__init__.py": "other = 1\n"})
    with pytest.raises(InstallError, match="installing the locked packages failed") as caught:
        run(project, console)
    assert caught.value.log is not None
    assert "torch" in str(caught.value.found)
    assert install.read_stamp(project.layout) is None


def test_an_extra_package_is_named(project: Project, installed: Environment) -> None:
    info = installed.site_packages / "stray-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Stray\nVersion: 2.0\n")
    with pytest.raises(InstallError) as caught:
        assertions.assert_packages(installed, {"torch": "1.0.0+cpu", "vllm": "2.0", "smokestack-payload": "0.1.0"})
    assert caught.value.found == "stray 2.0 (expected absent), vllm 1.0.0+cpu (expected 2.0)"


@pytest.mark.parametrize("file", ["vllm/kernels.py", "torch/__init__.py", "smokestack_payload/__init__.py"])
def test_a_file_that_was_edited_in_place_is_named(project: Project, installed: Environment, file: str) -> None:
    manifest = manifests.load(project.layout.manifest)
    assert manifest is not None
    path = installed.site_packages / file
    text = path.read_text()
    # The file may be a link into uv's cache: put another file in its place.
    path.unlink()
    path.write_text(text.swapcase() + "#")
    with pytest.raises(InstallError, match="installed files are not") as caught:
        assertions.assert_files(installed, manifest, inventory.take(installed.path))
    assert caught.value.found == file
    assert str(caught.value.hint).startswith("./noxw -s install -- --stack mini --force\n")
    assert "uv cache clean" in str(caught.value.hint)


def test_a_binary_that_was_replaced_is_refused(project: Project, installed: Environment) -> None:
    manifest = manifests.load(project.layout.manifest)
    assert manifest is not None
    (installed.bin / "vllm-rs").unlink()
    (installed.bin / "vllm-rs").write_text("#!/bin/sh\n")
    with pytest.raises(InstallError, match="vllm-rs is not the pinned binary"):
        assertions.assert_binary(installed, manifest, "vllm-rs", inventory.take(installed.path))


@pytest.mark.parametrize(
    ("name", "file", "write", "lost"),
    [
        ("sidecar", "dynamo/vllm/sidecar.py", module, "--grpc-endpoint"),
        ("python-engine", "vllm/engine/arg_utils.py", parser, "--weight-transfer-config"),
    ],
)
def test_a_program_without_a_flag_of_the_dialect_is_refused(
    installed: Environment, name: str, file: str, write: Callable[[tuple[str, ...]], str], lost: str
) -> None:
    manifest = manifests.load(installed.layout.manifest)
    assert manifest is not None
    known = {each.name: each for each in DIALECTS["dynamo-1.6"]}[name]
    path = installed.site_packages / file
    path.unlink()
    path.write_text(write(tuple(flag for flag in known.flags if flag != lost)))
    with pytest.raises(InstallError, match=f"the {name} does not know flags of the dialect") as caught:
        assertions.assert_program(installed, manifest, known)
    assert caught.value.found == f"unknown: {lost}"


def test_a_moved_module_of_flags_is_not_taken_for_one_that_has_them(project: Project, installed: Environment) -> None:
    manifest = manifests.load(project.layout.manifest)
    assert manifest is not None
    (installed.site_packages / "vllm" / "engine" / "arg_utils.py").unlink()
    with pytest.raises(InstallError, match="declares the python-engine's flags is not there"):
        assertions.assert_program(installed, manifest, DIALECTS["dynamo-1.6"][2])


def test_a_flag_is_known_only_by_its_whole_name() -> None:
    wanted = ("--port", "--host")
    assert unknown_flags(wanted, program("x", ("--grpc-port", "--host-name"))) == ["--port", "--host"]
    assert unknown_flags(wanted, "[--port PORT] --host=HOST") == []
    assert undeclared_flags(wanted, "p.add_argument('--port', '-p')\nprint('--host')") == ["--host"]


def test_a_machine_without_the_stacks_python_is_told_how_to_get_it(project: Project) -> None:
    with pytest.raises(DoctorError, match=r"no Python 3\.99") as caught:
        environment.find_python(project.layout, "3.99")
    assert caught.value.exit_code == 10
    assert caught.value.hint is not None
    assert "/uv python install 3.99" in str(caught.value.hint)


def test_our_wheels_are_required_by_path_and_digest_also_under_a_path_with_spaces() -> None:
    artifact = Artifact(
        name="vllm", version="1", file="vllm-1+cpu-py3-none-any.whl", sha256="a" * 64, size=1, made_from=[]
    )
    line = environment.requirement(artifact, Path("/some place/dist"))
    assert line == f"vllm @ file:///some%20place/dist/vllm-1%2Bcpu-py3-none-any.whl --hash=sha256:{'a' * 64}\n"


def test_the_environment_is_filled_by_one_hash_checked_sync(project: Project) -> None:
    env = Environment(project.layout, PYTHON)
    argv = environment.sync_command(env, [project.layout.lock], ["--torch-backend", "cpu"])
    assert argv[1:3] == ["pip", "sync"]
    assert {"--require-hashes", "--compile-bytecode"} <= set(argv)
    assert argv[-3:] == ["--torch-backend", "cpu", str(project.layout.lock)]
