"""Amplification by shuffling: from a local randomizer, or a metric, to a band around what its shuffled reports give away."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from metricshuffle.accounting.beyond_blanket.crowd import Crowd
from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.accounting.clones.bound import ClonesProfile
from metricshuffle.accounting.composition.rounds import composed
from metricshuffle.accounting.two_reports.bound import DataSet
from metricshuffle.amplification.approximate import ApproximateClones, ApproximateLower
from metricshuffle.amplification.every_pair import SOME_LAWS
from metricshuffle.amplification.exact_pairs import ExactLower, ExactPairs
from metricshuffle.amplification.lower import DataSetLower, homogeneous_laws, information, krr_data_sets, own_data_sets
from metricshuffle.amplification.mixed_crowd import MixedProfile
from metricshuffle.amplification.mixed_lower import MixedLower
from metricshuffle.amplification.other_laws import others_of
from metricshuffle.amplification.parallel import Parallel
from metricshuffle.amplification.pem_lower import pem_lower
from metricshuffle.amplification.real_line import RealLine, real_pairs
from metricshuffle.amplification.shuffled import ShuffledProfile, Winner
from metricshuffle.amplification.worst_pair import Pair, PairScan
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import plain, promised
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import Band, PrivacyProfile, checked_delta, checked_distance, checked_epsilon
from metricshuffle.privacy.target import checked_users, honest_count
from metricshuffle.randomizers.dyadic import TOTAL, exp_below
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer

Answers = TypeVar("Answers", covariant=True)
GENERIC_LABEL = "no bound valid for every randomizer of this local epsilon can be smaller"
SMALL_MATRIX = 2**20  # entries: below, every input is tried as what the others hold
MOST_PAIRS, MOST_OTHERS = 2, 3
MANY_REPORTS = 512  # from here on laws are taken from closed forms, if there are any
FEW_USERS, FEW_PAIRS, SOME_PAIRS = 30, 30, 5000
SOME_WORK = 2**22  # pairs times reports


@dataclass(frozen=True)
class GenericLDP:
    """Any randomizer with this local epsilon between every two inputs, up to `delta` if that is not 0."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, int | float) or not 0.0 < self.epsilon <= 700.0:
            raise InputError(f"the local epsilon must be a number in (0, 700], got {self.epsilon!r}.")
        checked_delta(self.delta)


@dataclass(frozen=True)
class AmplifiedBand(Band):
    """A band with the bound and the evaluator behind its upper end, and whether shuffling buys anything at all."""

    bound: str = "blanket"
    evaluator: str = "local"
    amplified: bool = True
    attained: DataSet | None = None
    """The data set that has the lower end, where it is known (two reports)."""


@dataclass(frozen=True)
class DataSets:
    """distance -> laws of data sets of a randomizer: the pairs that look worst, the others at a, at b, and at what hides least."""

    randomizer: Randomizer | Parallel
    users: int
    _known: dict[float, list[BlanketLaw]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, distance: float) -> list[BlanketLaw]:
        if distance not in self._known:
            self._known[distance] = self._laws(distance)
        return self._known[distance]

    def _laws(self, distance: float) -> list[BlanketLaw]:
        source = self.randomizer
        if isinstance(source, Parallel):
            return [law for one in source.blankets(distance)[: 2 * MOST_PAIRS] for law in own_data_sets(one)]
        if isinstance(source, RealLine) and source.inputs * source.outputs <= SMALL_MATRIX:
            return self._listed(*real_pairs(source, distance), source.inputs)
        # An upper bound looks at pairs up to the next whole step; a lower one must not.
        pairs = [pair for pair in source.pairs_within(distance) if source.distance(*pair) <= distance * (1.0 + 1e-12)]
        if not pairs:
            return []
        if isinstance(source, KaryRandomizedResponse):  # exact fractions
            return krr_data_sets(source.options, Fraction(source.keep, TOTAL), Fraction(source.other, TOTAL))
        many = source.outputs > MANY_REPORTS or source.inputs * source.outputs > SMALL_MATRIX
        if many and (closed := self._closed(source, pairs[:SOME_LAWS])):
            return closed
        if source.inputs * source.outputs > SMALL_MATRIX:
            pairs.sort(key=lambda pair: -source.distance(*pair))
            return [law for pair in pairs[:MOST_PAIRS] for law in own_data_sets(source.blanket(*pair))]
        return self._listed(source.rows(), pairs, source.inputs)

    def _listed(self, rows: Floats, pairs: list[Pair], inputs: int) -> list[BlanketLaw]:
        """Pairs of rows; what the others hold is one of the first `inputs` of them."""
        laws = []
        for a, b in _worst(rows, pairs, self.users, inputs):
            scores = information(rows[a], rows[b], rows[:inputs])
            held = dict.fromkeys([*(int(c) for c in np.argsort(-scores)[:MOST_OTHERS]), a, b])
            laws += homogeneous_laws(rows[a], rows[b], [rows[c] for c in held])
        return laws

    @staticmethod
    def _closed(source: Randomizer, pairs: list[Pair]) -> list[BlanketLaw]:
        """From closed forms: the pairs with the largest spread, the others at what hides least; none if they are not known."""
        known = [law for law in (others_of(source, *pair) for pair in pairs) if law is not None]
        spreads = [(float(square), law, x) for law in known for x, square in enumerate(law.at(0.0).square)]
        spreads.sort(key=lambda one: -one[0])
        return [BlanketLaw(*law.types[x][:4]) for _, law, x in spreads[: MOST_OTHERS * MOST_PAIRS]]


