"""Group build: cargo's home and a person's own cargo configuration."""

from __future__ import annotations

from scripts import cargo_settings
from scripts.doctor.host_paths import UNFIT, quoted
from scripts.doctor.registry import Check, Finding, fail, ok, skip
from scripts.doctor.subject import Subject


def _home(subject: Subject) -> str:
    return subject.environ.get("CARGO_HOME") or f"{subject.machine.home}/.cargo"


def _cargo_home(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    home = _home(subject)
    required = "a CARGO_HOME to write to, and a network or a filled registry"
    if subject.machine.exists(home) and not subject.machine.may_write(home):
        return fail(f"{home} may not be written", required, f'sudo chown -R "$(id -u)" {quoted(home)}')
    if UNFIT.search(home):
        return fail(f"{home}: compilers would split it", required, "export CARGO_HOME=/opt/cargo")
    if subject.environ.get("CARGO_NET_OFFLINE", "").lower() == "true" and not subject.machine.is_dir(
        f"{home}/registry/cache"
    ):
        return fail(
            f"CARGO_NET_OFFLINE is set, and {home}/registry/cache is not there", required, "unset CARGO_NET_OFFLINE"
        )
    return ok(home, required)


def _cargo_config(subject: Subject) -> Finding:
    if not subject.stack.from_source:
        return skip(subject.stack.assembled)
    required = "no cargo configuration of your own that changes what is built"
    folders = [_home(subject), *map(str, cargo_settings.above(subject.root / ".cache"))]
    found = []
    for folder in dict.fromkeys(folders):
        for name in cargo_settings.NAMES:
            text = subject.machine.read_text(f"{folder}/{name}")
            if text is not None:
                found += [f"{setting} in {folder}/{name}" for setting in cargo_settings.foreign_settings(text)]
    if found:
        return fail(", ".join(found), required, 'export CARGO_HOME="$HOME/cargo-smokestack"   # or take them out')
    return ok("none", required)


CHECKS = (
    Check(
        id="build.cargo-home",
        title="cargo's home",
        group="build",
        why="cargo fetch fills it before the build, which is then offline",
        symptom="failed to write to registry, or attempting to make an HTTP request, but --offline was specified",
        cause="a CARGO_HOME of another user, or a closed network with an empty registry",
        looks_at="CARGO_HOME or ~/.cargo, CARGO_NET_OFFLINE",
        fix='sudo chown -R "$(id -u)" "$HOME/.cargo"',
        reference="https://doc.rust-lang.org/cargo/guide/cargo-home.html",
        needed_for=("build",),
        look=_cargo_home,
    ),
    Check(
        id="build.cargo-config",
        title="cargo's configuration",
        group="build",
        why="flags of your own would be in the product, and in nobody's record",
        symptom="cargo's configuration: nothing that changes what is built",
        cause="~/.cargo/config.toml, or one above the checkout, sets rustflags, a target, a profile or a patch",
        looks_at="config.toml in cargo's home and in every .cargo above the build folders",
        fix="${EDITOR:-vi} ~/.cargo/config.toml   # or: export CARGO_HOME=FOLDER",
        reference="https://doc.rust-lang.org/cargo/reference/config.html",
        needed_for=("build",),
        look=_cargo_config,
    ),
)
