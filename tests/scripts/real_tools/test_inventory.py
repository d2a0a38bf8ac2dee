"""The install's inventory: every entry of an environment, read once, and told again as it was written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from synthetic import PYTHON, Project

from scripts import assertions, build, install, inventory
from scripts import manifest as manifests
from scripts.build_inputs import read_inputs
from scripts.console import Console
from scripts.environment import Environment
from scripts.errors import InstallError
from scripts.inventory import Entry
from scripts.verify import verify


def test_files_links_and_folders_each_with_their_own(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir(mode=0o755)
    (tmp_path / "bin" / "tool").write_bytes(b"tool")
    (tmp_path / "bin" / "tool").chmod(0o755)
    (tmp_path / "link").symlink_to("bin/nowhere")
    (tmp_path / inventory.FILE_NAME).write_text("of an install before")
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert inventory.take(tmp_path) == {
        "bin": Entry("folder", 0o755),
        "bin/tool": Entry("file", 0o755, hashlib.sha256(b"tool").hexdigest()),
        "link": Entry("link", 0, "bin/nowhere"),
        "pipe": Entry("other", 0o600),
    }
    assert {name: inventory.entry(tmp_path / name) for name in ("bin", "bin/tool", "link", "pipe")} == inventory.take(
        tmp_path
    )


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "file").write_bytes(b"")
    (tmp_path / "lib64").symlink_to("lib")
    assert set(inventory.take(tmp_path)) == {"lib", "lib/file", "lib64"}


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    (tmp_path / 'β\n,"quoted"').write_bytes(b"1")
    (tmp_path / os.fsdecode(b"not utf-8 \xff")).write_bytes(b"2")
    entries = inventory.take(tmp_path)
    inventory.write(tmp_path, entries)
    recorded = inventory.load(tmp_path)
    assert recorded is not None
    assert recorded.intact
    assert recorded.entries == {name: str(entry) for name, entry in entries.items()}
    assert recorded.seal == inventory.seal(entries) == inventory.seal(inventory.take(tmp_path))


def test_the_seal_is_of_names_modes_and_contents() -> None:
    entry = Entry("file", 0o644, "a" * 64)
    seals = {
        inventory.seal({"a": entry}),
        inventory.seal({"b": entry}),
        inventory.seal({"a": entry._replace(mode=0o755)}),
        inventory.seal({"a": entry._replace(content="b" * 64)}),
        inventory.seal({"a": entry, "b": entry}),
    }
    assert len(seals) == 5
    assert inventory.seal({"a": entry, "b": entry}) == inventory.seal({"b": entry, "a": entry})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff"])
def test_an_inventory_that_is_none_is_not_whole(tmp_path: Path, content: bytes) -> None:
    (tmp_path / inventory.FILE_NAME).write_bytes(content)
    recorded = inventory.load(tmp_path)
    assert recorded is not None
    assert (recorded.intact, recorded.entries) == (False, None)


def test_another_spelling_of_the_same_inventory_is_not_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    inventory.write(tmp_path, inventory.take(tmp_path))
    path = tmp_path / inventory.FILE_NAME
    path.write_text(path.read_text().replace("\n", " ", 1))
    recorded = inventory.load(tmp_path)
    assert recorded is not None
    assert recorded.entries == {"file": str(inventory.entry(tmp_path / "file"))}
    assert not recorded.intact


def test_no_inventory_is_none(tmp_path: Path) -> None:
    assert inventory.load(tmp_path) is None


def test_an_install_in_place_writes_it_again(project: Project, console: Console) -> None:
    def run() -> None:
        built = build.build(project.layout, read_inputs(project.layout), console)
        install.install(project.layout, built.whole(), "cpu", console)

    run()
    first = inventory.load(project.layout.environment)
    (project.layout.payload / "smokestack_payload" / "__init__.py").write_text('"""Changed."""\n')
    run()
    second = inventory.load(project.layout.environment)
    assert first is not None
    assert second is not None
    assert first.entries != second.entries
    assert {finding.file for finding in verify(project.layout, console).findings if "venv" in finding.file} == set()


def test_an_environment_with_a_pipe_in_it_is_not_installed(project: Project, console: Console) -> None:
    manifest = build.build(project.layout, read_inputs(project.layout), console).whole()
    env = Environment(project.layout, PYTHON)
    assert manifests.load(project.layout.manifest) == manifest
    with pytest.raises(InstallError, match="installed files are not") as caught:
        assertions.assert_files(env, manifest, {"bin/pipe": Entry("other", 0o644)})
    assert caught.value.found == "bin/pipe"