def _widest(rows: Floats, pairs: list[Pair], inputs: int) -> list[Pair]:
    """The pairs with the largest spread, over what hides least (or, if there are too many of them, over what all have in common)."""
    if len(pairs) * rows.shape[1] <= SOME_WORK and (crowd := Crowd(rows[:inputs], rows)).covered:
        order = np.argsort(-crowd.spreads(np.array(pairs, dtype=np.int64), 1.0)[0], kind="stable")
        return [pairs[place] for place in order[:MOST_PAIRS]]
    scan = PairScan(rows, pairs)
    return [(int(a), int(b)) for a, b in scan.ranked(1.0)[:MOST_PAIRS]] if scan.covered else []


def _worst(rows: Floats, pairs: list[Pair], users: int, inputs: int) -> list[Pair]:
    """The pairs with the largest spread, which decides for many users; the largest variation and ratio, which decide for few."""
    if len(pairs) <= (FEW_PAIRS if users <= FEW_USERS else MOST_PAIRS):
        return pairs
    spread = _widest(rows, pairs, inputs)
    if len(pairs) > SOME_PAIRS:
        return spread or pairs[:MOST_PAIRS]
    ratio, variation = [], []
    for a, b in pairs:
        variation.append(float(np.maximum(rows[a] - rows[b], 0.0).sum()))
        held = rows[a] > 0.0
        ratio.append(float(np.max(rows[a][held] / np.maximum(rows[b][held], 1e-300))))
    return list(dict.fromkeys([*spread, pairs[int(np.argmax(variation))], pairs[int(np.argmax(ratio))]]))


