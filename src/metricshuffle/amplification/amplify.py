"""Amplification by shuffling: `amplify` bounds the privacy of shuffled reports from both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

from metricshuffle.accounting.composition.composed_profile import TabulatedProfile, compose_rounds
from metricshuffle.accounting.shuffling.clone_bound import ClonesProfile
from metricshuffle.amplification.approximate_dp import ApproximateClones, ApproximateLower
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.binary_pairs import BinaryLower, BinaryPairs
from metricshuffle.amplification.lower_bound import (
    DataSetInputs,
    DataSetLower,
    DataSetWitness,
    krr_data_sets,
)
from metricshuffle.amplification.mixed_groups_lower import MixedGroupsLower
from metricshuffle.amplification.mixed_groups_upper import MixedGroupsProfile
from metricshuffle.amplification.padded_exponential_lower import pem_lower
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.amplification.smallest_bound import BoundResult
from metricshuffle.amplification.worst_case_data_sets import DataSets
from metricshuffle.display import Brief, Plottable, plot_result
from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import (
    format_delta,
    format_epsilon,
    format_lower_bound,
    format_number,
)
from metricshuffle.privacy.profile import (
    Band,
    PrivacyProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.privacy.target import checked_users, honest_count
from metricshuffle.randomizers.channel import Channel, ChannelPair
from metricshuffle.randomizers.dyadic_weights import exp_below
from metricshuffle.randomizers.randomizer import Randomizer

Answers = TypeVar("Answers", covariant=True)
GENERIC_LABEL = "no bound valid for every randomizer of this local epsilon can be smaller"


@dataclass(frozen=True)
class GenericLDP:
    """Any randomizer with this local epsilon, and local delta, between every two inputs."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if (
            isinstance(self.epsilon, bool)
            or not isinstance(self.epsilon, int | float)
            or not 0.0 < self.epsilon <= 700.0
        ):
            raise InputError(
                f"the local epsilon must be a number in (0, 700], got {self.epsilon!r}."
            )
        checked_delta(self.delta)


@dataclass(frozen=True)
class AmplifiedBand(Band):
    """A band with the bound and the evaluator behind its upper end.

    `amplified` is false if shuffling does not improve on one report alone.
    """

    bound: str = "blanket"
    evaluator: str = "local"
    amplified: bool = True
    attained: DataSetWitness | None = None
    """A data set and pair that attain the lower end; None if the end is 0 or they are not known."""


