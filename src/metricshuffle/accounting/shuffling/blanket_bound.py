"""Amplification by shuffling from one finite law: delta(epsilon) <= (1/n) E[(G_1 + .. + G_n)_+].

One of n users holds a or b, every user sends one report, a shuffler hides who sent what. `blanket_law.py` makes the laws of
G, `blanket_evaluation.py` evaluates them in a bracket that is certified on both sides; here they are bounded and inverted.
The lower ends bound the blanket EXPRESSION from below, to show how tight the evaluation is; they say something about a
mechanism only if the law is the one of a single data set (`BlanketLaw.from_rows` with one row in `others`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from metricshuffle.accounting.shuffling.blanket_evaluation import DeltaBracket, Evaluation, Evaluator
from metricshuffle.accounting.shuffling.blanket_law import BinnedLaw, BlanketLaw, Law
from metricshuffle.accounting.shuffling.root_search import RootBracket, normal_guess
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.certified_search import first_certified
from metricshuffle.privacy.profile import PrivacyProfile, checked_delta, checked_epsilon, validate_distance

__all__ = [
    "BinnedLaw", "BlanketLaw", "BlanketProfile", "DeltaBracket", "Evaluator", "Law",
    "delta_bracket", "delta_lower", "delta_upper", "epsilon_lower", "epsilon_upper",
]  # fmt: skip

Directions = Literal["both", "forward"]
Side = Literal["upper", "lower"]

DELTA_TOLERANCE = 1e-7  # the bracket aimed at
ROUGH_TOLERANCE = 0.05  # enough to find the neighbourhood of an epsilon
STEERING_FACTOR = 10.0  # how much wider than the wanted one the bracket may be that tells where to look closely
SMALLEST_DELTA = 1e-290
MAX_USERS = 2**53  # integers above are not floats


def checked_users(users: int) -> int:
    """users as an integer in 1..2^53, or a sentence."""
    if isinstance(users, bool) or not isinstance(users, int) or not 1 <= users <= MAX_USERS:
        raise InputError(f"users must be an integer in 1..2^53, got {users!r}.")
    return users


def _directions(law: Law, directions: Directions) -> list[Law]:
    return [law] if directions == "forward" or law.symmetric else [law, law.reversed]


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
    """A certified bracket of (1/n) E[(G_1 + .. + G_n)_+], the larger of the two directions unless "forward".

    Statement: the upper end bounds the hockey-stick divergence, at e = e^epsilon, of the shuffled reports of n users one of
    whom holds a or b, for every choice of the others' values. Proof: show the adversary which of the others did not draw
    from the blanket w, and their reports. Of B+1 reports left, B ~ Bin(n-1, g), g = int w, one is the user's; its divergence
    is (g/(B+1)) E[(X_1 + .. + X_(B+1))_+], X i.i.d. with density w/g, and C(n-1,m-1)/m = C(n,m)/n turns the mean over B into
    (1/n) E[(G_1 + .. + G_n)_+]. What the blanket misses of K_a, K_b counts in full.
    Conditions: the reports are independent, w <= the law of each other user's report pointwise (these may differ).
    Numerics: M0 visits all counts if they are few, M2 inverts a transform (`_contour_kernels.contour`), further `evaluators`
    may be given; the tighter ends win. Aimed at `relative`, reached up to the work allowed for; never above sum (a - e b)_+.
    Reference: Balle, Bell, Gascon, Nissim, The Privacy Blanket of the Shuffle Model, CRYPTO 2019 (for one common law).
    """
    users, epsilon = checked_users(users), checked_epsilon(epsilon)
    brackets = [Evaluation(direction, users, relative, evaluators).bracket(epsilon) for direction in _directions(law, directions)]
    worst = max(brackets, key=lambda bracket: bracket.upper)
    return DeltaBracket(max(bracket.lower for bracket in brackets), worst.upper, worst.evaluator)


def delta_upper(law: Law, users: int, epsilon: float, *, directions: Directions = "both", evaluators: Sequence[Evaluator] = ()) -> float:
    """delta at this epsilon, never too small (see `delta_bracket`)."""
    return delta_bracket(law, users, epsilon, directions=directions, evaluators=evaluators).upper


def delta_lower(law: Law, users: int, epsilon: float, *, directions: Directions = "both", evaluators: Sequence[Evaluator] = ()) -> float:
    """The blanket expression at this epsilon, never too large (see `delta_bracket`)."""
    return delta_bracket(law, users, epsilon, directions=directions, evaluators=evaluators).lower


def _log_excess(value: float, delta: float) -> float:
    """log(value/delta), at most 0 only if 0 <= value <= delta."""
    if not 0.0 <= value < math.inf:
        return math.inf
    if value <= delta:
        return min(0.0, math.log(value / delta)) if value > delta * 1e-300 else -math.inf
    return max(math.log(value / delta), 1e-300)


@dataclass
class _Search:
    """epsilon of one direction at one delta. closely(epsilon, slope): log(delta there / delta) of the wanted end, as it is certified.

    A close look costs as much as a hundred rough ones, so rough ones, which are right to a small part of their own gap, find the place,
    and the close ones confirm it: usually the first of them does.
    """

    law: Law
    users: int
    delta: float
    relative: float
    evaluators: Sequence[Evaluator]
    side: Side
    closely: Callable[[float, float], float]

    def epsilon(self) -> float:
        """The smallest found that passes, or for the lower end the largest found that does not."""
        if self.law.pure == 0.0:
            return 0.0
        steering = Evaluation(self.law, self.users, ROUGH_TOLERANCE, self.evaluators, quick=True)
        at_zero = _log_excess(steering.bracket(0.0, wanted="upper").upper, self.delta)
        if at_zero <= 0.0 or (at_zero < 1.0 and self.closely(0.0, 1.0) <= 0.0):
            return 0.0
        guess, slope = normal_guess(self.delta * math.exp(min(at_zero, 700.0)), self.delta)
        place, slope = self._estimate_root(steering, at_zero, min(guess, 0.9 * self.law.pure), slope)
        return self._confirm_near(place, slope)

    def _estimate_root(self, steering: Evaluation, at_zero: float, guess: float, slope: float) -> tuple[float, float]:
        """Where delta is about reached, and - d log delta / d log epsilon there; nothing is certified."""

        def likely(epsilon: float) -> float:
            return _log_excess(steering.likely(epsilon, above=self.side == "upper"), self.delta)

        rough = RootBracket(self.law.pure, at_low=at_zero).narrowed(likely, guess, slope, 1e-2)
        place, slope = rough.root, rough.slope if rough.slope > 0.0 else slope
        steering.relative = min(ROUGH_TOLERANCE, STEERING_FACTOR * self.relative * max(1.0, slope))
        before, at_before = math.nan, math.nan
        for _ in range(3):
            value = likely(place)
            if before != place and 0.1 < (steepness := (at_before - value) / math.log(place / before)) < math.inf:
                slope = steepness
            move = value / slope
            if not abs(move) < 0.1:
                break
            before, at_before, place = place, value, place * math.exp(move)
            if abs(move) < 10.0 * self.relative:
                break
        return place, slope

    def _confirm_near(self, place: float, slope: float) -> float:
        """The last value next to `place` that passed (or failed, for the lower end) close looks."""
        bracket, tolerance, above = RootBracket(self.law.pure), 0.2 * self.relative, self.side == "upper"
        aim = (-0.4 if above else 0.4) * tolerance * slope
        # (half the gap of a close look lies between its lower end and what it is about)
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
    """The smallest certified epsilon at this delta: `delta_upper` of it is at most delta.

    Statement: as for `delta_bracket`; the local epsilon max log(K_a/K_b), where delta = 0, is the ceiling and the answer
    wherever nothing better can be certified. Conditions: 0 <= delta < 1. Numerics: what is not a number counts as too large.
    """
    users, delta = checked_users(users), checked_delta(delta)
    ways = _directions(law, directions)
    ceiling = max(direction.pure for direction in ways)

    @cache
    def excess(epsilon: float, index: int) -> float:
        """As `delta_upper` evaluates it: what is returned passes that very evaluation."""
        return _log_excess(Evaluation(ways[index], users, relative, evaluators).bracket(epsilon, wanted="upper").upper, delta)

    def closely(index: int, epsilon: float, _: float) -> float:
        return excess(epsilon, index)

    if delta == 0.0:
        return ceiling
    upper = 0.0
    for index, direction in enumerate(ways):
        if index == 0 or excess(upper, index) > 0.0:
            search = _Search(direction, users, delta, relative, evaluators, "upper", partial(closely, index))
            upper = max(upper, search.epsilon())
    return first_certified(
        lambda epsilon: all(excess(epsilon, index) <= 0.0 for index in range(len(ways))),
        upper,
        ceiling,
        step=0.1 * relative,
        growth=4.0,
        failing=0.0,
        least=1e-300,
    ).passing


def epsilon_lower(
    law: Law,
    users: int,
    delta: float,
    *,
    directions: Directions = "both",
    relative: float = DELTA_TOLERANCE,
    evaluators: Sequence[Evaluator] = (),
) -> float:
    """The largest epsilon found whose `delta_lower` exceeds delta: no evaluation of this law can certify less."""
    users, delta = checked_users(users), checked_delta(delta)
    if delta == 0.0:
        delta = SMALLEST_DELTA

    def excess(epsilon: float, slope: float, direction: Law) -> float:
        evaluation = Evaluation(direction, users, min(ROUGH_TOLERANCE, 0.3 * relative * max(1.0, slope)), evaluators)
        return _log_excess(evaluation.bracket(epsilon, wanted="lower").lower, delta)

    ways = _directions(law, directions)
    return max(
        _Search(direction, users, delta, relative, evaluators, "lower", partial(excess, direction=direction)).epsilon()
        for direction in ways
    )


def exceeds_delta(law: Law, users: int, epsilon: float, delta: float) -> bool:
    """Whether `delta_lower` at this epsilon exceeds delta; a rough look usually tells."""
    rough = delta_bracket(law, users, epsilon, relative=ROUGH_TOLERANCE)
    if rough.upper <= delta or rough.lower > delta:
        return rough.lower > delta
    return delta_lower(law, users, epsilon) > delta


@dataclass(frozen=True)
class BlanketProfile(PrivacyProfile):
    """The reports of `users` people, shuffled. laws(distance): laws that together bound every pair of inputs at most that far apart."""

    laws: Callable[[float], Sequence[Law]]
    users: int
    bound: str = "blanket"
    evaluators: Sequence[Evaluator] = ()

    def __post_init__(self) -> None:
        checked_users(self.users)

    def pure(self, distance: float) -> float:
        """The local epsilon of the worst pair: shuffling alone never adds to it."""
        if validate_distance(distance) == 0.0:
            return 0.0
        return max((max(law.pure, law.reversed.pure) for law in self.laws(distance)), default=0.0)

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if validate_distance(distance) == 0.0:
            return 0.0
        bounds = (delta_upper(law, self.users, epsilon, evaluators=self.evaluators) for law in self.laws(distance))
        return min(1.0, max(bounds, default=0.0))

    def epsilon(self, delta: float, distance: float) -> float:
        delta = checked_delta(delta)
        if validate_distance(distance) == 0.0:
            return 0.0
        return max((epsilon_upper(law, self.users, delta, evaluators=self.evaluators) for law in self.laws(distance)), default=0.0)
