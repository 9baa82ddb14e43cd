"""Rows that cannot be used: all of them are counted, the first five are shown, and what to do is said once for each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_SHOWN = 5
MISSING = "is missing"


@dataclass
class WrongValues:
    """What was found wrong so far, from the first chunk to the last."""

    reasons: Counter[str] = field(default_factory=Counter)
    remedies: dict[str, None] = field(default_factory=dict)
    """In the order in which they were needed."""
    shown: list[tuple[str, str, str]] = field(default_factory=list)
    """(where, what stands there, what is wrong) of the first few."""
    inside: str = ""

    def __bool__(self) -> bool:
        return bool(self.reasons)

    @property
    def count(self) -> int:
        return self.reasons.total()

    def add(self, reason: str, remedies: Iterable[str], example: Callable[[], tuple[str, str]]) -> None:
        self.reasons[reason] += 1
        self.remedies.update(dict.fromkeys(remedies))
        if len(self.shown) < MOST_SHOWN:
            self.shown.append((*example(), reason))

    def merge(self, other: WrongValues) -> None:
        """Take over what was found elsewhere; what is shown comes from here first."""
        self.reasons.update(other.reasons)
        self.remedies.update(other.remedies)
        self.shown.extend(other.shown[: MOST_SHOWN - len(self.shown)])
        self.inside = self.inside or other.inside

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"reasons": dict(self.reasons), "remedies": list(self.remedies), "shown": self.shown, "inside": self.inside}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> WrongValues:
        shown = [(str(where), str(what), str(reason)) for where, what, reason in plain["shown"]]
        return cls(Counter(plain["reasons"]), dict.fromkeys(plain["remedies"]), shown, plain["inside"])

    def listed(self, told: str = "") -> str:
        """The first few: a reason is told again only where it changes, and not if it was told before."""
        parts, before = [], told
        for where, what, reason in self.shown:
            parts.append(f"{where}: {what}" + (f" {reason}" if reason and reason != before else ""))
            before = reason
        if self.count > len(self.shown):
            parts.append(f"and {self.count - len(self.shown):,} more")
        return "; ".join(parts)

    def kinds(self) -> str:
        """How many are missing and how many are something else, where the first few do not tell."""
        missing = self.reasons[MISSING]
        if not missing or missing == self.count or self.count <= len(self.shown):
            return ""
        return f" ({missing:,} of them {'is' if missing == 1 else 'are'} missing)"


@dataclass
class SeenRows:
    """What was found in rows so far; what was found in parts of a table adds up to what is in all of it."""

    wrong: WrongValues = field(default_factory=WrongValues)
    nameless: WrongValues = field(default_factory=WrongValues)
    """Rows that name no user."""
    outside: WrongValues = field(default_factory=WrongValues)
    """Rows that were left out because they lie outside."""
    total: int = 0
    used: int = 0

    @property
    def refused(self) -> bool:
        return bool(self.wrong or self.nameless)

    def merge(self, other: SeenRows) -> None:
        self.wrong.merge(other.wrong)
        self.nameless.merge(other.nameless)
        self.outside.merge(other.outside)
        self.total, self.used = self.total + other.total, self.used + other.used

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        parts = {"wrong": self.wrong.to_plain(), "nameless": self.nameless.to_plain(), "outside": self.outside.to_plain()}
        return {**parts, "total": self.total, "used": self.used}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> SeenRows:
        parts = {name: WrongValues.from_plain(plain[name]) for name in ("wrong", "nameless", "outside")}
        return cls(**parts, total=plain["total"], used=plain["used"])
