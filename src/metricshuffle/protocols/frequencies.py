"""Frequencies: one value, or each of several items, through a local randomizer; only how often each report occurs is let go."""

from __future__ import annotations

import itertools
import math
from importlib import import_module
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.accounting.shuffling.blanket_bound import BlanketProfile
from metricshuffle.accounting.shuffling.clone_bound import ClonesProfile
from metricshuffle.accounting.shuffling.geometric_blanket import ShuffledGeometric
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.errors import ConditionError, NotCertified, PlanError
from metricshuffle.estimation.inversion import IntervalMethod, Inversion
from metricshuffle.estimation.likelihood import fit_likelihood
from metricshuffle.estimation.tree_projection import possible_shares
from metricshuffle.models import Whole
from metricshuffle.numerics.rounding import format_number, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile, Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.item_accounts import ItemAccounts
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.mean_and_sum import NumberQuery
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.queries.user_queries import UserHistogram, UserQuery
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer, counted, has_law_of, smallest_type
from metricshuffle.randomizers.witch_hat import WitchHat
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Grid, Integers, Interval

# Distances of up to so many values are compared pair by pair.
MAX_COMPARED = 1024
# Below so many people an interval takes Chebyshev's inequality instead of the normal approximation.
MIN_NORMAL_PEOPLE = 30


def known_randomizers() -> dict[str, type[Randomizer]]:
    """Every randomizer by its kind, somebody's own included: a kind is known once its module is imported."""
    randomizers = import_module("metricshuffle.randomizers")
    for name in randomizers.__all__:
        getattr(randomizers, name)
    return {kind: known for kind, known in Randomizer.kinds.items() if issubclass(known, Randomizer)}


def _validate_randomizer(value: object) -> object:
    known_randomizers()
    return Randomizer.of_kind(value)


AnyRandomizer = Annotated[SerializeAsAny[Randomizer], BeforeValidator(_validate_randomizer)]
"""A field that holds any randomizer and reads it back from JSON by its kind."""


def displacements(randomizer: Randomizer, users: int) -> ShuffledGeometric | None:
    """One law for each displacement, if the noise is clamped geometric on a line or a grid; None for other randomizers."""
    if has_law_of(randomizer, BoundedGeometric):
        return ShuffledGeometric((randomizer.span,), float(randomizer.exact_rate), users)
    if has_law_of(randomizer, PlanarGeometric):
        spans = (randomizer.width - 1, randomizer.height - 1)
        return ShuffledGeometric(spans, float(randomizer.axes[0].exact_rate), users, randomizer.cell, randomizer.metric)
    return None


def metric_channel_profile(randomizer: Randomizer, users: int) -> PrivacyProfile | None:
    """A channel that has distances of its own, at every one of them; None for other randomizers."""
    from metricshuffle.amplification.metric_channel import MetricChannelProfile

    return MetricChannelProfile(randomizer, users) if has_law_of(randomizer, Channel) and randomizer.distances is not None else None


def single_report_profile(randomizer: Randomizer) -> PrivacyProfile:
    """What one report alone hides: on a grid, at the moves there are."""
    return metric_channel_profile(randomizer, 1) or displacements(randomizer, 1) or BlanketProfile(randomizer.blankets, 1)


def shuffled_profile(randomizer: Randomizer, users: int) -> PrivacyProfile:
    """What the shuffled reports of `users` honest people hide, by the best of all bounds."""
    displacements(randomizer, users)  # (raises where a line is too long)
    return metric_channel_profile(randomizer, users) or BestBoundProfile(randomizer, users, randomizer.diameter)


def knows_distances(randomizer: Randomizer) -> bool:
    """Whether linear promises are certified at the distances that there are, with one report too; else at whole steps only."""
    geometric = has_law_of(randomizer, BoundedGeometric) or has_law_of(randomizer, PlanarGeometric)
    return geometric or metric_channel_profile(randomizer, 1) is not None


def has_metric(randomizer: Randomizer) -> bool:
    """Whether a randomizer hides near values better than far ones; the others treat all alike."""
    return type(randomizer).distance is not Randomizer.distance


