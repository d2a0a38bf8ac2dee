"""`docs/sabotage.md`, made of the registry: `python -m harness.sabotage.docs --write`; `lint` calls `--check`."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.evidence import CHECKS, ON_GPUS, WITH_ADAPTERS
from harness.evidence.scope import OBSERVED, OF_COMMANDS_ONLY
from harness.sabotage.declaration import OVER_A_GROUP, Sabotage
from harness.sabotage.registry import SABOTAGES, UNSABOTAGED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sabotage.md"
STALE = 1
ALL_CHECKS = (*CHECKS, OF_COMMANDS_ONLY, *WITH_ADAPTERS, *ON_GPUS)
OF_COMMANDS = {check: f"{check} with --trainer" for check in OBSERVED if check in CHECKS}
"""What these checks are called where the trainer is a command: they are then judged by other evidence."""

JUDGED = (*ALL_CHECKS, *OF_COMMANDS.values())
"""All that a fault has to turn red: each check, and apart from it the same check as it is judged of a command."""

_WRITE = "python -m harness.sabotage.docs --write"

_HEAD = f"""\
<!-- Made by `{_WRITE}` of the registry in harness/sabotage: do not edit. -->

# Sabotage

    ./noxw -s selftest                                   # every sabotage below, one real run each
    ./noxw -s selftest -- --sabotage swapped-tensors     # only this one; may be repeated
    ./noxw -s smoke -- --sabotage swapped-tensors        # a single run, with the whole of its report

A check that cannot fail proves nothing. Each sabotage is one fault, made on purpose in a real run; `selftest` requires
that exactly the checks that are declared for it fail, that the run ends as declared, and that whatever failed says all
the words that name its cause, each check its own: a fault that is not made, or a check that is red for another reason,
is a row that is WRONG. Every row is run and told, whatever the others came to; the exit status is then 1. Each has a
stack of its own (docs/adr/0023-a-stack-for-each-sabotage.md). Two are run at a time (`--side-by-side`). An interrupt
ends the runs under way, each with its stack.

The trainer's are made in `smokestack_payload.sabotage`, the harness's in `harness.sabotage.acts`. A sabotaged run says
so in its first line, in its verdict's line, in `config.json` and in `verdict.json`; only this option makes one, no
variable of the environment.
"""


def page(sabotages: Sequence[Sabotage] = SABOTAGES, checks: Sequence[str] = JUDGED) -> str:
    """The whole page."""
    lines = [_HEAD, "## By check", "", "| check | turned red by |", "|---|---|"]
    for check in sorted(checks):
        by = ", ".join(f"`{one.name}`" for one in sabotages if check in turned_red(one))
        lines.append(f"| `{check}` | {by or '**none yet**: ' + UNSABOTAGED.get(check, 'nobody said why')} |")
    lines += [
        "",
        "## By sabotage",
        "",
        "| sabotage | what is wrong | made by | what fails | words |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(one) for one in sabotages]
    return "\n".join(lines) + "\n"


def uncovered(sabotages: Sequence[Sabotage], checks: Sequence[str], excused: Mapping[str, str]) -> list[str]:
    """Checks that no sabotage turns red and that nobody has excused with a reason."""
    covered = {check for one in sabotages for check in turned_red(one)}
    return [check for check in checks if check not in excused and check not in covered]


def turned_red(one: Sabotage) -> tuple[str, ...]:
    """The names in `JUDGED` of what it turns red."""
    return tuple(OF_COMMANDS.get(check, check) for check in one.fails) if one.as_command else one.fails


def _row(one: Sabotage) -> str:
    fails = [f"`{check}`" for check in one.fails]
    if one.ends_in is not None:
        fails.append(f"the run, in `{one.ends_in}`")
    kinds = "" if OVER_A_GROUP[0] in one.refits else f", with `--refit {one.refits[0]}`"
    return f"| `{one.name}` | {one.does}{kinds} | {one.where} | {', '.join(fails)} | {_words(one)} |"


def _words(one: Sabotage) -> str:
    """Of each that fails, where there are several."""
    told = {
        who: ", ".join(f"`{text.strip().replace('|', chr(92) + '|')}`" for text in words)
        for who, words in one.reasons.items()
    }
    return "; ".join(told.values() if len(told) == 1 else (f"{who}: {words}" for who, words in told.items()))


def main(argv: Sequence[str]) -> int:
    """Write the page, or compare it with what would be written and ask that every check has its sabotage."""
    parser = argparse.ArgumentParser(prog="python -m harness.sabotage.docs", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write docs/sabotage.md")
    what.add_argument("--check", action="store_true", help="fail when it is not what would be written")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    made = page()
    if chosen.write:
        chosen.page.write_text(made, encoding="utf-8")
        return 0
    bare = uncovered(SABOTAGES, JUDGED, UNSABOTAGED)
    for check in bare:
        sys.stderr.write(f"{check} has no sabotage\n  fix:      give it one in harness/sabotage/by_*.py\n")
    there = chosen.page.read_text(encoding="utf-8") if chosen.page.is_file() else ""
    if there != made:
        names = (str(chosen.page.name), "what the registry says")
        sys.stderr.writelines(difflib.unified_diff(there.splitlines(True), made.splitlines(True), *names, n=0))
        sys.stderr.write(f"{chosen.page.name} is stale\n  fix:      {_WRITE}\n")
    return STALE if bare or there != made else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
