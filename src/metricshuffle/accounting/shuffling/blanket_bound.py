"""Amplification by shuffling from one finite law: delta(epsilon) <= (1/n) E[(G_1 + .. + G_n)_+].

One of n users holds a or b, every user sends one report, and a shuffler mixes the reports and
forgets who sent them. K_a and K_b are the laws of that user's report, w is the blanket, a common
sub-density of the laws of all other reports, e denotes e^epsilon, and the G_i are independent
copies of G = (K_a - e K_b)/w. The right-hand side is called the blanket expression.

`blanket_law.py` makes the laws of G and `blanket_evaluation.py` brackets the blanket expression
with certified ends; this module bounds delta with them and inverts the bound. The lower ends bound
the blanket EXPRESSION from below, to show how tight the evaluation is. They are lower bounds on the
delta of a mechanism only if the law of G is that of a single data set (`BlanketLaw.from_rows` with
one row in `others`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from metricshuffle.accounting.shuffling.blanket_evaluation import (
    DeltaBracket,
    Evaluation,
    Evaluator,
)
from metricshuffle.accounting.shuffling.blanket_law import BinnedLaw, BlanketLaw, Law
from metricshuffle.accounting.shuffling.root_search import (
    Directions,
    RootBracket,
    certified_excess,
    confirm_upwards,
    iterate_directions,
    normal_guess,
)
from metricshuffle.citations import theorem
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.privacy.target import checked_users as validate_users

__all__ = [
    "BinnedLaw",
    "BlanketLaw",
    "BlanketProfile",
    "DeltaBracket",
    "Evaluator",
    "Law",
    "delta_bracket",
    "delta_lower",
    "delta_upper",
    "epsilon_lower",
    "epsilon_upper",
]

Side = Literal["upper", "lower"]

DELTA_TOLERANCE = 1e-7  # relative width of the bracket aimed at
ROUGH_TOLERANCE = 0.05  # enough to find the neighbourhood of an epsilon
STEERING_FACTOR = 10.0  # width of brackets that steer the search, relative to the one aimed at
SMALLEST_DELTA = 1e-290
checked_users = partial(validate_users, most=2**53)  # larger integers are not all floats


@theorem("metricshuffle", "blanket identity")
def delta_bracket(
    law: Law,
    users: int,
    epsilon: float,
    *,
    directions: Directions = "both",
    relative: float = DELTA_TOLERANCE,
    evaluators: Sequence[Evaluator] = (),
) -> DeltaBracket:
    """Certified bracket of (1/n) E[(G_1 + .. + G_n)_+], the larger of the requested directions.

    Statement: the upper end bounds the hockey-stick divergence, at e = e^epsilon, of the shuffled
    reports of n users one of whom holds a or b, for every choice of the others' values.
    Proof: let g = int w be the mass of the blanket. Reveal to the adversary which of the others did
    not draw from the blanket w, and their reports. B+1 reports are left, B ~ Bin(n-1, g), one of
    which is the user's. Their divergence is (g/(B+1)) E[(X_1 + .. + X_(B+1))_+], where the X are
    independent values of (K_a - e K_b)/w at reports with density w/g. The identity C(n-1,m-1)/m =
    C(n,m)/n of binomial coefficients turns the mean over B into (1/n) E[(G_1 + .. + G_n)_+]. The
    part of K_a and K_b at reports where w = 0 counts in full.
    Conditions: the reports are independent, w <= the law of each other user's report pointwise
    (these laws may differ).
    Numerics: M0 enumerates all vectors of counts if they are few, M2 inverts a transform
    (`_contour_kernels.contour`), further `evaluators` may be given; the tighter ends win.
    `relative` is the width aimed at, reached as far as the work limits allow; the result is never
    above the sum of (K_a - e K_b)_+.
    Reference: Balle, Bell, Gascon, Nissim, The Privacy Blanket of the Shuffle Model, CRYPTO 2019
    (for one common law).
    """
    users = checked_users(users)
    epsilon = checked_epsilon(epsilon)
    brackets = [
        Evaluation(direction, users, relative, evaluators).bracket(epsilon)
        for direction in iterate_directions(law, directions)
    ]
    worst = max(brackets, key=lambda bracket: bracket.upper)
    return DeltaBracket(max(bracket.lower for bracket in brackets), worst.upper, worst.evaluator)


def delta_upper(
    law: Law,
    users: int,
    epsilon: float,
    *,
    directions: Directions = "both",
    evaluators: Sequence[Evaluator] = (),
) -> float:
    """Certified upper bound on delta: the upper end of `delta_bracket`."""
    return delta_bracket(law, users, epsilon, directions=directions, evaluators=evaluators).upper


def delta_lower(
    law: Law,
    users: int,
    epsilon: float,
    *,
    directions: Directions = "both",
    evaluators: Sequence[Evaluator] = (),
) -> float:
    """Certified lower bound on the blanket expression: the lower end of `delta_bracket`."""
    return delta_bracket(law, users, epsilon, directions=directions, evaluators=evaluators).lower


@dataclass
class _Search:
    """Search for the epsilon of one direction at one delta.

    closely(epsilon, slope) is the certified log(delta(epsilon)/delta) of the wanted end. A tight
    evaluation costs as much as a hundred rough ones. The error of a rough evaluation is a small
    part of the gap of its bracket, so rough evaluations locate the epsilon, and usually the first
    tight evaluation confirms it.
    """

    law: Law
    users: int
    delta: float
    relative: float
    evaluators: Sequence[Evaluator]
    side: Side
    closely: Callable[[float, float], float]

    def epsilon(self) -> float:
        """Return the smallest epsilon found that passes, or the largest that fails (lower end)."""
        if self.law.pure == 0.0:
            return 0.0
        steering = Evaluation(self.law, self.users, ROUGH_TOLERANCE, self.evaluators, quick=True)
        at_zero = certified_excess(steering.bracket(0.0, wanted="upper").upper, self.delta)
        if at_zero <= 0.0 or (at_zero < 1.0 and self.closely(0.0, 1.0) <= 0.0):
            return 0.0
        guess, slope = normal_guess(self.delta * math.exp(min(at_zero, 700.0)), self.delta)
        place, slope = self._estimate_root(
            steering, at_zero, min(guess, 0.9 * self.law.pure), slope
        )
        return self._confirm_near(place, slope)

    def _estimate_root(
        self, steering: Evaluation, at_zero: float, guess: float, slope: float
    ) -> tuple[float, float]:
        """Estimate where delta is reached, and - d log delta / d log epsilon there.

        Nothing is certified.
        """

        def likely(epsilon: float) -> float:
            return certified_excess(
                steering.likely(epsilon, above=self.side == "upper"), self.delta
            )

        rough = RootBracket(self.law.pure, at_low=at_zero).narrowed(likely, guess, slope, 1e-2)
        place = rough.root
        slope = rough.slope if rough.slope > 0.0 else slope
        steering.relative = min(ROUGH_TOLERANCE, STEERING_FACTOR * self.relative * max(1.0, slope))
        before = math.nan
        at_before = math.nan
        for _ in range(3):
            value = likely(place)
            if (
                before != place
                and 0.1 < (steepness := (at_before - value) / math.log(place / before)) < math.inf
            ):
                slope = steepness
            move = value / slope
            if not abs(move) < 0.1:
                break
            before = place
            at_before = value
            place = place * math.exp(move)
            if abs(move) < 10.0 * self.relative:
                break
        return place, slope

    def _confirm_near(self, place: float, slope: float) -> float:
        """Return the last value near `place` that a tight evaluation passed (lower end: failed)."""
        bracket = RootBracket(self.law.pure)
        tolerance = 0.2 * self.relative
        above = self.side == "upper"
        aim = (-0.4 if above else 0.4) * tolerance * slope
        # The lower end of a tight bracket lies half its gap below the estimate.
        place *= math.exp(-aim / slope - (0.0 if above else 0.15 * self.relative))
        for _ in range(3):
            if not bracket.low < place < bracket.high:
                break
            value = self.closely(place, slope)
            bracket.note(place, value)
            if (value <= 0.0) == above and abs(value) <= tolerance * slope:
                return place
            if not abs(value) < slope:
                break
            place *= math.exp((value - aim) / slope)
        bracket.narrowed(lambda epsilon: self.closely(epsilon, slope), place, slope, tolerance)
        return bracket.high if above else bracket.low


def epsilon_upper(
    law: Law,
    users: int,
    delta: float,
    *,
    directions: Directions = "both",
    relative: float = DELTA_TOLERANCE,
    evaluators: Sequence[Evaluator] = (),
) -> float:
    """Smallest certified epsilon at this delta: its `delta_upper` is at most delta.

    Statement: as for `delta_bracket`. The local epsilon max log(K_a/K_b), where delta = 0, is the
    ceiling, and it is returned where nothing smaller can be certified.
    Conditions: 0 <= delta < 1.
    Numerics: NaN counts as too large.
    """
    users = checked_users(users)
    delta = checked_delta(delta)
    ways = list(iterate_directions(law, directions))
    ceiling = max(direction.pure for direction in ways)

    @cache
    def excess(epsilon: float, index: int) -> float:
        """Evaluate as `delta_upper` does, so that the returned epsilon passes `delta_upper`."""
        return certified_excess(
            Evaluation(ways[index], users, relative, evaluators)
            .bracket(epsilon, wanted="upper")
            .upper,
            delta,
        )

    def closely(index: int, epsilon: float, _: float) -> float:
        return excess(epsilon, index)

    if delta == 0.0:
        return ceiling
    upper = 0.0
    for index, direction in enumerate(ways):
        if index == 0 or excess(upper, index) > 0.0:
            search = _Search(
                direction, users, delta, relative, evaluators, "upper", partial(closely, index)
            )
            upper = max(upper, search.epsilon())
    return confirm_upwards(
        lambda epsilon: all(excess(epsilon, index) <= 0.0 for index in range(len(ways))),
        upper,
        ceiling,
        relative,
    )


def epsilon_lower(
    law: Law,
    users: int,
    delta: float,
    *,
    directions: Directions = "both",
    relative: float = DELTA_TOLERANCE,
    evaluators: Sequence[Evaluator] = (),
) -> float:
    """Largest epsilon found whose `delta_lower` exceeds delta.

    No evaluation of this law can certify a smaller epsilon.
    """
    users = checked_users(users)
    delta = checked_delta(delta)
    if delta == 0.0:
        delta = SMALLEST_DELTA

    def excess(epsilon: float, slope: float, direction: Law) -> float:
        evaluation = Evaluation(
            direction, users, min(ROUGH_TOLERANCE, 0.3 * relative * max(1.0, slope)), evaluators
        )
        return certified_excess(evaluation.bracket(epsilon, wanted="lower").lower, delta)

    return max(
        _Search(
            direction,
            users,
            delta,
            relative,
            evaluators,
            "lower",
            partial(excess, direction=direction),
        ).epsilon()
        for direction in iterate_directions(law, directions)
    )


def exceeds_delta(law: Law, users: int, epsilon: float, delta: float) -> bool:
    """Return whether `delta_lower` at this epsilon exceeds delta; a rough bracket often decides."""
    rough = delta_bracket(law, users, epsilon, relative=ROUGH_TOLERANCE)
    if rough.upper <= delta or rough.lower > delta:
        return rough.lower > delta
    return delta_lower(law, users, epsilon) > delta


@dataclass(frozen=True)
class BlanketProfile(PrivacyProfile):
    """Profile of the shuffled reports of `users` people, from blanket laws.

    laws(distance) returns laws that together bound every pair of inputs up to that distance.
    """

    laws: Callable[[float], Sequence[Law]]
    users: int
    bound: str = "blanket"
    evaluators: Sequence[Evaluator] = ()

    def __post_init__(self) -> None:
        checked_users(self.users)

    def pure(self, distance: float) -> float:
        """Local epsilon of the worst pair, which shuffling alone never increases."""
        if validate_distance(distance) == 0.0:
            return 0.0
        return max((max(law.pure, law.reversed.pure) for law in self.laws(distance)), default=0.0)

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if validate_distance(distance) == 0.0:
            return 0.0
        bounds = (
            delta_upper(law, self.users, epsilon, evaluators=self.evaluators)
            for law in self.laws(distance)
        )
        return min(1.0, max(bounds, default=0.0))

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        if validate_distance(distance) == 0.0:
            return 0.0
        return max(
            (
                epsilon_upper(law, self.users, delta, evaluators=self.evaluators)
                for law in self.laws(distance)
            ),
            default=0.0,
        )
