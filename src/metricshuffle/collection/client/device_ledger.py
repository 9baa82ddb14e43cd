"""Ledger of a person on their device: what their reports can reveal, and limits of their own.

An entry is written in the transaction that stores the sealed report, so it counts as spent whatever
becomes of the report. Epsilons are added within a unit of distance, never across units.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction

from metricshuffle.collection.adder.sum_terms import AnyCollection
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.display import Brief
from metricshuffle.errors import InputError, MetricShuffleError, argument
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon
from metricshuffle.privacy.guarantee import Guarantee

LARGEST_DELTA = Fraction(1, 1000)
"""Sum of deltas above which a limit counts as exceeded, whatever the sum of epsilons is."""
COLLUDING = "even if every shuffler or adder colludes with the analysts"
HONEST = "if the shufflers or adders are honest"
RAW = "the shufflers or adders and the analyst together may read what you send"
LIMIT = re.compile(
    r"(?P<epsilon>\S+) at (?P<distance>\S+)(?: (?P<unit>\S.*?))? "
    r"in (?P<days>[0-9]{1,5}) ?d(?:ays?)?(?P<honest> if honest)?"
)
LIMIT_HELP = (
    'a limit is written like "3 at 100 kcal in 30d": an epsilon, a distance with its unit, and a '
    'number of days; with "if honest" behind it, it limits the sum that holds if the shufflers are '
    "honest"
)


class OverLimit(MetricShuffleError):
    """A report would exceed a limit that its person has set; nothing was made or sent."""

    def __init__(self, sentences: str) -> None:
        super().__init__(
            f"{sentences} Nothing was made or sent.",
            remedy=f"Give {argument('over_limit', True)} to go over the limit this time.",
        )
        self.sentences = sentences


@dataclass(frozen=True)
class PrivacyLoss:
    """Epsilon and delta for moves up to a distance, as a task states them."""

    epsilon: float
    """Infinite if nothing limits it."""
    delta: float
    distance: float
    is_linear: bool
    """Whether a shorter move has a proportionally smaller epsilon."""

    @classmethod
    def of(cls, claimed: Guarantee) -> PrivacyLoss:
        return cls(claimed.epsilon, claimed.delta, claimed.distance, claimed.shape == "linear")

    @classmethod
    def read(cls, members: JsonObject) -> PrivacyLoss:
        epsilon = members["epsilon"]
        return cls(
            math.inf if epsilon is None else float(epsilon),
            float(members["delta"]),
            float(members["distance"]),
            members["shape"] == "linear",
        )

    def members(self) -> JsonObject:
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "distance": self.distance,
            "shape": "linear" if self.is_linear else "flat",
        }

    def epsilon_text(self) -> str:
        return (
            f"epsilon {format_epsilon(self.epsilon)}" if math.isfinite(self.epsilon) else "no limit"
        )

    def at(self, distance: Fraction) -> Fraction | None:
        """Epsilon of a move of that length; None if nothing limits it."""
        own = _exact(self.distance)
        if not math.isfinite(self.epsilon) or distance > own:
            return None
        epsilon = _exact(self.epsilon)
        return epsilon * distance / own if self.is_linear and own else epsilon


@dataclass(frozen=True)
class LedgerEntry:
    """What one report can reveal. `local` holds even if all its shufflers or adders collude."""

    task: str
    round: int
    analyst: str
    unit: str
    moves: str
    """What is moved: between which places, and whether a person's value or their items."""
    rounds: int
    """Number of rounds of the task that both losses cover together."""
    local: PrivacyLoss
    shuffled: PrivacyLoss
    honest: int | None
    """Number of honest reports that `shuffled` counts on; None if it counts on none."""
    verified: bool
    """Whether this device has recomputed the guarantees, and not only read them."""
    day: str
    state: str = "made"

    @classmethod
    def of(cls, collection: AnyCollection, *, verified: bool) -> LedgerEntry:
        """Entry of a report that is made now.

        It cannot have been made before the collection opened, whatever the clock says.
        """
        claimed = collection.task.guarantee
        items = " of a person's items" if claimed.protects == "one user's items" else ""
        return cls(
            collection.task.digest,
            collection.terms.round,
            collection.terms.analyst.name,
            claimed.unit,
            claimed.between + items,
            collection.task.rounds,
            PrivacyLoss.of(collection.task.if_shuffler_colludes),
            PrivacyLoss.of(claimed),
            claimed.trust.honest_reports,
            verified,
            max(this_day(), collection.terms.opens[:10]),
        )

    @property
    def claim(self) -> str:
        """JSON text of what the task claims: all members but the day, the round and the state."""
        return json.dumps(
            {
                "task": self.task,
                "analyst": self.analyst,
                "unit": self.unit,
                "moves": self.moves,
                "rounds": self.rounds,
                "local": self.local.members(),
                "shuffled": self.shuffled.members(),
                "honest": self.honest,
                "verified": self.verified,
            }
        )

    @classmethod
    def read(cls, claim: str, round: int, day: str, state: str) -> LedgerEntry:
        members = json.loads(claim)
        return cls(
            members["task"],
            round,
            members["analyst"],
            members["unit"],
            members["moves"],
            members["rounds"],
            PrivacyLoss.read(members["local"]),
            PrivacyLoss.read(members["shuffled"]),
            members["honest"],
            members["verified"],
            day,
            state,
        )

    @property
    def measure(self) -> tuple[str, str, str]:
        """Entries of one measure are added up; those without a unit within a task only."""
        return self.unit, self.moves, "" if self.unit else self.task

    def loss(self, *, honest: bool) -> PrivacyLoss:
        return self.shuffled if honest else self.local

    def line(self) -> str:
        analyst = _printable(self.analyst) or "somebody"
        source = "recomputed here" if self.verified else "as the task claims"
        counted = "" if self.honest is None else f" and {self.honest:,} reports too"
        return (
            f"{self.day} {self.state}: round {self.round} of task {self.task[:8]}, asked by "
            f"{analyst}; {self.local.epsilon_text()}, or {self.shuffled.epsilon_text()} "
            f"{HONEST}{counted}, up to "
            f"{format_distance(self.shuffled.distance)} ({source})."
        )


