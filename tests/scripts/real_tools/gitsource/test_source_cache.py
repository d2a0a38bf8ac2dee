"""The cache of sources: whole or not there, verified at every use, one writer at a time, and clean after a failure."""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import upstream
from upstream import Upstream, git, in_the_cache, pinned, said

from scripts.console import Console
from scripts.errors import BuildError
from scripts.gitsource import obtain
from scripts.layout import PROJECT_ROOT, Layout

PATIENCE_S = 60.0

# `obtain` in a process of its own, told to stop like the command line is. Arguments: root, repository, revision.
OBTAIN = """
import sys
from pathlib import Path
from scripts import commands
from scripts.console import Console
from scripts.gitsource import obtain
from scripts.layout import Layout
from scripts.stackfile import GitSource
commands.stop_on_signals()
root, repository, revision = sys.argv[1:]
try:
    source = GitSource.model_construct(repository=repository, revision=revision, version="1.0", nested={})
    print(obtain(Layout(Path(root), "test"), "vllm", source, Console(sys.stderr)).path)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def cached(layout: Layout, vllm: Upstream) -> Path:
    """The source in the cache."""
    return obtain(layout, "vllm", pinned(vllm), Console(io.StringIO())).path


@contextlib.contextmanager
def unreachable(repository: Upstream) -> Iterator[None]:
    away = repository.folder.with_name("away")
    repository.folder.rename(away)
    try:
        yield
    finally:
        away.rename(repository.folder)


def test_a_whole_one_is_used_without_asking_the_repository(layout: Layout, nest: Upstream, console: Console) -> None:
    source = pinned(nest)
    first = obtain(layout, "vllm", source, console)
    before = upstream.snapshot(first.path)
    with unreachable(nest):
        assert obtain(layout, "vllm", source, console) == first
    assert said(console).count(": cached") == 1
    assert upstream.snapshot(first.path) == before


def _write(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("9\n")


def _edit_unseen(folder: Path) -> None:
    """As long as it was and dated as it was: only the bytes tell."""
    before = (folder / "run.sh").stat()
    (folder / "run.sh").write_text("#!/bin/ls\n")
    os.utime(folder / "run.sh", ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace_the_commit(folder: Path) -> None:
    """Under the id of the revision the repository now has another commit."""
    revision = git(folder, "rev-parse", "HEAD")
    other = git(folder, "commit-tree", "-m", "another", f"{revision}^{{tree}}")
    objects = folder / ".git" / "objects"
    for pack in [path.rename(folder.parent / path.name) for path in (objects / "pack").iterdir()]:
        if pack.suffix == ".pack":
            with pack.open("rb") as handle:
                subprocess.run(["git", "unpack-objects", "-q"], cwd=folder, stdin=handle, check=True)
        pack.unlink()
    (objects / revision[:2] / revision[2:]).unlink()
    shutil.copy(objects / other[:2] / other[2:], objects / revision[:2] / revision[2:])


SPOILS: dict[str, Callable[[Path], object]] = {
    "changed: run.sh": _edit_unseen,
    "missing: run.sh": lambda folder: (folder / "run.sh").unlink(),
    "mode 100755 instead of 100644: run.sh": lambda folder: (folder / "run.sh").chmod(0o755),
    "not in the revision: added": lambda folder: _write(folder / "added"),
    "not in the revision: build/ignored.o": lambda folder: _write(folder / "build" / "ignored.o"),
    "not in the revision: src/.git": lambda folder: _write(folder / "src" / ".git"),
    "HEAD is another revision": lambda folder: git(folder, "commit", "--quiet", "--allow-empty", "-m", "x"),
    "another commit under this id": _replace_the_commit,
    "no repository": lambda folder: shutil.rmtree(folder / ".git"),
}


@pytest.mark.parametrize("named", SPOILS)
def test_what_was_changed_is_found_named_and_fetched_again(
    layout: Layout, cached: Path, vllm: Upstream, console: Console, named: str
) -> None:
    SPOILS[named](cached)
    obtain(layout, "vllm", pinned(vllm), console)
    assert f"{cached.name} is not what was put there, and is fetched again" in said(console)
    assert named in said(console)
    assert (cached / "run.sh").read_text() == "#!/bin/sh\n"
    assert git(cached, "status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize("named", ["changed: deep", "missing: third_party/middle"])
def test_submodules_are_looked_at_in_the_same_way(layout: Layout, nest: Upstream, console: Console, named: str) -> None:
    middle = obtain(layout, "vllm", pinned(nest), Console(io.StringIO())).path / "third_party" / "middle"
    if named == "changed: deep":
        _write(middle / "below" / "deep")
    else:
        shutil.rmtree(middle)
    obtain(layout, "vllm", pinned(nest), console)
    assert named in said(console)
    assert (middle / "below" / "deep").read_text() == "1\n"


def test_what_was_changed_and_cannot_be_fetched_again_is_not_used(
    layout: Layout, cached: Path, vllm: Upstream, console: Console
) -> None:
    source = pinned(vllm)
    _edit_unseen(cached)
    with unreachable(vllm), pytest.raises(BuildError, match="there is no such repository"):
        obtain(layout, "vllm", source, console)
    assert in_the_cache(layout) == []


def _process(layout: Layout, repository: str, revision: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OBTAIN, str(layout.root), repository, revision],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_builds_at_once_fetch_once(layout: Layout, vllm: Upstream) -> None:
    processes = [_process(layout, vllm.address, vllm.head) for _ in range(3)]
    answers = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], answers
    assert len({path for path, _ in answers}) == 1
    assert sum(": done in" in progress for _, progress in answers) == 1
    assert sum(": cached" in progress for _, progress in answers) == 2


def test_a_fetch_that_is_interrupted_leaves_nothing(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is a program that answers nothing, as a hung one does."""
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    (tmp_path / "ssh").write_text(f"#!/bin/sh\nexec 3> '{alive}'\necho started >&3\nexec sleep 600\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", f"'{tmp_path}/ssh'")
    server = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    process = _process(layout, "ssh://example.invalid/vllm", "2" * 40)
    try:
        assert _next(server) == b"started\n"
        assert [name.startswith(".partial-") for name in in_the_cache(layout)] == [True]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert _next(server) == b"", "the server is gone, too"
    finally:
        process.kill()
        os.close(server)
    assert in_the_cache(layout) == []


