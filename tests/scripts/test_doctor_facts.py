"""What the doctor reads of the stacks that there are."""

from __future__ import annotations

from scripts.doctor import facts
from scripts.layout import PROJECT_ROOT


def test_the_stacks_that_are_there_are_all_read() -> None:
    for name in facts.stack_names(PROJECT_ROOT):
        stack = facts.read(PROJECT_ROOT, name)
        assert (stack.unread, stack.name) == ("", name)
        assert [stack.engine, stack.from_source, "vllm" in stack.packages].count(True) == 1
    prime = facts.read(PROJECT_ROOT, "prime-rl")
    assert (prime.cuda, prime.torch_cuda, set(prime.recipes)) == (True, (13, 0), {"vllm", "dynamo", "sidecar"})
    assert len(prime.sources["vllm"].revision) == 40