@dataclass(frozen=True)
class DeviceLimit:
    """Limit that a person sets on the sum of their reports of some days, at a distance."""

    epsilon: str
    """Decimal number."""
    distance: str
    """Decimal number."""
    unit: str
    days: int
    honest: bool = False
    """Whether it limits the sum that holds if the shufflers or adders are honest."""

    @classmethod
    def parse(cls, text: str) -> tuple[DeviceLimit, bool]:
        """Read a limit; with `none` instead of an epsilon it is to be removed (False)."""
        match = LIMIT.fullmatch(" ".join(text.split()))
        if match is None or not int(match["days"]):
            raise InputError(f"{text!r:.80} is not a limit; {LIMIT_HELP}.")
        is_set = match["epsilon"] != "none"
        epsilon = _decimal(match["epsilon"]) if is_set else "0"
        distance = _decimal(match["distance"])
        if not Fraction(distance):
            raise InputError(f"a limit is for moves of more than 0, got {text!r:.80}.")
        return (
            cls(epsilon, distance, match["unit"] or "", int(match["days"]), bool(match["honest"])),
            is_set,
        )

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        honest = " if honest" if self.honest else ""
        return f"{self.epsilon} at {self.distance}{unit} in {self.days}d{honest}"

    def within(self, entries: Iterable[LedgerEntry], today: str) -> list[LedgerEntry]:
        """Entries of its days; those of the future, by a clock that was set back, count too."""
        now = date.fromisoformat(today)
        return [
            entry for entry in entries if (now - date.fromisoformat(entry.day)).days <= self.days
        ]

    def summed(self, entries: Iterable[LedgerEntry], today: str) -> LossSum:
        return LossSum.of(self.within(entries, today), Fraction(self.distance), honest=self.honest)

    def is_kept(self, total: LossSum) -> bool:
        return (
            total.epsilon is not None
            and total.epsilon <= Fraction(self.epsilon)
            and total.delta <= LARGEST_DELTA
        )


