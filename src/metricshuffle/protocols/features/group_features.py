"""Features of groups or keys with numbers, whose noisy sums are counts and means of each."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import Positive, Whole
from metricshuffle.noise.polya import LARGEST_RATE, Polya
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features.query_features import QueryFeatures
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.keyed_means import KeyValues
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.spaces import KeyedDistance, LabelledDistance, Space
from metricshuffle.spaces.person_records import NOTHING

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Form = Literal["up-down", "count-sum"]
Grouped = ByGroup | KeyValues
# Means of groups that expected errors assume, as fractions of the range (and mirror images).
MEAN_PLACES = (0.125, 0.375)
# Equally probable parts of the law of the noise, for expected errors.
LAW_PARTS = 128


class GroupFeatures(QueryFeatures):
    """Two features of every group or key, which are 0 for people without it.

    People have one group, or several keys. For a number x the form "up-down" has the features x and
    top - x, and "count-sum" has a count, 1, and 2 x - top; the rate of the noise on the count is
    `count_weight` times that on the sum of 2 x - top.
    """

    exact_moves: ClassVar[bool] = False
    fine: ClassVar[bool] = False
    kind: Literal["group-features"] = "group-features"
    form: Form
    groups: Whole
    top: Whole
    count_weight: Positive = 1.0

    def __str__(self) -> str:
        return "up and down" if self.form == "up-down" else "count and sum"

    @classmethod
    def offered_for(cls, query: Query, people: int, rate: float) -> Iterator[Self]:
        if isinstance(query, KeyValues):
            yield cls(form="up-down", groups=query.rows, top=query.top)
        if not isinstance(query, ByGroup):
            return
        groups = len(query.groups.labels)
        yield cls(form="up-down", groups=groups, top=query.top)
        # The count gets half of the loss allowed for a change of label, or all that the sum leaves.
        spare = (query.label_distance or 0.0) / query.step - query.top
        yield cls(
            form="count-sum",
            groups=groups,
            top=query.top,
            count_weight=float(max(query.top, spare)),
        )

    def check(self, query: Query) -> bool:
        if isinstance(query, KeyValues):
            return self == type(self)(form="up-down", groups=query.rows, top=query.top)
        return isinstance(query, ByGroup) and (self.groups, self.top) == (
            len(query.groups.labels),
            query.top,
        )

    def _columns(self, numbers: Integers64) -> Integers64:
        """Both features of people of one group with these numbers."""
        pair = (
            (numbers, self.top - numbers)
            if self.form == "up-down"
            else (np.ones_like(numbers), 2 * numbers - self.top)
        )
        return np.stack(pair, axis=-1)

    def mean_features(self, number: float) -> Floats:
        """Mean features of people in each group, if their numbers have this mean."""
        pair = (
            (number, self.top - number)
            if self.form == "up-down"
            else (1.0, 2.0 * number - self.top)
        )
        return np.tile(np.array(pair, dtype=np.float64), self.groups)

    def ranges(self, space: Space) -> tuple[Integers64, Integers64]:
        ends = self._columns(np.array([0, self.top], dtype=np.int64))
        low, high = np.minimum(ends.min(axis=0), 0), ends.max(axis=0)
        return np.tile(low, self.groups), np.tile(high, self.groups)

    def vectors(self, space: Space, codes: Integers64) -> Integers64:
        pairs = codes.reshape(len(codes), -1)
        groups, numbers = np.divmod(pairs, self.top + 1)
        # Empty places of people with few keys are counted in one more group, which is left out.
        groups = np.where(pairs == NOTHING, self.groups, groups)
        rows = np.zeros((len(pairs), self.groups + 1, 2), dtype=np.int64)
        rows[np.arange(len(pairs))[:, None], groups] = self._columns(numbers)
        return rows[:, : self.groups].reshape(len(pairs), 2 * self.groups)

    def table(self, space: Space) -> csr_array:
        from scipy.sparse import csr_array

        size = self.groups * (self.top + 1)
        self.check_room(2 * self.groups, 2 * size, "choose a coarser granularity")
        return csr_array(self.vectors(space, np.arange(size, dtype=np.int64)))

    def weights(self, space: Space) -> Floats:
        count = 1.0 if self.form == "up-down" else self.count_weight
        largest = max(1.0, count)
        return np.tile(np.array([count, 1.0]) / largest, self.groups)

    def slope(self, space: Space, rates: Floats) -> float:
        checked = self.validate_rates(space, rates).reshape(self.groups, 2)
        metric = space.metric
        if isinstance(metric, KeyedDistance) and self.form == "up-down":
            return key_slope(checked, self.top, metric.absence, metric.step)
        if not isinstance(metric, LabelledDistance):
            raise InputError("features of groups are those of pairs of a label and a number.")
        ends = np.abs(self._columns(np.array([0, self.top], dtype=np.int64)))
        steps = np.abs(self._columns(np.array([1])) - self._columns(np.array([0])))[0]
        return group_slope(
            checked @ steps.astype(np.float64),
            checked @ ends.T.astype(np.float64),
            metric.label_distance,
            metric.step,
            self.top,
        )

    # Readout

    def estimate(self, query: Query, means: Floats, noise: SumNoise, people: int) -> Estimate:
        """Counts of all groups, then their means in steps; see `ByGroup.answer`."""
        sums = means * noise.count
        counts = self._counts() @ sums
        up, down = self._up_down(sums)
        values = mean_ratio(np.maximum(up, 0.0), np.maximum(down, 0.0), self.top)
        count_errors = noise.deviations(self._counts()) * noise.count
        deviations = np.sqrt(noise.variances).reshape(self.groups, 2)
        shares = values / self.top
        turned = (
            np.hypot((1.0 - shares) * deviations[:, 0], shares * deviations[:, 1])
            if self.form == "up-down"
            else np.hypot((shares - 0.5) * self.top * deviations[:, 0], 0.5 * deviations[:, 1])
        )
        errors = np.minimum(turned / np.maximum(counts, 1.0), self.top)

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (2 * self.groups if simultaneous else 1)
            halves = noise.radii(self._counts(), miss) * noise.count
            radii = noise.single_radii(0.5 * miss) * noise.count
            low, high = self._mean_ends(sums - radii, sums + radii)
            return (
                np.concatenate([np.clip(counts - halves, 0.0, people), low]),
                np.concatenate([np.clip(counts + halves, 0.0, people), high]),
            )

        return Estimate(
            np.concatenate([np.clip(counts, 0.0, people), values]),
            np.concatenate([count_errors, errors]),
            people,
            1.0,
            ends,
        )

    def _counts(self) -> csr_array:
        """Factors that turn sums of the features into counts of all groups."""
        return _count_factors(self.form, self.groups, self.top)

    def _up_down(self, sums: Floats) -> tuple[Floats, Floats]:
        """Sums of x and of top - x in every group."""
        first, second = sums.reshape(self.groups, 2).T
        if self.form == "up-down":
            return first, second
        return 0.5 * (self.top * first + second), 0.5 * (self.top * first - second)

    def _mean_ends(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Interval of every mean, if the true sums lie between these ends.

        Statement: let up be the sum of x and down the sum of top - x, both >= 0. The mean is top
        up/(up + down), which increases with up and decreases with down. Let c >= 1 be the count and
        s the sum of 2 x - top. The mean is (top + s/c)/2, which increases with s, and moves away
        from top/2 as c decreases.
        """
        lower, upper = (np.maximum(end, 0.0).reshape(self.groups, 2).T for end in (low, high))
        if self.form == "up-down":
            return (
                mean_ratio(lower[0], upper[1], self.top, empty=0.0),
                mean_ratio(upper[0], lower[1], self.top, empty=float(self.top)),
            )
        least, most = np.maximum(lower[0], 1.0), np.maximum(upper[0], 1.0)
        sums = low.reshape(self.groups, 2)[:, 1], high.reshape(self.groups, 2)[:, 1]
        start = 0.5 * (self.top + sums[0] / np.where(sums[0] >= 0.0, most, least))
        stop = 0.5 * (self.top + sums[1] / np.where(sums[1] >= 0.0, least, most))
        return np.clip(start, 0.0, self.top), np.clip(stop, 0.0, self.top)

    def expected_error(self, query: Query, noise: SumNoise) -> float:
        """Mean error of a group's mean, for groups of equal size with means all over the range."""
        people = query.typical_size(round(noise.count)) if isinstance(query, Grouped) else 0.0
        errors = [
            group_mean_error(self.form, noise, people, self.top, place * self.top)
            for place in MEAN_PLACES
        ]
        return float(np.mean(errors)) * getattr(query, "step", 1.0)


