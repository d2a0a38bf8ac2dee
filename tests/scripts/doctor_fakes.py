"""A machine made of dictionaries, for the doctor's tests: every check sees exactly what the test wrote down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.doctor.asking import Answer
from scripts.doctor.facts import StackFacts
from scripts.doctor.machine import ASK_LIMIT_S, Space
from scripts.doctor.registry import Check, Finding
from scripts.doctor.subject import Options, Subject
from scripts.jobs import Resources

GIB = 1 << 30
_TABLE = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@dataclass
class FakeMachine:
    """A machine on which nothing is there but what the fields say."""

    environ: Mapping[str, str] = field(default_factory=dict)
    home: str = "/home/me"
    files: dict[str, str] = field(default_factory=dict)
    """Path -> text. Folders are those of the files, and those that `folders` adds."""
    folders: set[str] = field(default_factory=set)
    programs: dict[str, str] = field(default_factory=dict)
    """What PATH has: name -> path."""
    answers: dict[str, Answer | str] = field(default_factory=dict)
    """`"cmake --version"` -> its output, or an `Answer` that is not a success; `"NAME=value cmake --version"` for a
    question that is put with a variable, which comes first."""
    links: dict[str, str] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    read_only: set[str] = field(default_factory=set)
    """Paths that may not be written."""
    spaces: dict[str, Space] = field(default_factory=dict)
    """Mount point -> its space; the longest that holds a path counts."""
    hosts: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"localhost": ("127.0.0.1",)})
    taken: dict[tuple[str, int], str] = field(default_factory=dict)
    """(host, port) -> why one cannot listen there."""
    kernel: str = "Linux"
    cpu: str = "x86_64"
    c_library: str = "glibc 2.36"
    python: tuple[int, int, int] = (3, 11, 7)
    user: int = 1000
    core_count: int = 8
    free: Resources = field(default_factory=lambda: Resources(cores=8, memory=64 << 30))
    clock: float = 1_800_000_000.0
    encoding: str = "utf-8"
    open_files: tuple[int, int] = (65536, 65536)
    asked: list[str] = field(default_factory=list)

    def system(self) -> str:
        return self.kernel

    def architecture(self) -> str:
        return self.cpu

    def libc(self) -> str:
        return self.c_library

    def python_version(self) -> tuple[int, int, int]:
        return self.python

    def user_id(self) -> int:
        return self.user

    def cores(self) -> int:
        return self.core_count

    def resources(self) -> Resources:
        return self.free

    def now(self) -> float:
        return self.clock

    def locale_encoding(self) -> str:
        return self.encoding

    def open_files_limit(self) -> tuple[int, int]:
        return self.open_files

    def read_text(self, path: str | Path) -> str | None:
        return self.files.get(str(path))

    def entries(self, path: str | Path) -> tuple[str, ...] | None:
        if not self.is_dir(path):
            return None
        inside = [Path(each) for each in (*self.files, *self.folders, *self.sizes, *self.links)]
        return tuple(sorted({each.relative_to(path).parts[0] for each in inside if Path(path) in each.parents}))

    def exists(self, path: str | Path) -> bool:
        return str(path) in {*self.files, *self.sizes, *self.programs.values()} or self.is_dir(path)

    def is_dir(self, path: str | Path) -> bool:
        inside = [Path(each) for each in (*self.files, *self.folders, *self.sizes)]
        return str(path) in self.folders or any(Path(path) in each.parents for each in inside)

    def may_write(self, path: str | Path) -> bool:
        return self.exists(path) and str(path) not in self.read_only

    def size(self, path: str | Path) -> int | None:
        text = self.files.get(str(path))
        return self.sizes.get(str(path), None if text is None else len(text))

    def modified(self, path: str | Path) -> float | None:
        return self.times.get(str(path), self.clock if self.exists(path) else None)

    def owner(self, path: str | Path) -> int | None:
        return self.owners.get(str(path), self.user if self.exists(path) else None)

    def link(self, path: str | Path) -> str | None:
        return self.links.get(str(path))

    def space(self, path: str | Path) -> Space | None:
        mounts = [mount for mount in self.spaces if Path(mount) in (Path(path), *Path(path).parents)]
        return self.spaces[max(mounts, key=len)] if mounts else None

    def which(self, name: str) -> str | None:
        return self.programs.get(name)

    def ask(self, argv: Sequence[str], limit_s: float = ASK_LIMIT_S, env: Mapping[str, str] | None = None) -> Answer:
        question = " ".join(argv)
        self.asked.append(question)
        with_variables = " ".join([*(f"{name}={value}" for name, value in (env or {}).items()), question])
        nobody = Answer(None, problem=f"no {Path(argv[0]).name}")
        answer = self.answers.get(with_variables, self.answers.get(question, nobody))
        return Answer(0, answer) if isinstance(answer, str) else answer

    def addresses(self, name: str) -> tuple[str, ...]:
        return self.hosts.get(name, ())

    def bind_refusal(self, host: str, port: int) -> str | None:
        return self.taken.get((host, port))

    def close(self) -> None:
        return


CPU = StackFacts("cpu", engine=True, packages={"torch": "2.13.0+cpu"})
CUDA = StackFacts(
    "prime-rl",
    platform="cuda",
    python="3.12",
    dialect="native-sidecar",
    torch_backend="cu130",
    refit_backend="nccl",
    recipes={
        "vllm": {"source": "vllm", "device": "cuda", "cuda_archs": ["9.0"]},
        "dynamo": {"source": "dynamo", "features": []},
        "sidecar": {"source": "dynamo"},
    },
    tools={"rust": "1.95.0", "protoc": "25.3", "cuda": "13.0"},
    packages={"torch": "2.13.0+cu130"},
)


def subject(
    machine: FakeMachine,
    stack: StackFacts = CPU,
    *,
    purpose: str | None = None,
    options: Options | None = None,
    root: str = "/home/me/smokestack",
) -> Subject:
    """`machine` with `stack` on it."""
    return Subject(Path(root), stack, machine, purpose, options or Options())


def look(check: Check, machine: FakeMachine, stack: StackFacts = CPU, **more: object) -> Finding:
    """What `check` finds there."""
    return check.look(subject(machine, stack, **more))  # type: ignore[arg-type]


def listens(fake: FakeMachine, pid: int, address: str, port: int, table: str = "/proc/net/tcp") -> FakeMachine:
    """`fake`, with a process that listens at an address as the kernel writes it."""
    entry = f"   0: {address}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 {pid}77 1\n"
    fake.files[table] = fake.files.get(table, _TABLE) + entry
    fake.folders.add(f"/proc/{pid}/fd")
    fake.links[f"/proc/{pid}/fd/5"] = f"socket:[{pid}77]"
    return fake
