"""Error text for invalid rows: their count, the first five of them, and each remedy once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from metricshuffle.spaces import Domain

MAX_SHOWN = 5
MISSING = "is missing"
COUNTS = ("total", "used", "clamped", "averaged", "people", "clamped_people")
"""Counters of `RowSummary`."""
MANY_MOVED = 0.01
"""Fraction of clamped values above which the remark is a warning."""
NOT_PRIVATE = "This count is exact and not private: keep it to yourself."


@dataclass
class InvalidValues:
    """Invalid values so far, from the first chunk to the last."""

    reasons: Counter[str] = field(default_factory=Counter)
    remedies: dict[str, None] = field(default_factory=dict)
    """Remedies in the order in which they were needed."""
    shown: list[tuple[str, str, str]] = field(default_factory=list)
    """(where, content, reason) of the first few."""
    inside: str = ""

    def __bool__(self) -> bool:
        return bool(self.reasons)

    @property
    def count(self) -> int:
        return self.reasons.total()

    def add(
        self, reason: str, remedies: Iterable[str], example: Callable[[], tuple[str, str]]
    ) -> None:
        self.reasons[reason] += 1
        self.remedies.update(dict.fromkeys(remedies))
        if len(self.shown) < MAX_SHOWN:
            self.shown.append((*example(), reason))

    def merge(self, other: InvalidValues) -> None:
        """Add the invalid values of another part; examples of this part are shown first."""
        self.reasons.update(other.reasons)
        self.remedies.update(other.remedies)
        self.shown.extend(other.shown[: MAX_SHOWN - len(self.shown)])
        self.inside = self.inside or other.inside

    def to_plain(self) -> dict[str, object]:
        """Content as JSON types."""
        return {
            "reasons": dict(self.reasons),
            "remedies": list(self.remedies),
            "shown": self.shown,
            "inside": self.inside,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> InvalidValues:
        shown = [(str(where), str(what), str(reason)) for where, what, reason in plain["shown"]]
        return cls(
            Counter(plain["reasons"]), dict.fromkeys(plain["remedies"]), shown, plain["inside"]
        )

    def listed(self, stated: str = "") -> str:
        """List the first few; a reason is repeated only where it changes.

        `stated` is a reason that the message has stated already.
        """
        parts = []
        before = stated
        for where, what, reason in self.shown:
            parts.append(f"{where}: {what}" + (f" {reason}" if reason and reason != before else ""))
            before = reason
        if self.count > len(self.shown):
            parts.append(f"and {self.count - len(self.shown):,} more")
        return "; ".join(parts)

    def kinds(self) -> str:
        """Say how many of the values are missing; empty if the listed ones show it."""
        missing = self.reasons[MISSING]
        if not missing or missing == self.count or self.count <= len(self.shown):
            return ""
        return f" ({missing:,} of them {'is' if missing == 1 else 'are'} missing)"


@dataclass
class RowSummary:
    """Summary of the rows read so far; the summaries of parts add up to that of a table."""

    wrong: InvalidValues = field(default_factory=InvalidValues)
    nameless: InvalidValues = field(default_factory=InvalidValues)
    """Rows that name no user."""
    outside: InvalidValues = field(default_factory=InvalidValues)
    """Rows left out because they lie outside the domain."""
    total: int = 0
    used: int = 0
    clamped: int = 0
    """Number of values outside the domain that were moved to its nearest end."""
    averaged: int = 0
    """Number of values outside the domain that entered a person's mean unchanged."""
    people: int = 0
    """Number of people whose rows became one value by a mean or a sum."""
    clamped_people: int = 0
    """Number of people whose mean or sum lay outside the domain and was moved."""

    @property
    def refused(self) -> bool:
        return bool(self.wrong or self.nameless)

    def merge(self, other: RowSummary) -> None:
        self.wrong.merge(other.wrong)
        self.nameless.merge(other.nameless)
        self.outside.merge(other.outside)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_plain(self) -> dict[str, object]:
        """Content as JSON types."""
        parts = {
            "wrong": self.wrong.to_plain(),
            "nameless": self.nameless.to_plain(),
            "outside": self.outside.to_plain(),
        }
        return {**parts, **{name: getattr(self, name) for name in COUNTS}}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> RowSummary:
        parts: dict[str, Any] = {
            name: InvalidValues.from_plain(plain[name]) for name in ("wrong", "nameless", "outside")
        }
        return cls(**(parts | {name: int(plain[name]) for name in COUNTS}))

    def moved_sentences(self, where: str, domain: Domain, per_user: str | None) -> list[str]:
        """Sentences about values outside the domain that were moved or averaged, if any.

        These counts are exact: they are for the owner of the values only.
        """
        rows = _moved(
            f"{self.clamped:,} of {self.used:,} values of {where}", self.clamped, self.used, domain
        )
        people = _moved(
            f"the {per_user} of {self.clamped_people:,} of {self.people:,} people of {where}",
            self.clamped_people,
            self.people,
            domain,
        )
        sentences = [*rows, *people]
        if self.averaged:
            share = (
                f"{self.averaged:,} of {self.used:,} values of {where} "
                f"({_percent(self.averaged, self.used)})"
            )
            lie = "lies" if self.averaged == 1 else "lie"
            sentences.append(
                f"{share} {lie} outside {domain}, and went into a person's mean all the same. "
                f"{NOT_PRIVATE}"
            )
        return sentences


def _moved(which: str, moved: int, of: int, domain: Domain) -> list[str]:
    if not moved:
        return []
    warning = "Warning: " if moved > MANY_MOVED * of else ""
    were = "was" if moved == 1 else "were"
    share = (
        f"{which} ({_percent(moved, of)}) lay outside {domain} and {were} moved to "
        f"{domain.clamped_to}"
    )
    about = "an answer is about the moved values"
    return [
        f"{warning}{share if warning else share[:1].upper() + share[1:]}: {about}. {NOT_PRIVATE}"
    ]


def _percent(part: int, whole: int) -> str:
    percent = 100.0 * part / whole
    return f"{percent:.1f} %".replace(".0 %", " %") if percent >= 0.1 else "less than 0.1 %"
