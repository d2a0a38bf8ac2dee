"""The two GPUs of a run reach each other, or it is said why not and which two do."""

from __future__ import annotations

import pytest
from doctor_fakes import CUDA, look
from doctor_gpus import HUNG, P2P, TOPO, Card, machine, table, two

from scripts.doctor import gpu_topology
from scripts.doctor.asking import Answer

(PEERS,) = gpu_topology.CHECKS


def test_peers_are_told_with_the_way_between_them() -> None:
    found = look(PEERS, two(), CUDA)
    assert (found.status, found.found) == ("ok", "GPU 0 and GPU 1: yes, over NV18")


@pytest.mark.parametrize(
    ("cell", "why"),
    [("CNS", "not supported by the chipset"), ("NS", "not supported"), ("ZZ", "not known to this program")],
)
def test_gpus_apart_are_a_warning_since_nccl_copies_through_shared_memory(cell: str, why: str) -> None:
    fake = two()
    fake.answers.update({P2P: table(2, cell), TOPO: table(2, "PHB")})
    found = look(PEERS, fake, CUDA)
    assert found.status == "warn"
    assert found.found == f"GPU 0 and GPU 1: no ({cell}: {why}), way PHB; NCCL copies through /dev/shm, slower"
    assert found.fix.startswith("df -h /dev/shm")


def test_two_other_gpus_that_reach_each_other_are_offered() -> None:
    fake = machine(*map(Card, range(4)))
    rows = "GPU0\tX\tCNS\tCNS\tCNS\nGPU1\tCNS\tX\tCNS\tCNS\nGPU2\tCNS\tCNS\tX\tOK\nGPU3\tCNS\tCNS\tOK\tX\n"
    fake.answers[P2P] = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + rows
    assert look(PEERS, fake, CUDA).fix.startswith("export CUDA_VISIBLE_DEVICES=2,3 ")


def test_the_order_of_the_visible_gpus_counts() -> None:
    fake = machine(*map(Card, range(3)), environ={"CUDA_VISIBLE_DEVICES": "2,0"})
    assert look(PEERS, fake, CUDA).found == "GPU 2 and GPU 0: yes, over NV18"


@pytest.mark.parametrize(
    "answer", [HUNG, Answer(2, "Invalid combination of input arguments."), "nothing of the kind\n"]
)
def test_a_table_that_is_not_there_is_skipped(answer: Answer | str) -> None:
    fake = two()
    fake.answers[P2P] = answer
    assert look(PEERS, fake, CUDA).status == "skip"


def test_one_gpu_has_no_peer() -> None:
    assert look(PEERS, machine(Card(0)), CUDA).status == "skip"