def _next(pipe: int) -> bytes:
    """What comes through a pipe; nothing once nobody is left at its other end."""
    assert select.select([pipe], [], [], PATIENCE_S)[0], "it did not come in time"
    return os.read(pipe, 100)


def test_what_a_killed_fetch_left_is_removed_and_what_a_living_one_writes_stays(
    layout: Layout, vllm: Upstream, console: Console
) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    cache = layout.cache / "git"
    (cache / f".partial-{dead.pid}-vllm-{vllm.head}" / "src").mkdir(parents=True)
    (cache / ".partial-1-other").mkdir()
    obtain(layout, "vllm", pinned(vllm), console)
    assert in_the_cache(layout) == [".partial-1-other", f"vllm-{vllm.head}"]


def test_a_full_disk_is_said_and_what_was_half_written_is_removed(layout: Layout, tmp_path: Path) -> None:
    source = Upstream.make(tmp_path / "up" / "vllm", {})
    (source.folder / "big").write_bytes(os.urandom(1 << 20))
    revision = source.commit({})
    (layout.cache / "git").mkdir(parents=True)
    script = (
        'mount -t tmpfs -o size=256k none "$1/.cache/git" 2>/dev/null || exit 77\n'
        'shift; "$@"; status=$?; ls -A "$CACHE"; exit $status'
    )
    command = [sys.executable, "-c", OBTAIN, str(layout.root), source.address, revision]
    finished = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(layout.root), *command],
        cwd=PROJECT_ROOT,
        env={**os.environ, "CACHE": str(layout.cache / "git")},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode == 77 or "unshare" in finished.stderr:
        pytest.skip("this machine lets nobody mount a small disk")
    assert finished.returncode == 1
    assert "the disk is full" in finished.stderr
    assert "df -h" in finished.stderr
    assert finished.stdout == "", "nothing is left in the cache"
