"""Inverse questions: the largest local epsilon, or the fewest people, for a given epsilon."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np

from metricshuffle.amplification.amplify import Amplification, GenericLDP, amplify
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.certified_search import first_certified, last_certified_integer
from metricshuffle.numerics.rounding import format_delta, format_epsilon
from metricshuffle.privacy.profile import FARTHEST_EPSILON, Band, checked_delta, checked_epsilon
from metricshuffle.privacy.target import checked_users
from metricshuffle.randomizers.randomizer import Randomizer

Member = Randomizer | RandomTask | GenericLDP
Family = Callable[[float], Member]
Answers = Callable[[float, float | None], Amplification]
"""Function from (local epsilon, rate or users; relative tolerance) to both bounds."""

MIN_STRENGTH = 1e-9
MAX_STRENGTH = 1e6
"""Strengths outside MIN_STRENGTH..MAX_STRENGTH are not considered."""
MAX_USERS = 10**13
MANY_USERS = 10**9
MANY_USERS_TOLERANCE = 1e-4  # with many users an answer to all digits may take seconds
STRENGTH_DIGITS = 5
"""Number of decimal digits of a returned strength; the strength so rounded was certified."""
STEERING_TOLERANCE = 3e-3  # relative, of evaluations in the first, rough part of a search
BRACKET_TOLERANCE = 5e-3  # log width of the bracket that the rough part leaves
# Relative tolerance of numbers of people; numbers up to a million are exact.
USERS_TOLERANCE = 1e-6
START_STRENGTHS = tuple(10.0**power for power in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6))
MAX_STEP_FACTOR = 16.0
MAX_STEPS = 60
NOT_CERTIFIED_TEXT = (
    "a number of people that seemed enough could not be certified; ask for a larger epsilon."
)


@dataclass(frozen=True)
class InverseAnswer(Band, ABC):
    """A threshold for (`epsilon`, `delta`), for inputs up to `distance` apart.

    At one end the guarantee is certified, at the other it is known to fail. The certified epsilon
    of `answer` is at most `epsilon`.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    distance: float | None = None
    answer: Amplification = field(kw_only=True)
    """Both bounds at the certified end."""
    refuted: Amplification | None = field(default=None, kw_only=True)
    """Both bounds at the refuted end, where a data set reveals more; None without such an end."""

    @abstractmethod
    def explain(self) -> str:
        """Explain the answer in two sentences."""

    @property
    def _wanted(self) -> str:
        pairs = self.answer.pairs_at(self.distance)
        return (
            f"hide {pairs} at epsilon {format_epsilon(self.epsilon)}, delta "
            f"{format_delta(self.delta)}"
        )

    @property
    def _certificate(self) -> str:
        band = self.answer.epsilon(self.delta, self.distance)
        return f"certified: epsilon {format_epsilon(band.upper)}, {band.bound} bound"

    @property
    def _how(self) -> str:
        witness = (
            None
            if self.refuted is None
            else self.refuted.delta(self.epsilon, self.distance).attained
        )
        return "" if witness is None else f": {witness.words}"


@dataclass(frozen=True)
class LargestStrength(InverseAnswer):
    """`lower` is certified; at `upper` some data set certainly reveals more (inf: none was found).

    In some families, such as k-ary randomized response, a weaker member is a stronger member whose
    report is randomized again. The divergence of shuffled reports then rises with the strength, so
    no strength from `upper` on meets the target. For other families this is not claimed.
    """

    name: str = "local epsilon"

    @property
    def certified(self) -> float:
        """The certified strength, `lower`."""
        return self.lower

    def explain(self) -> str:
        people = f"the {self.answer.users:,} shuffled reports of honest people"
        over = "" if self.answer.rounds == 1 else f" over {self.answer.rounds} rounds together"
        text = (
            f"At {self.name} {self.lower:.{STRENGTH_DIGITS}g} {people}{over} certainly "
            f"{self._wanted} ({self._certificate})."
        )
        if math.isinf(self.upper):
            return f"{text} No larger one was found at which they certainly do not."
        return f"{text} At {self.name} {self.upper:.{STRENGTH_DIGITS}g} they do not{self._how}."


