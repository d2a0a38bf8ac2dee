"""Variables of the caller that a stack's programs would obey. A run drops them; programs started by hand do not.

Only names are shown: values may be secrets.
"""

from __future__ import annotations

from scripts.doctor.registry import Check, Finding, ok, warn
from scripts.doctor.subject import Subject

_STACKS_OWN = ("DYN_", "DYNAMO_", "ETCD_", "NATS_", "VLLM_")
_PYTHONS = ("PYTHONHOME", "PYTHONPATH", "LD_PRELOAD")


def _dropped(subject: Subject) -> Finding:
    required = "nothing that would turn a program which is started by hand elsewhere"
    names = sorted(name for name in subject.environ if name.startswith(_STACKS_OWN))
    if not names:
        return ok("none set", required)
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return ok(f"{shown}: set, and dropped by a run", required)


def _interpreter(subject: Subject) -> Finding:
    required = "no variable that puts other code into every program"
    names = [name for name in _PYTHONS if subject.environ.get(name)]
    if not names:
        return ok("none set", required)
    return warn(f"{', '.join(names)}: a run drops them, its tools do not all", required, f"unset {' '.join(names)}")


def _hub(subject: Subject) -> Finding:
    """For the record: a run asks no hub and has a cache of its own, so that a model must be a folder."""
    names = sorted(name for name in subject.environ if name.startswith(("HF_", "TRANSFORMERS_", "HUGGING_FACE_")))
    state = "offline" if subject.environ.get("HF_HUB_OFFLINE") in {"1", "true", "TRUE", "yes", "on"} else "online"
    shown = f"the shell's own programs are {state}; set: {', '.join(names) or 'nothing'}"
    return ok(f"a run asks no hub ({shown})", "nothing: a model is tiny, smollm2, or a complete folder")


CHECKS = (
    Check(
        id="runtime.stack-variables",
        title="variables of the stack",
        group="runtime",
        why="one forgotten NATS_SERVER or DYN_SYSTEM_PORT sends a program to another place",
        symptom="a NATS or etcd error with an address that nobody configured; `Address already in use`",
        cause="variables of another deployment in the shell",
        looks_at="names that begin with DYN_, ETCD_, NATS_ and VLLM_",
        fix="unset NAMES   # the doctor names them",
        reference="https://github.com/ai-dynamo/dynamo/issues/2577",
        needed_for=("run",),
        look=_dropped,
        rows=(24,),
    ),
    Check(
        id="runtime.python-variables",
        title="PYTHONPATH and the like",
        group="runtime",
        why="they put code before the pinned packages",
        symptom="another version is imported than the one that is installed",
        cause="PYTHONPATH, PYTHONHOME or LD_PRELOAD is exported in the shell",
        looks_at="whether they are set",
        fix="unset PYTHONPATH PYTHONHOME LD_PRELOAD",
        reference="https://docs.python.org/3/using/cmdline.html#envvar-PYTHONPATH",
        needed_for=("run",),
        look=_interpreter,
        rows=(22,),
    ),
    Check(
        id="runtime.hub",
        title="model hub",
        group="runtime",
        why="a run must give the same result without a network",
        symptom="a start that waits for a download, or fails without a network",
        cause="a served name that is taken for a repository of a hub",
        looks_at="names that begin with HF_, TRANSFORMERS_ and HUGGING_FACE_; HF_HUB_OFFLINE",
        fix="export HF_HUB_OFFLINE=1",
        reference="https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",
        needed_for=("run",),
        look=_hub,
        rows=(27,),
    ),
)
