"""User-level privacy when every item of every user is randomized and all reports are shuffled.

One user's items move by an earth mover's distance w: with the same number of items before and
after, they can be matched so that the moves have mean length w. `single_move_bounds.py` bounds one
move, `move_composition.py` composes all moves; this module makes a profile and a calibration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from metricshuffle.accounting.shuffling.blanket_bound import delta_bracket
from metricshuffle.accounting.shuffling.clone_bound import MAX_USERS
from metricshuffle.accounting.user_items.move_composition import (
    LARGEST_EXPONENT,
    Certificate,
    DistanceWeight,
    certificate,
)
from metricshuffle.accounting.user_items.single_item import Check, every_distance, one_move
from metricshuffle.accounting.user_items.single_move_bounds import (
    LARGEST_TOTAL,
    SMALLEST_DELTA,
    BlanketLines,
    CloneLines,
    Lines,
    Move,
    RandomizerPairs,
    moves_of,
)
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, NotCertified, argument
from metricshuffle.numerics.rounding import round_down, round_up
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

Model = Literal["local", "central"]

RATE_TOLERANCE = 1e-5  # relative width of the bracket of a calibration
ROUGH_RATE_TOLERANCE = 1e-3  # the same where every step evaluates blankets
TYPICAL_DELTA = 1e-40


@dataclass(frozen=True)
class ItemShuffle:
    """At most `items` items of one user among `shuffled` items that are shuffled together.

    `shuffled` counts only items whose reports the adversary does not know. Items are at most
    `diameter` apart; their numbers are public. Users with fewer than `items` items are covered, as
    long as `shuffled` is correct.
    """

    items: int
    shuffled: int
    diameter: float = 1.0

    def __post_init__(self) -> None:
        for name in ("items", "shuffled"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_USERS:
                raise InputError(
                    f"{argument(name)} must be a whole number from 1 to 2^52, got {value!r}."
                )
        if self.items > self.shuffled:
            raise InputError(
                f"{argument('items')} must be at most {argument('shuffled')}, which includes them, "
                f"got {self.items} and {self.shuffled}."
            )
        if isinstance(self.diameter, bool) or not validate_distance(self.diameter) > 0.0:
            raise InputError(
                f"{argument('diameter')} must be a finite number > 0, got {self.diameter!r}."
            )

    @classmethod
    def of(cls, model: Model, users: int, items: int, diameter: float = 1.0) -> ItemShuffle:
        """Build the shuffle of `users` honest users with `items` items each.

        For unequal numbers, use the constructor: `items` is the largest, `shuffled` the sum.

        Args:
            model: "local" if each user shuffles only their own items, so that a user with fewer
                items needs a separate calibration; "central" if the items of all users are shuffled
                together.
        """
        if model not in ("local", "central"):
            raise InputError(f'model must be "local" or "central", got {model!r}.')
        if isinstance(users, bool) or not isinstance(users, int) or users < 1:
            raise InputError(f"{argument('users')} must be a whole number >= 1, got {users!r}.")
        if isinstance(items, bool) or not isinstance(items, int) or items < 1:
            raise InputError(f"{argument('items')} must be a whole number >= 1, got {items!r}.")
        return cls(items, items if model == "local" else users * items, diameter)


def _own_rate(moves: Sequence[Move], shuffle: ItemShuffle) -> float:
    return round_up(max(move.rate for move in moves) / shuffle.diameter, 4)


def _validate_rate(name: str, rate: float) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.0 < rate < math.inf:
        raise InputError(f"{argument(name)} must be a finite number > 0, got {rate!r}.")
    return float(rate)


@dataclass(frozen=True)
class ItemWiseProfile(PrivacyProfile):
    """Profile of one user's items, when all items are randomized separately and shuffled.

    One user's items move by an earth mover's distance of at most the distance of the profile. The
    reports of two items at distance d have a local epsilon of at most `item_rate` * d. With
    `moves`, the blanket laws of one randomizer (`moves_of`), the account is specific to that
    randomizer; `item_rate` must be at least the rate of these laws, and is replaced by that rate
    where it is smaller only by rounding.
    """

    item_rate: float
    shuffle: ItemShuffle
    moves: Sequence[Move] | None = None
    bound: str = "flow"
    _lines: dict[float, Lines] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        item_rate = _validate_rate("item_rate", self.item_rate)
        own = 0.0 if self.moves is None else _own_rate(self.moves, self.shuffle)
        if any(move.unit != self.shuffle.diameter for move in self.moves or ()):
            raise InputError(
                "moves must be measured in the diameter of the shuffle; use "
                f"moves_of(randomizer, {self.shuffle.diameter!r})."
            )
        if own > item_rate * (1.0 + 1e-9):
            raise ConditionError(
                "The item-wise accountant",
                f"an item randomizer that is {item_rate!r} * d private",
                f"{own!r} * d",
            )
        object.__setattr__(self, "item_rate", max(item_rate, own))
        total = self.item_rate * self.shuffle.diameter
        if not 0.0 < total <= LARGEST_TOTAL:
            raise ConditionError(
                "The item-wise accountant",
                f"0 < item rate * diameter <= {LARGEST_TOTAL:g}",
                f"{total!r}",
            )

    @property
    def total(self) -> float:
        """Largest local epsilon of one report, rounded up."""
        return round_up(self.item_rate * self.shuffle.diameter, 4)

    def lines(self, epsilon: float, delta: float = TYPICAL_DELTA) -> Lines:
        """Lines for deltas of about `delta`; cached for the next call."""
        if self.moves is not None:
            if 0.0 not in self._lines:
                self._lines[0.0] = BlanketLines(
                    self.moves, self.shuffle.shuffled, self.shuffle.items
                )
            return self._lines[0.0]
        needed = max(SMALLEST_DELTA, 1e-8 * delta * math.exp(-min(epsilon, LARGEST_EXPONENT)))
        fitting = [smallest for smallest in self._lines if smallest <= needed]
        if not fitting:
            self._lines[needed] = CloneLines(
                self.total, self.shuffle.shuffled, self.shuffle.items, needed
            )
            fitting = [needed]
        return self._lines[max(fitting)]

    def _scaled(self, distance: float) -> float:
        return min(1.0, round_up(validate_distance(distance) / self.shuffle.diameter, 2))

    def pure(self, distance: float) -> float:
        """item_rate times the total length of the moves, all composed."""
        return round_up(
            self.item_rate * self.shuffle.items * self.shuffle.diameter * self._scaled(distance), 4
        )

    @theorem("metricshuffle", "shuffled items under the earth mover's distance")
    def delta(self, epsilon: float, distance: float) -> float:
        """Upper bound on delta for one user's move within `distance`.

        Statement: delta is at most sup_a phi_T(a) - e^epsilon a, where phi is the flow of the lines
        for one move and T the distance weight at `distance` (see move_composition.py). It is also
        at most the delta of a pair whose log likelihood ratio is at most item_rate * items *
        distance. A single item needs no flow: one move is the pair of clones of its distance, or
        the blankets of the pairs up to that distance.
        Conditions: the same number of items before and after; item reports independent; the others'
        items are arbitrary.
        Numerics: lines are added where the flow passes; see LineFlow.delta.
        Reference: move_composition.py, single_move_bounds.py.
        """
        return self._delta(epsilon, distance)

    def _delta(self, epsilon: float, distance: float, enough: float = 0.0) -> float:
        """Upper bound as `delta`, only as sharp as a comparison with `enough` needs."""
        epsilon = checked_epsilon(epsilon)
        pure = self.pure(distance)
        if epsilon >= pure:
            return 0.0
        alone = PureProfile(1.0).delta(epsilon, pure)
        if alone <= enough:
            return alone
        if self.shuffle.items == 1:
            return min(1.0, self._one_move(epsilon, self._scaled(distance)), alone)
        lines = self.lines(epsilon, enough or TYPICAL_DELTA)
        return min(
            1.0, lines.delta(lines.clock.time(self._scaled(distance)), epsilon, enough), alone
        )

    def _one_move(self, epsilon: float, scaled: float) -> float:
        """delta of a move of one item, up to that distance in diameters."""
        if self.moves is None:
            return one_move(self.total, self.shuffle.shuffled, epsilon, scaled)
        return max(
            (self._law_delta(move, epsilon) for move in self.moves if move.distance <= scaled),
            default=0.0,
        )

    def prepare(self, delta: float, distance: float) -> None:
        """Draw lines for a whole search over epsilon, down to its smallest deltas."""
        delta = checked_delta(delta)
        ceiling = self.pure(distance)
        if delta > 0.0 and ceiling > 0.0 and self.shuffle.items > 1:
            self.lines(min(ceiling, LARGEST_EXPONENT), delta)

    def epsilon(self, delta: float, distance: float) -> float:
        self.prepare(delta, distance)
        return super().epsilon(delta, distance)

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """As for every profile, but a linear guarantee is checked at every real distance."""
        epsilon = checked_epsilon(epsilon)
        delta = checked_delta(delta)
        if 0.0 in (distance, delta, epsilon) or self.pure(distance) <= epsilon:
            return self.covers_at(epsilon, delta, distance)
        if shape == "flat":
            return self._delta(epsilon, distance, delta) <= delta
        return self.certificate(epsilon / validate_distance(distance), delta, distance).kept

    def certificate(
        self, rate: float, delta: float, distance: float | None = None, shape: Shape = "linear"
    ) -> Certificate:
        """Check (rate * w, delta) for every real w up to `distance` (None: the diameter).

        If `shape` is "flat", check (rate * distance, delta) at all of them.
        """
        rate = round_down(_validate_rate("rate", rate) * self.shuffle.diameter, 4)
        delta = checked_delta(delta)
        reach = 1.0 if distance is None else self._scaled(distance)
        # All moves composed: hardest to keep at the largest distance (see PureProfile.covers).
        composed = PureProfile(
            round_up(self.item_rate * self.shuffle.items * self.shuffle.diameter, 8)
        ).delta(rate * reach, reach)
        if composed <= delta or delta == 0.0:
            return Certificate(
                composed <= delta,
                reach,
                delta,
                ((reach, 0.0, rate * reach, composed),),
                "composition",
            )
        if shape == "flat":
            max_distance = self.shuffle.diameter if distance is None else distance
            at = round_down(rate * reach, 4)
            return self._checked([(reach, at, self._delta(at, max_distance, delta))], delta, reach)
        if self.shuffle.items == 1:
            return self._one_item(rate, delta, reach)
        lines = self.lines(rate * reach, delta)
        return certificate(
            lambda time, at: lines.delta(time, at, delta),
            lines.clock,
            rate,
            delta,
            reach,
            self.bound,
        )

    def _one_item(self, rate: float, delta: float, reach: float) -> Certificate:
        """Certificate of one item; distances in diameters.

        Checks the distances of the pairs if they are known, else every real distance.
        """
        if self.moves is None:
            holds, checks = every_distance(self.total, self.shuffle.shuffled, rate, delta, reach)
            return replace(self._checked(checks, delta, reach), kept=holds)
        checks = []
        for at in sorted({move.distance for move in self.moves if move.distance <= reach}):
            law_epsilon = round_down(rate * at, 4)
            checks.append(
                (
                    at,
                    law_epsilon,
                    max(
                        self._law_delta(move, law_epsilon)
                        for move in self.moves
                        if move.distance == at
                    ),
                )
            )
        return self._checked(checks, delta, reach)

    def _law_delta(self, move: Move, epsilon: float) -> float:
        upper = delta_bracket(move.law, self.shuffle.shuffled, epsilon, relative=2e-3).upper
        return upper if upper >= 0.0 else 1.0

    def _checked(self, checks: list[Check], delta: float, reach: float) -> Certificate:
        clock = DistanceWeight(self.shuffle.items, rate=self.total)
        ends = tuple(
            (at, clock.time(at), epsilon, delta_there)
            for at, epsilon, delta_there in sorted(checks)
        )
        return Certificate(
            all(delta_there <= delta for *_, delta_there in ends), reach, delta, ends, self.bound
        )


@dataclass(frozen=True)
class ItemCalibration:
    """Largest item rate found that keeps a target, and its certificate.

    `composition_rate` is the rate that plain composition allows (delta = 0).
    """

    item_rate: float
    certified: Certificate
    composition_rate: float
    bound: str


@theorem("metricshuffle", "calibration of an item randomizer")
def calibrate_item_rate(
    shuffle: ItemShuffle,
    rate: float,
    delta: float,
    relative: float = RATE_TOLERANCE,
    *,
    flat_up_to: float | None = None,
) -> ItemCalibration:
    """Item rate for (rate, delta) per unit of earth mover's distance, for any item randomizer.

    Statement: let the reports of two items at distance d have a local epsilon of at most item_rate
    * d. Shuffled, they make a user's items (rate * w, delta)-indistinguishable from any others at
    earth mover's distance w, for every w. With `flat_up_to`: (rate * flat_up_to,
    delta)-indistinguishable at every w up to `flat_up_to`; shorter distances then need no smaller
    epsilon. The rate returned was itself certified; rate/items, which needs no shuffling, is the
    smallest candidate.
    Conditions: as for ItemWiseProfile.delta.
    Numerics: secants and bisection in the logarithm to `relative`; the result does not rely on
    monotonicity.
    Reference: ItemWiseProfile.certificate.
    """
    rate = _validate_rate("rate", rate)
    delta = checked_delta(delta)

    def check(item_rate: float) -> Certificate:
        return _find_certificate(ItemWiseProfile(item_rate, shuffle), rate, delta, flat_up_to)

    return _search(check, shuffle, rate, delta, _normal_guess(shuffle, rate, delta), relative)


def _find_certificate(
    profile: ItemWiseProfile, rate: float, delta: float, flat_up_to: float | None
) -> Certificate:
    return (
        profile.certificate(rate, delta)
        if flat_up_to is None
        else profile.certificate(rate, delta, flat_up_to, "flat")
    )


def calibrate_family(
    family: Callable[[float], RandomizerPairs],
    shuffle: ItemShuffle,
    rate: float,
    delta: float,
    relative: float = ROUGH_RATE_TOLERANCE,
    *,
    flat_up_to: float | None = None,
) -> ItemCalibration:
    """Like `calibrate_item_rate`, for a family of randomizers, indexed by their item rate.

    family(x) is the randomizer of item rate x, at distances up to the diameter: its reports at
    distance d should have a local epsilon of at most x * d. Each randomizer is certified by
    composition, by the bound for any randomizer or by its own blankets, whichever succeeds first,
    from its laws alone: the promise x * d only guides the search. A family that breaks this promise
    even at x = rate/items is refused.
    """
    rate = _validate_rate("rate", rate)
    delta = checked_delta(delta)

    def check(item_rate: float, any_up_to: float = math.inf) -> Certificate:
        try:
            moves = moves_of(family(item_rate), shuffle.diameter)
        except NotCertified:  # the family has no such randomizer
            return Certificate(False, 1.0, delta, (), "blanket flow")
        own = _own_rate(moves, shuffle)
        if not own * shuffle.diameter <= LARGEST_TOTAL:
            return Certificate(False, 1.0, delta, (), "blanket flow")
        if own <= any_up_to:
            any_randomizer = _find_certificate(
                ItemWiseProfile(own, shuffle), rate, delta, flat_up_to
            )
            if any_randomizer.kept:
                return any_randomizer
        return _find_certificate(
            ItemWiseProfile(own, shuffle, moves, "blanket flow"), rate, delta, flat_up_to
        )

    composition_rate = min(rate / shuffle.items, LARGEST_TOTAL / shuffle.diameter) * (1.0 - 1e-9)
    smallest = check(composition_rate)
    if not smallest.kept:
        needed = "a family whose member for an item rate x exists and is x * d private"
        raise ConditionError(
            "The calibration of a family",
            needed,
            f"a family without such a member at x = {composition_rate!r}",
        )
    start = calibrate_item_rate(
        shuffle, rate, delta, ROUGH_RATE_TOLERANCE, flat_up_to=flat_up_to
    ).item_rate
    # Above the bracket of `start` the bound for any randomizer fails: only the family's own
    # blankets may still pass.
    calibration = _search(
        lambda x: check(x, start * (1.0 + ROUGH_RATE_TOLERANCE)),
        shuffle,
        rate,
        delta,
        1.05 * start,
        relative,
    )
    return (
        calibration
        if calibration.item_rate > calibration.composition_rate
        else replace(
            calibration, item_rate=composition_rate, certified=smallest, bound=smallest.bound
        )
    )


def _normal_guess(shuffle: ItemShuffle, rate: float, delta: float) -> float:
    """Normal approximation near distance 0 to start from: x e^(x/2) = rate sqrt(N)/(m z).

    x is the item rate and `rate` the target's, both times the diameter; N = shuffled, m = items and
    z = sqrt(2 ln(1/delta)).
    """
    z = math.sqrt(2.0 * math.log(1.0 / max(delta, 1e-300)))
    goal = min(rate * shuffle.diameter * math.sqrt(shuffle.shuffled) / (shuffle.items * z), 1e300)
    x = 1.0
    for _ in range(60):
        x = (
            0.5 * (x + goal * math.exp(-0.5 * x))
            if goal < 1.0
            else max(1e-3, x - (x + 2.0 * math.log(x / goal)) / (1.0 + 2.0 / x))
        )
    return x / shuffle.diameter


def _search(
    check: Callable[[float], Certificate],
    shuffle: ItemShuffle,
    rate: float,
    delta: float,
    start: float,
    relative: float,
) -> ItemCalibration:
    """Narrow the bracket between a passing and a failing item rate; return the passing end.

    This is not the bisection of `numerics.certified_search`: a certificate takes up to seconds and
    says by how much it failed or passed. So the next rate is where the line through the logarithms
    of the deltas at both ends crosses the target; and the certificate itself is part of the result.
    """
    composition = min(round_down(rate / shuffle.items, 32), LARGEST_TOTAL / shuffle.diameter)
    passing = composition
    best = Certificate(True, 1.0, delta, (), "composition")
    # log(worst/delta) at the passing and at the failing end
    low = -math.inf
    high = math.nan
    failing = math.inf
    top = round_down(LARGEST_TOTAL / shuffle.diameter, 8)
    x = min(max(start, composition * (1.0 + 2.0 * relative)), top)
    pace = 1.1
    step = 0
    while delta > 0.0 and passing < x < failing:
        certificate = check(x)
        worst = certificate.worst[0]
        excess = math.log(worst / delta) if worst > 0.0 else -math.inf
        if certificate.kept:
            passing = x
            best = certificate
            low = excess
        else:
            failing = x
            high = excess
        step += 1
        if failing <= passing * (1.0 + relative) or passing >= top:
            break
        if failing == math.inf:
            x = min(x * pace, top)
            pace = pace * pace
        elif low == -math.inf:  # nothing passed but composition
            x = max(x / pace, math.sqrt(passing * x) if x / pace < passing else 0.0)
            pace = pace * pace
        else:
            share = (
                -low / (high - low)
                if step % 3 and high > 0.0 >= low > -20.0 and high < 20.0
                else 0.5
            )
            aside = (
                0.3
                * math.log1p(relative)
                / math.log(failing / passing)
                * (1.0 if share < 0.5 else -1.0)
            )
            x = passing * (failing / passing) ** min(max(share + aside, 0.02), 0.98)
    return ItemCalibration(passing, best, composition, best.bound)
