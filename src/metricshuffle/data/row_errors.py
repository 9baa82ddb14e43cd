"""Rows that cannot be used: all of them are counted, the first five are shown, and what to do is said once for each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_SHOWN = 5
MISSING = "is missing"
COUNTS = ("total", "used", "clamped", "averaged", "people", "clamped_people")
"""The numbers among what was seen."""
MANY_MOVED = 0.01
"""More than this share of values moved to the ends is worth a warning."""
NOT_PRIVATE = "This count is exact and not private: keep it to yourself."


@dataclass
class InvalidValues:
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
        if len(self.shown) < MAX_SHOWN:
            self.shown.append((*example(), reason))

    def merge(self, other: InvalidValues) -> None:
        """Take over what was found elsewhere; what is shown comes from here first."""
        self.reasons.update(other.reasons)
        self.remedies.update(other.remedies)
        self.shown.extend(other.shown[: MAX_SHOWN - len(self.shown)])
        self.inside = self.inside or other.inside

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"reasons": dict(self.reasons), "remedies": list(self.remedies), "shown": self.shown, "inside": self.inside}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> InvalidValues:
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
class RowSummary:
    """What was found in rows so far; what was found in parts of a table adds up to what is in all of it."""

    wrong: InvalidValues = field(default_factory=InvalidValues)
    nameless: InvalidValues = field(default_factory=InvalidValues)
    """Rows that name no user."""
    outside: InvalidValues = field(default_factory=InvalidValues)
    """Rows that were left out because they lie outside."""
    total: int = 0
    used: int = 0
    clamped: int = 0
    """Values that lay outside and were moved to the nearest end."""
    averaged: int = 0
    """Values that lay outside and went into the mean of somebody's rows as they are."""
    people: int = 0
    """Whose rows were made one value by a mean or a sum."""
    clamped_people: int = 0
    """Of those, whose mean or sum lay outside and was moved."""

    @property
    def refused(self) -> bool:
        return bool(self.wrong or self.nameless)

    def merge(self, other: RowSummary) -> None:
        self.wrong.merge(other.wrong)
        self.nameless.merge(other.nameless)
        self.outside.merge(other.outside)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        parts = {"wrong": self.wrong.to_plain(), "nameless": self.nameless.to_plain(), "outside": self.outside.to_plain()}
        return {**parts, **{name: getattr(self, name) for name in COUNTS}}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> RowSummary:
        parts: dict[str, Any] = {name: InvalidValues.from_plain(plain[name]) for name in ("wrong", "nameless", "outside")}
        return cls(**(parts | {name: int(plain[name]) for name in COUNTS}))

    def moved_sentences(self, where: str, inside: str, per_user: str | None) -> list[str]:
        """What was moved or averaged from outside, if something was. These counts are exact: they are for whoever holds the values."""
        rows = _moved(f"{self.clamped:,} of {self.used:,} values of {where}", self.clamped, self.used, inside)
        people = _moved(f"the {per_user} of {self.clamped_people:,} of {self.people:,} people of {where}",
                        self.clamped_people, self.people, inside)  # fmt: skip
        sentences = [*rows, *people]
        if self.averaged:
            share = f"{self.averaged:,} of {self.used:,} values of {where} ({_percent(self.averaged, self.used)})"
            lie = "lies" if self.averaged == 1 else "lie"
            sentences.append(f"{share} {lie} outside {inside}, and went into somebody's mean all the same. {NOT_PRIVATE}")
        return sentences


def _moved(which: str, moved: int, of: int, inside: str) -> list[str]:
    if not moved:
        return []
    warning = "Warning: " if moved > MANY_MOVED * of else ""
    were = "was" if moved == 1 else "were"
    share = f"{which} ({_percent(moved, of)}) lay outside {inside} and {were} moved to the nearest end"
    about = "an answer is about the moved values"
    return [f"{warning}{share if warning else share[:1].upper() + share[1:]}: {about}. {NOT_PRIVATE}"]


def _percent(part: int, whole: int) -> str:
    percent = 100.0 * part / whole
    return f"{percent:.1f} %".replace(".0 %", " %") if percent >= 0.1 else "less than 0.1 %"
