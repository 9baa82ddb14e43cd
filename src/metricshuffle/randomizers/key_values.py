"""Key-value data: which keys a person holds, and a value in [-1, 1] for each of them.

Values are rows with a column per key; NaN means that the person does not hold the key.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import DomainError, InputError, NotCertified, argument, owner
from metricshuffle.models import FrozenModel, Whole
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.corner_vectors import corners
from metricshuffle.randomizers.dyadic_weights import (
    TOTAL_WEIGHT,
    Epsilon,
    draw_events,
    exact_blanket,
    exp_below,
)
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Codes, FittedFamily, Pair, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Domain, KeyedNumbers

Rows = Floats
Item = tuple[int, ...]

MAX_INPUTS = 1_000
# Members of a family with a larger epsilon hide nothing.
MAX_EPSILON = 300.0


def key_values(values: object, keys: int, max_keys: int) -> Rows:
    """Return rows of values in [-1, 1] or NaN, with at most `max_keys` keys held, or raise."""
    rows = np.asarray(values, dtype=np.float64)
    if (
        rows.ndim != 2
        or rows.shape[1] != keys
        or not np.all(np.isnan(rows) | (np.abs(rows) <= 1.0))
    ):
        raise DomainError(
            f"values must be rows of {keys} numbers from -1 to 1, NaN for a key that is "
            f"not held, got shape {rows.shape}."
        )
    held_counts = np.count_nonzero(~np.isnan(rows), axis=1)
    if held_counts.size and held_counts.max() > max_keys:
        raise DomainError(
            f"row {int(np.argmax(held_counts))} (counting from 0) holds "
            f"{held_counts.max()} keys, but at most {max_keys} may be held."
        )
    return rows


class _KeyValues(Randomizer):
    """Base class; input codes enumerate the states of all keys, at most `held` of them held.

    The states of a key are -1, +1 and "not held".
    """

    keys: Whole
    held: Whole

    def model_post_init(self, context: object) -> None:
        if not 1 <= self.held <= self.keys <= 2**20:
            raise InputError(
                f"{owner(type(self).__name__)}1 <= {argument('held')} <= {argument('keys')} <= "
                f"2^20 must hold, got {self.held} and {self.keys}."
            )

    @property
    def inputs(self) -> int:
        return sum(math.comb(self.keys, count) * 2**count for count in range(self.held + 1))

    @cached_property
    def states(self) -> Integers64:
        """One row per input: -1, +1, or 0 for a key that is not held.

        Inputs with the maximum number of keys come first.
        """
        self._listable()
        state_list = []
        for count in range(self.held, -1, -1):
            for keys in itertools.combinations(range(self.keys), count):
                for signs in itertools.product((1, -1), repeat=count):
                    row = [0] * self.keys
                    for key, sign in zip(keys, signs, strict=True):
                        row[key] = sign
                    state_list.append(row)
        return np.array(state_list, dtype=np.int64)

    def values_of(self, codes: Codes) -> Any:
        return np.where(self.states[codes] == 0, np.nan, self.states[codes])

    def targets(self) -> Floats:
        """Return per key whether it is held, then per key the value (0 if it is not held)."""
        return np.hstack([np.abs(self.states), self.states]).astype(np.float64)

    def _all_pairs(self) -> Iterator[Pair]:
        """Yield pairs of all kinds; keys may be renamed, so that few first inputs suffice.

        First inputs are the first ones with their numbers of positive and of negative keys.
        """
        if self.inputs > MAX_INPUTS:
            raise NotCertified(
                f"{owner(type(self).__name__)}{self.inputs:,} inputs are too many to "
                f"compare in pairs; reduce {argument('held')} or {argument('keys')}."
            )
        signs = np.stack([(self.states > 0).sum(axis=1), (self.states < 0).sum(axis=1)], axis=1)
        _, first_inputs = np.unique(signs, axis=0, return_index=True)
        return ((a, b) for a in sorted(first_inputs.tolist()) for b in range(self.inputs) if a != b)


class PrivKV(_KeyValues):
    """The presence of a uniformly chosen key and its value's sign, each under randomized response.

    Reports are coded 3 * key + (0 not held, 1 value +1, 2 value -1). One report is log max(e^k,
    e^v, 2 e^(k+v)/(e^v + 1)) private with k = key_epsilon and v = value_epsilon: less than the k +
    v of the composition argument. Reference: Ye, Hu, Meng, Zheng 2019.
    """

    kind: Literal["priv-kv"] = "priv-kv"
    key_epsilon: Epsilon
    value_epsilon: Epsilon

    def __init__(
        self,
        keys: int,
        key_epsilon: float,
        value_epsilon: float,
        held: int | None = None,
        **fields: object,
    ) -> None:
        held = keys if held is None else held
        FrozenModel.__init__(
            self,
            keys=keys,
            held=held,
            key_epsilon=key_epsilon,
            value_epsilon=value_epsilon,
            **fields,
        )

    @property
    def outputs(self) -> int:
        return 3 * self.keys

    @cached_property
    def thresholds(self) -> tuple[int, int]:
        """2^63 times the probabilities of not flipping the presence of the key, and the sign."""
        ratios = (exp_below(self.key_epsilon), exp_below(self.value_epsilon))
        key, sign = (
            min(TOTAL_WEIGHT - 1, math.floor(TOTAL_WEIGHT * ratio / (ratio + 1)))
            for ratio in ratios
        )
        return key, sign

    @cached_property
    def _by_state(self) -> dict[int, tuple[Fraction, Fraction, Fraction]]:
        """Probabilities of (not held, +1, -1) for the chosen key, by its state."""
        key, sign = (Fraction(threshold, TOTAL_WEIGHT) for threshold in self.thresholds)
        right = key * sign
        flipped = key * (1 - sign)
        return {
            0: (key, (1 - key) / 2, (1 - key) / 2),
            1: (1 - key, right, flipped),
            -1: (1 - key, flipped, right),
        }

    @property
    def laws_by_state(self) -> list[tuple[Fraction, Fraction, Fraction]]:
        """Probabilities of (not held, +1, -1) if a key is not held, or has the value +1 or -1."""
        return [self._by_state[state] for state in (0, 1, -1)]

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Keys with numbers, by local epsilon, which presence and value share.

        With one epsilon t for both, e^t = x, a report has log(2 x^2/(x + 1)).
        """

        def member(epsilon: float) -> PrivKV:
            ratio = math.exp(min(epsilon, MAX_EPSILON))
            both = math.log((ratio + math.sqrt(ratio * (ratio + 8.0))) / 4.0) * (1.0 - 1e-12)
            return cls(cells, both, both, most)

        most = domain.most if isinstance(domain, KeyedNumbers) else 0
        return FittedFamily(member) if most else None

    def rows(self) -> Floats:
        table = np.array([[float(part) for part in self._by_state[state]] for state in (0, 1, -1)])
        # State -1 indexes the last row.
        return (table[self.states] / self.keys).reshape(self.inputs, self.outputs)

    @theorem("Ye19", "PrivKV")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w at (key, report class) is 1/keys times the smallest of the three states'
        probabilities; it is the same for all keys.
        Conditions: every state of a key is possible, 1 <= held.
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        minima = [
            min(law[report_class] for law in self._by_state.values()) for report_class in range(3)
        ]
        pairs: dict[Item, int] = {}
        for both in zip(self.states[a].tolist(), self.states[b].tolist(), strict=True):
            pairs[both] = pairs.get(both, 0) + 1
        return exact_blanket(
            (
                Fraction(many, self.keys),
                minima[report_class],
                self._by_state[first][report_class],
                self._by_state[second][report_class],
            )
            for (first, second), many in pairs.items()
            for report_class in range(3)
        )

    def pairs(self) -> list[Pair]:
        """Return one pair for each combination of pairs of states of the keys."""
        pairs_by_change: dict[tuple[Item, ...], Pair] = {}
        for a, b in self._all_pairs():
            pairs_by_change.setdefault(
                tuple(sorted(zip(self.states[a].tolist(), self.states[b].tolist(), strict=True))),
                (a, b),
            )
        return list(pairs_by_change.values())

    def reports(self, values: object, randomness: Randomness) -> Codes:
        rows = key_values(values, self.keys, self.held)
        chosen = randomness.uniform_residues(len(rows), self.keys).astype(np.int64)
        value = rows[np.arange(len(rows)), chosen]
        is_held = ~np.isnan(value)
        sign = corners(np.where(is_held, value, 0.0)[:, None], 1, randomness)[:, 0]
        key_kept, sign_kept = (
            draw_events(threshold, len(rows), randomness) for threshold in self.thresholds
        )
        plus = (sign > 0) == sign_kept  # a fair coin stays fair
        return 3 * chosen + np.where(is_held == key_kept, np.where(plus, 1, 2), 0)

    def debiasing(self) -> Floats:
        key, sign = (threshold / TOTAL_WEIGHT for threshold in self.thresholds)
        held_estimate = (np.array([0.0, 1.0, 1.0]) - (1.0 - key)) / (2.0 * key - 1.0)
        value = np.array([0.0, 1.0, -1.0]) / (key * (2.0 * sign - 1.0))
        return self.keys * np.hstack(
            [np.kron(np.eye(self.keys), column[:, None]) for column in (held_estimate, value)]
        )


