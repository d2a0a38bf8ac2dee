"""Compiled parts are traced by the system's loader; what it misses is named with what brings it."""

from __future__ import annotations

import _ctypes
import shutil
from pathlib import Path

import pytest
from doctor_fakes import CPU, FakeMachine, look
from doctor_installs import ROOT, SITE, installed

from scripts.doctor import runtime_libraries
from scripts.doctor.asking import Answer
from scripts.doctor.real_machine import RealMachine
from scripts.doctor.registry import Finding
from scripts.doctor.runtime_installed import Installed
from scripts.doctor.subject import Subject

(LIBRARIES,) = runtime_libraries.CHECKS
LOADER = "/lib64/ld-linux-x86-64.so.2"
TRACE = f"""\tlinux-vdso.so.1 (0x00007ffd)
\t_C.abi3.so => {SITE}/vllm/_C.abi3.so (0x00007f00)
\tlibc10.so => {SITE}/torch/lib/libc10.so (0x00007f01)
"""
PYTHONS = (
    f"undefined symbol: PyModule_Create2\t({SITE}/vllm/_C.abi3.so)\nundefined symbol: _Py_Dealloc\t(/x/_C.abi3.so)\n"
)


def machine(said: str | Answer = TRACE, *, parts: tuple[str, ...] = ("vllm/_C.abi3.so",)) -> FakeMachine:
    fake = installed(files=dict.fromkeys((*parts, "vllm/__init__.py"), ""))
    fake.files[LOADER] = ""
    names = ":".join(Path(part).name for part in parts)
    fake.answers[f"{LOADER} --preload {names} /bin/true"] = said
    return fake


def test_parts_that_miss_nothing_but_the_interpreter_are_fine() -> None:
    found = look(LIBRARIES, machine(TRACE + PYTHONS))
    assert (found.status, found.found) == ("ok", "1 compiled parts can be loaded")


def test_a_symbol_that_nobody_has_means_another_torch() -> None:
    symbol = "_ZN3c105ErrorC2ENS_14SourceLocationE"
    found = look(LIBRARIES, machine(f"{TRACE}undefined symbol: {symbol}\t({SITE}/vllm/_C.abi3.so)\n{PYTHONS}"))
    assert found.status == "fail"
    assert found.found == f"_C.abi3.so needs {symbol}, which no library here has: built for another torch"
    assert found.fix == "./noxw -s build -- --stack cpu --force"


def test_a_symbol_of_a_library_that_is_bound_later_is_not_the_modules_fault() -> None:
    assert look(LIBRARIES, machine(f"{TRACE}undefined symbol: rarely_used\t(/usr/lib/libodd.so)\n")).status == "ok"


UV = "./noxw --list >/dev/null && .tool/py*/bin/uv"


@pytest.mark.parametrize(
    ("library", "fix"),
    [
        ("libnuma.so.1", "sudo apt-get install -y libnuma1"),
        ("libpython3.11.so.1.0", f"{UV} python install 3.11   # one with a shared libpython; then install again"),
        ("libnixl.so", "./noxw -s install -- --stack cpu --force"),
    ],
)
def test_a_missing_library_is_named_with_what_brings_it(library: str, fix: str) -> None:
    found = look(LIBRARIES, machine(f"{TRACE}\t{library} => not found\n"))
    assert (found.status, found.found, found.fix) == ("fail", f"not found: {library}", fix)


def test_what_the_driver_brings_is_the_drivers_matter() -> None:
    said = f"{TRACE}\tlibcuda.so.1 => not found\nundefined symbol: cuMemCreate\t({SITE}/vllm/_C.abi3.so)\n"
    assert look(LIBRARIES, machine(said)).status == "ok"


def test_a_symbol_of_the_driver_that_a_driver_lacks_is_not_passed_over() -> None:
    said = f"{TRACE}undefined symbol: cuMemCreate\t({SITE}/vllm/_C.abi3.so)\n"
    assert look(LIBRARIES, machine(said)).status == "fail"


def test_a_c_library_that_is_too_old_is_named_by_the_version_that_it_lacks() -> None:
    said = f"/bin/true: /lib/libm.so.6: version `GLIBC_2.38' not found (required by {SITE}/vllm/_C.abi3.so)\n{TRACE}"
    found = look(LIBRARIES, machine(said))
    assert (found.status, found.found) == (
        "fail",
        "this machine's C or C++ library is too old: it has no GLIBC_2.38",
    )


def test_an_empty_module_is_refused_by_name() -> None:
    said = "ERROR: ld.so: object '_C.abi3.so' from --preload cannot be preloaded (file too short): ignored.\n"
    found = look(LIBRARIES, machine(said))
    assert (found.status, found.found) == ("fail", "cannot be loaded: _C.abi3.so (file too short)")


def test_an_executable_is_traced_as_well() -> None:
    fake = machine()
    program = f"{ROOT}/.venv-cpu/bin/vllm-rs"
    fake.files[program] = ""
    fake.answers[f"{LOADER} {program}"] = "\tlibssl.so.3 => not found\n"
    assert look(LIBRARIES, fake).found == "not found: libssl.so.3"
    said = f"{program}: error while loading shared libraries: {program}: file too short\n"
    fake.answers[f"{LOADER} {program}"] = Answer(127, said)
    assert look(LIBRARIES, fake).found == "cannot be loaded: vllm-rs (file too short)"


def test_no_module_at_all_fails() -> None:
    assert look(LIBRARIES, machine(parts=())).found == "the environment has none"


def test_a_loader_that_is_not_known_or_too_slow_is_skipped() -> None:
    fake = machine()
    fake.cpu = "riscv64"
    assert look(LIBRARIES, fake).found == "this machine's loader is not known here"
    assert look(LIBRARIES, machine(Answer(None, problem="slow"))).found == "the loader did not answer in time"


def real(root: Path) -> Finding:
    """What the loader of this machine says of the modules below `root`."""
    stack = CPU
    subject = Subject(root, stack, RealMachine())
    return runtime_libraries._loads(subject, Installed({}, {}, {}))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A real extension module, in an environment whose path has a space."""
    folder = tmp_path / "a b" / ".venv-cpu" / "lib" / "python3.11" / "site-packages" / "vllm"
    folder.mkdir(parents=True)
    return Path(shutil.copy(_ctypes.__file__, folder / "_C.abi3.so"))


def test_the_real_loader_accepts_a_real_module(module: Path) -> None:
    found = real(module.parents[5])
    assert (found.status, found.found) == ("ok", "1 compiled parts can be loaded")


def test_the_real_loader_refuses_a_module_without_bytes(module: Path) -> None:
    module.write_bytes(b"")
    assert real(module.parents[5]).found == "cannot be loaded: _C.abi3.so (file too short)"