@dataclass(frozen=True)
class FewestUsers(InverseAnswer):
    """`upper` honest people are certified to be enough; fewer than `lower` certainly are not.

    One more honest report never reveals more: an observer of the shuffled reports of n people can
    add a report and shuffle again. So a guarantee that holds for n people holds for more people,
    and a guarantee that fails for n people fails for fewer.
    """

    @property
    def certified(self) -> int:
        """The certified number of honest people, `upper`."""
        return int(self.upper)

    def explain(self) -> str:
        enough = self.certified
        needed = int(self.lower)
        over = "" if self.answer.rounds == 1 else f", reporting {self.answer.rounds} times each,"
        people = f"{enough:,} honest {'person' if enough == 1 else 'people'}{over}"
        text = f"{people} certainly {self._wanted} ({self._certificate})."
        return (
            f"{text} Fewer than {needed:,} do not{self._how}."
            if needed > 1
            else f"{text} No lower limit is known."
        )


def largest_local_epsilon(
    family: Family,
    epsilon: float,
    delta: float,
    users: int,
    honest: int | float | str | None = None,
    *,
    distance: float | None = None,
    rounds: int = 1,
) -> LargestStrength:
    """Find the largest certified local epsilon (or rate) for (epsilon, delta) after shuffling.

    Args:
        family: Makes a randomizer from its privacy parameter, such as `lambda local:
            KaryRandomizedResponse(10, local)`: the local epsilon of any two values, or the rate per
            unit if there is a metric.
        distance: Largest distance of the two inputs (default: any two).
    """

    def answers(strength: float, relative: float | None) -> Amplification:
        return amplify(family(strength), users, honest, rounds=rounds, relative=relative)

    return largest_strength(answers, epsilon, delta, distance, users=users)


def fewest_users(
    randomizer: Member,
    epsilon: float,
    delta: float,
    *,
    distance: float | None = None,
    rounds: int = 1,
) -> FewestUsers:
    """Find the fewest honest people whose shuffled reports are certified for (epsilon, delta).

    The guarantee is for inputs up to `distance` apart (default: any two).
    """
    return fewest(
        lambda users, relative: amplify(randomizer, int(users), rounds=rounds, relative=relative),
        epsilon,
        delta,
        distance,
    )


def largest_strength(
    answers: Answers,
    epsilon: float,
    delta: float,
    distance: float | None,
    name: str = "local epsilon",
    *,
    users: int,
) -> LargestStrength:
    """Find the largest certified strength of anything that has both bounds at every strength.

    Strengths that cannot be constructed or certified count as too strong.
    """
    search = _InverseSearch(
        answers,
        checked_epsilon(epsilon),
        checked_delta(delta),
        distance,
        users=checked_users(users),
    )
    guess = search.near(search.start(), rising=True)
    passing = None if guess is None else search.strongest_from(guess)
    if passing is None:
        raise InputError(
            f"no {name} down to {search.weakest:.2g} is certified to hide these inputs at "
            f"epsilon {format_epsilon(epsilon)}, "
            f"delta {format_delta(delta)}; allow a larger epsilon or delta, or count on "
            "more people."
        )
    failing = search.find_refuted_above(passing)
    return LargestStrength(
        passing,
        failing,
        epsilon,
        delta,
        distance,
        name,
        answer=search.at(passing),
        refuted=search.at(failing) if failing < math.inf else None,
    )


def fewest(answers: Answers, epsilon: float, delta: float, distance: float | None) -> FewestUsers:
    """Find the fewest honest people for anything that has both bounds for every number of them."""
    search = _InverseSearch(answers, checked_epsilon(epsilon), checked_delta(delta), distance)
    search.at(1.0).far(distance)  # raises if the distance is invalid
    guess = 1.0 if search.certified(1.0) else search.near(1000.0, rising=False)
    if guess is None:
        largest = search.at(float(MAX_USERS))
        sure = largest.lower.delta(epsilon, largest.far(distance)) > delta
        enough = "enough" if sure else "certified to be enough"
        raise InputError(
            f"no number of honest people up to {MAX_USERS:.0e} is {enough} to hide these "
            f"inputs at epsilon {format_epsilon(epsilon)}, "
            f"delta {format_delta(delta)}; allow a larger epsilon or delta, or a smaller "
            "local epsilon."
        )
    count = search.fewest_from(int(guess))
    step = 1
    while not search.confirmed(count):
        if count == MAX_USERS:
            raise NotCertified(NOT_CERTIFIED_TEXT)
        count = min(count + step, MAX_USERS)
        step = 4 * step
    needed = search.needed_below(count)
    return FewestUsers(
        needed,
        count,
        epsilon,
        delta,
        distance,
        answer=search.at(count),
        refuted=search.at(needed - 1) if needed > 1 else None,
    )