class PckvGrr(_KeyValues):
    """One of up to `held` keys, with its sign, sent by k-ary randomized response.

    The key is chosen among those that the person holds, padded with dummies. There are `held` dummy
    keys with fair signs, so that 2 (keys + held) reports exist, coded 2 * key + (value is +1).
    Because one of `held` items is chosen, the response may keep an item with weight held (e^epsilon
    - 1) + 1 against 1. Reference: Gu et al. 2020.
    """

    kind: Literal["pckv-grr"] = "pckv-grr"
    epsilon: Epsilon

    def __init__(self, keys: int, held: int, epsilon: float, **fields: object) -> None:
        FrozenModel.__init__(self, keys=keys, held=held, epsilon=epsilon, **fields)

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        _ = self.response

    @property
    def outputs(self) -> int:
        return 2 * (self.keys + self.held)

    @cached_property
    def response(self) -> KaryRandomizedResponse:
        """The response to the chosen item; its epsilon is larger, because the choice hides too."""
        return KaryRandomizedResponse(
            self.outputs,
            math.log1p(self.held * math.expm1(min(self.epsilon, 600.0))) * (1.0 - 1e-15),
        )

    def _chosen(self, code: int) -> list[Fraction]:
        """Return the probability that each of the 2 (keys + held) items is chosen."""
        item = [Fraction(0)] * self.outputs
        for key, state in enumerate(self.states[code].tolist()):
            if state:
                item[2 * key + (state > 0)] = Fraction(1, self.held)
        missing = self.held - int(np.count_nonzero(self.states[code]))
        for dummy in range(2 * self.keys, self.outputs):
            item[dummy] = Fraction(missing, self.held * 2 * self.held)
        return item

    def rows(self) -> Floats:
        chosen = np.array(
            [[float(part) for part in self._chosen(code)] for code in range(self.inputs)]
        )
        return (
            self.response.other + (self.response.keep - self.response.other) * chosen
        ) / TOTAL_WEIGHT

    @theorem("Gu20", "PCKV-GRR")
    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Blanket of (a, b) in closed form.

        Statement: w = other at every report; an item chosen with probability c is reported with
        other + c (keep - other).
        Proof: people who hold `held` keys, but not the key of an item (or with the other sign),
        never choose that item. c <= 1/held, so ratios are at most e^epsilon.
        Numerics: exact fractions, rounded once.
        """
        self._checked_pair(a, b)
        keep = Fraction(self.response.keep, TOTAL_WEIGHT)
        other_probability = Fraction(self.response.other, TOTAL_WEIGHT)
        return exact_blanket(
            (
                1,
                other_probability,
                other_probability + first * (keep - other_probability),
                other_probability + second * (keep - other_probability),
            )
            for first, second in zip(self._chosen(a), self._chosen(b), strict=True)
        )

    def pairs(self) -> list[Pair]:
        """Return one pair per counts of keys: held by each, shared with equal or opposite signs."""
        pairs_by_change: dict[Item, Pair] = {}
        for a, b in self._all_pairs():
            first = self.states[a]
            second = self.states[b]
            kind = (
                int(np.abs(first).sum()),
                int(np.abs(second).sum()),
                int((first * second > 0).sum()),
                int((first * second < 0).sum()),
            )
            pairs_by_change.setdefault(kind, (a, b))
        return list(pairs_by_change.values())

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        return min(self.epsilon, super().local_epsilon(a, b))

    def reports(self, values: object, randomness: Randomness) -> NDArray[Any]:
        rows = key_values(values, self.keys, self.held)
        slot = randomness.uniform_residues(len(rows), self.held).astype(np.int64)
        is_held = ~np.isnan(rows)
        order = np.cumsum(is_held, axis=1) - 1
        match = is_held & (order == slot[:, None])
        real = match.any(axis=1)
        key = np.argmax(match, axis=1)
        value = np.where(real, np.nan_to_num(rows[np.arange(len(rows)), key]), 0.0)
        dummy = self.keys + randomness.uniform_residues(len(rows), self.held).astype(np.int64)
        sign = corners(value[:, None], 1, randomness)[:, 0]
        return self.response.reports(2 * np.where(real, key, dummy) + (sign > 0), randomness)

    def debiasing(self) -> Floats:
        keep = self.response.keep / TOTAL_WEIGHT
        other_probability = self.response.other / TOTAL_WEIGHT
        own = np.zeros((self.outputs, self.keys))
        own[np.arange(2 * self.keys), np.arange(2 * self.keys) // 2] = 1.0
        sign = np.where(np.arange(self.outputs) % 2 == 1, 1.0, -1.0)[:, None]
        return np.hstack([own - 2.0 * other_probability, own * sign]) * (
            self.held / (keep - other_probability)
        )
