"""Every sabotage as data. Imports nothing of the harness, so that anything may read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Where = Literal["trainer", "harness"]

OVER_A_GROUP = ("native", "collective-rpc")
BY_FILES = ("filesystem",)


@dataclass(frozen=True)
class Sabotage:
    """One fault. `fails` are the checks that it must turn red, and no other; `words` must be in what those say.

    Where several fail, or one and the run itself, each has words of its own, by its id or by the kind of failure.
    `where` is who does it: the trainer, from its configuration, or the harness, in `acts`. `ends_in` is the kind of
    failure in which the run has to end, None where it goes on to its end. It needs a run of so many `engines`; `refits`
    are the kinds of refit in which there is such a fault.
    """

    name: str
    does: str
    where: Where
    fails: tuple[str, ...]
    words: tuple[str, ...] | Mapping[str, tuple[str, ...]]
    ends_in: str | None = None
    engines: int = 1
    refits: tuple[str, ...] = (*OVER_A_GROUP, *BY_FILES)

    @property
    def reasons(self) -> Mapping[str, tuple[str, ...]]:
        """The words of each check that fails, and of the run's end. Raises ValueError for words that are nobody's."""
        who = (*self.fails, *([] if self.ends_in is None else [self.ends_in]))
        words = {who[0]: self.words} if isinstance(self.words, tuple) else self.words
        if set(words) != set(who):
            raise ValueError(f"{self.name}: words of {', '.join(words)}, while what fails is {', '.join(who)}")
        return words


SABOTAGES: tuple[Sabotage, ...] = (
    Sabotage(
        "label-without-weights",
        "the last refit sets its version and moves nothing",
        "trainer",
        ("policy.weights-digests", "policy.weights-match", "policy.weights-changed", "policy.weights-restored"),
        {
            "policy.weights-digests": ("version 2: ", "differs from the trainer's"),
            "policy.weights-match": ("version 2 probe ",),
            "policy.weights-changed": ("version 1 to 2: |diff| is only 0.0e+00",),
            "policy.weights-restored": ("restored: probes ",),
        },
    ),
    Sabotage(
        "weights-without-label",
        "the last refit moves the weights and sets no version",
        "trainer",
        ("policy.versions-advance", "policy.versions-spans"),
        {
            "policy.versions-advance": ("version 2: engine label '1'", "sidecar label '1'"),
            "policy.versions-spans": ("version 2 output 0 says 1[",),
        },
    ),
    Sabotage(
        "one-corrupted-tensor",
        "one bit of one small tensor is flipped on its way to the engines",
        "trainer",
        ("policy.weights-digests",),
        ("version 2: ", "norm.weight"),
    ),
    Sabotage(
        "swapped-tensors",
        "two large tensors of equal shape are sent under each other's name",
        "trainer",
        ("policy.weights-digests", "policy.weights-match"),
        {
            "policy.weights-digests": ("version 2: ", ".weight differs from the trainer's"),
            "policy.weights-match": ("version 2 probe ",),
        },
    ),
    Sabotage(
        "misled-second-engine",
        "of two engines, the last refit tells the second two names of equal shape in each other's place",
        "trainer",
        ("policy.weights-digests", "policy.weights-match"),
        {
            "policy.weights-digests": ("version 2: engine-1 rank 0: ",),
            "policy.weights-match": ("version 2 at engine-1 probe ",),
        },
        engines=2,
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "refused-by-second-engine",
        "of two engines, the second refuses the last refit's update, while the first waits in the collective",
        "trainer",
        (),
        ("status 500", "float31", "engine-0 is paused, engine-1 is paused"),
        ends_in="refit",
        engines=2,
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "past-the-frontend",
        "of two engines, all rollouts are asked of the first, past the frontend",
        "trainer",
        ("training.rollouts-served",),
        ("step 1: engine-1 finished no request",),
        engines=2,
    ),
    Sabotage(
        "half-the-names",
        "the trainer announces and sends only the first half of the tensors",
        "trainer",
        ("policy.weights-covered",),
        {"policy.weights-covered": ("not sent: ",), "refit": ("the trainer's tensors are not the engine's",)},
        ends_in="refit",
    ),
    Sabotage(
        "suppressed-update",
        "the optimizer's steps move no weight",
        "trainer",
        ("policy.weights-changed", "policy.mismatch"),
        {
            "policy.weights-changed": ("version 0 to 1: |diff| is only 0.0e+00",),
            "policy.mismatch": ("only 0 of 16 rollouts tell versions apart",),
        },
    ),
    Sabotage(
        "errored-rollouts",
        "one rollout of each step asks for a model that nobody serves",
        "trainer",
        ("training.rewards",),
        ("step 1: 1 of 64 rollouts errored", "404"),
    ),
    Sabotage(
        "miscounted-steps",
        "the trainer says that it took a step less than it was asked for",
        "trainer",
        ("training.four-steps",),
        ("the trainer reports 1 steps",),
    ),
    Sabotage(
        "stale-rollouts",
        "each step is taken with the first step's rollouts",
        "trainer",
        ("policy.mismatch",),
        ("step 2: ", "rollouts not of version 1: fit version 0"),
    ),
    Sabotage(
        "misnamed-samples",
        "the trainer says of the last step's rollouts that they are of the version before",
        "trainer",
        ("policy.versions-spans",),
        ("the trainer says sampled from version 0, outputs right before it name 1",),
    ),
    Sabotage(
        "stale-prefix-cache",
        "the last refit leaves the prefix cache as it is",
        "trainer",
        ("policy.cache-reset",),
        ("refit 2: 256 of 300 tokens were still cached after it",),
    ),
    Sabotage(
        "left-paused",
        "after the run's last refit the engines are not resumed",
        "trainer",
        ("policy.weights-restored", "generation.after-update", "engine.not-paused"),
        {
            "policy.weights-restored": ("no probes of ",),
            "generation.after-update": ("HTTP 0: ",),
            "engine.not-paused": ("is paused",),
        },
    ),
    Sabotage(
        "not-destroyed",
        "the engines' weights are left as they are before the first transfer",
        "harness",
        ("policy.weights-destroyed",),
        ("destroyed: |diff| is only 0.0e+00", "is still what it was"),
    ),
    Sabotage(
        "wrong-pin-installed",
        "the run's environment has one package in another version than the pinned one",
        "harness",
        ("stack.pins-installed",),
        ("smokestack-payload 0.0.0+sabotage, pinned ",),
    ),
    Sabotage(
        "exposed-listener",
        "a process of the run listens on all addresses of the machine",
        "harness",
        ("stack.loopback-only",),
        ("exposed (pid ", "listens on 0.0.0.0:"),
    ),
    Sabotage(
        "leaked-process",
        "a process of the run lives on after its stack was taken down",
        "harness",
        ("teardown.clean",),
        ("(leaked) is alive",),
    ),
    Sabotage(
        "engine-restarted-behind-the-sidecar",
        "the engine is killed and started anew on its ports, while its sidecar stays",
        "harness",
        ("stack.same-processes",),
        {"stack.same-processes": ("engine-0 exited with -9",), "service-died": ("engine-0 was replaced",)},
        ends_in="service-died",
    ),
    Sabotage(
        "replaced-topology",
        "discovery lists the engine as another instance than the one that was pinned",
        "harness",
        ("discovery.topology",),
        {
            "discovery.topology": ("the topology changed under the run", "gone: ", "new: "),
            "discovery": ("the topology changed under the run",),
        },
        ends_in="discovery",
    ),
    Sabotage(
        "unpublished-model",
        "the frontend has lost the model when it is asked after the last refit",
        "harness",
        ("generation.after-update",),
        ("HTTP 404",),
    ),
    Sabotage(
        "wrong-rank-offset",
        "the engines are told ranks one too high",
        "trainer",
        (),
        ("rank 2 is outside the group: expected ranks [1]",),
        ends_in="refit",
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "unknown-name",
        "the last refit's update names a parameter that the model does not have",
        "trainer",
        (),
        ("status 500", "nobody"),
        ends_in="refit",
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "refused-update",
        "the engines refuse the last refit's update while the trainer's broadcast has begun",
        "trainer",
        (),
        ("status 500", "float31"),
        ends_in="refit",
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "half-a-checkpoint",
        "the last version's checkpoint lacks the end of a file",
        "trainer",
        (),
        ("status 500", "half a checkpoint: ", "file not fully covered"),
        ends_in="refit",
        refits=BY_FILES,
    ),
    Sabotage(
        "world-too-large",
        "trainer and engines wait for one rank more than there are",
        "trainer",
        (),
        ("expected ranks [1, 2]", "missing [2]"),
        ends_in="refit",
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "unreachable-master",
        "the engines are told an address for the rendezvous that nobody has",
        "trainer",
        (),
        ("no more ranks joined within", "expected ranks [1], joined [], missing [1]"),
        ends_in="refit",
        refits=OVER_A_GROUP,
    ),
    Sabotage(
        "failing-command",
        "in the place of our trainer, a command that fails",
        "harness",
        ("training.command",),
        {"training.command": ("exit status 3",), "training": ("the command failed",)},
        ends_in="training",
    ),
    Sabotage(
        "labelling-command",
        "in the place of our trainer, a command that sets a version and moves nothing",
        "harness",
        ("policy.weights-changed",),
        ("|diff| is only 0.0e+00, and none of ", " digests changed"),
        refits=("native",),
    ),
)

HARNESS_SABOTAGES: Mapping[str, str] = {one.name: one.does for one in SABOTAGES if one.where == "harness"}
"""What the harness does wrong, by name."""

TRAINER_SABOTAGES: Mapping[str, str] = {one.name: one.does for one in SABOTAGES if one.where == "trainer"}
"""What the trainer does wrong, by name."""


def for_trainer(name: str | None) -> str | None:
    """What the trainer is told: nothing of a sabotage that is not its own to do."""
    return name if name in TRAINER_SABOTAGES else None


UNSABOTAGED: Mapping[str, str] = {
    "teardown.gpu-memory": "there was no run on GPUs to sabotage: its tests edit the events of one",
}
"""Checks that no sabotage turns red, with the reason why none can. `docs/sabotage.md` lists them."""


def named(name: str | None) -> Sabotage | None:
    """The sabotage of that name; None for None. Raises KeyError for a name that is none."""
    return None if name is None else {one.name: one for one in SABOTAGES}[name]
