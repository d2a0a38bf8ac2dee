"""The sabotages that the harness makes, in `acts`."""

from __future__ import annotations

from harness.sabotage.declaration import Sabotage

ON_THE_STACK: tuple[Sabotage, ...] = (
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
)
"""In the stack, its environment and its end."""

AS_THE_COMMAND: tuple[Sabotage, ...] = (
    Sabotage(
        "failing-command",
        "in the place of our trainer, a command that fails",
        "harness",
        ("training.command",),
        {"training.command": ("exit status 3",), "training": ("the command failed",)},
        ends_in="training",
        as_command=True,
    ),
    Sabotage(
        "labelling-command",
        "in the place of our trainer, a command that sets a version and moves nothing",
        "harness",
        ("policy.weights-changed",),
        ("|diff| is only 0.0e+00, and none of ", " digests changed"),
        refits=("native",),
        as_command=True,
    ),
    Sabotage(
        "unlabelled-command",
        "in the place of our trainer, a command that moves the weights and sets no version",
        "harness",
        ("policy.versions-advance",),
        ("has version 'default', as before the command",),
        refits=("native",),
        as_command=True,
    ),
    Sabotage(
        "pausing-command",
        "in the place of our trainer, a command that moves the weights, sets a version and leaves the engines paused",
        "harness",
        ("policy.weights-changed", "generation.after-update", "engine.not-paused"),
        {
            "policy.weights-changed": ("before to after: no probes",),
            "generation.after-update": ("no generation after the last refit",),
            "engine.not-paused": ("is paused",),
        },
        refits=("native",),
        as_command=True,
    ),
)
"""In the place of our trainer."""
