"""What a wheel of ours requires where the stack runs, as its own metadata says it.

The lock cannot say it: what `build` makes is not in the lock.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from packaging.metadata import Metadata

from scripts.manifest import Artifact
from scripts.requirements_file import normalised
from scripts.wheels import dist_info_name


def required(dist: Path, artifact: Artifact, python: str) -> frozenset[str]:
    """The distributions that a wheel requires without extras, under a minor version of Python on Linux on x86-64."""
    member = f"{dist_info_name(artifact.name, artifact.version)}/METADATA"
    with zipfile.ZipFile(dist / artifact.file) as archive:
        # Not validated: a field of a newer metadata version than `packaging` knows says nothing about requirements.
        metadata = Metadata.from_email(archive.read(member), validate=False)
    environment = _environment(python)
    return frozenset(
        normalised(requirement.name)
        for requirement in metadata.requires_dist or []
        if requirement.marker is None or requirement.marker.evaluate(environment)
    )


def _environment(python: str) -> dict[str, str]:
    """Every marker's value, so that the machine that builds decides none."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
