"""All checks, in the order in which they are shown."""

from __future__ import annotations

from scripts.doctor.registry import Check

CHECKS: tuple[Check, ...] = ()
