"""Users with many items: rates, group privacy and guarantees in earth mover's distance.

Moving a fraction t of a user's items by q on average is a move of t q of earth mover's distance.
`rate` is epsilon per unit of this distance (alpha in Imola24). A rate equal to epsilon at diameter
1 is ordinary user-level privacy; a larger rate is a relaxation, and `full_replacement` says what a
replacement of all items then costs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.rounding import (
    ROUNDOFF,
    format_delta,
    format_epsilon,
    format_number,
    round_up,
)
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

LARGEST_EXPONENT = 700.0


def _as_decimal(number: float) -> Fraction:
    """The number as the decimal that was written: 0.008 is 1/125 and not the nearest double."""
    return Fraction(repr(float(number)))


def _positive(name: str, number: float) -> float:
    if isinstance(number, bool) or not (
        isinstance(number, int | float) and 0.0 < number <= sys.float_info.max
    ):
        raise InputError(
            f"{argument(name)} must be a finite number > 0, got {format_value(number)}."
        )
    return float(number)


def _times(groups: int, epsilon: float) -> float:
    """groups * epsilon; infinite if there are more groups than a double can count."""
    if epsilon == 0.0 or groups == 1:
        return epsilon
    return round_up(groups * epsilon, 2) if groups < 2**1000 else math.inf


@theorem("Imola24", "Section 3, setting the privacy parameters")
def rate_for_changes(changes: Iterable[tuple[float, float, float]]) -> float:
    """Largest rate that hides every listed change.

    Args:
        changes: (fraction moved, mean distance moved, epsilon allowed) of each change.

    Statement: changing a fraction t of the items by q on average has earth mover's distance t q at
    most (move those, leave the others), so rate = min epsilon / (t q) keeps all of them.
    Conditions: 0 < fraction <= 1, distance and epsilon finite and > 0.
    Numerics: exact in the decimals as written, then rounded down.
    Reference: this docstring.
    """
    listed = [tuple(change) for change in changes]
    if not listed or any(len(change) != 3 for change in listed):
        raise InputError(
            "changes must list at least one (fraction, distance, epsilon) to hide, such as "
            "(0.1, 0.5, 1.0)."
        )
    rates = []
    for number, (fraction, distance, epsilon) in enumerate(listed):
        where = f"of change {number + 1}"
        _positive(f"the distance {where}", distance), _positive(f"the epsilon {where}", epsilon)
        if not _positive(f"the fraction {where}", fraction) <= 1.0:
            raise InputError(
                f"the fraction {where}, the part of the items that moves, must lie in (0, 1], "
                f"got {fraction!r}."
            )
        rates.append(_as_decimal(epsilon) / (_as_decimal(fraction) * _as_decimal(distance)))
    exact = min(rates)
    try:
        rate = float(exact)
    except OverflowError:
        rate = math.inf
    rate = rate if rate < math.inf and Fraction(rate) <= exact else math.nextafter(rate, 0.0)
    if rate < 1e-300:
        raise InputError(
            "these changes allow only a rate below 1e-300, which cannot be used; the strictest "
            f"is change {rates.index(exact) + 1}."
        )
    return rate


@theorem("metricshuffle", "steps between two users")
def groups(distance: float, radius: float, *, item_step: float = 0.0) -> int:
    """Number of moves of at most `radius` that lead from one user to any other at `distance`.

    Statement: for users with any number of items, the mixtures of the two histograms with the
    weights j/g, j = 0..g, g = ceil(distance / radius), are users whose neighbours are distance/g
    apart. For users with a fixed number m of items, reorder the items so that they match at cost
    d_1..d_m, (1/m) sum d_i = distance, and move them one after the other, as many in a step as fit.
    Every step but the last is longer than radius - item_step, item_step = diameter / m, so there
    are at most ceil(distance / (radius - item_step)) steps.
    Conditions: radius > item_step: one item must fit into a step, else there may be no chain at
    all.
    Numerics: exact in the decimals as written.
    Reference: this docstring; ceil(distance / radius) alone, as in Imola24 Fact 5.1, is for users
    with any number of items.
    """
    validate_distance(distance), _positive("radius", radius), validate_distance(item_step)
    step = _as_decimal(radius) - _as_decimal(item_step)
    if step <= 0:
        raise ConditionError(
            "Group privacy",
            "a radius in which one item can move across the diameter",
            f"{radius!r} <= {item_step!r}",
        )
    return math.ceil(_as_decimal(distance) / step)


@theorem("metricshuffle", "group privacy, exact factor")
def group_delta(epsilon: float, delta: float, groups: int) -> float:
    """delta (e^(g epsilon) - 1)/(e^epsilon - 1), at most 1; g = `groups`.

    A chain of g moves that are (epsilon, delta) each is (g epsilon, this delta) in total.

    Statement: let P_0, ..., P_g be the laws along the chain and S any event. P_0(S) <= e^epsilon
    P_1(S) + delta <= ... <= e^(g epsilon) P_g(S) + delta (1 + e^epsilon + ... + e^((g-1) epsilon)).
    It is tight for a single event whose probabilities p_i = P_i(S) are p_g = 0, p_(i-1) = e^epsilon
    p_i + delta.
    Conditions: epsilon >= 0, g >= 1 whole.
    Numerics: expm1 ratio, in logarithms where it would overflow; rounded up by more than the error
    of g epsilon.
    Reference: this docstring; replaces Imola24 Fact 5.1 (e^g) and Table 1 (e^(g epsilon)).
    """
    epsilon = checked_epsilon(epsilon)
    delta = delta if delta == 1.0 else checked_delta(delta)
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise InputError(f"groups must be a whole number >= 1, got {groups!r}.")
    if delta == 0.0 or groups == 1:
        return delta
    if epsilon == 0.0:
        exact = groups * Fraction(delta)
        return 1.0 if exact >= 1 else math.nextafter(float(exact), 1.0)
    total = _times(groups, epsilon)
    if total <= LARGEST_EXPONENT:
        factor = math.expm1(total) / math.expm1(epsilon)
        return min(
            1.0, math.nextafter(delta * factor * (1.0 + 16.0 * ROUNDOFF * (1.0 + total)), math.inf)
        )
    if math.isinf(total):
        return 1.0
    # ln of the factor, without the -1 of the numerator
    small = (
        math.log(math.expm1(epsilon))
        if epsilon < 1.0
        else epsilon + math.log1p(-math.exp(-epsilon))
    )
    power = math.log(delta) + total - small + 16.0 * ROUNDOFF * (800.0 + total)
    return 1.0 if power >= 0.0 else min(1.0, round_up(math.exp(power), 16))


@dataclass(frozen=True)
class DiscreteUserPrivacy(PrivacyProfile):
    """(epsilon, delta) for users up to `radius` apart, and group privacy beyond.

    `item_step` is as for `groups`. A profile of the mechanism itself, evaluated at the larger
    distance, is better if there is one.
    """

    step_epsilon: float
    step_delta: float
    radius: float
    item_step: float = 0.0
    bound: str = "group privacy"

    def __post_init__(self) -> None:
        (
            checked_epsilon(self.step_epsilon),
            checked_delta(self.step_delta),
            _positive("radius", self.radius),
        )
        validate_distance(self.item_step)

    def _chain(self, distance: float) -> tuple[float, float]:
        steps = (
            1
            if validate_distance(distance) <= self.radius
            else groups(distance, self.radius, item_step=self.item_step)
        )
        return _times(steps, self.step_epsilon), group_delta(
            self.step_epsilon, self.step_delta, steps
        )

    def pure(self, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        return self._chain(distance)[0] if self.step_delta == 0.0 else math.inf

    @theorem("metricshuffle", "what (epsilon, delta) says at a smaller epsilon")
    def delta(self, epsilon: float, distance: float) -> float:
        """delta of a chain of g moves: delta_g at epsilon >= c = g step_epsilon, larger below.

        delta_g is `group_delta` of g moves. Below c the result is delta_g + (1 - delta_g)(e^c -
        e^epsilon)/(e^c + 1).

        Statement: a pair that is (c, delta_g)-indistinguishable in both directions is dominated by
        randomized response at c that shows its input with probability delta_g; the value is the
        hockey-stick divergence of that pair.
        Conditions: the guarantee is symmetric.
        Numerics: rounded up.
        Reference: Kairouz, Oh, Viswanath 2015.
        """
        epsilon = checked_epsilon(epsilon)
        if validate_distance(distance) == 0.0:
            return 0.0
        cost, missed = self._chain(distance)
        if epsilon >= cost:
            return missed
        seen = 1.0 if math.isinf(cost) else -math.expm1(epsilon - cost) / (1.0 + math.exp(-cost))
        return min(
            1.0,
            (missed + (1.0 - missed) * seen) * (1.0 + 16.0 * ROUNDOFF * (1.0 + min(cost, 800.0))),
        )

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """Certify a linear guarantee only at epsilon 0: shorter moves cost no less here."""
        return self.covers_at(epsilon if shape == "flat" else 0.0, delta, distance)


@theorem("metricshuffle", "cost of a full replacement")
def full_replacement(guarantee: Guarantee, diameter: float) -> tuple[float, float]:
    """(epsilon, delta) of replacing all of one user's items: the ordinary user-level guarantee.

    Statement: no two users are farther apart than the diameter. If the diameter is within the
    distance of the guarantee, the guarantee applies directly. Beyond, group privacy chains g =
    ceil(diameter / distance) moves (more for a fixed number of items, see `groups`), at g times
    epsilon. If epsilon grows with the distance, the cost is also at most epsilon *
    diameter/distance: the moves of the chain are parts of one optimal transport of the items, so
    their lengths add up to the distance of its ends. delta is that of g moves at epsilon each.
    Conditions: a guarantee of one user's items; (inf, 1) if their number is public but not given
    and a chain is needed, or if one item does not fit into a step.
    Numerics: rounded up.
    Reference: this docstring.
    """
    if guarantee.protects != "one user's items":
        raise InputError(
            "a full replacement is about one user's items, but this guarantee protects "
            f"{guarantee.protects}."
        )
    across = _positive("diameter", diameter)
    if across <= guarantee.distance:
        share = (
            1.0
            if guarantee.shape == "flat" or across == guarantee.distance
            else round_up(across / guarantee.distance, 2)
        )
        return guarantee.epsilon * share, guarantee.delta
    if guarantee.items == "public" or guarantee.items is None or guarantee.distance == 0.0:
        return math.inf, 1.0
    item_step = (
        math.nextafter(across / guarantee.items, math.inf)
        if isinstance(guarantee.items, int)
        else 0.0
    )
    try:
        steps = groups(across, guarantee.distance, item_step=item_step)
    except ConditionError:
        return math.inf, 1.0
    chained = _times(steps, guarantee.epsilon)
    if guarantee.shape == "linear":
        chained = min(chained, round_up(guarantee.epsilon * (across / guarantee.distance), 4))
    return chained, group_delta(guarantee.epsilon, guarantee.delta, steps)


def full_replacement_sentence(guarantee: Guarantee, diameter: float) -> str:
    """Sentence printed below every user-level guarantee."""
    epsilon, delta = full_replacement(guarantee, diameter)
    unit = f" {guarantee.unit}" if guarantee.unit else ""
    move = (
        f"Replacing all of one user's items (up to {format_number(diameter)}{unit} of earth "
        "mover's distance)"
    )
    if not math.isfinite(epsilon) or delta >= 1.0:
        return f"{move} is NOT hidden."
    return (
        f"{move} is hidden only at epsilon {format_epsilon(epsilon)} "
        f"({'with certainty' if delta == 0 else f'delta {format_delta(delta)}'})."
    )