class Frequencies(Protocol):
    """A randomizer for one report, and what is read out of the counts: the `shares` of the values, or the `total` of numbers (WitchHat).

    `items` reports a person, of each of her items, or of as many that she draws from hers with replacement (`drawn`).
    """

    kind: Literal["frequencies"] = "frequencies"
    randomizer: AnyRandomizer
    readout: Literal["shares", "total"] = "shares"
    items: Whole = 1
    drawn: bool = False
    item_rate: float | None = None
    """Of users' items: a report is item_rate * d private."""

    @property
    def layout(self) -> Layout:
        return Layout(np.dtype(smallest_type(self.randomizer.outputs)).newbyteorder("<"), self.items)

    @property
    def bits_per_user(self) -> int:
        return self.items * max(1, (self.randomizer.outputs - 1).bit_length())

    @property
    def row(self) -> int:
        return self.randomizer.outputs

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        codes, randomizer = np.ascontiguousarray(inputs.numbers[:, 0]), self.randomizer
        if self.drawn:
            codes = self._drawn(codes, _sizes(inputs), randomness)
        reports = np.asarray(randomizer.codes_of(randomizer.reports(randomizer.values_of(codes), randomness)))
        rows = reports.astype(self.layout.type).reshape(-1, self.items)
        # A person's reports in the order of her items would tell more than their multiset, which is what is accounted for.
        return np.sort(rows, axis=1) if self.items > 1 else rows

    def _drawn(self, codes: Integers64, sizes: Integers64, randomness: Randomness) -> Integers64:
        """`items` of each user's, with replacement."""
        starts = np.repeat(np.cumsum(sizes) - sizes, self.items)
        picks = np.concatenate([randomness.uniform_residues(self.items, int(size)) for size in sizes])
        return np.asarray(codes[starts + picks.astype(np.int64)])

    # Shuffler

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        return {0: counted(messages.ravel(), self.randomizer.outputs).tolist()}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        numbers, reports = shuffled.numbers, shuffled.people * self.items
        if len(numbers) != self.randomizer.outputs or min(numbers, default=0) < 0 or sum(numbers) != reports:
            raise PlanError(f"a batch of this task is {self.randomizer.outputs:,} counts that sum to {reports:,}; this one is not.")
        counts = np.array(numbers, dtype=np.int64)
        if self.readout == "total":
            return self._total(counts, shuffled.people)
        inversion = Inversion.of(self.randomizer)
        unbiased = inversion.totals(counts.astype(np.float64)) / reports
        if isinstance(query, UserHistogram):
            possible, warning = possible_shares(query.tree, unbiased), ""
            spread = inversion.variances(possible)
            if self.drawn:  # which of her items a user drew: at most as if all drew from the same shares
                spread = spread + possible * (1.0 - possible)
        else:
            fit = fit_likelihood(inversion.rows, counts)
            possible, spread = fit.frequencies, inversion.variances(fit.frequencies)
            shortfall = fit.gap * reports
            warning = "" if shortfall <= 1.0 else _unfinished(shortfall)
        # one more report, of the worst value, so that no cell is said to be known exactly
        variances = reports * spread + inversion.largest_variances
        people, items = shuffled.people, self.items
        totals = unbiased * people
        own = np.maximum(inversion.own_variances, 0.0) + self.drawn

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (totals.size if simultaneous else 1)
            if method == "bernstein":  # by the largest variances there are: it holds whatever people hold
                halves = inversion.half_widths(reports * inversion.largest_variances, miss)
                return totals - halves / items, totals + halves / items
            width = 1.0 / math.sqrt(miss) if people < MIN_NORMAL_PEOPLE else normal_width(miss)
            halves = width * np.sqrt(variances)
            # a larger total has a larger variance than the one that is told: up to where h^2 = width^2 (variance at the total + h)
            slope = 0.5 * width**2 * own
            beside = np.maximum(variances + (unbiased - possible) * reports * own, 0.0)
            above = np.maximum(halves, slope + np.sqrt(slope**2 + width**2 * beside))
            return totals - halves / items, totals + above / items

        errors = np.sqrt(variances) / items
        warning = " ".join(part for part in (noise_warning(inversion.condition, errors / people), warning) if part)
        return Estimate(totals, errors, people, self.step, ends, possible, warning)

    def _total(self, counts: Integers64, people: int) -> Estimate:
        """The total of the numbers in steps from the least one. A report's variance is largest at the ends of the range: that is used."""
        hat = self.witch_hat
        total = np.array([float(counts @ hat.debiasing()[:, 0]) / hat.step + people * hat.steps])
        error = math.sqrt(people * hat.variance(hat.half_width)) / hat.step
        largest = (float(np.abs(hat.debiasing()).max()) + hat.half_width) / hat.step

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            if method == "normal":
                half = error * (1.0 / math.sqrt(1.0 - level) if people < MIN_NORMAL_PEOPLE else normal_width(1.0 - level))
            else:
                log_miss = math.log(2.0 / (1.0 - level))
                linear = largest * log_miss / 3.0
                half = linear + math.sqrt(linear**2 + 2.0 * error**2 * log_miss)
            return total - half, total + half

        return Estimate(total, np.array([error]), people, self.step, ends)

    @property
    def witch_hat(self) -> WitchHat:
        if not has_law_of(self.randomizer, WitchHat):
            raise PlanError(
                "only a WitchHat's reports are read out as a total (a class that extends it must say that it keeps its law: "
                "keeps_law = True); use a WitchHat."
            )
        return self.randomizer

    def expected_error(self, query: Query, people: int) -> float | None:
        """Total: E|error| if everybody holds an end of the range; elsewhere it is smaller. Shares that can be true: by simulation only."""
        if self.readout != "total":
            return None
        return math.sqrt(2.0 / math.pi * self.witch_hat.variance(self.witch_hat.half_width) / people) * (
            1.0 if query.kind == "mean" else people
        )

    # What it hides

    def check(self, query: Query) -> None:
        randomizer = self.randomizer
        if self.modulus is not None:
            raise PlanError("counts of reports are no residues; the task is damaged.")
        if self.trusted == "curator":
            raise PlanError(
                "reports hide alone or among those of honest people, and no curator adds anything to them; the task is damaged."
            )
        if self.modulus is not None or (self.drawn and not isinstance(query, UserHistogram)):
            raise PlanError("reports are counted one by one, and drawn from users' items only; the task is damaged.")
        if isinstance(query, UserHistogram) and self.readout == "shares":
            if self.items != (query.people.items or self.items) or self.drawn != (query.people.items is None):
                raise PlanError("the reports are made for another number of items than users hold.")
            ItemAccounts.of(self, query).check_rate()
        elif isinstance(query, Histogram) and self.readout == "shares":
            if randomizer.inputs != query.cells or self.items != 1:
                raise PlanError(f"the randomizer has {randomizer.inputs:,} inputs for a histogram of {query.cells:,} values.")
            if has_metric(randomizer):
                self._check_distances(query)
        elif isinstance(query, NumberQuery) and self.readout == "total":
            low, high = query.ends
            if self.witch_hat.half_width != 0.5 * (high - low) or self.step != self.witch_hat.step or self.items != 1:
                raise PlanError("the WitchHat is made for another range of numbers.")
            query.check_step(self.step)
            ends = randomizer.values_of(np.array([0, randomizer.inputs - 1]))
            randomizer.reports(ends, Randomness.system())  # raises if it cannot report the ends of the range: that would tell them
        else:
            raise PlanError(f"counts of reports do not answer a {query.kind}; the task is damaged.")

    def _check_distances(self, query: Histogram) -> None:
        """Raise unless no two values are farther apart for the randomizer, in its steps, than they are for the query."""
        randomizer, domain = self.randomizer, query.domain
        if has_law_of(randomizer, BoundedGeometric):
            same = isinstance(domain, Integers | Interval) and self.step == query.step
        elif has_law_of(randomizer, PlanarGeometric):
            cells = (randomizer.width, randomizer.height, randomizer.cell, randomizer.metric)
            same = isinstance(domain, Grid) and cells == (domain.width, domain.height, domain.cell, "euclidean") and self.step == 1.0
        else:
            pairs = itertools.combinations(range(randomizer.inputs), 2)
            same = randomizer.inputs <= MAX_COMPARED and all(
                max(randomizer.distance(a, b), randomizer.distance(b, a)) * self.step <= query.distance(a, b) * (1.0 + 1e-12)
                for a, b in pairs
            )
        if not same:
            raise PlanError("the randomizer measures distances between other values than those of the query; the task is damaged.")

    def _whole_steps(self) -> bool:
        """Whether different values are whole steps of the randomizer apart: a linear promise is verified at whole steps only.

        (to within the roundings that `pairs_within` forgives: what is farther off would be looked at by nobody)
        """
        pairs = itertools.combinations(range(self.randomizer.inputs), 2)
        return all(
            round(apart) >= 1 and abs(apart - round(apart)) <= 1e-13 * apart
            for apart in (self.randomizer.distance(*pair) for pair in pairs)
        )

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        each = target.for_each_of(rounds)
        if isinstance(query, UserQuery):
            return ItemAccounts.of(self, query).account(each, target, honest)
        if self.readout == "total":
            return self._hat_account(each, target, honest)
        promise = self.promise(query, each)
        shape: Shape = "flat" if isinstance(query.values_in, Categories) else target.shape
        if promise.shape == "linear" and not knows_distances(self.randomizer):
            if not self._whole_steps():
                raise NotCertified(f"{self.name} has values between whole steps; ask for a flat promise.")
            if promise.distance < 1.0:
                raise ConditionError(self.name, "a distance of at least one step", f"{promise.distance:g} steps")
        if self.trusted == "nobody":
            return Account(single_report_profile(self.randomizer), promise.with_delta(0.0), "one person", 0.0, "pure", shape)
        profile = shuffled_profile(self.randomizer, honest)
        account = Account(profile, promise, "one person", target.delta, "pure" if promise.delta == 0.0 else profile.bound, shape)
        # Which argument decides takes a close look; where nothing is kept, none does.
        if promise.delta > 0.0 and isinstance(profile, BestBoundProfile) and account.kept:
            object.__setattr__(account, "bound", profile.decisive(promise.epsilon, promise.distance, promise.shape))
        return account

    def promise(self, query: Query, target: Target) -> Target:
        """The target as the profile of the randomizer measures it: in its own steps, or for any two values alike."""
        if has_metric(self.randomizer):
            return target.in_steps(self.step)
        smallest = query.step if isinstance(query, Histogram) else 1.0
        # What treats all values alike must keep the target at the smallest move too.
        allowed = target.epsilon if target.shape == "flat" else target.epsilon * min(1.0, smallest / target.distance)
        return Target(allowed, target.delta, 1.0, "flat")

    def _hat_account(self, each: Target, target: Target, honest: int) -> Account:
        hat = self.witch_hat
        if self.trusted == "nobody":
            return Account(hat.local_profile(), each.with_delta(0.0), "one person", 0.0, "pure", target.shape)
        # In steps; raised by a hair for the rounding of rate * step.
        profile = ClonesProfile(hat.rate * hat.step * (1.0 + 1e-12), honest, hat.epsilon / (hat.rate * hat.step))
        return Account(profile, each.in_steps(hat.step), "one person", target.delta, "clones", target.shape)

    def local_epsilon(self, target: Target) -> float:
        """What one report gives away at the target's distance (on a grid, at the moves there are within it)."""
        if self.readout == "total":
            return self.witch_hat.local_profile().pure(target.distance)
        if has_metric(self.randomizer):
            return single_report_profile(self.randomizer).pure(target.in_steps(self.step).distance)
        return self.randomizer.local_epsilon()

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if isinstance(query, UserQuery):
            return (
                self.guarantee(query, target, 1, rounds) if self.trusted == "nobody" else ItemAccounts.of(self, query).alone(target, rounds)
            )
        epsilon = round_up(self.local_epsilon(target) * rounds, 2) if rounds > 1 else self.local_epsilon(target)
        return single_person_guarantee(query, target, rounds, epsilon, self.randomizer.local_profile().bound, step=self.step)


def _sizes(inputs: Inputs) -> Integers64:
    if inputs.sizes is None:
        raise NotCertified("items are drawn from what a user holds; this query has single values.")
    return inputs.sizes


def normal_width(miss: float) -> float:
    """How many standard errors a normal error exceeds, to either side, with probability `miss`."""
    from scipy.special import ndtri

    return -float(ndtri(miss / 2.0))


def noise_warning(condition: float, errors: Floats) -> str:
    """What inversion does to single cells, in words."""
    error, average = float(np.median(errors)), 1.0 / errors.size
    if error <= average:
        return ""
    return (
        f"Single values are mostly noise: the typical standard error ({format_number(error)}) exceeds the average share "
        f"({format_number(average)}), because inversion lets one report count for up to {format_number(round(condition, 1))} people; "
        "add values up into larger groups."
    )


def _unfinished(shortfall: float) -> str:
    return f"The likeliest shares are not final: their total log likelihood may be {format_number(shortfall)} below the largest."
