"""Checkpoints appear whole or not at all, half ones are told from whole ones, and engines reload them in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import FakeEngine, plan, settings
from safetensors.torch import load_file
from smokestack_payload import sabotage
from smokestack_payload.errors import RefitError
from smokestack_payload.refit import checkpoint, filesystem
from smokestack_payload.refit.admin import EngineAdmin, EngineFleet
from smokestack_payload.refit.backends import connector
from smokestack_payload.refit.filesystem import FilesystemTransfer
from smokestack_payload.refit.manifest import Expected
from smokestack_payload.refit.protocols import Filesystem
from smokestack_payload.refit.session import RefitSession, State
from smokestack_payload.refit.worker import RefitWorker

MakeEngine = Callable[[], FakeEngine]
TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4), "c": torch.zeros(5)}
RPC = "/collective_rpc"


class Source:
    """A weight source as vLLM's are; `fails` is where it breaks off."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def metadata(self) -> list[Any]:
        return [type("Meta", (), {"name": n, "shape": tuple(t.shape), "dtype": t.dtype})() for n, t in TENSORS.items()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in TENSORS.items():
            if self.fails and name == "c":
                raise OSError(28, "No space left on device")
            yield name, tensor


def written(folder: Path, **options: Any) -> Path:
    checkpoint.write(folder, Source(), **options)
    return folder


@pytest.mark.parametrize(("file_bytes", "files"), [(1 << 20, 1), (41, 2), (1, 3)])
def test_every_tensor_is_in_one_of_the_files(file_bytes: int, files: int, tmp_path: Path) -> None:
    assert checkpoint.write(tmp_path / "v", Source(), file_bytes=file_bytes) == files
    loaded = {name: t for path in (tmp_path / "v").glob("*.safetensors") for name, t in load_file(path).items()}
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], TENSORS[name]) for name in TENSORS)
    checkpoint.require_whole(tmp_path / "v")


