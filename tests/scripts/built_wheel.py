"""Wheels as build tools leave them, for tests: any order, dates and modes, with a RECORD that is right unless told."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

INFO = "demo-1.0.dist-info"
NAME = "demo-1.0-cp38-abi3-manylinux_2_28_x86_64.whl"
TAG = "cp38-abi3-manylinux_2_28_x86_64"


def contents(files: Mapping[str, str | bytes], *, tag: str = TAG) -> dict[str, bytes]:
    """`files` and the metadata that each wheel has; a file of the same name wins."""
    metadata = {
        f"{INFO}/METADATA": "Metadata-Version: 2.4\r\nName: demo\r\nVersion: 1.0\r\n\r\nText.\r\n",
        f"{INFO}/WHEEL": f"Wheel-Version: 1.0\r\nGenerator: test (1.0)\r\nRoot-Is-Purelib: false\r\nTag: {tag}\r\n\r\n",
        "demo/__init__.py": "",
    }
    merged = {**metadata, **files}
    return {name: text if isinstance(text, bytes) else text.encode() for name, text in merged.items()}


def record(files: Mapping[str, bytes]) -> str:
    lines = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    return "".join([*lines, f"{INFO}/RECORD,,\n"])


def write(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    name: str = NAME,
    told: str | None = None,
    date: tuple[int, int, int, int, int, int] = (2026, 1, 2, 3, 4, 6),
    modes: Mapping[str, int] | None = None,
    folders: bool = False,
) -> Path:
    """A deflated wheel; `told` stands in for its RECORD, `modes` are whole st_mode values by name."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / name
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        if folders:
            archive.writestr(zipfile.ZipInfo("demo/", date), b"")
        for member, content in {**files, f"{INFO}/RECORD": (record(files) if told is None else told).encode()}.items():
            entry = zipfile.ZipInfo(member, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (modes or {}).get(member, 0o100664) << 16
            archive.writestr(entry, content)
    return wheel


def read(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def cargo_sbom(source: str, *, number: str, moment: str, extra: Mapping[str, Any] | None = None) -> str:
    """What cargo-cyclonedx writes for a workspace in `source`."""
    own = f"path+file://{source}/bindings#demo@1.0"
    crates = [f"path+file://{source}/lib/{name}#{name}@1.0" for name in ("kernels", "router")]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{number}",
        "metadata": {
            "timestamp": moment,
            "tools": [{"vendor": "CycloneDX", "name": "cargo-cyclonedx", "version": "0.5.9"}],
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "demo",
                "version": "1.0",
                "purl": "pkg:cargo/demo@1.0?download_url=file://.",
                "components": [{"type": "library", "bom-ref": f"{own} bin-target-0", "name": "demo", "version": "1.0"}],
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": crate,
                "name": crate.rpartition("#")[2].partition("@")[0],
                "version": "1.0",
                "purl": f"pkg:cargo/x@1.0?download_url=file://{source}/lib",
            }
            for crate in crates
        ],
        "dependencies": [{"ref": own, "dependsOn": crates}, *({"ref": crate} for crate in crates)],
        **(extra or {}),
    }
    return json.dumps(document, indent=2)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
