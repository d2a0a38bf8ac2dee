"""Machines with GPUs, for the doctor's tests: nvidia-smi as its documentation and public logs show it.

No test here runs on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from doctor_fakes import FakeMachine

from scripts.doctor.asking import Answer
from scripts.doctor.gpu_smi import QUERY

APPS = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv,noheader,nounits"
P2P = "nvidia-smi topo -p2p r"
TOPO = "nvidia-smi topo -m"
SMI = " ".join(QUERY)


@dataclass
class Card:
    """One line of nvidia-smi."""

    index: int
    name: str = "NVIDIA H100 80GB HBM3"
    driver: str = "580.95.05"
    total: str = "81559"
    used: str = "4"
    capability: str = "9.0"
    mig: str = "Disabled"
    mode: str = "Default"
    uuid: str = field(default="")

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"GPU-{self.index}aaaaaaa-0000-0000-0000-00000000000{self.index}"

    def line(self) -> str:
        return ", ".join(
            (
                *(str(self.index), self.uuid, self.name, self.driver, self.total, self.used, self.capability),
                *(self.mig, self.mode, "Enabled", "Enabled"),
            )
        )


def machine(*cards: Card, smi: Answer | str | None = None, **more: object) -> FakeMachine:
    """A machine with these GPUs, on which nothing runs; `smi` is another answer of nvidia-smi."""
    made = FakeMachine(
        programs={"nvidia-smi": "/usr/bin/nvidia-smi"},
        answers={
            SMI: smi if smi is not None else "\n".join(card.line() for card in cards) + "\n",
            APPS: "",
            P2P: table(len(cards), "OK"),
            TOPO: table(len(cards), "NV18", " \tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"),
        },
        folders={"/dev"},
        sizes={f"/dev/{name}": 0 for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{card.index}" for card in cards))},
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def two(**more: object) -> FakeMachine:
    """Two good GPUs."""
    return machine(Card(0), Card(1), **more)


def table(count: int, cell: str, tail: str = "") -> str:
    """A matrix of `nvidia-smi topo`, underlined as on a terminal, with its legend."""
    names = [f"GPU{index}" for index in range(count)]
    rows = ["\t".join([row, *("X" if row == column else cell for column in names)]) for row in names]
    return "\n".join(["\t\x1b[4m" + "\t".join(names) + tail + "\x1b[0m", *rows, "", "Legend:", "  X    = Self"])


NONE = Answer(None, problem="nvidia-smi: No such file or directory")
HUNG = Answer(None, problem="nvidia-smi did not answer within 4 s")
