"""F19: a source that is not exactly the pinned one is refused before anything is built, in full words."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fixture_project import Project

from tests.sources import repositories
from tests.sources.repositories import Repository, git

DOCTOR, BUILD = 10, 20
PAST_THE_DOCTOR = ("--ignore-check", "build.sources")


def refusal(project: Project, *options: str, status: int = BUILD) -> str:
    """What a build of vllm is told; nothing was built."""
    answer = project.run("build", "--only", "vllm", *options, status=status)
    assert not project.layout.manifest.exists()
    assert not list(project.layout.dist.glob("*.whl"))
    return answer.said


def test_an_abbreviated_revision(fresh: Project) -> None:
    full = fresh.sources["vllm"].revision
    fresh.edit_stack(full, full[:7])
    said = refusal(fresh)
    assert "sources.vllm.revision" in said
    assert "40 lower-case hex digits" in said
    assert "a server does not serve an abbreviated one, and it can become ambiguous" in said
    assert f"'{full[:7]}' (7 characters)" in said


def test_a_revision_that_the_repository_does_not_have(fresh: Project) -> None:
    fresh.edit_stack(fresh.sources["vllm"].revision, "0123456789" * 4)
    assert "0123456789" * 4 in refusal(fresh)


def moved_on(checkout: Path) -> str:
    return repositories.commit(checkout, "vllm/more.py", '"""More."""\n')


def edited(checkout: Path) -> str:
    (checkout / "vllm" / "__init__.py").write_text("changed = True\n")
    return "vllm/__init__.py"


def without_its_submodule(checkout: Path) -> str:
    git(checkout, "submodule", "--quiet", "deinit", "--force", repositories.SUBMODULE)
    return repositories.SUBMODULE


def with_another_submodule(checkout: Path) -> str:
    return repositories.commit(checkout / repositories.SUBMODULE, "frames.h", "/* another */\n")


@pytest.mark.parametrize("spoil", [moved_on, edited, without_its_submodule, with_another_submodule])
def test_a_checkout_that_is_not_what_the_stack_pins(
    fresh: Project, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    vllm = fresh.sources["vllm"]
    checkout = repositories.clone(vllm, tmp_path / "checkout")
    found = spoil(checkout)
    said = refusal(fresh, "--source", f"vllm={checkout}", *PAST_THE_DOCTOR)
    assert found in said
    pinned = fresh.sources["frames"] if "submodule" in spoil.__name__ else vllm
    assert pinned.revision in said


@pytest.mark.parametrize("spoil", [moved_on, without_its_submodule])
def test_what_the_doctor_sees_of_it_is_said_before_anything_is_done(
    fresh: Project, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    checkout = repositories.clone(fresh.sources["vllm"], tmp_path / "checkout")
    found = spoil(checkout)
    said = refusal(fresh, "--source", f"vllm={checkout}", status=DOCTOR)
    assert found in said
    assert fresh.sources["frames" if "submodule" in spoil.__name__ else "vllm"].revision in said


@pytest.mark.parametrize(("options", "status"), [((), DOCTOR), (PAST_THE_DOCTOR, BUILD)])
def test_a_shallow_clone_whose_tags_are_missing(
    fresh: Project, tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    vllm = fresh.sources["vllm"]
    checkout = repositories.clone(vllm, tmp_path / "shallow", "--depth", "1", "--no-tags")
    said = refusal(fresh, "--source", f"vllm={checkout}", *options, status=status)
    assert "tag" in said
    assert vllm.revision in said


def test_a_shallow_clone_will_do_when_the_stack_names_the_version(fresh: Project, tmp_path: Path) -> None:
    checkout = repositories.clone(fresh.sources["dynamo"], tmp_path / "shallow", "--depth", "1", "--no-tags")
    fresh.run("build", "--only", "sidecar", "--source", f"dynamo={checkout}")
    assert [path.name for path in fresh.layout.dist.iterdir()] == ["dynamo-vllm-sidecar"]


def test_a_dirty_checkout_is_refused_also_when_there_is_nothing_to_build(installed: Project, tmp_path: Path) -> None:
    """Otherwise "up to date" would be taken for a build of what was just edited."""
    checkout = repositories.clone(installed.sources["vllm"], tmp_path / "checkout")
    given = ("--source", f"vllm={checkout}")
    assert installed.run("build", *given).document["cached"]
    found = edited(checkout)
    assert found in installed.run("build", *given, status=BUILD).said
    assert installed.run("build").document["cached"], "what was built is untouched"


def dirty(project: Project) -> dict[str, bool]:
    return {each["name"]: each["dirty"] for each in project.manifest["sources"]}


def test_changes_that_are_allowed_are_built_and_the_manifest_says_so(installed: Project, tmp_path: Path) -> None:
    checkout = repositories.clone(installed.sources["vllm"], tmp_path / "checkout")
    (checkout / "vllm" / "__init__.py").write_text("changed = True\n")
    try:
        installed.run("build", "--source", f"vllm={checkout}", "--allow-dirty")
        assert dirty(installed) == {"vllm": True, "dynamo": False}
        (wheel,) = installed.layout.dist.glob("vllm-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            assert archive.read("vllm/__init__.py") == b"changed = True\n"
    finally:
        installed.run("build")
    assert dirty(installed) == {"vllm": False, "dynamo": False}
    assert installed.run("install").document["cached"], "the clean build's files are those of the first one"


def test_a_revision_on_no_branch_is_fetched_all_the_same(fresh: Project, own_sources: dict[str, Repository]) -> None:
    """As the head of somebody's pull request, which is pinned in full and never merged."""
    dynamo = own_sources["dynamo"]
    text = 'fn main() {\n    println!("dynamo-vllm-sidecar of a pull request");\n}\n'
    revision = repositories.commit(dynamo.folder, "lib/sidecar/src/main.rs", text)
    git(dynamo.folder, "checkout", "--quiet", "--detach")
    git(dynamo.folder, "branch", "--force", "main", dynamo.revision)
    fresh.edit_stack(fresh.sources["dynamo"].address, dynamo.address)
    fresh.edit_stack(dynamo.revision, revision)
    fresh.run("build", "--only", "sidecar")
    said = subprocess.run([fresh.layout.dist / "dynamo-vllm-sidecar"], capture_output=True, text=True, check=True)
    assert said.stdout == "dynamo-vllm-sidecar of a pull request\n"