def error_by_numbers(query: ByGroup, rate: float, shape: Fraction, people: int) -> float:
    """Expected error if only the promise about numbers, of this rate per unit, sets the noise."""
    groups = len(query.groups.labels)
    features = GroupFeatures(form="up-down", groups=groups, top=query.top)
    noise = SumNoise(shape, np.full(2 * groups, 0.5 * rate * query.step), people)
    return features.expected_error(query, noise)


def mean_ratio(up: Floats, down: Floats, top: int, empty: float | None = None) -> Floats:
    """top up/(up + down); `empty` (the middle by default) where both are 0."""
    total = up + down
    filled = np.full(len(total), 0.5 * top if empty is None else empty)
    return np.asarray(np.divide(top * up, total, out=filled, where=total > 0.0))


@lru_cache(maxsize=32)
def _count_factors(form: Form, groups: int, top: int) -> csr_array:
    from scipy.sparse import csr_array

    pair = np.array([[1.0 / top, 1.0 / top]] if form == "up-down" else [[1.0, 0.0]])
    factors = csr_array(np.kron(np.eye(groups), pair))
    factors.eliminate_zeros()
    return factors


@lru_cache(maxsize=64)
def _equal_parts(shape: Fraction, rate: float) -> Floats:
    """Means of equally probable parts of the law of the noise, from the lowest to the highest."""
    law, scale = Polya(shape, min(rate, LARGEST_RATE)).scaled_law()
    mass = 2.0 * np.asarray(law.mass)
    mass[0] *= 0.5
    reached = np.concatenate([[0.0], np.cumsum(mass)])
    moments = np.concatenate([[0.0], np.cumsum(mass * np.arange(len(mass)) * scale)])
    marks = np.linspace(0.0, reached[-1], LAW_PARTS // 2 + 1)
    sizes = np.diff(np.interp(marks, reached, moments)) / np.diff(marks)
    return np.concatenate([-sizes[::-1], sizes])


def group_mean_error(form: Form, noise: SumNoise, people: float, top: int, mean: float) -> float:
    """Mean absolute error of the mean of a group of `people` people, in steps.

    Numerics: averaged over all pairs of values of the two noises, where each noise takes the means
    of equally probable parts of its law.
    """
    first, second = np.meshgrid(
        *(_equal_parts(noise.shape, float(rate)) for rate in noise.rates[:2])
    )
    if form == "count-sum":
        first, second = 0.5 * (top * first + second), 0.5 * (top * first - second)
    up = np.maximum(people * mean + first, 0.0).ravel()
    down = np.maximum(people * (top - mean) + second, 0.0).ravel()
    return float(np.abs(mean_ratio(up, down, top) - mean).mean())


@theorem("metricshuffle", "slope of means by group")
def group_slope(moves: Floats, ends: Floats, label_distance: float, step: float, top: int) -> float:
    """Largest loss per unit of distance between pairs of a group and a number.

    Statement: features e of group g are f_e(x) for people of the group and 0 for others, with
    |f_e| convex and f_e affine on 0..top; noise has the rates a_e. Let M_g = sum over e of group g
    of a_e |f_e(x+1) - f_e(x)|, and N_g(x) = sum of a_e |f_e(x)|. The loss of (g, x) -> (h, y) is
    at most S * (label_distance [g != h] + step |x - y|), with S the largest of M_g/step, 2 max_g
    N_g(x)/label_distance for x = 0 and x = top, and (max_g N_g(0) + max_g N_g(top)) /
    (label_distance + step top). With equal rates in all groups this is the smallest such S.
    For x and top - x at one rate a: M = 2 a, and N = a top at both ends, so a change of the group
    costs 2 a top, whatever the numbers are.
    Conditions: ends has N_g(0) and N_g(top), moves has M_g; label_distance, step > 0.
    Proof: within a group the loss is M_g |x - y|. Between groups it is N_g(x) + N_h(y), which is
    convex in (x, y). The square of all (x, y) consists of the triangles x <= y and x >= y, on each
    of which the distance is affine and positive. A convex function divided by a positive affine one
    is quasi-convex, so it is largest at a corner of a triangle: (0, 0), (top, top), (0, top) or
    (top, 0). QED
    Numerics: rounded up.
    """
    within = float(moves.max()) / step
    first, last = (float(column.max()) for column in ends.T)
    same = 2.0 * max(first, last) / label_distance
    across = (first + last) / (label_distance + step * top)
    return round_up(max(within, same, across), 12)


@theorem("metricshuffle", "slope of means by key")
def key_slope(rates: Floats, top: int, absence: float, step: float) -> float:
    """Largest loss per unit of distance between people who hold keys with numbers.

    Statement: the features of a key are x and top - x if it is held with the number x, else 0 and
    0, with noise of the rates a and b. The distance of two people is the sum over all keys of step
    |x - y| if both hold the key, and of `absence` if one of them does. The loss is at most S times
    this distance, with S the largest over the keys of (a + b)/step and max(a, b) top/absence.
    Proof: losses and distances are sums over the keys, so that it suffices to compare the terms of
    one key: (a + b) |x - y| with step |x - y|, and a x + b (top - x) <= max(a, b) top with
    `absence`. Both bounds are attained. QED
    With absence = step top/2 and one rate a it is 2 a/step, and any two people with at most k keys
    have a loss of at most 2 k a top.
    Conditions: `rates` has the rates (a, b) of each key; step, absence > 0.
    Numerics: rounded up.
    """
    within = float(rates.sum(axis=1).max()) / step
    added = float(rates.max()) * top / absence
    return round_up(max(within, added), 8)
