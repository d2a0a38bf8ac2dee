"""What `clean` found and did: a list for people, a document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DAY_S = 86400.0
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True)
class Listed:
    """One item. `size` in bytes, `age_s` since it was last written; `kept` says why it stays."""

    path: str
    why: str
    size: int = 0
    age_s: float = 0.0
    kept: str | None = None


@dataclass(frozen=True)
class Report:
    """`younger` is how many items were too young to be listed. `failed` could not be deleted; `kept` says why."""

    would_go: tuple[Listed, ...]
    kept: tuple[Listed, ...]
    younger: int = 0
    deleted: bool = False
    freed: int = 0
    failed: tuple[Listed, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.failed

    def document(self) -> dict[str, Any]:
        return {
            "items": [
                {"path": each.path, "bytes": each.size, "age_days": round(each.age_s / DAY_S, 2), "why": each.why}
                for each in self.would_go
            ],
            "kept": [{"path": each.path, "why": each.kept} for each in self.kept],
            "younger": self.younger,
            "deleted": self.deleted,
            "freed_bytes": self.freed,
            "failed": [{"path": each.path, "why": each.kept} for each in self.failed],
        }

    def lines(self) -> list[str]:
        if not self.deleted:
            return [*self.listing(), *self._not_deleted()]
        lines = [f"not deleted: {each.path}: {each.kept}" for each in self.failed]
        count = len(self.would_go) - len(self.failed)
        return [*lines, f"deleted {_count(count)}, freed {_size(self.freed)}"]

    def listing(self) -> list[str]:
        """What would go, and what stays although it was looked at."""
        rows = [(each.path, _size(each.size), _age(each.age_s), each.why) for each in self.would_go]
        lines = _table(rows)
        lines += [f"stays: {each.path}: {each.kept}" for each in self.kept]
        return lines + ([f"stays: {_count(self.younger)} written since"] if self.younger else [])

    def _not_deleted(self) -> list[str]:
        if not self.would_go:
            return ["nothing to delete"]
        total = _size(sum(each.size for each in self.would_go))
        return [f"{_count(len(self.would_go))}, {total}; nothing is deleted without --yes"]


def _table(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return [f"{path:<{widths[0]}}  {size:>{widths[1]}}  {age:>{widths[2]}}  {why}" for path, size, age, why in rows]


def _count(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def _size(size: int) -> str:
    for unit, factor in _UNITS:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def _age(seconds: float) -> str:
    if seconds >= DAY_S:
        return f"{seconds / DAY_S:.0f} d"
    return f"{seconds / 3600:.0f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
