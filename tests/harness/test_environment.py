"""`environment.json` describes the machine without telling who or where its user is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.report import environment
from tests.scripts.upstream import git


def test_it_is_json_and_names_what_a_reader_needs(tmp_path: Path) -> None:
    facts = json.loads(json.dumps(environment.describe(tmp_path)))
    assert facts["cpu"]["usable"] >= 1
    assert facts["memory"]["total_bytes"] > 0
    assert facts["python"]["version"]
    assert facts["packages"]["pydantic"]
    assert facts["gpus"]


def test_no_environment_variable_gets_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "hunter2-secret")
    assert "hunter2-secret" not in json.dumps(environment.describe(tmp_path))


def test_the_home_folder_is_not_named() -> None:
    value = {"a": ["/home/ann/x", "/home/annex"], "b": {"c": "run in /home/ann/y"}, "d": 3}
    assert environment.redact(value, Path("/home/ann")) == {
        "a": ["~/x", "/home/annex"],
        "b": {"c": "run in ~/y"},
        "d": 3,
    }


def test_the_projects_revision_is_marked_dirty_when_it_is(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    clean = environment.describe(tmp_path)["project"]
    (tmp_path / "file").write_text("2")
    dirty = environment.describe(tmp_path)["project"]
    assert len(clean["revision"]) == 40
    assert (clean["dirty"], dirty["dirty"]) == (False, True)
    assert clean["revision"] == dirty["revision"]


def test_a_folder_outside_of_git_has_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment.describe(tmp_path)["project"] == {"revision": None, "dirty": None}


def test_a_user_without_an_account_and_a_home_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert environment.describe(tmp_path)["schema"] == 1
