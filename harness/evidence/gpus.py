"""Checks that only a run on GPUs has to pass."""

from __future__ import annotations

from harness import events
from harness.evidence.check import Expectation, Findings, counted
from harness.evidence.timeline import Timeline, first_and_last

SLACK_MIB = 64
"""What may come and go without any process of a run: the driver's own, where nothing else keeps it loaded."""


def memory_given_back(run: Timeline, want: Expectation) -> Findings:
    """`teardown.gpu-memory`: after everything was ended, no GPU of the run has more memory in use than before it."""
    findings = Findings(
        expected=f"GPUs {', '.join(want.gpus)}: no more than {SLACK_MIB} MiB above what was in use before the run",
        proves="nothing of the run holds memory of a GPU",
        means="memory of a GPU is still in use: a process of the run outlived it, or another one came meanwhile",
        always_due=True,
    )
    before, after = first_and_last(run.require(events.GpuMemory, findings), "start", "end")
    if want.keep_up and after is None and run.failure is None:
        findings.not_asked = "--keep-up leaves the stack running"
        return findings
    if run.failure is not None and not run.of(events.ServiceStarted):
        findings.not_asked = f"the run ended in {run.failure.kind}: nothing was started"
        return findings
    for when, look in (("before", before), ("after", after)):
        if look is None:
            findings.missing.append(f"GPU memory was not looked at {when} the run")
    if before is None or after is None:
        return findings
    started = run.of(events.ServiceStarted)
    if started and run.position(before) > run.position(started[0]):
        findings.missing.append("GPU memory was first looked at after a service was started")
    teardowns = run.of(events.Teardown)
    if teardowns and run.position(after) < run.position(teardowns[-1]):
        findings.missing.append("GPU memory was last looked at before everything was ended")
    for look in (before, after):
        unseen = set(want.gpus) - {gpu.name for gpu in look.gpus}
        findings.missing += [f"GPU {name} was not looked at ({look.when})" for name in sorted(unseen)]
    findings.wrong += risen(before, after)
    used = ", ".join(f"GPU {gpu.name}: {gpu.used_mib} MiB" for gpu in after.gpus)
    findings.seen = f"{counted(len(after.gpus), 'GPU')} as before: {used}"
    return findings


def risen(before: events.GpuMemory, after: events.GpuMemory) -> list[str]:
    """Each GPU with more memory in use than before, in words; one that is not told of counts as well."""
    now = {gpu.name: gpu for gpu in after.gpus}
    found = []
    for old in before.gpus:
        new = now.get(old.name)
        if new is None or new.used_mib is None or old.used_mib is None:
            found.append(f"GPU {old.name}: memory in use is not told")
        elif new.used_mib > old.used_mib + SLACK_MIB:
            who = ", ".join(
                f"pid {one.pid} ({one.program}) {'unknown' if one.used_mib is None else one.used_mib} MiB"
                for one in new.processes
            )
            found.append(f"GPU {old.name}: {new.used_mib} MiB in use, {old.used_mib} before: {who or 'nobody listed'}")
    return found
