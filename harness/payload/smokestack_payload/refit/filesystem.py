"""Weights by way of the file system: the trainer writes a checkpoint, and every engine reloads it.

Written while the engines still serve, and removed as soon as all of them have it: one version lies on the disk at a
time. The session drives it like a collective.
"""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

from smokestack_payload.errors import RefitError
from smokestack_payload.refit import checkpoint
from smokestack_payload.refit.admin import EngineFleet

ELSEWHERE = "TMPDIR names where a run's temporary files lie"


class FilesystemTransfer:
    """Every checkpoint gets a folder of its own in `folder`, which is removed with the last of them.

    `written` is the one that no engine has yet.
    """

    def __init__(self, fleet: EngineFleet, source: Any, folder: Path) -> None:
        self._fleet = fleet
        self._source = source
        self._folder = folder
        self._numbers = count()
        self.written: Path | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, version: str) -> None:
        """Write the source's weights of this moment. Raises RefitError where that cannot be done."""
        from safetensors import SafetensorError

        needed = sum(_bytes(meta) for meta in self._source.metadata())
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise RefitError(
                f"there is no room for the checkpoint of version {version}: no engine was touched",
                expected=f"{needed} free bytes",
                found=f"{free}",
                where=str(self._folder),
                hint=ELSEWHERE,
            )
        path = self._folder / f"{next(self._numbers)}-{version}"
        try:
            checkpoint.write(path, self._source)
        except (OSError, SafetensorError) as broken:
            raise RefitError(
                f"the checkpoint of version {version} could not be written: no engine was touched",
                expected=f"{needed} bytes on the disk",
                found=f"{type(broken).__name__}: {broken}",
                where=str(self._folder),
                hint=ELSEWHERE,
            ) from broken
        self.written = path

    def send_weights(self) -> None:
        """Let every engine reload what was prepared."""
        path = self.written
        if path is None:
            raise RuntimeError("no checkpoint was prepared")
        self._fleet.start_weight_update()
        self._fleet.update_weights({"weights_path": str(path)})
        self.written = None
        shutil.rmtree(path)
        self._fleet.finish_weight_update()

    def shutdown(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def abort(self) -> None:
        """There is no peer to be left: what no engine took is removed."""
        self.shutdown()


def _bytes(meta: Any) -> int:
    size: int = meta.dtype.itemsize
    for length in meta.shape:
        size *= length
    return size
