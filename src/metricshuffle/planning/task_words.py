"""Phrases about a task for participants: its values, its result, and two answers that are close."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial

from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import (
    format_distance,
    format_number,
    format_rough,
    round_down,
    round_up,
)
from metricshuffle.planning.plan_text import expected_error_text
from metricshuffle.planning.translation import Language
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.queries import (
    ByGroup,
    Histogram,
    KeyValues,
    Means,
    Quantiles,
    Sets,
    ShareAbove,
    Spread,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.centroid import ALONG_AXES_TEXT, STRAIGHT_LINE_TEXT
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.user_queries import MEASURE_TEXTS, UserQuery
from metricshuffle.spaces import (
    Categories,
    Discrete,
    Domain,
    Grid,
    Integers,
    KeyedNumbers,
    LabelledNumbers,
    LabelSets,
    NumberRows,
    Places,
    ZonePairs,
    Zones,
)
from metricshuffle.tasks.task import Task

Say = Callable[..., str]
MAX_LISTED = 8
GUESSES = (100, 1_000)
"""Numbers of guesses out of which the right ones are counted."""
MEASURES = (STRAIGHT_LINE_TEXT, ALONG_AXES_TEXT, *MEASURE_TEXTS.values())
"""How queries say in English what distances are measured between."""


@theorem("Kairouz15", "the hypothesis test of Section 2")
def wrong_guesses(epsilon: float, delta: float) -> float:
    """Return a lower bound on the probability that a guess between two values is wrong.

    Statement: let the outputs of two values be (epsilon, delta)-indistinguishable, and let either
    value be as likely as the other. A guess from the output is wrong with probability at
    least (1 - delta)/(e^epsilon + 1).
    Conditions: epsilon >= 0, 0 <= delta <= 1.
    Proof: let the guess be "first" on the event A. The error is (P(not A) + Q(A))/2, and
    P(A) <= e^epsilon Q(A) + delta gives P(not A) >= 1 - delta - e^epsilon Q(A); by symmetry Q(A) >=
    1 - delta - e^epsilon P(not A). Adding both, (1 + e^epsilon)(P(not A) + Q(A)) >= 2 (1 - delta).
    Numerics: rounded down.
    Reference: Kairouz, Oh and Viswanath, The composition theorem for differential privacy, 2015.
    """
    if not (epsilon >= 0.0 and 0.0 <= delta <= 1.0) or epsilon > 700.0:
        return 0.0
    return round_down((1.0 - delta) / round_up(math.exp(round_up(epsilon, 4)) + 1.0, 8), 8)


@dataclass(frozen=True)
class TaskWords:
    """Phrases about the values and the result of one task, in one language."""

    task: Task
    language: Language

    @property
    def say(self) -> Say:
        return self.language.say

    @property
    def unit(self) -> str:
        return f" {self.task.query.unit}" if self.task.query.unit else ""

    def number(self, text: str) -> str:
        return self.language.number(text)

    def count(self, number: int) -> str:
        return self.number(f"{number:,}")

    def distance(self, distance: float) -> str:
        return f"{self.number(format_distance(distance))}{self.unit}"

    def value_text(self, domain: Domain) -> str:
        """Describe a value in words."""
        say = self.say
        if isinstance(domain, Categories):
            return say("one of {labels}", labels=self._names(domain.labels))
        if isinstance(domain, NumberRows):
            return say(
                "numbers ({columns}), each {number}",
                columns=self._names(domain.columns),
                number=self.value_text(domain.numbers),
            )
        if isinstance(domain, LabelSets):
            return say(
                "up to {most} of {labels}, or none of them",
                most=self.count(domain.most),
                labels=self._names(domain.labels.labels),
            )
        if isinstance(domain, KeyedNumbers):
            return say(
                "up to {most} of {labels}, or none of them, and for each of yours {number}",
                most=self.count(domain.most),
                labels=self._names(domain.keys.labels),
                number=self.value_text(domain.numbers),
            )
        if isinstance(domain, Zones):
            return say(
                "the zone of a place, one of {zones} zones", zones=self.count(len(domain.ids))
            )
        if isinstance(domain, ZonePairs):
            return say(
                "a trip: the zone where it starts and the zone where it ends, each one of {zones} "
                "zones",
                zones=self.count(len(domain.zones.ids)),
            )
        if isinstance(domain, LabelledNumbers):
            return say(
                "{label}, and {number}",
                label=self.value_text(domain.labels),
                number=self.value_text(domain.numbers),
            )
        if isinstance(domain, Grid):
            return say(
                "a square of a grid of {width} by {height} squares, each {size} wide",
                width=self.count(domain.width),
                height=self.count(domain.height),
                size=f"{self.number(format_number(domain.cell))} {domain.unit}".rstrip(),
            )
        if isinstance(domain, Places):
            box = domain.box
            return say(
                "a place from {south} to {north} degrees north and from {west} to {east} degrees "
                "east",
                **{
                    side: self.number(f"{getattr(box, side):g}")
                    for side in ("south", "north", "west", "east")
                },
            )
        low, high, unit = (getattr(domain, name) for name in ("low", "high", "unit"))
        between = {
            "low": self.number(format_number(low)),
            "high": f"{self.number(format_number(high))} {unit}".rstrip(),
        }
        if isinstance(domain, Integers):
            return say("a whole number from {low} to {high}", **between)
        return say("a number from {low} to {high}", **between)

    def guesses(self, promise: Guarantee, share: float = 1.0) -> str:
        """Say how often a guess is right at most; only the fraction `share` of epsilon counts."""
        wrong_share = wrong_guesses(promise.epsilon * share, promise.delta)
        for total in GUESSES:
            misses = math.floor(wrong_share * total * (1.0 - 1e-12))
            if misses >= 1:
                return self.say(
                    "{right} times in {total}",
                    right=self.count(total - misses),
                    total=self.count(total),
                )
        return self.say("nearly every time")

    def _names(self, names: tuple[str, ...]) -> str:
        """List the first names and say how many more there are."""
        listed = ", ".join(names[:MAX_LISTED])
        more = len(names) - MAX_LISTED
        if more <= 0:
            return listed
        return self.say("{names} and {more} more", names=listed, more=self.count(more))

    def outcome(self) -> str:
        query = self.task.query
        say = self.say
        if isinstance(query, Histogram):
            if isinstance(query.domain, Grid):
                return say("a map of how many people are in each square")
            if isinstance(query.domain, Zones):
                return say("a map of how many people are in each zone")
            if isinstance(query.domain, ZonePairs):
                return say("how many people went from each zone to each zone")
            return say("how many people gave each answer")
        if isinstance(query, ByGroup):
            return say(
                "how many people are in each {group}, and the average of their numbers",
                group=query.by,
            )
        if isinstance(query, UserHistogram):
            return say("how the items of all people are spread, where each person counts the same")
        if isinstance(query, UserLinearQuery) and query.totals_points:
            return say("the average, over all people, of the total of their numbers")
        if isinstance(query, UserLinearQuery):
            return say("an average over the items of all people, where each person counts the same")
        if isinstance(query, Means):
            return say("the average of each number")
        if isinstance(query, Sets):
            return say("how many people have each of these")
        if isinstance(query, KeyValues):
            return say("how many people have each of these, and the average of their numbers")
        if isinstance(query, Quantiles):
            shares = ", ".join(self.number(f"{100 * share:g} %") for share in query.at)
            return say("the numbers that {shares} of the people stay below", shares=shares)
        if isinstance(query, Spread):
            return say("the average of all answers, and how far they are spread")
        if isinstance(query, ShareAbove):
            limits = ", ".join(self.number(format_number(limit)) for limit in query.at)
            return say("how many answers are above {limits}", limits=f"{limits}{self.unit}")
        if query.kind == "mean":
            return say("the average of all answers")
        if query.kind == "centroid":
            return say("the middle of all places")
        return say("the sum of all answers")

    def error_sentences(self, expected_error: float | None) -> tuple[str, ...]:
        query = self.task.query
        if expected_error is None or isinstance(query, UserHistogram | UserLinearQuery):
            return ()
        if isinstance(query, Histogram):
            error = f"{format_rough(100.0 * expected_error)} %"
        elif isinstance(query, LineQuery | RecordQuery):
            error = expected_error_text(query, expected_error)
        else:
            error = f"{format_number(expected_error)} {query.error_unit}".rstrip()
        if isinstance(query, ByGroup):
            return (
                self.say(
                    "If all groups have the same size, an average is off by about {error}.",
                    error=self.number(error),
                ),
            )
        if isinstance(query, Histogram):
            return (
                self.say(
                    "Each share is off by about {error} of the people.", error=self.number(error)
                ),
            )
        return (self.say("It is off by about {error}.", error=self.number(error)),)

    def example(self) -> str:
        """Two possible answers within the distance."""
        query = self.task.query
        say = self.say
        distance = self.task.guarantee.distance
        apart = self.distance(distance)
        domain = query.values_in
        if isinstance(query, UserQuery):
            return self._other_items(query, distance)
        if isinstance(domain, Categories):
            return say(
                "Take any two answers, such as {first} and {second}.",
                first=domain.labels[0],
                second=domain.labels[1],
            )
        if isinstance(domain, Zones):
            return say(
                "Take any two zones whose middle points are at most {apart} apart (all places of "
                "one zone count as the same).",
                apart=apart,
            )
        if isinstance(domain, ZonePairs):
            return say(
                "Take any two trips whose starts and ends are together at most {apart} apart, "
                "measured between the middle points of zones (all places of one zone count as the "
                "same).",
                apart=apart,
            )
        if isinstance(query, ByGroup):
            return say(
                "Take any two answers with the same {group}, whose numbers are at most {apart} "
                "apart (another {group} counts as {more} more).",
                group=query.by,
                apart=apart,
                more=self.distance(query.label_distance or 0.0),
            )
        if isinstance(query, Means):
            return say(
                "Take any two answers whose differences add up to {apart} at most.", apart=apart
            )
        if isinstance(query, Sets):
            return say("Take any two answers that differ in at most {apart}.", apart=apart)
        if isinstance(query, KeyValues):
            return say(
                "Take any two answers whose differences add up to {apart} at most, where one that "
                "only one of them has counts as {more}.",
                apart=apart,
                more=self.distance(query.absence),
            )
        if isinstance(domain, Grid):
            return say("Take any two squares whose middles are at most {apart} apart.", apart=apart)
        if isinstance(domain, Places):
            return say("Take any two places at most {apart} apart on the ground.", apart=apart)
        if isinstance(query, CellQuery):
            return self._two_ranges(query, distance)
        two = number_pair(domain, distance, self.task.protocol.step)
        if not isinstance(domain, Integers):
            rounded = partial(
                say, step=f"{self.number(format_number(self.task.protocol.step))}{self.unit}"
            )
            if two is None:
                return rounded(
                    "Take any two numbers at most {apart} apart when rounded to steps of {step}.",
                    apart=apart,
                )
            return rounded(
                "Take any two numbers at most {apart} apart when rounded to steps of {step}, such "
                "as {first} and {second}.",
                apart=apart,
                first=self.number(two[0]),
                second=f"{self.number(two[1])}{self.unit}",
            )
        if two is None:
            return say("Take any two numbers at most {apart} apart.", apart=apart)
        return self._two_numbers(apart, two[0], two[1])

    def _two_numbers(self, apart: str, first: str, second: str) -> str:
        return self.say(
            "Take any two numbers at most {apart} apart, such as {first} and {second}.",
            apart=apart,
            first=self.number(first),
            second=f"{self.number(second)}{self.unit}",
        )

    def _two_ranges(self, query: CellQuery, distance: float) -> str:
        bins = math.floor(distance / query.step * (1.0 + 1e-12))
        first = (query.cells - 1 - bins) // 2
        labels = (str(query.label(first)), str(query.label(first + bins)))
        apart = self.distance(distance)
        if query.between(1.0) == "values":
            return self._two_numbers(apart, *labels)
        return self.say(
            "Your number is counted in ranges of {width}. Take any two ranges whose starts are at "
            "most {apart} apart, such as {first} and {second}.",
            width=f"{self.number(format_number(query.step))}{self.unit}",
            apart=apart,
            first=self.number(labels[0]),
            second=f"{self.number(labels[1])}{self.unit}",
        )

    def _other_items(self, query: UserQuery, distance: float) -> str:
        say = self.say
        if isinstance(query.people.items_in.metric, Discrete):
            if distance >= 1.0:
                return say("Take your items, and any other items in their place.")
            percent = format_distance(float(100 * Decimal(repr(distance))))
            return say(
                "Take your items, and other items in their place, where at most {percent} % of "
                "them differ.",
                percent=self.number(percent),
            )
        moved = say(
            "Take your items, and the same items moved by at most {apart} on average.",
            apart=self.distance(distance),
        )
        between = query.between(1.0)
        if between == "values":
            return moved
        return f"{moved} {say('The distance is that between {what}.', what=self._measure(between))}"

    def _measure(self, between: str) -> str:
        """Translate the words of a query, in English, on how distances are measured."""
        if between in MEASURES:
            return self.say(between)
        return self.say("items, by the metric {name}", name=between.rpartition(" ")[2])


def number_pair(domain: Domain, distance: float, step: float) -> tuple[str, str] | None:
    """Two short numbers of the domain that are within the distance even after rounding to steps.

    None if there are no such numbers.
    """
    low, high = (Decimal(repr(getattr(domain, name))) for name in ("low", "high"))
    whole = isinstance(domain, Integers)
    max_gap = Decimal(repr(distance)) - (Decimal(0) if whole else 2 * Decimal(repr(step)))
    if max_gap <= 0:
        return None
    unit = Decimal(1) if whole else Decimal(1).scaleb(max_gap.adjusted() - 1)
    apart = max_gap.quantize(unit, rounding=ROUND_FLOOR)
    first = (
        ((low + high - apart) / 2).quantize(unit, rounding=ROUND_CEILING)
        if not whole
        else (low + high - apart) // 2
    )
    if not (apart > 0 and low <= first and first + apart <= high):
        return None
    return f"{first:,f}", f"{first + apart:,f}"
