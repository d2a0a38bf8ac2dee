"""The live line below a run's report: the phase that goes on, for how long, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.spinner import Spinner
from rich.text import Text

from harness import events

_AFTER_STAGE: Mapping[events.Stage, str] = {
    "repeated": "a refit to perturbed weights",
    "perturbed": "a refit back",
    "restored": "a last generation",
}
FOLLOWING = {"install": "ready", "ready": "train", "train": "teardown"}


class Progress:
    """Follows the events. Drawn from another thread than the one that follows, hence immutable values only."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._spinner = Spinner("line")
        self._awaited: tuple[str, ...] = ()
        self._doing = ""
        self._steps: int | None = None
        self._lora = False
        self.phase: str | None = None

    def follow(self, event: events.BaseEvent) -> None:
        match event:
            case events.RunStarted():
                self._steps, self._lora = event.config.get("steps"), event.config.get("lora") is True
                self._enter("install")
            case events.Phase():
                self._enter(FOLLOWING.get(event.phase))
            case events.Failure():
                self._enter("teardown")
            case events.ServiceStarted():
                self._awaited = (*self._awaited, event.service)
            case events.ServiceReady() | events.ServiceExited():
                self._no_longer(event.service)
            case events.TrainerReady():
                self._no_longer("trainer")
            case events.Refit():
                self._doing = f"observing version {event.version}"
            case events.Surveyed():
                self._doing = "the command" if event.when == "before" else "a last generation"
            case events.CommandEnded():
                self._doing = "observing what it left"
            case events.Observed():
                self._doing = self._after(event.version)
            case events.Destroyed():
                self._doing = "refit 0"
            case events.Perturbation():
                self._doing = f"observing the {event.stage} weights"
            case events.PerturbationObserved():
                adapter = self._lora and event.stage == "restored"
                self._doing = "a LoRA adapter" if adapter else _AFTER_STAGE[event.stage]
            case events.Adapter():
                self._doing = "trying the LoRA adapter"
            case events.AdapterObserved():
                self._doing = "a last generation"
            case events.Step():
                self._doing = f"refit {event.step}"

    def _enter(self, phase: str | None) -> None:
        self.phase, self._since, self._doing = phase, self._clock(), ""
        self._awaited = ()

    def _no_longer(self, service: str) -> None:
        self._awaited = tuple(name for name in self._awaited if name != service)

    def _after(self, version: int) -> str:
        """What the run does once `version` was observed."""
        if version == events.BEFORE_TRANSFER:
            return "destroying the weights"
        if version == self._steps:
            return "a refit to the same weights"
        return f"step {version + 1} of {self._steps}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.phase is None:
            return
        waiting = f"waiting for {', '.join(self._awaited)}" if self._awaited else self._doing
        text = Text(f"{self.phase}  {self._clock() - self._since:.0f} s  {waiting}", no_wrap=True, overflow="ellipsis")
        self._spinner.update(text=text)
        yield self._spinner