def _decimal(value: float, towards: str) -> float:
    """Round to a decimal of STRENGTH_DIGITS digits, in the given direction."""
    exact = Decimal(repr(value))
    return float(
        exact.quantize(Decimal(1).scaleb(exact.adjusted() - STRENGTH_DIGITS + 1), rounding=towards)
    )


class _InverseSearch:
    """Search for the value at which the certified epsilon crosses the target.

    Bounds are smooth on logarithmic scales, so secants find it.
    """

    def __init__(
        self,
        answers: Answers,
        epsilon: float,
        delta: float,
        distance: float | None,
        *,
        users: int = 0,
    ) -> None:
        """Start a search with `users` people, or for the number of people if it is 0."""
        if not 0.0 < epsilon < FARTHEST_EPSILON:
            raise InputError(f"the target epsilon must be a finite number > 0, got {epsilon!r}.")
        self.answers = answers
        self.epsilon = epsilon
        self.delta = delta
        self.distance = distance
        self.users = users
        self.weakest = MAX_STRENGTH
        self._known: dict[float, Amplification] = {}

    def at(self, value: float) -> Amplification:
        """Return the answer with the default tolerance of `amplify`.

        A slightly larger tolerance is used where the default one would take seconds.
        """
        if value not in self._known:
            self._known[value] = self.answers(
                value, None if (self.users or value) <= MANY_USERS else MANY_USERS_TOLERANCE
            )
        return self._known[value]

    def start(self) -> float:
        """Return a strength that can be constructed.

        Raises the error of the first attempt if all fail, and InputError for an invalid distance.
        """
        first: Exception | None = None
        for strength in START_STRENGTHS:
            try:
                answer = self.answers(strength, STEERING_TOLERANCE)
            except (InputError, NotCertified) as error:
                first = first or error
            else:
                answer.far(self.distance)
                return strength
        assert first is not None  # noqa: S101 - there are starts
        raise first

    def certified(self, value: float) -> bool:
        try:
            with np.errstate(all="ignore"):  # what overflows is not certified
                answer = self.at(value)
                return answer.upper.epsilon(self.delta, answer.far(self.distance)) <= self.epsilon
        except (InputError, NotCertified):
            return False

    def confirmed(self, value: float) -> bool:
        """Return whether `amplify` with its default tolerance certifies this value."""
        if (self.users or value) > MANY_USERS:
            self._known[value] = self.answers(value, None)
        return self.certified(value)

    def refuted(self, value: float) -> bool:
        """Return whether a data set certainly reveals more; False if it cannot be constructed."""
        try:
            with np.errstate(all="ignore"):  # what overflows is not certified
                answer = self.at(value)
                return answer.lower.delta(self.epsilon, answer.far(self.distance)) > self.delta
        except (InputError, NotCertified):
            return False

    def near(self, start: float, *, rising: bool) -> float | None:
        """Return a value near the crossing from rough evaluations, only to steer the search.

        None if no value up to the limits passes.
        """
        low, high = (MIN_STRENGTH, MAX_STRENGTH) if rising else (1.0, float(MAX_USERS))
        passing = math.nan
        failing = math.nan
        before = (math.nan, math.nan)
        value = start
        for _ in range(MAX_STEPS):
            excess = self._excess(value)
            if rising:
                self.weakest = min(self.weakest, value)
            passing, failing = (value, failing) if excess <= 0.0 else (passing, value)
            if value in (low, high) and (value == passing) == ((value == high) == rising):
                break  # everything passes
            if value in (low, high) and math.isnan(passing):
                return None
            if abs(math.log(passing / failing)) <= BRACKET_TOLERANCE:
                break
            value, before = (
                self._next(value, excess, before, passing, failing, rising),
                (value, excess),
            )
            value = min(max(value, low), high)
        return passing if passing == passing else None

    def _next(
        self,
        value: float,
        excess: float,
        before: tuple[float, float],
        passing: float,
        failing: float,
        rising: bool,
    ) -> float:
        """Return the secant's next value, within MAX_STEP_FACTOR and inside any bracket."""
        sign = 1.0 if rising else -1.0
        slope = sign * (1.0 if rising else 0.5)
        if math.isfinite(excess) and math.isfinite(before[1]) and value != before[0]:
            secant = (excess - before[1]) / math.log(value / before[0])
            slope = secant if 0.05 < sign * secant < 20.0 else slope
        step = (
            -excess / slope
            if math.isfinite(excess)
            else -sign * math.copysign(math.log(MAX_STEP_FACTOR), excess)
        )
        step += math.copysign(0.4 * BRACKET_TOLERANCE, step)  # just across the root
        step = max(-math.log(MAX_STEP_FACTOR), min(step, math.log(MAX_STEP_FACTOR)))
        wanted = value * math.exp(step)
        if not math.isnan(passing) and not math.isnan(failing):
            lower, upper = sorted((passing, failing))
            if not lower < wanted < upper:
                wanted = math.sqrt(lower * upper)
        return float(round(wanted)) if not self.users else wanted

    def _excess(self, value: float) -> float:
        """Return about log(epsilon at value / target), infinite if epsilon is 0, inf or unknown."""
        try:
            with np.errstate(all="ignore"):  # what overflows is not certified
                answer = self.answers(value, STEERING_TOLERANCE)
                epsilon = answer.upper.epsilon(self.delta, answer.far(self.distance))
        except (InputError, NotCertified):
            return math.inf
        return (
            math.log(epsilon / self.epsilon)
            if 0.0 < epsilon < math.inf
            else math.inf
            if epsilon
            else -math.inf
        )

    def strongest_from(self, guess: float) -> float | None:
        """Return the largest certified decimal near a guess, or None."""
        start = _decimal(guess, ROUND_FLOOR)
        step = 10.0 ** (1 - STRENGTH_DIGITS)
        passing = first_certified(
            self.certified, start, MIN_STRENGTH, step=-step, growth=2.0, failing=math.inf
        ).passing
        passing = (
            self.closest(_decimal(passing, ROUND_FLOOR)) if passing > MIN_STRENGTH else MIN_STRENGTH
        )
        while passing >= MIN_STRENGTH and not self.confirmed(passing):
            passing = _decimal(passing * (1.0 - step), ROUND_FLOOR)
            step = min(2.0 * step, 0.5)
        return passing if passing >= MIN_STRENGTH else None

    def closest(self, passing: float) -> float:
        """Narrow the bracket between a passing and a failing decimal; return the passing end.

        The search goes upwards from `passing` in growing steps to a decimal that fails, then back.
        """
        unit = 10.0 ** (math.floor(math.log10(passing)) - STRENGTH_DIGITS + 1)

        def decimal(steps: int) -> float:
            return _decimal(passing + steps * unit * (1.0 + 1e-9), ROUND_FLOOR)

        steps = 0
        farther = 1
        while decimal(farther) <= MAX_STRENGTH and self.certified(decimal(farther)):
            steps = farther
            farther = 3 * farther
        return (
            decimal(
                last_certified_integer(lambda place: self.certified(decimal(place)), farther, steps)
            )
            if steps or farther > 1
            else passing
        )

    def find_refuted_above(self, passing: float) -> float:
        """Return the smallest decimal found above `passing` that a data set refutes, or inf."""
        factors = [1.0 + 10.0 ** (2 - STRENGTH_DIGITS) * 2.0**power for power in range(40)]
        before = passing
        for factor in factors:
            value = _decimal(min(passing * factor, MAX_STRENGTH), ROUND_CEILING)
            if self.refuted(value):
                return self._narrow_bracket(before, value)
            if value >= MAX_STRENGTH:
                break
            before = value
        return math.inf

    def _narrow_bracket(self, before: float, value: float) -> float:
        """Bisect between an unrefuted and a refuted value, down to neighbouring decimals."""
        while (middle := _decimal(0.5 * (before + value), ROUND_CEILING)) < value:
            before, value = (before, middle) if self.refuted(middle) else (middle, value)
            if before == middle and _decimal(0.5 * (before + value), ROUND_CEILING) in (
                before,
                value,
            ):
                break
        return value

    def fewest_from(self, guess: int) -> int:
        """Return the fewest people that were certified to be enough, near a guess."""

        def excess(value: float) -> float:
            try:
                with np.errstate(all="ignore"):  # what overflows is not certified
                    answer = self.at(value)
                    epsilon = answer.upper.epsilon(self.delta, answer.far(self.distance))
            except (InputError, NotCertified):
                return math.inf
            return _log_ratio(epsilon, self.epsilon)

        enough = self._crossing(excess, guess, 0.5)[1]
        if enough is None:
            raise NotCertified(NOT_CERTIFIED_TEXT)
        return enough

    def needed_below(self, enough: int) -> int:
        """Return one more than the largest number of people known not to be enough."""

        def excess(value: float) -> float:
            try:
                with np.errstate(all="ignore"):  # what overflows is not certified
                    answer = self.at(value)
                    delta = answer.lower.delta(self.epsilon, answer.far(self.distance))
            except (InputError, NotCertified):
                return -math.inf
            # A NaN refutes no number of people.
            return _log_ratio(delta if delta >= 0.0 else 0.0, self.delta)

        return (
            self._crossing(
                excess, max(1, enough - max(1, math.floor(USERS_TOLERANCE * enough))), 8.0, enough
            )[0]
            + 1
        )

    def _crossing(
        self,
        excess: Callable[[float], float],
        start: int,
        slope: float,
        max_users: int | None = None,
    ) -> tuple[int, int | None]:
        """Return the most people found with an excess above 0 and the fewest found without one.

        The two numbers are neighbours, or a millionth apart. `excess` decreases as the number of
        people grows, by about `slope` on logarithmic scales; it is known not to exceed 0 for
        `max_users` people. The search uses secants that end a little across the root, and farther
        whenever the root is not crossed; where secants do not halve the bracket, it is bisected.
        """
        below = 0
        above = max_users
        value = start
        before = (0, math.nan)
        sides = 0
        width = math.inf
        for turn in range(MAX_STEPS):
            excess_there = excess(float(value))
            crossed = before[0] > 0 and (excess_there > 0.0) != (before[1] > 0.0)
            sides = 0 if crossed else sides + 1
            below, above = (value, above) if excess_there > 0.0 else (below, value)
            unit = max(1, math.floor(USERS_TOLERANCE * value))
            if below == MAX_USERS or (above is not None and above - below <= unit):
                break
            if before[0] and math.isfinite(excess_there) and math.isfinite(before[1]):
                steepness = (before[1] - excess_there) / math.log(value / before[0])
                slope = steepness if 0.02 < steepness < 1e3 else slope
            step = (
                excess_there / slope
                if math.isfinite(excess_there)
                else math.copysign(math.log(MAX_STEP_FACTOR), excess_there)
            )
            wanted = value * math.exp(
                max(-math.log(MAX_STEP_FACTOR), min(step, math.log(MAX_STEP_FACTOR)))
            )
            wanted += math.copysign(
                unit * (0.5 * 3.0**sides if turn else 0.5), excess_there if excess_there else -1.0
            )
            before = (value, excess_there)
            last = MAX_USERS if above is None else above - 1
            if turn % 3 == 2:
                if above is not None and above - below > 0.5 * width:
                    wanted = 0.5 * (above + below)
                width = math.inf if above is None else above - below
            value = min(max(round(min(wanted, float(MAX_USERS))), below + 1), last)
        return below, above


def _log_ratio(value: float, wanted: float) -> float:
    """Return log(value / wanted), above 0 only if value > wanted.

    It is infinite if one of them is 0 or value is NaN.
    """
    if not value <= wanted:
        return (
            max(math.log(value / wanted), 1e-300) if wanted > 0.0 and value < math.inf else math.inf
        )
    return min(0.0, math.log(value / wanted)) if value > 0.0 else -math.inf
