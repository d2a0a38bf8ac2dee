"""`docs/troubleshooting.md`, made of the registry: `python3 -m scripts.doctor.docs --write`; `lint` calls `--check`."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.doctor.checks import CHECKS
from scripts.doctor.registry import GROUPS, PURPOSES, Check
from scripts.doctor.reports import REPORTS, Report

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "troubleshooting.md"
STALE = 1
_WRITE = "python3 -m scripts.doctor.docs --write"

_HEAD = f"""\
<!-- Made by `{_WRITE}` of the checks in scripts/doctor: do not edit. -->

# Troubleshooting

    ./noxw -s doctor                            # what this machine lacks for the stack cpu
    ./noxw -s doctor -- --stack prime-rl        # for another stack
    python3 -m scripts.doctor --for run --json  # in a fresh checkout, with nothing but python3

The doctor looks at the machine for a stack and says, for everything that is missing, what was found, what is required,
and the command that mends it. It only looks: it writes nothing, asks nobody on the network, and ends within ten
seconds. `build`, `install` and `smoke` begin with what they need of it, and stop where something fails. Its exit status
is 0 when nothing failed, 10 when something did. With `--json` it prints one document, which
[doctor.schema.json](doctor.schema.json) describes.

Below is every check, with the usual fix; the doctor itself gives the one for the machine at hand. Words in capitals are
to be filled in. Checks of GPUs were made from documentation and reports: they were not measured with a GPU.
"""


def page(checks: Sequence[Check] = CHECKS, reports: Sequence[Report] = REPORTS) -> str:
    """The whole page."""
    lines = [_HEAD, "## By symptom", "", "| what people report | looked at by | reports |", "|---|---|---|"]
    lines += [_row(report, checks) for report in reports]
    for group, title in GROUPS.items():
        lines += ["", f"## {title}"]
        for check in checks:
            if check.group == group:
                lines += ["", *_section(check)]
    return "\n".join(lines) + "\n"


def _row(report: Report, checks: Sequence[Check]) -> str:
    covering = [f"[{check.id}](#{_anchor(check)})" for check in checks if report.row in check.rows]
    where = ", ".join(covering) or report.elsewhere
    links = ", ".join(f"[{_short(address)}]({address})" for address in report.references)
    return f"| {_plain(report.symptom)} | {where} | {links} |"


def _section(check: Check) -> list[str]:
    when = (
        "always" if set(check.needed_for) == set(PURPOSES) else " and ".join(f"to {each}" for each in check.needed_for)
    )
    return [
        f"### {check.id}",
        "",
        f"{_sentence(check.title)}, needed {when}: {_plain(check.why)}.",
        "",
        f"- **You see** {_plain(check.symptom)}",
        f"- **Cause** {_plain(check.cause)}",
        f"- **Looks at** {_plain(check.looks_at)}",
        f"- **Fix** `{check.fix}`",
        f"- **See** <{check.reference}>",
    ]


def _sentence(title: str) -> str:
    return title[0].upper() + title[1:]


def _plain(text: str) -> str:
    """Text in which Markdown finds nothing to format but whole `code`."""
    escaped = text.replace("*", "\\*").replace("<", "\\<").replace("|", "\\|")
    return escaped.replace("`", "\\`") if text.count("`") % 2 else escaped


def _anchor(check: Check) -> str:
    """As GitHub makes it of a heading."""
    return check.id.replace(".", "")


def _short(address: str) -> str:
    """`vllm#3180` for https://github.com/vllm-project/vllm/issues/3180."""
    parts = address.split("/")
    return f"{parts[-3]}#{parts[-1]}"


def main(argv: Sequence[str]) -> int:
    """Write the page, or compare it with what would be written."""
    parser = argparse.ArgumentParser(prog="python3 -m scripts.doctor.docs", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write docs/troubleshooting.md")
    what.add_argument("--check", action="store_true", help="fail when it is not what would be written")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    made = page()
    if chosen.write:
        chosen.page.write_text(made, encoding="utf-8")
        return 0
    there = chosen.page.read_text(encoding="utf-8") if chosen.page.is_file() else ""
    if there == made:
        return 0
    names = (str(chosen.page.name), "what the registry says")
    sys.stderr.writelines(difflib.unified_diff(there.splitlines(True), made.splitlines(True), *names, n=0))
    sys.stderr.write(f"{chosen.page.name} is stale\n  fix:      {_WRITE}\n")
    return STALE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