@dataclass(frozen=True)
class Amplification(Plottable, Brief):
    """Upper and lower bounds on what `users` honest shuffled reports reveal about pairs of inputs.

    The pairs are up to `distance` apart. With several rounds, `lower` is the lower bound of one
    round. `upper` is a `PrivacyProfile` and so has Renyi divergences, a trade-off curve and a loss
    distribution; each of these evaluates hundreds of deltas; `amplify(..., relative=1e-3)` makes
    the evaluations faster and just as safe.
    """

    upper: PrivacyProfile
    lower: DataSetLower | BinaryLower | MixedGroupsLower
    users: int
    distance: float
    local: PrivacyProfile
    rounds: int = 1
    alike: str = ""
    """Name of the pairs if all of them are at the same distance; empty if there is a metric."""
    member: str = ""
    """The person with this guarantee, if guarantees differ: "a member of group 2 (..)"."""
    dummies: int = 0
    """Number of reports that the shuffler adds; `users` does not count them."""
    _bands: dict[tuple[str, float, float], AmplifiedBand] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def plot(self, *, delta: float | None = None, distance: float | None = None) -> Any:
        """Plot the band of epsilon against delta or, at a `delta`, against the distance.

        Distances go up to `distance`. Returns an altair chart if altair is installed, otherwise an
        object that displays as SVG.
        """
        return plot_result(self, delta=delta, distance=distance)

    @property
    def bound(self) -> str:
        """The name of the upper bound."""
        return self.upper.bound

    def far(self, distance: float | None = None) -> float:
        """Return `distance`, or the largest one if it is None; raise if it is out of range."""
        if distance is None:
            return self.distance
        if not 0.0 < validate_distance(distance) <= self.distance * (1.0 + 1e-12):
            raise InputError(
                f"{argument('distance')} must lie in (0, {self.distance:g}], the largest "
                f"between two inputs, got {distance!r}."
            )
        return min(distance, self.distance)

    def epsilon(self, delta: float, distance: float | None = None) -> AmplifiedBand:
        """Return the total epsilon at this delta for inputs up to `distance` (default: any two)."""
        delta = checked_delta(delta)
        reach = self.far(distance)
        if ("epsilon", delta, reach) not in self._bands:
            self._bands["epsilon", delta, reach] = self._epsilon_band(delta, reach)
        return self._bands["epsilon", delta, reach]

    def _epsilon_band(self, delta: float, reach: float) -> AmplifiedBand:
        best = self._winner("epsilon", delta, reach)
        less = best.value < self._alone(delta, reach) * self.rounds * (1.0 - 1e-9)
        lower = self.lower.epsilon(delta, reach)
        witness = self.lower.witness("epsilon", delta, reach)
        return self._band(
            best, lower, witness, less and best.bound != "local" and self._reports > 1
        )

    def delta(self, epsilon: float, distance: float | None = None) -> AmplifiedBand:
        """Return delta at this total epsilon for inputs up to `distance` (default: any two)."""
        epsilon = checked_epsilon(epsilon)
        reach = self.far(distance)
        if ("delta", epsilon, reach) not in self._bands:
            self._bands["delta", epsilon, reach] = self._delta_band(epsilon, reach)
        return self._bands["delta", epsilon, reach]

    def _delta_band(self, epsilon: float, reach: float) -> AmplifiedBand:
        best = self._winner("delta", epsilon, reach)
        lower = self.lower.delta(epsilon, reach)
        witness = self.lower.witness("delta", epsilon, reach)
        return self._band(
            best, lower, witness, (best.bound != "local" and self._reports > 1) or best.value == 0.0
        )

    @property
    def _reports(self) -> int:
        return self.users + self.dummies

    def _alone(self, delta: float, distance: float) -> float:
        """Return the epsilon of one report at delta 0, or at this delta if that is infinite."""
        pure = self.local.pure(distance)
        return pure if math.isfinite(pure) else self.local.epsilon(delta, distance)

    @staticmethod
    def _band(
        best: BoundResult, lower: float, witness: DataSetWitness | None, amplified: bool
    ) -> AmplifiedBand:
        return AmplifiedBand(
            lower,
            best.value,
            best.bound if amplified else "local",
            best.evaluator,
            amplified,
            witness,
        )

    def _winner(self, wanted: str, argument: float, distance: float) -> BoundResult:
        profile = self.upper
        if isinstance(profile, BestBoundProfile | MixedGroupsProfile):
            return (
                profile.epsilon_winner(argument, distance)
                if wanted == "epsilon"
                else profile.delta_winner(argument, distance)
            )
        value = (
            profile.epsilon(argument, distance)
            if wanted == "epsilon"
            else profile.delta(argument, distance)
        )
        if self.rounds > 1:
            return BoundResult(value, profile.bound, "loss distribution")
        alone = (
            self._alone(argument, distance)
            if wanted == "epsilon"
            else self.local.delta(argument, distance)
        )
        return (
            BoundResult(value, profile.bound, "counts")
            if value < alone
            else BoundResult(alone, "local", "local")
        )

    def pairs_at(self, distance: float | None = None) -> str:
        """Describe the pairs of inputs that an answer is about."""
        pairs = self.alike or f"two inputs at distance {format_number(self.far(distance))}"
        return f"{pairs} of {self.member}" if self.member else pairs

    def _crowd(self) -> str:
        over = "" if self.rounds == 1 else f" over {self.rounds} rounds together"
        added = f" and {self.dummies:,} dummies" if self.dummies else ""
        return f"{self.users:,} shuffled reports of honest people{added}{over}"

    def _lower_end_text(self, quantity: str, band: AmplifiedBand) -> str:
        if not band.lower > 0.0:
            return ""
        how = "" if band.attained is None else f": {band.attained.words}"
        text = f"{quantity} {format_lower_bound(band.lower)}"
        if self._reports == 1:
            return f" It gives away at least {text}{how}."
        if self.lower.bound == "data set":
            return f" On some data set they give away at least {text}{how}."
        return f" {self.lower.bound[0].upper()}{self.lower.bound[1:]} than {text}{how}."

    def explain(
        self,
        delta: float | None = None,
        distance: float | None = None,
        *,
        epsilon: float | None = None,
    ) -> str:
        """Explain epsilon at a delta, or delta at an epsilon, in a sentence or two."""
        if (delta is None) == (epsilon is None):
            raise InputError(
                "explain needs either delta (to explain epsilon) or epsilon (to explain delta), "
                "and not both."
            )
        reach = self.far(distance)
        hidden = self.pairs_at(distance)
        if epsilon is not None:
            band = self.delta(epsilon, distance)
            at = f"at epsilon {format_epsilon(epsilon)} up to delta {format_delta(band.upper)}"
            quantity = "delta"
        else:
            band = self.epsilon(delta or 0.0, distance)
            at = f"at epsilon {format_epsilon(band.upper)}, delta {format_delta(delta or 0.0)}"
            quantity = "epsilon"
        lower_text = self._lower_end_text(quantity, band)
        if quantity == "epsilon" and band.upper == 0.0:
            people = f"{self._crowd()} hide" if self._reports > 1 else "One report alone hides"
            return f"{people} {hidden} {at}: delta alone suffices."
        if self._reports == 1:
            over = "" if self.rounds == 1 else f", {self.rounds} times,"
            return (
                f"One report alone{over} hides {hidden} {at}: shuffling buys nothing where "
                "there is no other report to hide "
                f"among.{lower_text}"
            )
        if not band.amplified:
            return (
                f"Shuffling buys nothing here: {self._crowd()} hide {hidden} no better "
                f"than one report alone does, {at}; "
                f"more people or a smaller local epsilon would help.{lower_text}"
            )
        return (
            f"{self._crowd()} hide {hidden} {at} ({band.bound} bound); one report alone has "
            f"{self._one_report(delta, reach)}.{lower_text}"
        )

    def _one_report(self, delta: float | None, distance: float) -> str:
        pure = self.local.pure(distance)
        if math.isfinite(pure):
            return f"epsilon {format_epsilon(pure)}"
        alone = math.inf if delta is None else self.local.epsilon(delta, distance)
        return (
            f"epsilon {format_epsilon(alone)} at that delta"
            if math.isfinite(alone)
            else "no finite epsilon"
        )


