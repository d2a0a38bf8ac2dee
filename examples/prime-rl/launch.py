"""Fills `rl.toml` with the addresses of the run, and becomes Prime-RL. Standard library only, Python 3.11.

`python3 examples/prime-rl/launch.py PRIME_RL_CHECKOUT [further options of Prime-RL's rl command]`, as the command of
`smoke -- --trainer`. With `--render` in the place of the checkout, the configuration is printed and nothing started.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

TEMPLATE = Path(__file__).with_name("rl.toml")
PLACE = re.compile(r"<([A-Z_]+)>")
DISCOVERY_ROUTE = "/v1/rl/workers"
"""Prime-RL adds it itself."""


def render(template: str, variables: Mapping[str, str]) -> str:
    """The configuration. Raises ValueError for a stack that Prime-RL cannot refit, or a variable that is not set."""
    if variables.get("SMOKESTACK_REFIT_BACKEND") != "nccl":
        found = variables.get("SMOKESTACK_REFIT_BACKEND", "no stack: is this the command of --trainer?")
        raise ValueError(f"Prime-RL refits over NCCL; this stack has {found}")
    discovery = variables["SMOKESTACK_DISCOVERY_URL"].removesuffix(DISCOVERY_ROUTE)
    known = {**variables, "DISCOVERY_BASE_URL": discovery}
    body = "\n".join(line for line in template.splitlines() if not line.startswith("#"))
    missing = sorted(set(PLACE.findall(body)) - known.keys())
    if missing:
        raise ValueError(f"not set: {', '.join(missing)}")
    filled = PLACE.sub(lambda place: known[place[1]], body)
    tomllib.loads(filled)
    return filled.strip() + "\n"


def main(argv: list[str]) -> NoReturn:
    if not argv:
        sys.exit(f"usage: {Path(__file__).name} PRIME_RL_CHECKOUT [OPTION …] | --render")
    try:
        config = render(TEMPLATE.read_text(encoding="utf-8"), os.environ)
    except ValueError as error:
        sys.exit(str(error))
    if argv[0] == "--render":
        sys.stdout.write(config)
        sys.exit(0)
    run_dir = Path(os.environ["SMOKESTACK_RUN_DIR"])
    file = run_dir / "prime-rl.toml"
    file.write_text(config, encoding="utf-8")
    command = ["uv", "run", "--project", argv[0], "rl", "@", str(file), "--output-dir", str(run_dir / "prime-rl")]
    os.execvp(command[0], [*command, *argv[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
