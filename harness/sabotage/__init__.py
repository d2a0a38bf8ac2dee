"""Faults on purpose: a run that has one must fail, and for that reason alone.

`by_trainer` and `by_harness` declare what each fault is and which checks it must turn red, `registry` has them all; the
payload makes those of the trainer, `acts` those of the harness (with `environments` and `records`); `judgement`
compares a sabotaged run with what was declared, `selftest` runs them all, `docs` writes the table. The caller's
environment turns none of them on.
"""

from __future__ import annotations

from harness.sabotage.declaration import Sabotage
from harness.sabotage.registry import SABOTAGES, TRAINER_SABOTAGES, UNSABOTAGED, for_trainer, named

__all__ = ["SABOTAGES", "TRAINER_SABOTAGES", "UNSABOTAGED", "Sabotage", "for_trainer", "named"]
