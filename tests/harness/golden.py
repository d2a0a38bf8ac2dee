"""The whole plan of a run, process by process: argv, environment, folder. What `--dry-run --json` prints, written down.

    .nox/tool/bin/python -m tests.harness.golden            # compare, and show what differs
    .nox/tool/bin/python -m tests.harness.golden --write    # write the files anew; read the difference, then commit

Nothing else writes them. Of the output only what this machine or this moment decides is replaced: the project's
folder, and the digest of the stack's inputs in the name of its cache.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "golden"
CALLER = {"PATH": "/usr/bin:/bin", "HOME": "/home/somebody", "USER": "somebody", "LANG": "C.UTF-8"}
PORTS = {
    **{"etcd": 2379, "etcd-peer": 2380, "engine-0": 8002, "engine-0-grpc": 50051},
    **{"frontend": 8000, "discovery": 8001, "sidecar-0": 8081, "rendezvous": 29500},
}
"""The customary ones, so that the files can be laid beside the documents of the stacks."""

RUNS: dict[str, tuple[str, ...]] = {
    "cuda": ("--platform", "cuda", "--stack", "cuda", "--model", "Qwen/Qwen3-0.6B"),
    "cuda-gpus-4-5": ("--platform", "cuda", "--stack", "cuda", "--model", "Qwen/Qwen3-0.6B", "--gpus", "4,5"),
    "cuda-tp-2": (
        *("--platform", "cuda", "--stack", "cuda", "--model", "Qwen/Qwen3-0.6B"),
        *("--tensor-parallel", "2", "--gpus", "0,1,2"),
    ),
    "prime-rl": ("--platform", "cuda", "--stack", "prime-rl", "--model", "Qwen/Qwen3-0.6B"),
}


def planned(name: str) -> str:
    """What a dry run of this name says now, free of this machine."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.harness.golden", "--run", name],
        cwd=ROOT,
        env={**CALLER, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if said.returncode != 0:
        raise RuntimeError(f"the dry run of {name} failed: {said.stderr}")
    commands: list[dict[str, Any]] = json.loads(said.stdout)["commands"]
    text = json.dumps(commands, indent=2, sort_keys=True).replace(str(ROOT), "<project>")
    return re.sub(r"(<project>/\.cache/stack-[a-z-]+)-[0-9a-f]{12}", r"\1-<inputs>", text) + "\n"


def _run(name: str) -> int:
    """The dry run itself. The customary ports may be taken on this machine: nothing is bound, so none is asked for."""
    from harness import dryrun
    from harness.cli import main

    dryrun._ports = lambda _request: dict(PORTS)
    return main(["smoke", *RUNS[name], "--dry-run", "--json"])


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def difference(name: str) -> str:
    """The lines in which the file is not what a dry run says; nothing when it is."""
    there = file_of(name).read_text(encoding="utf-8") if file_of(name).is_file() else ""
    lines = (text.splitlines(keepends=True) for text in (there, planned(name)))
    return "".join(difflib.unified_diff(*lines, file_of(name).name, "the dry run", n=1))


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--run"]:
        return _run(argv[1])
    if list(argv) not in ([], ["--write"]):
        sys.stderr.write(__doc__ or "")
        return 2
    for name in RUNS:
        if argv:
            FOLDER.mkdir(exist_ok=True)
            file_of(name).write_text(planned(name), encoding="utf-8")
    found = "".join(map(difference, RUNS))
    sys.stdout.write(found)
    return 1 if found else 0


if __name__ == "__main__":
    assert os.environ.get("PYTEST_CURRENT_TEST") is None, "no test writes these files"
    sys.exit(main(sys.argv[1:]))