@dataclass(frozen=True)
class Amplification:
    """What `users` honest shuffled reports promise (`upper`) and certainly give away (`lower`), for pairs up to `distance` apart.

    With several rounds, `lower` is that of one of them.
    """

    upper: PrivacyProfile
    lower: DataSetLower | ExactLower | MixedLower
    users: int
    distance: float
    local: PrivacyProfile
    rounds: int = 1
    member: str = ""
    """Who is promised this, where people differ: "a member of group 2 (..)"."""
    dummies: int = 0
    """Reports that the shuffler adds; `users` does not count them."""

    @property
    def bound(self) -> str:
        return self.upper.bound

    def _distance(self, distance: float | None) -> float:
        if distance is None:
            return self.distance
        if not 0.0 < checked_distance(distance) <= self.distance * (1.0 + 1e-12):
            raise InputError(f"distance must lie in (0, {self.distance:g}], the largest between two inputs, got {distance!r}.")
        return min(distance, self.distance)

    def epsilon(self, delta: float, distance: float | None = None) -> AmplifiedBand:
        """The total epsilon at this delta for inputs at most `distance` apart (default: any two)."""
        delta, far = checked_delta(delta), self._distance(distance)
        found = self._winner("epsilon", delta, far)
        less = found.value < self._alone(delta, far) * self.rounds * (1.0 - 1e-9)
        band = self._band(found, self.lower.epsilon(delta, far), less and found.bound != "local" and self.users + self.dummies > 1)
        return replace(band, attained=self.lower.pairs.epsilon(delta, far).attained) if isinstance(self.lower, ExactLower) else band

    def delta(self, epsilon: float, distance: float | None = None) -> AmplifiedBand:
        """delta at this total epsilon for inputs at most `distance` apart (default: any two)."""
        epsilon, far = checked_epsilon(epsilon), self._distance(distance)
        found = self._winner("delta", epsilon, far)
        band = self._band(
            found, self.lower.delta(epsilon, far), (found.bound != "local" and self.users + self.dummies > 1) or found.value == 0.0
        )
        return replace(band, attained=self.lower.pairs.delta(epsilon, far).attained) if isinstance(self.lower, ExactLower) else band

    def _alone(self, delta: float, distance: float) -> float:
        """What one report has: its epsilon at delta 0, or at this delta if that is infinite."""
        pure = self.local.pure(distance)
        return pure if math.isfinite(pure) else self.local.epsilon(delta, distance)

    @staticmethod
    def _band(found: Winner, lower: float, amplified: bool) -> AmplifiedBand:
        return AmplifiedBand(lower, found.value, found.bound if amplified else "local", found.evaluator, amplified)

    def _winner(self, wanted: str, given: float, distance: float) -> Winner:
        profile = self.upper
        if isinstance(profile, ShuffledProfile | MixedProfile):
            return profile.epsilon_winner(given, distance) if wanted == "epsilon" else profile.delta_winner(given, distance)
        value = profile.epsilon(given, distance) if wanted == "epsilon" else profile.delta(given, distance)
        if self.rounds > 1:
            return Winner(value, profile.bound, "loss distribution")
        alone = self._alone(given, distance) if wanted == "epsilon" else self.local.delta(given, distance)
        return Winner(value, profile.bound, "counts") if value < alone else Winner(alone, "local", "local")

    @property
    def _least(self) -> str:
        if self.lower.bound == "data set":
            return "On some data set they give away at least epsilon"
        return f"{self.lower.bound[0].upper()}{self.lower.bound[1:]} than epsilon"

    def explain(self, delta: float, distance: float | None = None) -> str:
        """The answer in a sentence or two."""
        band, far = self.epsilon(delta, distance), self._distance(distance)
        over = "" if self.rounds == 1 else f" over {self.rounds} rounds together"
        added = f" and {self.dummies:,} dummies" if self.dummies else ""
        whose = f" of {self.member}" if self.member else ""
        people = f"{self.users:,} shuffled reports of honest people{added}{over} hide two inputs{whose} at distance {plain(far)}"
        alone, pure = self._alone(delta, far), self.local.pure(far)
        if not band.amplified:
            return (
                f"Shuffling buys nothing here: {people} no better than the reports alone do, at epsilon {promised(band.upper)}, "
                f"delta {delta:g}; more people or a smaller local epsilon would help."
            )
        named = (
            "no finite epsilon"
            if not math.isfinite(alone)
            else f"epsilon {promised(alone)}{'' if math.isfinite(pure) else ' at that delta'}"
        )
        return (
            f"{people} at epsilon {promised(band.upper)}, delta {delta:g} ({band.bound} bound); one report alone has {named}. "
            f"{self._least} {band.lower:.4g}."
        )


class Counted(Protocol[Answers]):
    """People who have been counted already, of several groups: see `groups.Groups`."""

    def amplified(self, *, rounds: int, relative: float | None) -> Answers: ...


