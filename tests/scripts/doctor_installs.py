"""A machine with a finished environment, for the doctor's tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from doctor_fakes import FakeMachine

ROOT = "/home/me/smokestack"
SITE = f"{ROOT}/.venv-cpu/lib/python3.11/site-packages"
PINNED = {
    "vllm": "0.32.0+cpu",
    "torch": "2.13.0+cpu",
    "pydantic": "2.13.5",
    "ai-dynamo": "1.6.1",
    "ai-dynamo-runtime": "1.6.1",
}
ASSERTED = ("the sidecar knows --grpc-endpoint --vllm-http-endpoint --namespace",)


def installed(
    packages: Mapping[str, str] = PINNED,
    *,
    pinned: Mapping[str, str] = PINNED,
    asserted: Sequence[str] = ASSERTED,
    files: Mapping[str, str] | None = None,
) -> FakeMachine:
    """`packages` are what is there, `pinned` what the build's manifest says; `files` are below site-packages."""
    manifest = json.dumps({"packages": dict(pinned)})
    stamp = {"manifest_sha256": hashlib.sha256(manifest.encode()).hexdigest(), "asserted": list(asserted)}
    made = FakeMachine(
        files={
            f"{ROOT}/dist/cpu/manifest.json": manifest,
            f"{ROOT}/.venv-cpu/smokestack-install.json": json.dumps(stamp),
            **{f"{SITE}/{name}": text for name, text in (files or {}).items()},
        }
    )
    made.folders.update({f"{SITE}/some-folder", f"{SITE}/nodash.dist-info"})
    for name, version in packages.items():
        made.files.setdefault(f"{SITE}/{name.replace('-', '_')}-{version}.dist-info/METADATA", "")
    return made
