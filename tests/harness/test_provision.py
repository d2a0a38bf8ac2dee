"""The build plane's answers, good and bad, as the run sees them. The commands are small stand-ins."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.clock import Deadline, InterruptibleClock
from harness.ending import never
from harness.errors import DoctorError, InstallError, SmokestackError, UsageError
from harness.models import ModelChoice
from harness.provision import Provisioner


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "logs").mkdir()
    return tmp_path


def provisioner(root: Path, lines: list[str] | None = None) -> Provisioner:
    clock = InterruptibleClock()
    return Provisioner(
        root=root,
        stack="cpu",
        logs=root / "logs",
        clock=clock,
        deadline=Deadline.after(clock, 30),
        progress=(lines if lines is not None else []).append,
        run_id="test",
        urgent=never,
    )


def build_plane(root: Path, code: str) -> None:
    """A package `scripts` of its own in `root`, which the command finds first in its working directory."""
    (root / "scripts" / "__init__.py").touch()
    (root / "scripts" / "__main__.py").write_text(f"import json, sys\n{code}\n")


def test_the_answer_of_an_install_is_returned_and_its_progress_passed_on(root: Path) -> None:
    build_plane(root, 'sys.stderr.write("step one\\n"); print(json.dumps({"ok": True, "argv": sys.argv[1:]}))')
    lines: list[str] = []
    assert provisioner(root, lines).install()["argv"] == ["install", "--stack", "cpu", "--json"]
    assert lines == ["step one"]


def doctor(root: Path, code: str) -> None:
    build_plane(root, "")
    (root / "scripts" / "doctor.py").write_text(f"import json, sys\n{code}\n")


def test_a_machine_without_faults_is_passed_without_a_word(root: Path) -> None:
    doctor(root, 'print(json.dumps({"checks": [{"id": "host.a", "status": "warn"}]}))')
    provisioner(root).examine()


def test_what_the_doctor_has_to_say_of_the_gpus_is_passed_on_and_nothing_else(root: Path) -> None:
    said = [
        {"id": "gpu.processes", "status": "warn", "found": "GPU 0: pid 4711 (python3) has 900 MiB"},
        {"id": "gpu.modes", "status": "ok", "found": "as it should be"},
        {"id": "host.memory", "status": "warn", "found": "little"},
    ]
    doctor(root, f"print(json.dumps({{'checks': {said!r}}}))")
    lines: list[str] = []
    provisioner(root, lines).examine()
    assert lines == ["gpu.processes: GPU 0: pid 4711 (python3) has 900 MiB"]


def test_the_doctor_looks_at_the_gpus_that_were_asked_for(root: Path) -> None:
    doctor(
        root,
        "import os; seen = {n: os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'CUDA_DEVICE_ORDER')}\n"
        "found = f'{seen} {sys.argv[-2:]}'\n"
        "print(json.dumps({'checks': [{'id': 'gpu.a', 'status': 'warn', 'found': found}]}))",
    )
    lines: list[str] = []
    provisioner(root, lines).examine(("4", "5", "7"))
    seen = "{'CUDA_VISIBLE_DEVICES': '4,5,7', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}"
    assert lines == [f"gpu.a: {seen} ['--gpus', '3']"]


def test_each_fault_of_the_machine_is_named_with_its_fix(root: Path) -> None:
    faults = [
        {
            "id": f"host.{name}",
            "status": "fail",
            "found": f"no {name}",
            "required": name,
            "fix": f"apt-get install {name}",
        }
        for name in ("a", "b")
    ]
    doctor(root, f"print(json.dumps({{'checks': {faults!r}}})); sys.exit(10)")
    with pytest.raises(DoctorError) as caught:
        provisioner(root).examine()
    assert caught.value.found == "host.a: no a\n    host.b: no b"
    assert caught.value.hint == "apt-get install a\n    apt-get install b"


@pytest.mark.parametrize(
    "code",
    [
        "sys.exit(3)",
        'print("not json"); sys.exit(10)',
        "print('[]'); sys.exit(1)",
        "pass",
        'print("not json")',
        'print(json.dumps({"checks": []}))',
        'print(json.dumps({"checks": [{"id": "host.a"}]}))',
    ],
)
def test_a_doctor_that_gives_no_findings_is_no_clean_bill_of_health(root: Path, code: str) -> None:
    doctor(root, code)
    with pytest.raises(DoctorError) as caught:
        provisioner(root).examine()
    assert caught.value.log == root / "logs" / "doctor.log"


def test_an_install_is_told_to_end_with_the_harness(root: Path) -> None:
    build_plane(root, 'import os; print(json.dumps({"ok": True, "parent": os.environ["SMOKESTACK_DIE_WITH_PARENT"]}))')
    assert provisioner(root).install()["parent"] == str(os.getpid())


def test_a_preview_asks_for_a_dry_run(root: Path) -> None:
    build_plane(root, 'print(json.dumps({"ok": True, "argv": sys.argv[1:]}))')
    assert "--dry-run" in provisioner(root).preview()["argv"]


@pytest.mark.parametrize(
    ("status", "kind"), [(2, UsageError), (10, DoctorError), (20, InstallError), (1, InstallError)]
)
def test_a_failed_install_keeps_its_status_and_text(root: Path, status: int, kind: type[SmokestackError]) -> None:
    error = {
        "what": "no space",
        "expected": "1 GB",
        "found": "3 MB",
        "hint": "rm -r .cache",
        "log": str(root / "x.log"),
    }
    build_plane(root, f"print(json.dumps({{'ok': False, 'error': {error!r}}})); sys.exit({status})")
    with pytest.raises(kind) as caught:
        provisioner(root).install()
    raised = caught.value
    assert (raised.what, raised.expected, raised.found, raised.hint) == ("no space", "1 GB", "3 MB", "rm -r .cache")
    assert raised.log == root / "x.log"


@pytest.mark.parametrize("code", ["sys.exit(0)", 'print("not json")', 'print("[]")', "sys.exit(9)"])
def test_no_answer_is_an_install_error_with_a_log(root: Path, code: str) -> None:
    build_plane(root, code)
    with pytest.raises(InstallError) as caught:
        provisioner(root).install()
    assert caught.value.log == root / "logs" / "install.log"


def test_a_local_folder_needs_no_command(root: Path) -> None:
    choice = ModelChoice(kind="folder", served_name="mine", folder=root)
    assert provisioner(root).model(choice, root / "no-environment", {}).serve == root


def stand_in_python(root: Path) -> Path:
    """An environment whose `python` writes down its arguments and answers like the payload."""
    program = root / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> "{root}/called"\n'
        'case "$*" in *recipe*) echo \'{"tiny": "abc"}\';; *) echo \'{"dir": "/made/base", "cached": true}\';; esac\n'
    )
    program.chmod(0o755)
    return root / "environment"


def test_the_tiny_model_lies_under_its_recipes_hash(root: Path) -> None:
    made = provisioner(root).model(ModelChoice("tiny", "tiny"), stand_in_python(root), {"PATH": "/usr/bin:/bin"})
    assert made.serve == Path("/made/base")
    assert made.warm_cache == root / ".cache" / "models" / "tiny-abc" / "warm"
    assert "--warm" not in (root / "called").read_text()


def test_smollm2_is_made_from_the_fetched_gguf(root: Path) -> None:
    build_plane(root, f"print({json.dumps(json.dumps({'ok': True, 'gguf': '/models/smollm2-abc/x.gguf'}))})")
    environment = stand_in_python(root)
    provisioner(root).model(ModelChoice("smollm2", "smollm2"), environment, {"PATH": "/usr/bin:/bin"})
    called = (root / "called").read_text()
    assert "--kind smollm2 --gguf /models/smollm2-abc/x.gguf --out /models/smollm2-abc" in called, "one model a pin"
