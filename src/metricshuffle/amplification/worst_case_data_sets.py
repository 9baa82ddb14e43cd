"""The data sets of a randomizer that are evaluated for the lower end of a band, and their names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.accounting.shuffling.pair_screen import PairScreen
from metricshuffle.amplification.dominance_scan import Pair, PairScan
from metricshuffle.amplification.input_classes import input_classes_of
from metricshuffle.amplification.input_representatives import class_representatives
from metricshuffle.amplification.lower_bound import (
    DataSetInputs,
    homogeneous_laws,
    krr_data_sets,
    most_informative_rows,
    own_data_sets,
)
from metricshuffle.amplification.pair_cover import SOME_LAWS
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.real_valued_pairs import (
    RealLine,
    real_pairs,
    steps_within,
    takes_real_numbers,
)
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of

SMALL_MATRIX = 2**20  # entries up to which every input is tried for the others
MAX_PAIRS = 2
MAX_OTHERS = 3
CLOSED_FORM_REPORTS = 512  # with more reports, laws are taken from closed forms, if any
FEW_USERS = 30
FEW_PAIRS = 30
MAX_LISTED_PAIRS = 5000
MAX_WORK = 2**22  # max pairs times reports

Codes = tuple[Any, Any, Any]
"""The two inputs of a pair, and the input that all others hold (None if it has no name).

Inputs are codes, or places between grid points.
"""
Coded = tuple[BlanketLaw, Codes]


def value_of(randomizer: Randomizer, place: float) -> Any:
    """Return an input as the sampler takes it, in plain numbers and lists.

    None means that the person does not hold the key.
    """
    code = math.floor(place)
    value = _plain(np.asarray(randomizer.values_of(np.array([code])))[0])
    if place == code:
        return value
    return value + (place - code) * (
        _plain(np.asarray(randomizer.values_of(np.array([code + 1])))[0]) - value
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    number = value.item() if isinstance(value, np.generic) else value
    return None if number != number else number


@dataclass(frozen=True)
class DataSets:
    """Maps a distance to laws of data sets of a randomizer, for the pairs that look worst.

    For a pair (a, b), all other people hold a, or b, or one of the inputs that hide least.
    """

    randomizer: Randomizer | RandomTask
    users: int
    _known: dict[float, list[Coded]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, distance: float) -> list[BlanketLaw]:
        return [law for law, _ in self._at(distance)]

    def named(self, distance: float, place: int) -> DataSetInputs | None:
        """Return the inputs of one of these laws; None if they have no name."""
        first, second, others = self._at(distance)[place][1]
        if others is None:
            return None
        source = self.randomizer
        if isinstance(source, RandomTask):
            tasks = source.tasks
            lists = [
                [value_of(task, code) for task, code in zip(tasks, codes, strict=True)]
                for codes in (first, second, others)
            ]
            return DataSetInputs(lists[0], lists[1], lists[2])
        return DataSetInputs(
            value_of(source, first), value_of(source, second), value_of(source, others)
        )

    def _at(self, distance: float) -> list[Coded]:
        if distance not in self._known:
            self._known[distance] = self._laws(distance)
        return self._known[distance]

    def _laws(self, distance: float) -> list[Coded]:
        source = self.randomizer
        if isinstance(source, RandomTask):
            some = source.blankets(distance)[: 2 * MAX_PAIRS]
            return [
                coded_law
                for law, pair in zip(some, _combine_pairs(source), strict=False)
                for coded_law in _own(law, pair)
            ]
        if takes_real_numbers(source) and source.inputs * source.outputs <= SMALL_MATRIX:
            rows, real = real_pairs(source, distance)
            return [
                (law, _real_places(source, distance, codes))
                for law, codes in self._listed(rows, real, source.inputs)
            ]
        # An upper bound includes pairs up to the next whole step; a lower bound must not.
        pairs = [
            pair
            for pair in source.pairs_within(distance)
            if source.distance(*pair) <= distance * (1.0 + 1e-12)
        ]
        if not pairs:
            return []
        if has_law_of(source, KaryRandomizedResponse):  # exact fractions
            laws = krr_data_sets(
                source.options,
                Fraction(source.keep, TOTAL_WEIGHT),
                Fraction(source.other, TOTAL_WEIGHT),
            )
            return list(zip(laws, [(0, 1, 2), (0, 1, 0)][-len(laws) :], strict=True))
        many = source.outputs > CLOSED_FORM_REPORTS or source.inputs * source.outputs > SMALL_MATRIX
        if many and (closed := self._closed(source, pairs[:SOME_LAWS])):
            return closed
        if source.inputs * source.outputs > SMALL_MATRIX:
            pairs.sort(key=lambda pair: -source.distance(*pair))
            return [
                coded_law
                for pair in pairs[:MAX_PAIRS]
                for coded_law in _own(source.blanket(*pair), pair)
            ]
        return self._listed(source.rows(), pairs, source.inputs)

    def _listed(self, rows: Floats, pairs: list[Pair], inputs: int) -> list[Coded]:
        """Return laws of pairs of rows, with the others at one of the first `inputs` rows."""
        laws: list[Coded] = []
        for a, b in _worst(rows, pairs, self.users, inputs):
            inputs_held = dict.fromkeys(
                [*most_informative_rows(rows[a], rows[b], rows[:inputs], MAX_OTHERS), a, b]
            )
            laws += zip(
                homogeneous_laws(rows[a], rows[b], [rows[c] for c in inputs_held]),
                [(a, b, c) for c in inputs_held],
                strict=True,
            )
        return laws

    @staticmethod
    def _closed(source: Randomizer, pairs: list[Pair]) -> list[Coded]:
        """Return laws from closed forms; empty if they are not known.

        They are of the pairs with the largest spread, with the others at classes that hide least.
        """
        known = [
            (pair, law)
            for pair, law in ((pair, input_classes_of(source, *pair)) for pair in pairs)
            if law is not None
        ]
        spreads = [
            (float(square), pair, law, x)
            for pair, law in known
            for x, square in enumerate(law.at(0.0).square)
        ]
        spreads.sort(key=lambda ranked_pair: -ranked_pair[0])
        return [
            (
                BlanketLaw(*law.types[x][:4]),
                (*pair, class_representatives(source, *pair, len(law.types))[x]),
            )
            for _, pair, law, x in spreads[: MAX_OTHERS * MAX_PAIRS]
        ]


def _own(law: BlanketLaw, pair: tuple[Any, Any]) -> list[Coded]:
    """Return the laws with the others at the first, and at the second."""
    return [
        (own_law, (*pair, code)) for own_law, code in zip(own_data_sets(law), pair, strict=True)
    ]


def _combine_pairs(source: RandomTask) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the codes behind `RandomTask.laws`, in its order."""
    choices = []
    for task in source.tasks:
        pairs = list(task.pairs())
        choices.append([*pairs, *((code, code) for pair in pairs for code in pair)])
    for chosen in itertools.product(*choices):
        if any(a != b for a, b in chosen):
            yield tuple(a for a, _ in chosen), tuple(b for _, b in chosen)


