"""What is written down twice, since the doctor may import no package, and `clean` nothing of the run plane."""

from __future__ import annotations

from harness import eventlog, ports, scratch, standing
from scripts.clean.catalogue import EVENTS_FILE, STACK_FILE
from scripts.doctor import build_sources, host_paths, runtime_installed, runtime_ports, runtime_runs
from scripts.layout import PROJECT_ROOT, Layout
from scripts.recipes import nested, requirements


def test_the_nested_sources_are_those_of_the_recipes() -> None:
    assert {device: list(names) for device, names in build_sources.NESTED.items()} == {
        device: nested.wanted(device) for device in ("cuda", "cpu")
    }


def test_the_paths_that_are_refused_are_those_that_builds_refuse() -> None:
    assert host_paths.UNFIT.pattern == requirements._UNFIT.pattern


def test_the_longest_tmpdir_is_the_one_that_a_run_accepts() -> None:
    longest = scratch._longest_parent()
    assert longest == host_paths.LONGEST_TMPDIR


def test_a_run_looks_for_its_ports_where_the_doctor_says() -> None:
    assert (runtime_ports.FIRST, runtime_ports.LAST) == (ports._FIRST, ports._LAST)


def test_a_run_and_an_environment_are_known_by_the_files_that_they_leave() -> None:
    assert runtime_runs.STATE_FILE == STACK_FILE == standing.STATE_FILE
    assert eventlog.EVENTS_FILE == EVENTS_FILE
    assert Layout(PROJECT_ROOT, "cpu").stamp.name == runtime_installed.STAMP
