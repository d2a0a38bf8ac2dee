"""What goes wrong in a build is named, and nothing half-made is taken for whole afterwards: F20 to F23, Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fixture_project import ROOM, Project, contents

from tests.small_disk import small_disk
from tests.sources import repositories
from tests.sources.repositories import Repository

PATIENCE_S = 60.0


def repin(project: Project, repository: Repository, name: str, text: str) -> None:
    """Change one file of a repository, and pin the new revision (with a version, as the tag is another's)."""
    revision = repositories.commit(repository.folder, name, text)
    project.edit_stack(f'revision = "{repository.revision}"', f'revision = "{revision}"')


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script that stands before the real program on PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return folder


def before_path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


# F20


def test_a_stale_wheel_in_dist_is_never_installed(installed: Project) -> None:
    """A whole, valid wheel of another version, newer than ours and first in every listing."""
    (wheel,) = installed.layout.dist.glob("vllm-*.whl")
    stale = wheel.with_name(wheel.name.replace("0.26.0", "0.99.0"))
    shutil.copy(wheel, stale)
    try:
        installed.run("install", "--force")
        assert installed.manifest["packages"]["vllm"] == "0.26.0"
        names = [path.name for path in installed.layout.environment.glob("lib/*/site-packages/vllm-*.dist-info")]
        assert names == ["vllm-0.26.0.dist-info"]
        assert stale.name in str(installed.run("verify", status=1).document)
    finally:
        stale.unlink(missing_ok=True)


def test_a_stale_wheel_under_our_wheels_name_is_never_installed(installed: Project) -> None:
    """What a build of another revision would have left: the same version, the same file name, other bytes."""
    (wheel,) = installed.layout.dist.glob("vllm-*.whl")
    whole = wheel.read_bytes()
    (other,) = installed.layout.dist.glob("smokestack_payload-*.whl")
    wheel.write_bytes(other.read_bytes())
    installed.run("install")
    assert wheel.read_bytes() == whole
    assert installed.run("verify").document["ok"]


# F21


@pytest.mark.parametrize(
    ("compiler", "product", "end"),
    [
        ("gcc", "vllm", "kill -KILL $$"),
        ("gcc", "vllm", "echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; exit 1"),
        ("cargo", "sidecar", "exit 137"),
    ],
)
def test_a_compiler_that_was_killed_for_lack_of_memory(
    fresh: Project, tmp_path: Path, compiler: str, product: str, end: str
) -> None:
    real = shutil.which(compiler)
    script = f'case " $* " in *" -c "*|*" build "*) {end};; esac\nexec {real} "$@"'
    folder = program(tmp_path / "programs", compiler, script)
    answer = fresh.run("build", "--only", product, "--jobs", "4", status=20, **before_path(folder))
    assert "memory" in answer.said
    assert re.search(r"\b4\b", answer.said), "the number of jobs used"
    assert "--jobs 2" in answer.error["hint"]
    assert Path(answer.error["log"]).is_file()


# F22


def test_a_wheel_without_its_front_end(fresh: Project, own_sources: dict[str, Repository]) -> None:
    """A source that leaves the front end out when it does not compile, and calls that a success."""
    vllm = own_sources["vllm"]
    setup = (vllm.folder / "setup.py").read_text()
    optional = re.sub(r"optional=os\.environ.*", "optional=True,", setup)
    assert optional != setup
    repositories.commit(vllm.folder, "rust/src/cmd/src/main.rs", "fn main() { this does not compile }\n")
    fresh.edit_stack(fresh.sources["vllm"].address, vllm.address)
    revision = repositories.commit(vllm.folder, "setup.py", optional)
    fresh.edit_stack(f'revision = "{vllm.revision}"', f'revision = "{revision}"\nversion = "0.26.0"')
    answer = fresh.run("build", "--only", "vllm", status=20)
    assert "vllm/vllm-rs" in answer.said
    assert not list(fresh.layout.dist.glob("vllm-*.whl"))


def test_a_machine_without_the_toolchain(fresh: Project, tmp_path: Path) -> None:
    """No rustup, no cargo, no rustc: said before anything is compiled."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in sorted(Path(folder).glob("*")):
            link = programs / path.name
            if path.name not in {"cargo", "rustc", "rustup"} and not link.is_symlink():
                link.symlink_to(path)
    answer = fresh.run("build", "--only", "vllm", status=10, PATH=str(programs))
    assert "rust" in answer.said.lower()
    assert not list(fresh.layout.dist.glob("vllm-*.whl"))


# F23


@pytest.fixture(name="small_disk")
def disk(tmp_path: Path) -> Iterator[Path]:
    """With room for everything until a test fills it."""
    with small_disk(tmp_path / "small", "300m") as folder:
        yield folder


def fill(disk: Path, leaving: int) -> Path:
    """A file that leaves so many bytes of a disk free."""
    filler = disk / "filler"
    free = shutil.disk_usage(disk).free
    with filler.open("wb") as sink:
        os.posix_fallocate(sink.fileno(), 0, free - leaving)
    return filler


def test_a_disk_that_is_too_small_is_named_before_anything_is_done(installed: Project, small_disk: Path) -> None:
    project = installed.another(small_disk / "project")
    project = replace(project, ignored=tuple(set(project.ignored) - set(ROOM)))
    assert "host.disk-build" in project.run("build", status=10).error["found"]
    assert not project.layout.dist.exists()


def test_a_disk_that_gets_full(installed: Project, small_disk: Path) -> None:
    """Full while sources are fetched, while something is compiled, and while the environment is filled."""
    project = installed.another(small_disk / "project")
    project.run("build", "--only", "sidecar")
    for verb, leaving in (("build", 200 << 10), ("build", 38 << 20), ("install", 1 << 20)):
        if verb == "install":
            project.run("build")
        filler = fill(small_disk, leaving)
        answer = project.run(verb, status=20)
        assert "No space left on device" in answer.said
        assert "free some space" in answer.error["hint"]
        assert project.layout.manifest.exists() == (verb == "install")
        assert not project.layout.stamp.exists()
        filler.unlink()
    project.run("install")
    assert contents(project.layout.dist) == contents(installed.layout.dist)
    assert project.run("verify").document["ok"]


# Ctrl-C

WAITS = """\
fn main() {{
    std::fs::write("{started}", "").unwrap();
    while std::path::Path::new("{held}").exists() {{
        std::thread::sleep(std::time::Duration::from_millis(50));
    }}
}}
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_build_that_is_stopped_leaves_no_process_and_the_next_one_is_whole(
    fresh: Project, own_sources: dict[str, Repository], tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Stopped while cargo runs a build script, which has started and waits."""
    started, held = tmp_path / "started", tmp_path / "held"
    held.touch()
    dynamo = own_sources["dynamo"]
    script = WAITS.format(started=started, held=held)
    revision = repositories.commit(dynamo.folder, "lib/sidecar/build.rs", script)
    fresh.edit_stack(fresh.sources["dynamo"].address, dynamo.address)
    fresh.edit_stack(dynamo.revision, revision)
    with subprocess.Popen(
        fresh.command("build", "--only", "sidecar"), cwd=fresh.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:
        wait_for(started.exists)
        assert working_in(fresh.root)
        command.send_signal(number)
        command.communicate(timeout=PATIENCE_S)
    assert command.returncode == status
    if number == signal.SIGKILL:
        # Nobody is left to end what cargo started: it comes to its own end.
        held.unlink()
    wait_for(lambda: not working_in(fresh.root))
    assert not list(fresh.layout.dist.glob("*"))
    held.unlink(missing_ok=True)
    fresh.run("build", "--only", "sidecar")
    said = subprocess.run([fresh.layout.dist / "dynamo-vllm-sidecar", "--version"], capture_output=True, check=True)
    assert said.stdout == b"dynamo-vllm-sidecar 1.3.0\n"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def working_in(root: Path) -> list[int]:
    """The processes whose working folder lies below `root`."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if place(pid).startswith(str(root))]


def place(pid: int) -> str:
    """A process's working folder; empty when it has ended."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