@overload
def amplify(
    randomizer: Randomizer | Parallel | GenericLDP,
    users: int,
    honest: int | float | str | None = None,
    *,
    rounds: int = 1,
    relative: float | None = None,
) -> Amplification: ...
@overload
def amplify(randomizer: Counted[Answers], *, rounds: int = 1, relative: float | None = None) -> Answers: ...
def amplify(
    randomizer: Any,
    users: int | None = None,
    honest: int | float | str | None = None,
    *,
    rounds: int = 1,
    relative: float | None = None,
) -> Any:
    """What the shuffled reports of `users` people, `honest` of them certainly honest, promise at the least and give away at the least.

    `rounds` is how often the same people report the same values; the promise covers all rounds together. `relative` is how closely
    epsilon is searched for (1e-7 up to 1e5 users, 1e-5 beyond, if left out); rough answers are quicker, and as safe. For `Groups`, whose
    honest people are counted already, give neither `users` nor `honest`; the answer has one for a member of each group.
    """
    if hasattr(randomizer, "amplified"):
        if users is not None or honest is not None:
            raise InputError("amplify: groups have their own counts of honest people; leave out users and honest.")
        return randomizer.amplified(rounds=rounds, relative=relative)
    if users is None:
        raise InputError("amplify needs users, how many people report.")
    counted = honest_count(honest, checked_users(users))
    if isinstance(randomizer, GenericLDP):
        return amplify_generic(randomizer.epsilon, users, honest, rounds=rounds, delta=randomizer.delta)
    if not isinstance(randomizer, Randomizer | Parallel):
        raise InputError(f"amplify needs a randomizer (see metricshuffle.randomizers), got {type(randomizer).__name__}.")
    # A composition asks a thousand times, so roughly, and not pair by pair.
    closely = relative if rounds == 1 else 1e-3
    widest = randomizer.diameter
    upper = ShuffledProfile(randomizer, counted, widest, relative=closely)
    exact = upper.exact if rounds == 1 else ExactPairs.of(randomizer, counted, relative or 0.0)
    if rounds > 1 and upper.many_pairs:
        upper = ShuffledProfile(randomizer, counted, widest, "clones")
    lower = DataSetLower(DataSets(randomizer, counted), counted, relative=relative) if exact is None else ExactLower(exact)
    return _amplification(upper, lower, counted, widest, randomizer.local_profile(), rounds)


def _amplification(
    upper: PrivacyProfile, lower: DataSetLower | ExactLower, users: int, distance: float, local: PrivacyProfile, rounds: int
) -> Amplification:
    return Amplification(composed(upper, rounds), lower, users, distance, local, rounds)


def amplify_generic(
    epsilon: float, users: int, honest: int | float | str | None = None, *, rounds: int = 1, delta: float = 0.0
) -> Amplification:
    """Any randomizer with this local epsilon (and delta): the clone pair from above, the worst of 2-RR and 3-RR from below."""
    counted, total = honest_count(honest, checked_users(users)), GenericLDP(epsilon).epsilon
    ratio = exp_below(total)
    laws = [law for k in (2, 3) for law in krr_data_sets(k, ratio / (ratio + k - 1), 1 / (ratio + k - 1))]
    if delta > 0.0:
        near = ApproximateClones(float(total), delta, counted)
        below = ApproximateLower(lambda _: laws, counted, GENERIC_LABEL, leak=delta)
        return _amplification(near, below, counted, 1.0, near.local, rounds)
    upper = ClonesProfile(float(total), counted, 1.0)
    local = ClonesProfile(float(total), 1, 1.0)
    return _amplification(upper, DataSetLower(lambda _: laws, counted, GENERIC_LABEL), counted, 1.0, local, rounds)


def amplify_metric(
    rate: float,
    distance: float,
    reach: float,
    reach_other: float | None = None,
    *,
    users: int,
    honest: int | float | str | None = None,
    rounds: int = 1,
) -> Amplification:
    """Any randomizer that is private at `rate` epsilon per unit, for a pair `distance` apart.

    `reach` and `reach_other` are how far the two inputs are from the farthest value anybody may hold (units).
    """
    other = reach if reach_other is None else reach_other
    for name, value in (("rate", rate), ("distance", distance), ("reach", reach), ("reach_other", other)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
            why = "; the pair is one and the same input, nothing tells it from itself" if name == "distance" and value == 0.0 else ""
            raise InputError(f"{name} must be a finite number > 0, got {value!r}{why}.")
    for name, value in (("reach", reach), ("reach_other", other)):
        if value < distance:
            raise InputError(
                f"{name} is how far the farthest value is, and the other input of the pair is {distance:g} away; got {value:g}, raise it."
            )
    if abs(reach - other) > distance * (1.0 + 1e-12):
        raise InputError(
            f"reach {reach:g} and reach_other {other:g} differ by more than the distance {distance:g}, which breaks the triangle "
            "inequality: this is not a metric. Close it by shortest paths first."
        )
    counted = honest_count(honest, checked_users(users))
    upper = ClonesProfile(float(rate), counted, max(float(reach), float(other)), lambda _: (float(reach), float(other)))
    local = ClonesProfile(float(rate), 1, max(float(reach), float(other)))
    lower = pem_lower(float(rate), float(reach), float(other), counted)
    return _amplification(upper, lower, counted, float(distance), local, rounds)
