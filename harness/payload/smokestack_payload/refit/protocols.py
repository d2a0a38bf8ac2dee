"""How engines are told of a weight update: which routes, with what bodies, and which of their answers are good.

One protocol per kind of refit, chosen by name. A protocol is data: `admin.EngineFleet` makes the calls of a phase on
every engine at the same time, one after another on each. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from smokestack_payload.errors import ProtocolError
from smokestack_payload.settings import EngineAddress, TrainerSettings

NATIVE = "native"
COLLECTIVE_RPC = "collective-rpc"
FILESYSTEM = "filesystem"


def any_answer(_answer: Mapping[str, Any]) -> str | None:
    """For a route that says all that it has to say by its status."""
    return None


@dataclass(frozen=True)
class Call:
    """One POST. `fault` gets the JSON object of a successful answer and says what is wrong with it."""

    path: str
    body: Any = None
    params: Mapping[str, str] | None = None
    fault: Callable[[Mapping[str, Any]], str | None] = any_answer


class RefitProtocol(Protocol):
    """The calls of each phase of an update, for one engine. Without a `version`, an update is finished nameless.

    `nothing` is the information of an update that moves no weight.
    """

    @property
    def nothing(self) -> Any: ...

    def init(self, engine: EngineAddress, init_info: Mapping[str, Any]) -> list[Call]: ...

    def start(self, engine: EngineAddress) -> list[Call]: ...

    def update(self, engine: EngineAddress, update_info: Any) -> list[Call]: ...

    def finish(self, engine: EngineAddress, version: str | None) -> list[Call]: ...


NO_TENSORS: Mapping[str, list[Any]] = {"names": [], "dtype_names": [], "shapes": []}


class WeightRoutes:
    """vLLM's own routes for weights: the engine keeps the version, and its sidecar reads it there."""

    @property
    def nothing(self) -> Any:
        return NO_TENSORS

    def init(self, engine: EngineAddress, init_info: Mapping[str, Any]) -> list[Call]:
        return [Call("/init_weight_transfer_engine", {"init_info": _for_engine(engine, init_info)})]

    def start(self, engine: EngineAddress) -> list[Call]:
        return [Call("/start_weight_update")]

    def update(self, engine: EngineAddress, update_info: Any) -> list[Call]:
        return [Call("/update_weights", {"update_info": update_info})]

    def finish(self, engine: EngineAddress, version: str | None) -> list[Call]:
        return [Call("/finish_weight_update", {} if version is None else {"weight_version": version})]


@dataclass(frozen=True)
class CollectiveRpc:
    """Methods of our worker extension, for a front end without routes for weights.

    Each worker keeps the version itself. Where the front end has a label of its own (`engine_label`), it is told as
    well, after all workers have it.
    """

    backend: str
    engine_label: bool

    @property
    def nothing(self) -> Any:
        return NO_TENSORS

    def init(self, engine: EngineAddress, init_info: Mapping[str, Any]) -> list[Call]:
        init = _for_engine(engine, init_info)
        return [worker_call(engine, "smokestack_init_transfer", backend=self.backend, init_info=init)]

    def start(self, engine: EngineAddress) -> list[Call]:
        return [worker_call(engine, "smokestack_start_update")]

    def update(self, engine: EngineAddress, update_info: Any) -> list[Call]:
        return [worker_call(engine, "smokestack_update", update_info=update_info)]

    def finish(self, engine: EngineAddress, version: str | None) -> list[Call]:
        finished = worker_call(engine, "smokestack_finish_update")
        return [finished, *labelled(engine, version, engine_label=self.engine_label)]


@dataclass(frozen=True)
class Filesystem:
    """vLLM's own `reload_weights` in every worker, between two methods of ours. The label as with `CollectiveRpc`."""

    engine_label: bool

    @property
    def nothing(self) -> Any:
        return None

    def init(self, engine: EngineAddress, init_info: Mapping[str, Any]) -> list[Call]:
        return []

    def start(self, engine: EngineAddress) -> list[Call]:
        return []

    def update(self, engine: EngineAddress, update_info: Any) -> list[Call]:
        if update_info is None:
            return []
        path = update_info["weights_path"]
        return [
            worker_call(engine, "smokestack_begin_reload", folder=path),
            worker_call(engine, "reload_weights", weights_path=path),
            worker_call(engine, "smokestack_end_reload"),
        ]

    def finish(self, engine: EngineAddress, version: str | None) -> list[Call]:
        return labelled(engine, version, engine_label=self.engine_label)


def protocol_of(settings: TrainerSettings) -> RefitProtocol:
    """The one that the configuration names. Raises ProtocolError for a name that is none."""
    known: Mapping[str, Callable[[], RefitProtocol]] = {
        NATIVE: WeightRoutes,
        COLLECTIVE_RPC: lambda: CollectiveRpc(settings.backend, settings.engine_label),
        FILESYSTEM: lambda: Filesystem(settings.engine_label),
    }
    if settings.refit not in known:
        raise ProtocolError("no such kind of refit", expected=", ".join(known), found=settings.refit, where="refit")
    return known[settings.refit]()


def worker_call(engine: EngineAddress, method: str, **arguments: Any) -> Call:
    """A method of every worker of the engine. A good answer is exactly one null for each of them."""
    body: dict[str, Any] = {"method": method}
    if arguments:
        body["kwargs"] = arguments
    return Call("/collective_rpc", body, fault=lambda answer: _not_nulls(answer, engine.world_size))


def labelled(engine: EngineAddress, version: str | None, *, engine_label: bool) -> list[Call]:
    """Name the weights that all workers now have; nothing for a nameless update."""
    if version is None:
        return []
    calls = [worker_call(engine, "smokestack_set_version", version=version)]
    if engine_label:
        calls.append(Call("/update_weight_version", {"new_version": version}))
    return calls


def _for_engine(engine: EngineAddress, init_info: Mapping[str, Any]) -> dict[str, Any]:
    """Each engine gets its own rank offset in place of the one that a single engine would have."""
    return {**init_info, "rank_offset": engine.rank_offset}


def _not_nulls(answer: Mapping[str, Any], ranks: int) -> str | None:
    results = answer.get("results")
    if isinstance(results, list) and len(results) == ranks and all(result is None for result in results):
        return None
    return f"not one null for each of {ranks} rank(s)"
