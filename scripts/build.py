"""`build`: a stack file's artifacts into `dist/<stack>`, each only when something that goes into it has changed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from scripts import assemble, payload_wheel, pins, requirements_file, sources
from scripts import manifest as manifests
from scripts.cache import Cache, Entry
from scripts.console import Console
from scripts.digests import file_sha256, files_sha256, json_sha256, source_files
from scripts.errors import BuildError
from scripts.layout import Layout
from scripts.manifest import Artifact, InstalledBinary, LockFile, Manifest, SourceFile
from scripts.payload_wheel import Payload
from scripts.pins import Engine, Stack
from scripts.publish import publishing, remove, sweep_partials
from scripts.requirements_file import Locked, normalised

_PLANE = Path(__file__).parent
# The modules whose code decides an artifact's bytes: a change to one of them is a change of the recipe.
_ENGINE_RECIPE = ("assemble.py", "wheels.py")
_PAYLOAD_RECIPE = ("payload_wheel.py", "wheels.py")
_MANIFEST_RECIPE = ("build.py", "manifest.py")


@dataclass(frozen=True)
class Inputs:
    """All that a build reads, and the digests that decide what must be made again."""

    stack: Stack
    locked: dict[str, Locked]
    lock_sha256: str
    payload: Payload
    payload_sha256: str
    engine_key: str
    payload_key: str

    @property
    def digest(self) -> str:
        """One digest over everything: `inputs` of the manifest."""
        return json_sha256(
            {
                "stack": self.stack.model_dump(by_alias=True),
                "lock": self.lock_sha256,
                "engine": self.engine_key,
                "payload": self.payload_key,
                "recipe": _recipe(_MANIFEST_RECIPE),
            }
        )


def read_inputs(layout: Layout) -> Inputs:
    """Read and check everything that a build starts from. Raises `PinError` or `BuildError`."""
    stack = pins.load(layout.stack_file)
    locked = requirements_file.read(layout.lock)
    pins.check_lock(stack, locked, layout.lock)
    payload = payload_wheel.identify(layout.payload)
    payload_sha256 = _payload_digest(layout)
    return Inputs(
        stack=stack,
        locked=locked,
        lock_sha256=file_sha256(layout.lock),
        payload=payload,
        payload_sha256=payload_sha256,
        engine_key=json_sha256({"engine": stack.engine.model_dump(), "recipe": _recipe(_ENGINE_RECIPE)}),
        payload_key=json_sha256(
            {
                "source": payload_sha256,
                "flit_core": metadata.version("flit_core"),
                "recipe": _recipe(_PAYLOAD_RECIPE),
            }
        ),
    )


def build(layout: Layout, inputs: Inputs, console: Console, *, force: bool = False) -> tuple[Manifest, bool]:
    """Bring `dist/<stack>` up to date; True when nothing had to be done. The caller holds the stack's lock."""
    cache = Cache() if force else Cache.load(layout.dist)
    current = None if force else _current(layout, inputs, cache)
    if current is not None:
        return current, True
    # From here until the new manifest there is no finished build.
    remove(layout.manifest)
    layout.dist.mkdir(parents=True, exist_ok=True)
    sweep_partials(layout.dist)
    artifacts = [_engine(layout, inputs, cache, console), _payload(layout, inputs, cache, console)]
    cache.save(layout.dist)
    _drop_former(layout, cache, artifacts)
    manifest = _describe(layout, inputs, artifacts)
    manifest.publish(layout.manifest)
    return manifest, False


def plan(layout: Layout, inputs: Inputs) -> list[str]:
    """What `build` would do, in words; nothing when `dist/<stack>` is up to date."""
    cache = Cache.load(layout.dist)
    if _current(layout, inputs, cache) is not None:
        return []
    engine, payload = inputs.stack.engine, inputs.payload
    steps = []
    name = _recorded_name(cache, inputs.engine_key)
    if name is None or not cache.reusable(layout.dist / name, inputs.engine_key):
        steps += [f"fetch {wheel.distribution} {wheel.version}" for wheel in (engine.base, engine.donor)]
        steps.append(f"assemble {engine.distribution} {engine.version}")
    if not cache.reusable(layout.dist / payload.wheel_name, inputs.payload_key):
        steps.append(f"build {payload.distribution} {payload.version}")
    return [*steps, f"write {layout.relative(layout.manifest)}"]