def pairs_name(source: Randomizer | RandomTask) -> str:
    """Return the name of the pairs if they are all at one distance; empty if there is a metric."""
    if isinstance(source, ChannelPair):
        return f"the inputs {source.first} and {source.second}"
    if isinstance(source, Channel) and type(source).distance is Channel.distance:
        return "any two inputs" if source.distances is None else ""
    return (
        "any two inputs"
        if isinstance(source, RandomTask) or type(source).distance is Randomizer.distance
        else ""
    )


class CountedGroups(Protocol[Answers]):
    """Groups of people with their own counts: see `groups.Groups`."""

    def amplified(self, *, rounds: int, relative: float | None) -> Answers: ...


@overload
def amplify(
    randomizer: Randomizer | RandomTask | GenericLDP,
    users: int,
    honest: int | float | str | None = None,
    *,
    rounds: int = 1,
    relative: float | None = None,
) -> Amplification: ...
@overload
def amplify(
    randomizer: CountedGroups[Answers], *, rounds: int = 1, relative: float | None = None
) -> Answers: ...
def amplify(
    randomizer: Any,
    users: int | None = None,
    honest: int | float | str | None = None,
    *,
    rounds: int = 1,
    relative: float | None = None,
) -> Any:
    """Bound the privacy of the shuffled reports of `users` people from both sides.

    Args:
        randomizer: A randomizer, a random task, a `GenericLDP`, or `Groups`. For `Groups`, which
            have their own counts of honest people, leave out `users` and `honest`; the answer then
            has one `Amplification` for a member of each group.
        users: Number of people who report.
        honest: Number of users who are certainly honest: a count, a fraction or a percentage
            (default: all). The bounds rely only on the reports of these users.
        rounds: How often the same people report the same values; the guarantee covers all rounds
            together.
        relative: Relative tolerance of the search for epsilon (default: 1e-7 up to 1e5 users, 1e-5
            beyond). A coarser search is faster and just as safe.
    """
    if hasattr(randomizer, "amplified"):
        if users is not None or honest is not None:
            raise InputError(
                "amplify: groups have their own counts of honest people; leave out "
                f"{argument('users')} and {argument('honest')}."
            )
        return randomizer.amplified(rounds=rounds, relative=relative)
    if users is None:
        raise InputError("amplify needs users, how many people report.")
    counted = honest_count(honest, checked_users(users))
    if isinstance(randomizer, GenericLDP):
        return amplify_generic(
            randomizer.epsilon, users, honest, rounds=rounds, delta=randomizer.delta
        )
    if not isinstance(randomizer, Randomizer | RandomTask):
        raise InputError(
            "amplify needs a randomizer (see metricshuffle.randomizers), got "
            f"{type(randomizer).__name__}."
        )
    # A composition needs many evaluations: each one is coarse and does not go pair by pair.
    closely = relative if rounds == 1 else 1e-3
    widest = randomizer.diameter
    upper = BestBoundProfile(randomizer, counted, widest, relative=closely)
    exact = upper.exact if rounds == 1 else BinaryPairs.of(randomizer, counted, relative or 0.0)
    if rounds > 1 and upper.many_pairs:
        upper = BestBoundProfile(randomizer, counted, widest, "clones")
    sets = DataSets(randomizer, counted)
    lower_profile = DataSetLower(sets, counted, relative=relative, named=sets.named)
    lower = lower_profile if exact is None else BinaryLower(exact)
    whole = upper if rounds == 1 else compose_rounds(TabulatedProfile(upper), rounds)
    return Amplification(
        whole, lower, counted, widest, randomizer.local_profile(), rounds, pairs_name(randomizer)
    )


