"""Frequencies: the protocol in which every value, or item, is sent through a local randomizer.

The trusted party releases only the count of each report; the analyst estimates shares or a total
from the counts.
"""

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
from metricshuffle.estimation.interval_widths import error_width, noise_warning
from metricshuffle.estimation.inversion import IntervalMethod, Inversion
from metricshuffle.estimation.likelihood import fit_likelihood
from metricshuffle.estimation.share_projection import possible_shares
from metricshuffle.models import Whole
from metricshuffle.numerics.rounding import format_number, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile, Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.damage import NO_LIMIT, Damage
from metricshuffle.protocols.item_accounts import (
    WITHOUT_REPLACEMENT,
    Drawn,
    ItemAccounts,
    drawn_codes,
)
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
from metricshuffle.spaces.earth_mover import earth_mover

# Up to this many values, distances are compared pair by pair.
MAX_COMPARED = 1024
# Up to this many reports, earth mover's distances of their readouts are compared pair by pair.
MAX_READOUTS = 256
# Factor on a liar's readouts for the rounding errors of an inverse.
READOUT_SLACK = 1.0 + 1e-9


def known_randomizers() -> dict[str, type[Randomizer]]:
    """Every randomizer class by its kind, including custom ones whose module has been imported."""
    randomizers = import_module("metricshuffle.randomizers")
    for name in randomizers.__all__:
        getattr(randomizers, name)
    return {
        kind: known for kind, known in Randomizer.kinds.items() if issubclass(known, Randomizer)
    }


def _validate_randomizer(value: object) -> object:
    known_randomizers()
    return Randomizer.of_kind(value)


AnyRandomizer = Annotated[SerializeAsAny[Randomizer], BeforeValidator(_validate_randomizer)]
"""A field for any randomizer, which is read back from JSON by its kind."""


def displacements(randomizer: Randomizer, users: int) -> ShuffledGeometric | None:
    """Profile by displacement of clamped geometric noise on a line or a grid; None for others."""
    if has_law_of(randomizer, BoundedGeometric):
        return ShuffledGeometric((randomizer.span,), float(randomizer.exact_rate), users)
    if has_law_of(randomizer, PlanarGeometric):
        spans = (randomizer.width - 1, randomizer.height - 1)
        return ShuffledGeometric(
            spans, float(randomizer.axes[0].exact_rate), users, randomizer.cell, randomizer.metric
        )
    return None


def metric_channel_profile(randomizer: Randomizer, users: int) -> PrivacyProfile | None:
    """Profile of a channel with its own distances, at each of them; None for other randomizers."""
    from metricshuffle.amplification.metric_channel import MetricChannelProfile

    return (
        MetricChannelProfile(randomizer, users)
        if has_law_of(randomizer, Channel) and randomizer.distances is not None
        else None
    )


def single_report_profile(randomizer: Randomizer) -> PrivacyProfile:
    """Profile of one report alone; on a grid, at the moves that exist."""
    return (
        metric_channel_profile(randomizer, 1)
        or displacements(randomizer, 1)
        or BlanketProfile(randomizer.blankets, 1)
    )


def shuffled_profile(randomizer: Randomizer, users: int) -> PrivacyProfile:
    """Profile of the shuffled reports of `users` honest people, by the best of all bounds."""
    displacements(randomizer, users)  # raises if a line is too long
    return metric_channel_profile(randomizer, users) or BestBoundProfile(
        randomizer, users, randomizer.diameter
    )


def knows_distances(randomizer: Randomizer) -> bool:
    """Whether linear guarantees are certified at actual distances, even for one report.

    Otherwise they are certified at whole steps only.
    """
    geometric = has_law_of(randomizer, BoundedGeometric) or has_law_of(randomizer, PlanarGeometric)
    return geometric or metric_channel_profile(randomizer, 1) is not None


def has_metric(randomizer: Randomizer) -> bool:
    """Whether a randomizer protects near values better than far ones; others treat all alike."""
    return type(randomizer).distance is not Randomizer.distance


