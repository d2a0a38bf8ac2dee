"""An environment is used only under its lock, and checked only once nobody can change it any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import bringup
from harness.bringup import install
from harness.errors import InstallError
from harness.manifest import Manifest
from harness.models import ModelChoice
from harness.request import Request
from harness.session import Session, opened
from scripts.errors import InstallError as InstallRefused
from scripts.exclusion import unused
from scripts.layout import Layout
from tests.harness import fakes


def may_change(session: Session) -> bool:
    layout = Layout(session.config.project_root, session.config.stack)
    try:
        with unused(layout.in_use, layout.environment):
            return True
    except InstallRefused:
        return False


def test_the_lock_comes_between_the_install_and_the_check_of_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    class Installer:
        def examine(self, _gpus: object) -> None:
            seen.append(("doctor", may_change(session)))

        def install(self) -> None:
            seen.append(("install", may_change(session)))

    def changed_meanwhile(*_: object) -> None:
        seen.append(("check", may_change(session)))
        raise InstallError(".venv-cpu was installed from another manifest")

    monkeypatch.setattr(bringup, "provisioner", lambda *_: Installer())
    monkeypatch.setattr(bringup, "load_manifest", lambda *_: Manifest.model_validate(fakes.manifest_fields()))
    monkeypatch.setattr(bringup, "require_installed", changed_meanwhile)
    request = Request(stack="cpu", model=ModelChoice("tiny", "tiny"), root=tmp_path, quiet=True)
    with opened(request) as session:
        with pytest.raises(InstallError, match="another manifest"):
            install(session)
        assert seen == [("doctor", True), ("install", True), ("check", False)]
        assert not may_change(session)
    assert may_change(session)