def test_what_breaks_off_is_never_seen(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        checkpoint.write(tmp_path / "v", Source(fails=True), file_bytes=1)
    assert list(tmp_path.iterdir()) == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def of_others(path: Path) -> None:
    path.write_bytes((path.parent / "model-00001.safetensors").read_bytes())


SPOILED: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "a file cut off": ("model-00002.safetensors", cut, "not fully covered"),
    "a file cut in its header": ("model-00002.safetensors", lambda p: p.write_bytes(p.read_bytes()[:20]), "header"),
    "an empty file": ("model-00002.safetensors", lambda p: p.write_bytes(b""), "header"),
    "a file that is not there": ("model-00002.safetensors", Path.unlink, "No such file"),
    "a file of others": ("model-00002.safetensors", of_others, "does not have what its index says"),
    "no index": (checkpoint.INDEX, Path.unlink, "No such file"),
    "half an index": (checkpoint.INDEX, cut, checkpoint.INDEX),
    "an index of nothing": (checkpoint.INDEX, lambda p: p.write_text('{"weight_map": {}}'), "names no tensor"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_half_a_checkpoint_is_refused(how: str, tmp_path: Path) -> None:
    name, spoil, says = SPOILED[how]
    folder = written(tmp_path / "v", file_bytes=1)
    spoil(folder / name)
    with pytest.raises(ValueError, match=f"half a checkpoint: .*{says}"):
        checkpoint.require_whole(folder)


class Worker(RefitWorker):
    vllm_config = None


def test_an_engine_keeps_what_it_has_when_it_is_shown_half_a_checkpoint(tmp_path: Path) -> None:
    worker, folder = Worker(), written(tmp_path / "v")
    with pytest.raises(RuntimeError, match="no reload has begun"):
        worker.smokestack_end_reload()
    cut(folder / "model-00001.safetensors")
    with pytest.raises(ValueError, match="half a checkpoint"):
        worker.smokestack_begin_reload(str(folder))
    assert worker.smokestack_update_open() is False
    assert worker.smokestack_begin_reload(str(written(tmp_path / "w"))) is None
    assert worker.smokestack_update_open() is True
    with pytest.raises(RuntimeError, match="already active"):
        worker.smokestack_begin_reload(str(tmp_path / "w"))


def started(
    engine: FakeEngine,
    folder: Path,
    source: Source,
    limit_s: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
) -> RefitSession:
    engine.on(RPC, lambda _: (200, {"results": [None]}))
    fleet = EngineFleet([engine.address()], protocol=Filesystem(engine_label=True), clock=clock)
    expected = Expected({name: tuple(tensor.shape) for name, tensor in TENSORS.items()}, "float32")
    session = RefitSession(fleet, source, expected, limit_s, clock)
    session.initialise(lambda client, weights: FilesystemTransfer(client, weights, folder), 5.0)
    return session


def test_a_refit_writes_before_the_pause_and_leaves_no_file(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine, seen = make_engine(), []
    session = started(engine, tmp_path / "checkpoints", Source())

    def paused(_: Any) -> tuple[int, Any]:
        [folder] = (tmp_path / "checkpoints").iterdir()
        checkpoint.require_whole(folder)
        seen.append(str(folder))
        return 200, {}

    engine.on("/pause", paused)
    report = session.refit(3)
    [path] = seen
    assert engine.calls == [
        ("/pause", None),
        (RPC, {"method": "smokestack_begin_reload", "kwargs": {"folder": path}}),
        (RPC, {"method": "reload_weights", "kwargs": {"weights_path": path}}),
        (RPC, {"method": "smokestack_end_reload"}),
        (RPC, {"method": "smokestack_set_version", "kwargs": {"version": "3"}}),
        ("/update_weight_version", {"new_version": "3"}),
        ("/reset_prefix_cache", None),
        ("/resume", None),
    ]
    assert report.seconds["prepare"] > 0
    assert not list((tmp_path / "checkpoints").iterdir())
    session.close()
    assert not (tmp_path / "checkpoints").exists()


def test_an_engine_that_refuses_a_checkpoint_stays_paused_under_its_old_name(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine()
    session = started(engine, tmp_path / "checkpoints", Source())
    engine.fail(RPC, 500, "half a checkpoint: model-00001.safetensors")
    with pytest.raises(RefitError, match="half a checkpoint") as refused:
        session.refit(1)
    assert refused.value.poisoned == (engine.url,)
    assert session.state is State.POISONED
    assert engine.paths == ["/pause", RPC]
    assert not (tmp_path / "checkpoints").exists()
    session.close()


@pytest.mark.parametrize(
    ("what", "found"), [("no room for", "10"), ("could not be written", "OSError: [Errno 28] No space left on device")]
)
def test_what_fails_before_the_pause_touches_no_engine_and_names_the_folder(
    what: str, found: str, make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    session = started(engine, tmp_path / "checkpoints", Source(fails=what == "could not be written"))
    if what == "no room for":
        usage = type("Usage", (), {"free": 10})()
        monkeypatch.setattr(filesystem.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RefitError, match=what) as caught:
        session.refit(1)
    assert (caught.value.found, caught.value.where) == (found, str(tmp_path / "checkpoints"))
    assert engine.calls == []
    assert session.state is State.READY
    session.close()


class Now:
    """A clock that goes on only while something is written: `writing_s` for the whole of it."""

    def __init__(self, writing_s: float, limit_s: float) -> None:
        self.writing_s, self.limit_s, self.seconds = writing_s, limit_s, 100.0

    def __call__(self) -> float:
        return self.seconds

    def slowly(self) -> Source:
        now = self

        class Slow(Source):
            def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
                now.seconds += now.writing_s
                yield from super().__iter__()

        return Slow()


def test_writing_and_loading_have_one_limit_together(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engines are granted is what the writing has left of it."""
    engine, now = make_engine(), Now(writing_s=7.0, limit_s=10.0)
    granted: list[float] = []
    post = EngineAdmin.post
    monkeypatch.setattr(EngineAdmin, "post", lambda self, call, left: (granted.append(left), post(self, call, left))[1])
    session = started(engine, tmp_path / "checkpoints", now.slowly(), now.limit_s, now)
    report = session.refit(1)
    assert report.seconds["prepare"] == 7.0
    assert granted == pytest.approx([3.0] * len(engine.calls))
    now.writing_s = 1.0
    session.refit(2)
    assert granted[-1] == pytest.approx(9.0), "each refit has a limit of its own"
    session.close()


@pytest.mark.parametrize("writing_s", [10.0, 12.0])
def test_writing_that_leaves_no_time_is_the_trainers_own_error_and_touches_no_engine(
    writing_s: float, make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine, now = make_engine(), Now(writing_s, limit_s=10.0)
    session = started(engine, tmp_path / "checkpoints", now.slowly(), now.limit_s, now)
    with pytest.raises(RefitError, match="writing version 1 left no time for the refit: no engine was touched") as late:
        session.refit(1)
    assert (late.value.expected, late.value.poisoned) == ("written and loaded within 10 s", ())
    assert "--refit-timeout" in str(late.value.hint)
    assert engine.calls == []
    session.close()


def test_a_writer_that_stands_still_is_given_up_within_the_limit(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine, let_go = make_engine(), threading.Event()

    class Stuck(Source):
        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            let_go.wait(timeout=20)
            yield from super().__iter__()

    session = started(engine, tmp_path / "checkpoints", Stuck(), limit_s=0.2)
    begun = time.monotonic()
    with pytest.raises(RefitError, match="no engine was touched"):
        session.refit(1)
    assert time.monotonic() - begun < 0.2 * 1.25 + 3, "the harness waits that long for it, and no longer"
    assert engine.calls == []
    let_go.set()
    session.close()


def test_a_load_that_is_late_says_how_much_of_the_time_was_writing(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine, now = make_engine(), Now(writing_s=9.8, limit_s=10.0)
    session = started(engine, tmp_path / "checkpoints", now.slowly(), now.limit_s, now)
    engine.hang("/pause")
    begun = time.monotonic()
    with pytest.raises(RefitError) as late:
        session.refit(1)
    assert time.monotonic() - begun < 5
    assert session.state is State.POISONED
    assert str(late.value.expected).endswith("within 10 s, 9.8 s of it for writing")
    session.close()


def test_the_sabotage_spoils_the_last_versions_checkpoint_alone(make_engine: MakeEngine, tmp_path: Path) -> None:
    asked = replace(settings(sabotage.HALF_A_CHECKPOINT), refit="filesystem", checkpoints=tmp_path)
    engine = make_engine()
    connect = sabotage.spoiled_connector(connector(asked, plan(engine)), asked)
    transfer = connect(sabotage.fleet_of(plan(engine), asked), Source())
    for version in ("1", "2-perturbed"):
        transfer.prepare(version)
        checkpoint.require_whole(transfer.written)
    transfer.prepare("2")
    with pytest.raises(ValueError, match="half a checkpoint"):
        checkpoint.require_whole(transfer.written)