class Frequencies(Protocol):
    """A randomizer of single reports, and the readout of their counts.

    The readout is the `shares` of the values, or the `total` of numbers (WitchHat). Each person
    sends `items` reports: one of each of their items, or of as many items drawn from theirs with
    replacement (`drawn` is True), or without ("without replacement").
    """

    kind: Literal["frequencies"] = "frequencies"
    randomizer: AnyRandomizer
    readout: Literal["shares", "total"] = "shares"
    items: Whole = 1
    drawn: Drawn = False
    item_rate: float | None = None
    """For users' items: a report is item_rate * d private for items at a distance of d."""

    @property
    def layout(self) -> Layout:
        return Layout(
            np.dtype(smallest_type(self.randomizer.outputs)).newbyteorder("<"), self.items
        )

    @property
    def bits_per_user(self) -> int:
        return self.items * max(1, (self.randomizer.outputs - 1).bit_length())

    @property
    def row(self) -> int:
        return self.randomizer.outputs

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        codes = np.ascontiguousarray(inputs.numbers[:, 0])
        randomizer = self.randomizer
        if self.drawn:
            codes = self._drawn(codes, _sizes(inputs), randomness)
        reports = np.asarray(
            randomizer.codes_of(randomizer.reports(randomizer.values_of(codes), randomness))
        )
        rows = reports.astype(self.layout.type).reshape(-1, self.items)
        # Sorted, because the account covers the multiset of a person's reports; their order would
        # reveal more.
        return np.sort(rows, axis=1) if self.items > 1 else rows

    def _drawn(self, codes: Integers64, sizes: Integers64, randomness: Randomness) -> Integers64:
        """Draw `items` items of each user."""
        if self.drawn == WITHOUT_REPLACEMENT:
            return self._distinct(codes.reshape(len(sizes), -1), randomness)
        return drawn_codes(codes, sizes, self.items, randomness)

    def _distinct(self, codes: Integers64, randomness: Randomness) -> Integers64:
        """Draw `items` items of each row without replacement: the start of a random order."""
        left = codes.copy()
        rows = np.arange(len(left))
        for place in range(self.items):
            below = left.shape[1] - place
            picks = place + randomness.uniform_residues(len(left), below).astype(np.int64)
            chosen = left[rows, picks]
            left[rows, picks] = left[:, place]
            left[:, place] = chosen
        return np.ascontiguousarray(left[:, : self.items]).ravel()

    # Shuffler

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        return {0: counted(messages.ravel(), self.randomizer.outputs).tolist()}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        numbers = shuffled.numbers
        reports = shuffled.people * self.items
        if (
            len(numbers) != self.randomizer.outputs
            or min(numbers, default=0) < 0
            or sum(numbers) != reports
        ):
            raise PlanError(
                f"a batch of this task is {self.randomizer.outputs:,} counts that sum to "
                f"{reports:,}; this one is different."
            )
        counts = np.array(numbers, dtype=np.int64)
        if self.readout == "total":
            return self._total(counts, shuffled.people)
        return self._shares(query, counts, shuffled.people)

    def _shares(self, query: Query, counts: Integers64, people: int) -> Estimate:
        """Estimate how many people have each value, from the counts of the reports."""
        items = self.items
        reports = people * items
        inversion = Inversion.of(self.randomizer)
        unbiased = inversion.totals(counts.astype(np.float64)) / reports
        possible, unfinished = self._possible_shares(query, inversion, counts, unbiased)
        spread = inversion.variances(possible)
        if isinstance(query, UserHistogram) and self.drawn:
            # The draw of a user's items adds at most the variance of draws from the same shares.
            spread = spread + possible * (1.0 - possible)
        # One more report, of the worst value, is added so that no standard error is 0.
        variances = reports * spread + inversion.largest_variances
        totals = unbiased * people
        own = np.maximum(inversion.own_variances, 0.0) + bool(self.drawn)

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (totals.size if simultaneous else 1)
            if method == "bernstein":
                # The largest possible variances make intervals valid whatever the values are.
                halves = inversion.half_widths(reports * inversion.largest_variances, miss)
                return totals - halves / items, totals + halves / items
            width = error_width(people, miss)
            halves = width * np.sqrt(variances)
            # A larger total has a larger variance than the estimate: the upper half-width h solves
            # h^2 = width^2 (variance at the total + h).
            slope = 0.5 * width**2 * own
            at_total = np.maximum(variances + (unbiased - possible) * reports * own, 0.0)
            above = np.maximum(halves, slope + np.sqrt(slope**2 + width**2 * at_total))
            return totals - halves / items, totals + above / items

        errors = np.sqrt(variances) / items
        warnings = (noise_warning(inversion.condition, errors / people), unfinished)
        warning = " ".join(sentence for sentence in warnings if sentence)
        return Estimate(totals, errors, people, self.step, ends, possible, warning)

    def _possible_shares(
        self, query: Query, inversion: Inversion, counts: Integers64, unbiased: Floats
    ) -> tuple[Floats, str]:
        """Valid shares, and a warning if the maximum of the likelihood was not reached."""
        if isinstance(query, UserHistogram):
            return possible_shares(query.tree, unbiased), ""
        fit = fit_likelihood(inversion.rows, counts)
        shortfall = fit.gap * int(counts.sum())
        return fit.frequencies, "" if shortfall <= 1.0 else _unfinished(shortfall)

    def _total(self, counts: Integers64, people: int) -> Estimate:
        """Estimate the total of the numbers in steps from the smallest one.

        The variance of a report is largest at the ends of the range, and that bound is used.
        """
        hat = self.witch_hat
        total = np.array([float(counts @ hat.debiasing()[:, 0]) / hat.step + people * hat.steps])
        error = math.sqrt(people * hat.variance(hat.half_width)) / hat.step
        largest = (float(np.abs(hat.debiasing()).max()) + hat.half_width) / hat.step

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            if method == "normal":
                half = error * error_width(people, 1.0 - level)
            else:
                log_miss = math.log(2.0 / (1.0 - level))
                linear = largest * log_miss / 3.0
                half = linear + math.sqrt(linear**2 + 2.0 * error**2 * log_miss)
            return total - half, total + half

        return Estimate(total, np.array([error]), people, self.step, ends)

    @property
    def witch_hat(self) -> WitchHat:
        """The randomizer, if it has the law of a WitchHat; PlanError otherwise."""
        if not has_law_of(self.randomizer, WitchHat):
            raise PlanError(
                "only a WitchHat's reports are read out as a total (a class that extends "
                "it must say that it keeps its law: "
                "keeps_law = True); use a WitchHat."
            )
        return self.randomizer

    def expected_error(self, query: Query, people: int) -> float | None:
        """Mean absolute error of a total; None for shares.

        The error of a total is that for people who all have a value at an end of the range; for
        other values it is smaller. For valid shares only simulation gives the error.
        """
        if self.readout != "total":
            return None
        mean_error = math.sqrt(
            2.0 / math.pi * self.witch_hat.variance(self.witch_hat.half_width) / people
        )
        return mean_error * (1.0 if query.kind == "mean" else people)

    # What a liar can do

    def damage(self, query: Query, people: int) -> Damage:
        """Return how far one participant who lies can move the answer.

        Statement: let the readout D[y, x] be what one report y adds to the estimated number of
        items x, w the largest max - min of a column of D, and m the reports of a person. An
        unbiased share changes by at most w/people; the mean of a WitchHat's numbers by the range
        of its readouts divided by people, and their sum by that range. Two reports attain it.
        Proof: counts enter linearly; a share is divided by m people, and m reports change. QED
        A release first prints likeliest shares, or for users' items the nearest valid shares;
        neither is linear in the counts, so the number is not certified for them: attacks reach
        1.014 times as much. For shares of users' items it is about the largest earth mover's
        distance between two rows of D, divided by people.
        Numerics: rounded up. Readouts carry the rounding errors of an inverse, within 1e-9.
        """
        if self.readout == "total":
            readouts = self.witch_hat.debiasing()[:, 0]
            width = float(readouts.max() - readouts.min())
            return Damage(
                width * READOUT_SLACK / (people if query.kind == "mean" else 1), certified=True
            )
        try:
            inversion = Inversion.of(self.randomizer)
        except NotCertified:
            return NO_LIMIT
        if isinstance(query, UserHistogram):
            width = _farthest_readouts(query, inversion)[1]
        else:
            lowest, highest = inversion.contributions
            width = float((highest - lowest).max())
        return Damage(width * READOUT_SLACK / people, certified=False)

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """The report that counts most, for the share that can be moved farthest."""
        if self.readout == "total":
            report = int(self.witch_hat.debiasing()[:, 0].argmax())
        else:
            inversion = Inversion.of(self.randomizer)
            lowest, highest = inversion.contributions
            if isinstance(query, UserHistogram):
                report = _farthest_readouts(query, inversion)[0]
            else:
                report = int(inversion.readout(int((highest - lowest).argmax())).argmax())
        return np.full((liars, self.items), report, dtype=self.layout.type)

    # What it hides

    def check(self, query: Query) -> None:
        if self.modulus is not None:
            raise PlanError("counts of reports are not residues; the task is damaged.")
        if self.trusted == "curator":
            raise PlanError(
                "reports are randomized by the people themselves, and no curator adds noise to "
                "them; the task is damaged."
            )
        if self.drawn and not isinstance(query, UserHistogram):
            raise PlanError(
                "only reports of users' items are drawn, and this query has none; the task is "
                "damaged."
            )
        if isinstance(query, UserHistogram) and self.readout == "shares":
            self._check_items(query)
        elif isinstance(query, Histogram) and self.readout == "shares":
            self._check_values(query)
        elif isinstance(query, NumberQuery) and self.readout == "total":
            self._check_range(query)
        else:
            raise PlanError(f"counts of reports do not answer a {query.kind}; the task is damaged.")

    def _check_items(self, query: UserHistogram) -> None:
        public = query.people.items
        if not self.drawn and self.items != public:
            raise PlanError("the reports are made for another number of items than users have.")
        if self.drawn == WITHOUT_REPLACEMENT and (public is None or self.items > public):
            raise PlanError(
                "items are drawn without replacement only from one public number of items that is "
                "at least as large; the task is damaged."
            )
        ItemAccounts.of(self, query).check_rate()

    def _check_values(self, query: Histogram) -> None:
        if self.randomizer.inputs != query.cells or self.items != 1:
            raise PlanError(
                f"the randomizer has {self.randomizer.inputs:,} inputs for a histogram of "
                f"{query.cells:,} values."
            )
        if has_metric(self.randomizer):
            self._check_distances(query)

    def _check_range(self, query: NumberQuery) -> None:
        low, high = query.ends
        if (
            self.witch_hat.half_width != 0.5 * (high - low)
            or self.step != self.witch_hat.step
            or self.items != 1
        ):
            raise PlanError("the WitchHat is made for another range of numbers.")
        query.check_step(self.step)
        randomizer = self.randomizer
        ends = randomizer.values_of(np.array([0, randomizer.inputs - 1]))
        # Raises if the ends of the range cannot be reported: a later failure would reveal them.
        randomizer.reports(ends, Randomness.system())

    def _check_distances(self, query: Histogram) -> None:
        """Raise if any two values are farther apart for the randomizer than for the query."""
        randomizer = self.randomizer
        domain = query.domain
        if has_law_of(randomizer, BoundedGeometric):
            same = isinstance(domain, Integers | Interval) and self.step == query.step
        elif has_law_of(randomizer, PlanarGeometric):
            cells = (randomizer.width, randomizer.height, randomizer.cell, randomizer.metric)
            same = (
                isinstance(domain, Grid)
                and cells == (domain.width, domain.height, domain.cell, "euclidean")
                and self.step == 1.0
            )
        else:
            pairs = itertools.combinations(range(randomizer.inputs), 2)
            same = randomizer.inputs <= MAX_COMPARED and all(
                max(randomizer.distance(a, b), randomizer.distance(b, a)) * self.step
                <= query.distance(a, b) * (1.0 + 1e-12)
                for a, b in pairs
            )
        if not same:
            raise PlanError(
                "the randomizer measures distances between other values than those of the "
                "query; the task is damaged."
            )

    def _whole_steps(self) -> bool:
        """Whether different values are whole steps of the randomizer apart.

        A linear guarantee is verified at whole steps only. Distances may deviate from whole steps
        by the rounding errors that `pairs_within` accepts; pairs that deviate by more would not be
        checked.
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
                raise NotCertified(
                    f"{self.name} has values between whole steps; ask for a flat promise."
                )
            if promise.distance < 1.0:
                raise ConditionError(
                    self.name, "a distance of at least one step", f"{promise.distance:g} steps"
                )
        if self.trusted == "nobody":
            return Account(
                single_report_profile(self.randomizer),
                promise.with_delta(0.0),
                "one person",
                0.0,
                "pure",
                shape,
            )
        profile = shuffled_profile(self.randomizer, honest)
        account = Account(
            profile,
            promise,
            "one person",
            target.delta,
            "pure" if promise.delta == 0.0 else profile.bound,
            shape,
        )
        # Finding the decisive argument is expensive; there is none if the target is not met.
        if promise.delta > 0.0 and isinstance(profile, BestBoundProfile) and account.kept:
            object.__setattr__(
                account, "bound", profile.decisive(promise.epsilon, promise.distance, promise.shape)
            )
        return account

    def promise(self, query: Query, target: Target) -> Target:
        """The target as the randomizer's profile measures it: in the randomizer's steps, or flat.

        A randomizer without a metric treats any two values alike, so its target is flat.
        """
        if has_metric(self.randomizer):
            return target.in_steps(self.step)
        smallest = query.step if isinstance(query, Histogram) else 1.0
        # A randomizer that treats all values alike must meet the target at the smallest move, too.
        allowed = (
            target.epsilon
            if target.shape == "flat"
            else target.epsilon * min(1.0, smallest / target.distance)
        )
        return Target(allowed, target.delta, 1.0, "flat")

    def _hat_account(self, each: Target, target: Target, honest: int) -> Account:
        hat = self.witch_hat
        if self.trusted == "nobody":
            return Account(
                hat.local_profile(), each.with_delta(0.0), "one person", 0.0, "pure", target.shape
            )
        # In steps; increased slightly for the rounding of rate * step.
        profile = ClonesProfile(
            hat.rate * hat.step * (1.0 + 1e-12), honest, hat.epsilon / (hat.rate * hat.step)
        )
        return Account(
            profile, each.in_steps(hat.step), "one person", target.delta, "clones", target.shape
        )

    def local_epsilon(self, target: Target) -> float:
        """Epsilon of one report at the target's distance (on a grid, over moves within it)."""
        if self.readout == "total":
            return self.witch_hat.local_profile().pure(target.distance)
        if has_metric(self.randomizer):
            return single_report_profile(self.randomizer).pure(target.in_steps(self.step).distance)
        return self.randomizer.local_epsilon()

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if isinstance(query, UserQuery):
            if self.trusted == "nobody":
                return self.guarantee(query, target, 1, rounds)
            return ItemAccounts.of(self, query).alone(target, rounds)
        epsilon = (
            round_up(self.local_epsilon(target) * rounds, 2)
            if rounds > 1
            else self.local_epsilon(target)
        )
        return single_person_guarantee(
            query, target, rounds, epsilon, self.randomizer.local_profile().bound, step=self.step
        )