def _real_places(line: RealLine, distance: float, codes: Codes) -> Codes:
    """Return rows of `real_pairs` as places on the grid."""
    last = line.inputs - 1
    remainder = steps_within(line, distance)[1]

    def place(row: int) -> float:
        if row <= last:
            return row
        return (
            row - last - 1 + remainder if row <= 2 * last else row - 2 * last - 1 + 1.0 - remainder
        )

    return (place(codes[0]), place(codes[1]), place(codes[2]))


def _widest(rows: Floats, pairs: list[Pair], inputs: int) -> list[Pair]:
    """Return the pairs with the largest spread, over the inputs that hide least.

    If there are too many pairs, the spread is over what all laws have in common.
    """
    if (
        len(pairs) * rows.shape[1] <= MAX_WORK
        and (crowd := PairScreen(rows[:inputs], rows)).covered
    ):
        order = np.argsort(-crowd.spreads(np.array(pairs, dtype=np.int64), 1.0)[0], kind="stable")
        return [pairs[place] for place in order[:MAX_PAIRS]]
    scan = PairScan(rows, pairs)
    return [(int(a), int(b)) for a, b in scan.ranked(1.0)[:MAX_PAIRS]] if scan.covered else []


def _worst(rows: Floats, pairs: list[Pair], users: int, inputs: int) -> list[Pair]:
    """Return the pairs with the largest spread, total variation and ratio.

    The spread decides for many users, the other two for few.
    """
    if len(pairs) <= (FEW_PAIRS if users <= FEW_USERS else MAX_PAIRS):
        return pairs
    spread = _widest(rows, pairs, inputs)
    if len(pairs) > MAX_LISTED_PAIRS:
        return spread or pairs[:MAX_PAIRS]
    ratio = []
    variation = []
    for a, b in pairs:
        variation.append(float(np.maximum(rows[a] - rows[b], 0.0).sum()))
        support = rows[a] > 0.0
        ratio.append(float(np.max(rows[a][support] / np.maximum(rows[b][support], 1e-300))))
    return list(
        dict.fromkeys([*spread, pairs[int(np.argmax(variation))], pairs[int(np.argmax(ratio))]])
    )
