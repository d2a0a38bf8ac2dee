"""The sabotages that the trainer makes, in the payload."""

from __future__ import annotations

from harness.sabotage.declaration import BY_FILES, OVER_A_GROUP, Sabotage

WHILE_TRAINING: tuple[Sabotage, ...] = (
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
        ("policy.versions-advance", "policy.versions-spans", "policy.generations-in-flight"),
        {
            "policy.versions-advance": ("version 2: engine label '1'", "sidecar label '1'"),
            "policy.versions-spans": ("version 2 output 0 says 1[",),
            "policy.generations-in-flight": ("was begun under 2",),
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
        "drained-generations",
        "the refit that is to keep what runs lets it finish first",
        "trainer",
        ("policy.generations-in-flight",),
        ("engine output 0 went on under 2-perturbed, although it was held",),
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
        ("policy.weights-restored", "policy.generations-in-flight", "generation.after-update", "engine.not-paused"),
        {
            "policy.weights-restored": ("no probes of ",),
            "policy.generations-in-flight": ("restored weights, paused by keep: ", "no end within "),
            "generation.after-update": ("HTTP 0: ",),
            "engine.not-paused": ("is paused",),
        },
    ),
)
"""In what is sent, rolled out, stepped and told."""

FAILING_REFITS: tuple[Sabotage, ...] = (
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
)
"""In a refit, so that it fails and the run ends with it: no check is to turn red."""
