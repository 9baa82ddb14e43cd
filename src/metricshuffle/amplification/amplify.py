"""Amplification by shuffling: from a local randomizer, or a metric, to a band around what its shuffled reports give away."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

from metricshuffle.accounting.clones.bound import ClonesProfile
from metricshuffle.accounting.composition.rounds import composed
from metricshuffle.amplification.approximate import ApproximateClones, ApproximateLower
from metricshuffle.amplification.channel_pair import ChannelPair
from metricshuffle.amplification.data_sets import DataSets
from metricshuffle.amplification.exact_pairs import ExactLower, ExactPairs
from metricshuffle.amplification.lower import DataSetLower, Held, Witness, krr_data_sets
from metricshuffle.amplification.mixed_crowd import MixedProfile
from metricshuffle.amplification.mixed_lower import MixedLower
from metricshuffle.amplification.parallel import Parallel
from metricshuffle.amplification.pem_lower import pem_lower
from metricshuffle.amplification.sampled import SampledProfile
from metricshuffle.amplification.shuffled import ShuffledProfile, Winner
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import at_least, plain, promised, promised_delta
from metricshuffle.privacy.profile import Band, PrivacyProfile, checked_delta, checked_distance, checked_epsilon
from metricshuffle.privacy.target import checked_users, honest_count
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.dyadic import exp_below
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.shown import Brief, Plotted, plotted

Answers = TypeVar("Answers", covariant=True)
GENERIC_LABEL = "no bound valid for every randomizer of this local epsilon can be smaller"


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
    attained: Witness | None = None
    """A data set, and a pair of inputs, that give away what the lower end says; None if that is nothing."""


@dataclass(frozen=True)
class Amplification(Plotted, Brief):
    """What `users` honest shuffled reports promise (`upper`) and certainly give away (`lower`), for pairs up to `distance` apart.

    With several rounds, `lower` is that of one of them. `upper` is a `PrivacyProfile`, with its Renyi divergences, its trade-off curve
    and its loss distribution; these ask for hundreds of deltas, which `amplify(..., relative=1e-3)` makes quicker, and as safe.
    """

    upper: PrivacyProfile
    lower: DataSetLower | ExactLower | MixedLower
    users: int
    distance: float
    local: PrivacyProfile
    rounds: int = 1
    alike: str = ""
    """What the pairs are called if a distance would say nothing, because all have the same; empty if there is a metric."""
    member: str = ""
    """Who is promised this, where people differ: "a member of group 2 (..)"."""
    dummies: int = 0
    """Reports that the shuffler adds; `users` does not count them."""
    _bands: dict[tuple[str, float, float], AmplifiedBand] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plot(self, *, delta: float | None = None, distance: float | None = None) -> Any:
        """The band of epsilon against delta; or, at a `delta`, against the distance, up to `distance`.

        An altair chart if altair is installed, else one that shows itself as SVG.
        """
        return plotted(self, delta=delta, distance=distance)

    @property
    def bound(self) -> str:
        return self.upper.bound

    def far(self, distance: float | None = None) -> float:
        """How far apart the inputs may be that are asked about: the largest distance if nothing is said, or a sentence."""
        if distance is None:
            return self.distance
        if not 0.0 < checked_distance(distance) <= self.distance * (1.0 + 1e-12):
            raise InputError(f"distance must lie in (0, {self.distance:g}], the largest between two inputs, got {distance!r}.")
        return min(distance, self.distance)

    def epsilon(self, delta: float, distance: float | None = None) -> AmplifiedBand:
        """The total epsilon at this delta for inputs at most `distance` apart (default: any two)."""
        delta, far = checked_delta(delta), self.far(distance)
        if ("epsilon", delta, far) not in self._bands:
            self._bands["epsilon", delta, far] = self._epsilon_band(delta, far)
        return self._bands["epsilon", delta, far]

    def _epsilon_band(self, delta: float, far: float) -> AmplifiedBand:
        found = self._winner("epsilon", delta, far)
        less = found.value < self._alone(delta, far) * self.rounds * (1.0 - 1e-9)
        lower, witness = self.lower.epsilon(delta, far), self.lower.witness("epsilon", delta, far)
        return self._band(found, lower, witness, less and found.bound != "local" and self._reports > 1)

    def delta(self, epsilon: float, distance: float | None = None) -> AmplifiedBand:
        """delta at this total epsilon for inputs at most `distance` apart (default: any two)."""
        epsilon, far = checked_epsilon(epsilon), self.far(distance)
        if ("delta", epsilon, far) not in self._bands:
            self._bands["delta", epsilon, far] = self._delta_band(epsilon, far)
        return self._bands["delta", epsilon, far]

    def _delta_band(self, epsilon: float, far: float) -> AmplifiedBand:
        found = self._winner("delta", epsilon, far)
        lower, witness = self.lower.delta(epsilon, far), self.lower.witness("delta", epsilon, far)
        return self._band(found, lower, witness, (found.bound != "local" and self._reports > 1) or found.value == 0.0)

    @property
    def _reports(self) -> int:
        return self.users + self.dummies

    def _alone(self, delta: float, distance: float) -> float:
        """What one report has: its epsilon at delta 0, or at this delta if that is infinite."""
        pure = self.local.pure(distance)
        return pure if math.isfinite(pure) else self.local.epsilon(delta, distance)

    @staticmethod
    def _band(found: Winner, lower: float, witness: Witness | None, amplified: bool) -> AmplifiedBand:
        return AmplifiedBand(lower, found.value, found.bound if amplified else "local", found.evaluator, amplified, witness)

    def _winner(self, wanted: str, given: float, distance: float) -> Winner:
        profile = self.upper
        if isinstance(profile, ShuffledProfile | MixedProfile):
            return profile.epsilon_winner(given, distance) if wanted == "epsilon" else profile.delta_winner(given, distance)
        value = profile.epsilon(given, distance) if wanted == "epsilon" else profile.delta(given, distance)
        if self.rounds > 1:
            return Winner(value, profile.bound, "loss distribution")
        alone = self._alone(given, distance) if wanted == "epsilon" else self.local.delta(given, distance)
        return Winner(value, profile.bound, "counts") if value < alone else Winner(alone, "local", "local")

    def pairs_at(self, distance: float | None = None) -> str:
        """The pairs of inputs that an answer is about, in words."""
        pairs = self.alike or f"two inputs at distance {plain(self.far(distance))}"
        return f"{pairs} of {self.member}" if self.member else pairs

    def _crowd(self) -> str:
        over = "" if self.rounds == 1 else f" over {self.rounds} rounds together"
        added = f" and {self.dummies:,} dummies" if self.dummies else ""
        return f"{self.users:,} shuffled reports of honest people{added}{over}"

    def _given_away(self, asked: str, band: AmplifiedBand) -> str:
        """The lower end and who attains it."""
        if not band.lower > 0.0:
            return ""
        how = "" if band.attained is None else f": {band.attained.words}"
        least = f"{asked} {at_least(band.lower)}"
        if self._reports == 1:
            return f" It gives away at least {least}{how}."
        if self.lower.bound == "data set":
            return f" On some data set they give away at least {least}{how}."
        return f" {self.lower.bound[0].upper()}{self.lower.bound[1:]} than {least}{how}."

    def explain(self, delta: float | None = None, distance: float | None = None, *, epsilon: float | None = None) -> str:
        """epsilon at that delta (or delta at that epsilon) in a sentence or two."""
        if (delta is None) == (epsilon is None):
            raise InputError("explain needs either delta (to tell epsilon) or epsilon (to tell delta), and not both.")
        far, hidden = self.far(distance), self.pairs_at(distance)
        if epsilon is not None:
            band = self.delta(epsilon, distance)
            at, asked = f"at epsilon {promised(epsilon)} up to delta {promised_delta(band.upper)}", "delta"
        else:
            band = self.epsilon(delta or 0.0, distance)
            at, asked = f"at epsilon {promised(band.upper)}, delta {promised_delta(delta or 0.0)}", "epsilon"
        least = self._given_away(asked, band)
        if asked == "epsilon" and band.upper == 0.0:
            people = f"{self._crowd()} hide" if self._reports > 1 else "One report alone hides"
            return f"{people} {hidden} {at}: delta alone covers all that is told."
        if self._reports == 1:
            over = "" if self.rounds == 1 else f", {self.rounds} times,"
            return (
                f"One report alone{over} hides {hidden} {at}: shuffling buys nothing where there is no other report to hide among.{least}"
            )
        if not band.amplified:
            return (
                f"Shuffling buys nothing here: {self._crowd()} hide {hidden} no better than one report alone does, {at}; "
                f"more people or a smaller local epsilon would help.{least}"
            )
        return f"{self._crowd()} hide {hidden} {at} ({band.bound} bound); one report alone has {self._one_report(delta, far)}.{least}"

    def _one_report(self, delta: float | None, distance: float) -> str:
        """What one report has, in words."""
        pure = self.local.pure(distance)
        if math.isfinite(pure):
            return f"epsilon {promised(pure)}"
        alone = math.inf if delta is None else self.local.epsilon(delta, distance)
        return f"epsilon {promised(alone)} at that delta" if math.isfinite(alone) else "no finite epsilon"


def pairs_called(source: Randomizer | Parallel) -> str:
    """What the pairs of inputs are called if they are all at one distance; empty if there is a metric."""
    if isinstance(source, ChannelPair):
        return f"the inputs {source.first} and {source.second}"
    if isinstance(source, Channel) and type(source).distance is Channel.distance:
        return "any two inputs" if source.distances is None else ""
    return "any two inputs" if isinstance(source, Parallel) or type(source).distance is Randomizer.distance else ""


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
    # A composition asks many times, so roughly, and not pair by pair.
    closely = relative if rounds == 1 else 1e-3
    widest = randomizer.diameter
    upper = ShuffledProfile(randomizer, counted, widest, relative=closely)
    exact = upper.exact if rounds == 1 else ExactPairs.of(randomizer, counted, relative or 0.0)
    if rounds > 1 and upper.many_pairs:
        upper = ShuffledProfile(randomizer, counted, widest, "clones")
    sets = DataSets(randomizer, counted)
    found = DataSetLower(sets, counted, relative=relative, named=sets.named)
    lower = found if exact is None else ExactLower(exact)
    whole = upper if rounds == 1 else composed(SampledProfile(upper), rounds)
    return Amplification(whole, lower, counted, widest, randomizer.local_profile(), rounds, pairs_called(randomizer))


def amplify_generic(
    epsilon: float, users: int, honest: int | float | str | None = None, *, rounds: int = 1, delta: float = 0.0
) -> Amplification:
    """Any randomizer with this local epsilon (and delta): the clone pair from above, the worst of 2-RR and 3-RR from below."""
    counted, total = honest_count(honest, checked_users(users)), GenericLDP(epsilon).epsilon
    ratio = exp_below(total)
    laws = [law for k in (2, 3) for law in krr_data_sets(k, ratio / (ratio + k - 1), 1 / (ratio + k - 1))]
    names = [Held(0, 1, others, f"{k}-ary randomized response") for k, others in ((2, 0), (3, 2), (3, 0))]
    if delta > 0.0:
        near = ApproximateClones(float(total), delta, counted)
        below = ApproximateLower(lambda _: laws, counted, GENERIC_LABEL, leak=delta)
        return Amplification(composed(near, rounds), below, counted, 1.0, near.local, rounds, "any two inputs")
    upper = ClonesProfile(float(total), counted, 1.0)
    local = ClonesProfile(float(total), 1, 1.0)
    lower = DataSetLower(lambda _: laws, counted, GENERIC_LABEL, named=lambda _, place: names[place])
    return Amplification(composed(upper, rounds), lower, counted, 1.0, local, rounds, "any two inputs")


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
    return Amplification(composed(upper, rounds), lower, counted, float(distance), local, rounds)