def amplify_generic(
    epsilon: float,
    users: int,
    honest: int | float | str | None = None,
    *,
    rounds: int = 1,
    delta: float = 0.0,
) -> Amplification:
    """Bound any randomizer with this local epsilon (and delta).

    The upper bound is the clone pair, the lower bound the worst of 2-RR and 3-RR.
    """
    counted = honest_count(honest, checked_users(users))
    total = GenericLDP(epsilon).epsilon
    ratio = exp_below(total)
    laws = [
        law
        for k in (2, 3)
        for law in krr_data_sets(k, ratio / (ratio + k - 1), 1 / (ratio + k - 1))
    ]
    names = [
        DataSetInputs(0, 1, others, f"{k}-ary randomized response")
        for k, others in ((2, 0), (3, 2), (3, 0))
    ]
    if delta > 0.0:
        clones = ApproximateClones(float(total), delta, counted)
        below = ApproximateLower(lambda _: laws, counted, GENERIC_LABEL, leak=delta)
        return Amplification(
            compose_rounds(clones, rounds),
            below,
            counted,
            1.0,
            clones.local,
            rounds,
            "any two inputs",
        )
    upper = ClonesProfile(float(total), counted, 1.0)
    local = ClonesProfile(float(total), 1, 1.0)
    lower = DataSetLower(
        lambda _: laws, counted, GENERIC_LABEL, named=lambda _, place: names[place]
    )
    return Amplification(
        compose_rounds(upper, rounds), lower, counted, 1.0, local, rounds, "any two inputs"
    )


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
    """Bound any randomizer that is private at `rate` epsilon per unit, for a pair `distance` apart.

    `reach` and `reach_other` are the distances (in units) of the two inputs from the farthest value
    that anyone may hold.
    """
    second_reach = reach if reach_other is None else reach_other
    for name, value in (
        ("rate", rate),
        ("distance", distance),
        ("reach", reach),
        ("reach_other", second_reach),
    ):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0.0 < value < math.inf
        ):
            why = (
                "; the pair is one and the same input, give two different ones"
                if name == "distance" and value == 0.0
                else ""
            )
            raise InputError(f"{argument(name)} must be a finite number > 0, got {value!r}{why}.")
    for name, value in (("reach", reach), ("reach_other", second_reach)):
        if value < distance:
            raise InputError(
                f"{argument(name)} is the distance of the farthest value, and the other input "
                "of the pair is "
                f"{distance:g} away; got {value:g}, raise it."
            )
    if abs(reach - second_reach) > distance * (1.0 + 1e-12):
        raise InputError(
            f"{argument('reach')} {reach:g} and {argument('reach_other')} {second_reach:g} differ "
            f"by more than the distance {distance:g}, which breaks the triangle "
            "inequality: this is not a metric. Close it by shortest paths first."
        )
    counted = honest_count(honest, checked_users(users))
    upper = ClonesProfile(
        float(rate),
        counted,
        max(float(reach), float(second_reach)),
        lambda _: (float(reach), float(second_reach)),
    )
    local = ClonesProfile(float(rate), 1, max(float(reach), float(second_reach)))
    lower = pem_lower(float(rate), float(reach), float(second_reach), counted)
    return Amplification(
        compose_rounds(upper, rounds), lower, counted, float(distance), local, rounds
    )