def preview(layout: Layout, inputs: Inputs) -> Manifest:
    """The manifest that `build` would lead to, but for the artifacts: their hashes are known once they are made."""
    return _describe(layout, inputs, artifacts=[])


def _current(layout: Layout, inputs: Inputs, cache: Cache) -> Manifest | None:
    """The present manifest, if it is of these inputs and its artifacts are whole."""
    manifest = manifests.load(layout.manifest)
    if manifest is None or manifest.inputs != inputs.digest:
        return None
    keys = {inputs.stack.engine.distribution: inputs.engine_key, inputs.payload.distribution: inputs.payload_key}
    for artifact in manifest.artifacts:
        if cache.reusable(layout.dist / artifact.file, keys[artifact.name]) != artifact.sha256:
            return None
    return manifest


def _engine(layout: Layout, inputs: Inputs, cache: Cache, console: Console) -> Artifact:
    engine = inputs.stack.engine
    name = _recorded_name(cache, inputs.engine_key)
    title = f"assemble {engine.distribution} {engine.version}"
    if name is not None and cache.reusable(layout.dist / name, inputs.engine_key):
        console.cached(title)
    else:
        base = sources.fetch(layout, engine.base, console)
        donor = sources.fetch(layout, engine.donor, console)
        name = assemble.engine_wheel_name(engine, base)
        with console.step(title), publishing(layout.dist / name) as partial:
            assemble.assemble(engine, base, donor, partial)
        cache.record(layout.dist / name, inputs.engine_key)
    made_from = [
        SourceFile(file=f"{wheel.distribution}=={wheel.version}", sha256=wheel.sha256)
        for wheel in (engine.base, engine.donor)
    ]
    return _artifact(cache.entries[name], name, engine, made_from)


def _payload(layout: Layout, inputs: Inputs, cache: Cache, console: Console) -> Artifact:
    payload = inputs.payload
    target = layout.dist / payload.wheel_name
    title = f"build {payload.distribution} {payload.version}"
    if cache.reusable(target, inputs.payload_key):
        console.cached(title)
    else:
        with console.step(title), publishing(target) as partial:
            payload_wheel.build(layout.payload, payload, partial)
            if _payload_digest(layout) != inputs.payload_sha256:
                raise BuildError("the payload's source changed while it was built", where=str(layout.payload))
        cache.record(target, inputs.payload_key)
    made_from = [SourceFile(file=layout.relative(layout.payload), sha256=inputs.payload_sha256)]
    return _artifact(cache.entries[target.name], target.name, payload, made_from)


def _recorded_name(cache: Cache, key: str) -> str | None:
    return next((name for name, entry in cache.entries.items() if entry.key == key), None)


def _artifact(entry: Entry, file: str, what: Engine | Payload, made_from: list[SourceFile]) -> Artifact:
    return Artifact(
        name=normalised(what.distribution),
        version=what.version,
        file=file,
        sha256=entry.sha256,
        size=entry.fingerprint.size,
        made_from=made_from,
    )


def _drop_former(layout: Layout, cache: Cache, artifacts: list[Artifact]) -> None:
    """Remove what former builds made here. Anything else in the folder is not ours, and is never installed."""
    kept = {artifact.file for artifact in artifacts}
    for name in sorted(cache.entries.keys() - kept):
        remove(layout.dist / name)
        del cache.entries[name]
    cache.save(layout.dist)


def _describe(layout: Layout, inputs: Inputs, artifacts: list[Artifact]) -> Manifest:
    stack = inputs.stack
    packages = {name: pin.version for name, pin in inputs.locked.items()}
    packages |= {artifact.name: artifact.version for artifact in artifacts}
    return Manifest(
        stack=stack.name,
        summary=stack.summary,
        platform=stack.platform,
        python=stack.python,
        dialect=stack.dialect,
        refit_backend=stack.refit_backend,
        planes=stack.planes,
        inputs=inputs.digest,
        environment=layout.relative(layout.environment),
        lock=LockFile(path=layout.relative(layout.lock), sha256=inputs.lock_sha256),
        artifacts=artifacts,
        binaries={
            name: InstalledBinary(path=f"bin/{name}", sha256=binary.sha256)
            for name, binary in stack.engine.binaries.items()
        },
        packages=dict(sorted(packages.items())),
    )


def _payload_digest(layout: Layout) -> str:
    return files_sha256(layout.payload, source_files(layout.payload))


def _recipe(modules: tuple[str, ...]) -> str:
    return files_sha256(_PLANE, [_PLANE / name for name in modules])