def _sizes(inputs: Inputs) -> Integers64:
    if inputs.sizes is None:
        raise NotCertified("items are drawn from what a user holds; this query has single values.")
    return inputs.sizes


def _spread_reports(inversion: Inversion) -> Integers64:
    """All reports, or MAX_READOUTS evenly spread ones if there are more."""
    outputs = math.prod(part.shape[0] for part in inversion.debiasing)
    return np.unique(np.linspace(0, outputs - 1, min(outputs, MAX_READOUTS)).astype(np.int64))


def _farthest_readouts(query: UserHistogram, inversion: Inversion) -> tuple[int, float]:
    """A report, and about the largest earth mover's distance between its readout and another's.

    Along a tree the distance is the sum over edges of length times the difference of the mass
    below, and is exact unless there are too many reports to compare. Without a tree it is that of
    the readouts that differ most; for many points, the bound that all of this mass moves farthest.
    """
    from scipy.spatial.distance import pdist

    reports = _spread_reports(inversion)
    readouts = inversion.readouts(reports)
    edges = query.below_edges
    apart = pdist(readouts if edges is None else readouts @ edges.table, "cityblock")
    if not apart.size:
        return int(reports[0]), 0.0
    first, second = (rows[int(apart.argmax())] for rows in np.triu_indices(len(reports), 1))
    widest = float(apart.max())
    if edges is None:
        moved = readouts[first] - readouts[second]
        mass = 0.5 * float(np.abs(moved).sum())
        if moved.size > MAX_READOUTS or mass == 0.0:
            return int(reports[first]), mass * query.people.diameter
        sides = (np.maximum(part, 0.0) for part in (moved, -moved))
        left, right = (side / side.sum() for side in sides)
        widest = mass * earth_mover(query.people.items_in, left, right).distance
    return int(reports[first]), widest


def _unfinished(shortfall: float) -> str:
    return (
        "The likeliest shares are not final: their total log likelihood may be "
        f"{format_number(shortfall)} below the largest."
    )
