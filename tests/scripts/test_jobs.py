"""As many compilers side by side as memory has room for, control groups included, and no more than cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.jobs import GIB, Jobs, Resources, available, choose, fewer


@pytest.mark.parametrize(
    ("cores", "memory_gib", "kind", "expected"),
    [
        (64, 512, "cuda", 64),
        (64, 101, "cuda", 20),
        (8, 16, "cuda", 3),
        (8, 16, "c++", 5),
        (8, 17, "rust", 8),
        (2, 24, "rust", 2),
        (16, 3, "cuda", 1),
    ],
)
def test_the_scarcer_of_cores_and_memory_decides(cores: int, memory_gib: int, kind: str, expected: int) -> None:
    assert choose(Resources(cores, memory_gib * GIB), kind=kind).compilers == expected


def test_what_decided_is_said() -> None:
    assert choose(Resources(4, 64 * GIB), kind="rust").limit == "cores: 4"
    assert choose(Resources(64, 11 * GIB), kind="cuda").limit == "memory: 11.0 GiB free, 5 GiB for each"


def test_one_compiler_works_however_little_memory_there_is() -> None:
    jobs = choose(Resources(8, GIB // 2), kind="cuda")
    assert (jobs.compilers, jobs.rust) == (1, 1)


def test_the_threads_of_nvcc_are_counted_among_the_compilers() -> None:
    """vLLM starts MAX_JOBS / NVCC_THREADS processes: the pair must say what was meant."""
    jobs = choose(Resources(9, 512 * GIB), kind="cuda", gpu_archs=4)
    assert (jobs.compilers, jobs.nvcc_threads, jobs.nvccs) == (8, 2, 4)


def test_one_gpu_architecture_leaves_nothing_to_share_out_within_nvcc() -> None:
    assert choose(Resources(9, 512 * GIB), kind="cuda", gpu_archs=1).nvcc_threads == 1


def test_the_users_number_wins() -> None:
    jobs = choose(Resources(2, 4 * GIB), kind="cuda", gpu_archs=4, override=12)
    assert jobs == Jobs(12, 2, 12, "asked for")


@pytest.mark.parametrize(("used", "then"), [(16, 8), (3, 1), (1, 1)])
def test_after_a_killed_build_half_of_them_are_tried(used: int, then: int) -> None:
    assert fewer(Jobs(used, 1, used, "")) == then


class Machine:
    """A /proc and a /sys/fs/cgroup of files."""

    def __init__(self, root: Path, membership: str, memory_gib: int = 100) -> None:
        self.proc, self.groups = root / "proc", root / "cgroup"
        self.write(self.proc / "meminfo", f"MemTotal: 999 kB\nMemAvailable:   {memory_gib * GIB // 1024} kB\n")
        self.write(self.proc / "self" / "cgroup", membership)
        self.groups.mkdir()

    def group(self, folder: str, **files: str) -> Machine:
        for name, text in files.items():
            self.write(self.groups / folder / name.replace("__", "."), text)
        return self

    def available(self) -> Resources:
        return available(self.proc, self.groups)

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_control_groups_the_machine_has_all_of_its_memory(tmp_path: Path) -> None:
    assert Machine(tmp_path, "0::/\n").available().memory == 100 * GIB


def test_a_kernel_without_control_groups_sets_no_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "")
    (machine.proc / "self" / "cgroup").unlink()
    assert machine.available().memory == 100 * GIB


def test_a_limit_of_version_2_counts_what_is_left_of_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/build\n").group(
        "build", memory__max=f"{16 * GIB}\n", memory__current=f"{10 * GIB}\n", memory__stat=f"inactive_file {4 * GIB}\n"
    )
    assert machine.available().memory == 10 * GIB


def test_a_limit_further_up_counts_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/slice/build\n")
    machine.group("slice", memory__max=f"{8 * GIB}\n", memory__current="0\n")
    machine.group("slice/build", memory__max="max\n", memory__current="0\n")
    assert machine.available().memory == 8 * GIB


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/../../docker/abc\n").group(".", memory__max=f"{6 * GIB}\n", memory__current="0\n")
    assert machine.available().memory == 6 * GIB


def test_a_limit_of_version_1(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "5:memory:/job\n4:cpu,cpuacct:/job\n")
    machine.group(
        "memory/job",
        memory__limit_in_bytes=f"{12 * GIB}\n",
        memory__usage_in_bytes=f"{3 * GIB}\n",
        memory__stat=f"inactive_file 0\ntotal_inactive_file {1 * GIB}\n",
    )
    machine.group("memory", memory__limit_in_bytes="9223372036854771712\n", memory__usage_in_bytes="0\n")
    assert machine.available().memory == 10 * GIB


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("build", {"cpu__max": "100000 100000\n"}),
        ("cpu/build", {"cpu__cfs_quota_us": "100000\n", "cpu__cfs_period_us": "100000\n"}),
    ],
)
def test_a_quota_of_cores_counts(tmp_path: Path, folder: str, files: dict[str, str]) -> None:
    machine = Machine(tmp_path, "0::/build\n3:cpu:/build\n").group(folder, **files)
    assert machine.available().cores == 1


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    free = Machine(tmp_path / "a", "0::/\n").available().cores
    machine = Machine(tmp_path / "b", "0::/build\n3:cpu:/build\n").group("build", cpu__max="max 100000\n")
    machine.group("cpu/build", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert machine.available().cores == free


def test_the_real_machine_answers() -> None:
    found = available()
    assert found.cores >= 1
    assert found.memory > 0