@dataclass(frozen=True)
class LossSum:
    """Epsilon and delta of several reports together, exactly; epsilon None: nothing limits it."""

    epsilon: Fraction | None
    delta: Fraction
    reason: str = ""
    """Why nothing limits epsilon."""

    @classmethod
    def of(cls, entries: Iterable[LedgerEntry], distance: Fraction, *, honest: bool) -> LossSum:
        """Basic composition; the rounds of a task have one loss together."""
        rounds: dict[str, set[int]] = {}
        losses: dict[str, LedgerEntry] = {}
        for entry in entries:
            rounds.setdefault(entry.task, set()).add(entry.round)
            losses[entry.task] = entry
        epsilon = Fraction(0)
        delta = Fraction(0)
        reasons = set()
        for task, entry in losses.items():
            times = -(-len(rounds[task]) // max(1, entry.rounds))
            loss = entry.loss(honest=honest)
            own = loss.at(distance)
            epsilon += times * (own or 0)
            delta += times * _exact(loss.delta)
            if own is None:
                reasons.add(
                    f"nothing is promised for moves of more than {format_distance(loss.distance)}"
                    if math.isfinite(loss.epsilon)
                    else "nothing is promised"
                    if honest
                    else RAW
                )
        delta = min(delta, Fraction(1))
        return cls(None, delta, "; ".join(sorted(reasons))) if reasons else cls(epsilon, delta)

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"no limit ({self.reason})"
        small = f", delta {format_delta(_rounded_up(self.delta))}" if self.delta else ""
        return f"epsilon {format_epsilon(_rounded_up(self.epsilon))}{small}"


@dataclass(frozen=True)
class DeviceLedger(Brief):
    """Ledger of one person in one outbox."""

    entries: Sequence[LedgerEntry]
    limits: Sequence[DeviceLimit]
    unknown: int
    """Number of reports of that person that it has no entry of."""
    since: str
    """Day on which it began, or was deleted last."""

    def exceeded(self, new: LedgerEntry, latest: str) -> list[str]:
        """Sentences about the limits that a new report would exceed.

        Args:
            latest: last day on which its collection is open; a clock ahead of it is wrong.
        """
        if not self.limits:
            return []
        others = [
            entry for entry in self.entries if (entry.task, entry.round) != (new.task, new.round)
        ]
        same = [entry for entry in [*others, new] if entry.measure == new.measure]
        mine = [limit for limit in self.limits if limit.unit == new.unit]
        unit = _printable(new.unit) if new.unit else "in tasks without a unit"
        if not mine:
            place = f"in {unit}" if new.unit else unit
            limits = "; ".join(map(str, self.limits))
            return [f"You have limits ({limits}), and none for moves {place}."]
        today = min(this_day(), latest)
        sentences = []
        for limit in mine:
            total = limit.summed(same, today)
            if limit.is_kept(total):
                continue
            beside = replace(limit, honest=not limit.honest).summed(same, today)
            sentences.append(
                f"With this report, those of {limit.days} days sum up to {total}, "
                f"{HONEST if limit.honest else COLLUDING} (and to {beside}, "
                f"{COLLUDING if limit.honest else HONEST}), for moves of {limit.distance} {unit}; "
                f"your limit is {limit}."
            )
        return [*sentences, *self.remarks()] if sentences else []

    def remarks(self) -> list[str]:
        """Sentences about what it cannot know."""
        remarks = []
        if self.unknown:
            remarks.append(
                f"{self.unknown:,} report{'s' * (self.unknown != 1)} of this outbox "
                f"{'are' if self.unknown != 1 else 'is'} not counted: made before this ledger "
                "began, or forgotten."
            )
        newest = max((entry.day for entry in self.entries), default="")
        if newest > this_day():
            remarks.append(
                f"The clock of this device is behind the newest entry ({newest}); entries of the "
                "future count as today's."
            )
        return remarks

    def lines(self) -> list[str]:
        """The entries with their sums, in sentences."""
        groups: dict[tuple[str, str, str], list[LedgerEntry]] = {}
        for entry in sorted(self.entries, key=lambda entry: (entry.measure, entry.day)):
            groups.setdefault(entry.measure, []).append(entry)
        lines = [] if groups else ["No report is in this ledger."]
        for group in groups.values():
            lines += _group_lines(group)
        if self.limits:
            lines.append("Your limits:")
            lines += [f"  {limit}: {self._used_text(limit)}" for limit in self.limits]
        return [
            *lines,
            *self.remarks(),
            f"This ledger began on {self.since}. It does not know reports made before, on other "
            "devices, or with other outboxes.",
        ]

    def _used_text(self, limit: DeviceLimit) -> str:
        mine = [entry for entry in self.entries if entry.unit == limit.unit]
        sums = [
            str(limit.summed((e for e in mine if e.measure == measure), this_day()))
            for measure in sorted({entry.measure for entry in mine})
        ]
        who = HONEST if limit.honest else COLLUDING
        return f"{'; '.join(sums) or 'nothing'} used in these days, {who}."

    def document(self) -> JsonObject:
        """The ledger as JSON data."""
        return {
            "since": self.since,
            "unknown": self.unknown,
            "limits": [str(limit) for limit in self.limits],
            "entries": [
                {
                    **json.loads(entry.claim),
                    "round": entry.round,
                    "day": entry.day,
                    "state": entry.state,
                }
                for entry in self.entries
            ],
            "remarks": self.remarks(),
        }


def _group_lines(group: Sequence[LedgerEntry]) -> list[str]:
    first = group[0]
    reaches = [
        _exact(loss.distance)
        for entry in group
        for loss in (entry.local, entry.shuffled)
        if math.isfinite(loss.epsilon)
    ]
    distance = min(reaches, default=Fraction(0))
    unit = f" {_printable(first.unit)}" if first.unit else f" (task {first.task[:8]})"
    reach = f" up to {format_distance(float(distance))}{unit}" if reaches else f" in{unit}"
    return [
        f"Moves between {_printable(first.moves)}{reach}:",
        f"  {LossSum.of(group, distance, honest=False)}, {COLLUDING};",
        f"  {LossSum.of(group, distance, honest=True)}, {HONEST}.",
        *(f"  {entry.line()}" for entry in group),
    ]


def this_day() -> str:
    """Day of this device's clock, in UTC."""
    return datetime.fromtimestamp(max(0.0, time.time()), UTC).date().isoformat()


def _exact(number: float) -> Fraction:
    """Number as it is written in the task: the shortest decimal of the float."""
    return Fraction(repr(float(number)))


def _rounded_up(number: Fraction) -> float:
    """Smallest float whose shortest decimal is at least `number`."""
    rounded = float(number)
    while _exact(rounded) < number:
        rounded = math.nextafter(rounded, math.inf)
    return rounded


def _decimal(text: str) -> str:
    """Check a number of a limit; return it as it was written."""
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text):
        raise InputError(f"{text!r:.40} is not a number of a limit; {LIMIT_HELP}.")
    return text


def _printable(text: str) -> str:
    """Text of others without characters that would command a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
