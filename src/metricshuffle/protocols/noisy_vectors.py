"""Noisy vectors: everybody adds a share of noise to whole-number features of what she holds, and only the noisy sums can be seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.accounting.vectors.average_rounding import rounding_factor
from metricshuffle.accounting.vectors.compromised_shuffler import no_noise_probability
from metricshuffle.accounting.vectors.floor import floor_loss
from metricshuffle.accounting.vectors.share_mixture import largest_mixed_epsilon, packed_security_bits
from metricshuffle.encodings.packed_vectors import Packed
from metricshuffle.errors import ConditionError, InputError, PlanError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import Positive, Whole
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate, sample_polya_rows
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Guarantee, Protects
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.features import AnyFeatures, Blur, Cells, Features, Lattice, space_of
from metricshuffle.protocols.frequencies import AnyRandomizer, noise_warning
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.protocols.vector_accounts import VectorAccounts
from metricshuffle.protocols.vector_intervals import KnownShares, SumNoise, noise_radius
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Estimate, Inputs, NearbyShares, Query
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Discrete, Space

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# What the messages that are made at once take up in memory, about.
BYTES_AT_ONCE = 2**26
# How the remark begins that says what a single person's move costs.
SINGLE_PERSON_REMARK = "Of one person the sums tell less"
FINE_MAP_POINTS = 4096
"""A map of more points than this takes seconds to fit: less is simulated of it, and when planning one feature set is tried."""


class NoisyVectors(Protocol):
    """Features, the noise on each of their sums, and how a vector is sent.

    Coordinate e has noise of the rate `factor` * weights[e], rounded down to what is sampled exactly; everybody adds a share of shape
    1/`sharers` to it (a curator adds all of it, once). A person's vector makes up `units`: her items, if everybody holds so many; with
    different numbers of items (up to `most_items`) her features are averaged, times `units`, and rounded. `floor` randomizes every item
    first, for the day that the shuffler colludes.
    """

    kind: Literal["noisy-vectors"] = "noisy-vectors"
    features: AnyFeatures
    coordinates: Whole
    factor: Positive
    sharers: Whole = 1
    units: Whole = 1
    most_items: Whole | None = None
    floor: AnyRandomizer | None = None
    together: Whole = 1
    """How many coordinates make one message."""
    shares: Whole = 1

    @property
    def encoding(self) -> str:
        return f"{self.features}{', no floor' if self.floor is None and self.trusted != 'curator' else ''}"

    @property
    def packed(self) -> Packed:
        if self.modulus is None or self.modulus < 2 or self.modulus & (self.modulus - 1):
            raise PlanError("sums of noisy vectors are residues of a power of two; the task is damaged.")
        return Packed(self.coordinates, self.modulus.bit_length() - 1, self.together, self.shares, self.trusted)

    @property
    def layout(self) -> Layout:
        return Layout(self.packed.type, self.packed.numbers, self.packed.groups, self.packed.width)

    @property
    def bits_per_user(self) -> int:
        return self.packed.bits_per_user

    @property
    def messages_per_user(self) -> int:
        return self.packed.messages_per_user

    @property
    def row(self) -> int:
        return self.coordinates

    def check_people(self, query: Query, people: int, users: int) -> None:
        max_value = self.units * int(feature_table(self.features, space_of(query)).max())
        if people > users or people * max_value >= (self.modulus or 0):
            room = min(users, ((self.modulus or 1) - 1) // max_value)
            raise PlanError(
                f"{people:,} reports are more than this plan's modulus has room for, {room:,}; plan again for more people, or "
                "say whose rows they are if a person has several (`user_column`)."
            )

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        """One row of residues a person; to a curator those of her features as they are."""
        together = max(1, BYTES_AT_ONCE // (8 * self.coordinates + self.layout.size))
        rows, done = np.empty((inputs.people, self.layout.numbers), dtype=self.layout.type), 0
        for part in inputs.parts(together):
            rows[done : done + part.people] = self.packed.residues(self._values(part, randomness), randomness)
            done += part.people
        return rows

    def _values(self, inputs: Inputs, randomness: Randomness) -> Integers64:
        """Everybody's features with her share of the noise."""
        codes, space = np.ascontiguousarray(inputs.numbers[:, 0]), space_of(inputs.query)
        if self.floor is not None:
            codes = np.asarray(self.floor.codes_of(self.floor.reports(self.floor.values_of(codes), randomness)), dtype=np.int64)
        values = self._features_of(codes, inputs.sizes, space)
        if self.trusted == "curator":
            return values
        return values + sample_polya_rows(Fraction(1, self.sharers), self._exact_rates(space), len(values), randomness)

    def _features_of(self, codes: Integers64, sizes: Integers64 | None, space: Space) -> Integers64:
        """The features of everybody's items, added up; of averages, in units, where people hold different numbers of items."""
        table = feature_table(self.features, space)
        if sizes is None:
            return np.asarray(table[codes].toarray(), dtype=np.int64)
        from scipy.sparse import csr_array

        holdings = csr_array(
            (np.ones(len(codes), dtype=np.int64), codes, np.concatenate([[0], np.cumsum(sizes)])), (len(sizes), table.shape[0])
        )
        sums = np.asarray((holdings @ table).toarray(), dtype=np.int64)
        if self.most_items is None:
            return sums
        if int(sizes.max(initial=0)) > self.most_items:
            raise InputError(
                f"somebody holds {int(sizes.max()):,} items, and the plan counts on {self.most_items:,} at the most; leave items out, or "
                "plan again for more (`most_items`)."
            )
        return np.asarray((2 * self.units * sums + sizes[:, None]) // (2 * sizes[:, None]))

    def _largest_average(self, space: Space) -> int:
        """The largest number on the way to an average that is rounded to whole units."""
        max_items = self.most_items or 1
        return 2 * self.units * max_items * int(feature_table(self.features, space).max()) + max_items

    # Shuffler, aggregator, curator

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        return {0: self.packed.total(messages)}

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        totals = list(tally.numbers)
        if self.trusted == "curator":
            noise = sample_polya_rows(Fraction(1), self._exact_rates(space_of(query)), 1, randomness)[0]
            totals = [(total + int(noise_value)) % (self.modulus or 2) for total, noise_value in zip(totals, noise, strict=True)]
        return {0: totals}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        people, space = shuffled.people, space_of(query)
        if len(shuffled.numbers) != self.coordinates or not all(0 <= number < (self.modulus or 0) for number in shuffled.numbers):
            raise PlanError(f"a batch of this task is {self.coordinates:,} sums in 0..{(self.modulus or 1) - 1:,}; this one is not.")
        max_totals = people * self.units * feature_table(self.features, space).max(axis=0).toarray().ravel()
        sums = [self.packed.centred(number, 0, int(top)) for number, top in zip(shuffled.numbers, max_totals, strict=True)]
        means, errors = np.array(sums, dtype=np.float64) / (people * self.units), self.errors(query, people)
        possible, known = self.features.shares(space, means, errors, self.blur), self.known(space, people)
        band, single = self._band(query, means, people), known.single
        if single is None:
            return Estimate(
                possible * people, None, people, self.step, None, possible, self._smoothed, band=band,
                at_most=None if known.above is None else lambda level, simultaneous: known.at_most(means, level, simultaneous),
                nearby=self._nearby(known, means),
            )  # fmt: skip
        totals = single.values(means) * people

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            halves = known.half_widths(means, level, simultaneous, method) * people
            return totals - halves, totals + halves

        variances, warning = known.noise.deviations(single.factors) ** 2, ""
        if known.inversion is not None:
            reports = people * self.units
            # one more report, of the worst value, so that no cell is said to be known exactly
            variances = variances + (known.inversion.variances(possible) + known.inversion.largest_variances / reports) / reports
            warning = noise_warning(known.inversion.condition, np.sqrt(variances))
        return Estimate(totals, np.sqrt(variances) * people, people, self.step, ends, possible, warning, band=band)

    def known(self, space: Space, people: int) -> KnownShares:
        """What the means of the features tell of the shares for certain."""
        # (averages were rounded to whole units)
        noise = SumNoise(self._shape(people), self.rates(space), people * self.units, 0.0 if self.most_items is None else 0.5 / self.units)
        return KnownShares(self.features, space, noise, self.floor)

    def tells_apart(self, query: Query) -> bool:
        """Whether single cells are told apart, so that their shares have intervals; otherwise they are smoothed."""
        return self.known(space_of(query), 1).identified

    def _nearby(self, known: KnownShares, means: Floats) -> NearbyShares | None:
        if known.around is None:
            return None
        shares = known.around.values(means)[known.around.row_of]
        words = f"within about {getattr(self.features, 'width', 1):,} cells"
        return NearbyShares(shares, words, lambda level, simultaneous: known.around_ends(means, level, simultaneous))

    @property
    def _smoothed(self) -> str:
        """Why shares have no interval, in words."""
        text = (
            "What was measured does not tell single cells apart, so shares are smoothed and have no interval: a peak may be lost in them."
        )
        if self.floor is not None:
            return f"{text} Values were randomized before they were counted, so there is no bound on single shares either."
        return f"{text} What a share is at most holds wherever people are."

    def _shape(self, people: int) -> Fraction:
        """Of the noise on each sum."""
        return Fraction(1) if self.trusted == "curator" else Fraction(people, self.sharers)

    def _band(self, query: Query, means: Floats, people: int) -> Callable[[float], tuple[Floats, Floats]] | None:
        """For the shares up to each point of a line: by the exact law of the noise, and between windows because such shares rise.

        Statement: with probability `level` every window mean lies within its noise of what was measured (union bound). What is true at
        a place is at least the mean of any window that ends there or before, and at most that of one that begins there or after.
        """
        space = space_of(query)
        known = self.features.cumulative(space, means, self.errors(query, people)) if self.floor is None else None
        if known is None:
            return None
        shape, rates, windows = self._shape(people), self.rates(space), known.last - known.first + 1
        # (averages were rounded to whole units)
        rounding = 0.0 if self.most_items is None else 0.5 / self.units

        def band(level: float) -> tuple[Floats, Floats]:
            radius = {float(rate): noise_radius(Polya(shape, float(rate)), (1.0 - level) / len(rates)) for rate in np.unique(rates)}
            halves = np.array([radius[float(rate)] for rate in rates]) / (people * self.units * windows) + rounding / windows
            low, high = np.zeros(space.domain.size or 0), np.ones(space.domain.size or 0)
            low[known.last], high[known.first] = known.shares - halves, known.shares + halves
            low[-1] = 1.0
            return np.clip(np.maximum.accumulate(low), 0.0, 1.0), np.clip(np.minimum.accumulate(high[::-1])[::-1], 0.0, 1.0)

        return band

    @property
    def blur(self) -> Blur | None:
        """How points are randomized before they are counted."""
        return None if self.floor is None else _laws(self.floor)

    def errors(self, query: Query, people: int) -> Floats:
        """The standard errors of the means of the features; where values are randomized first, at most what that adds."""
        space = space_of(query)
        variances = self._noise_variances(space, people)
        if self.floor is not None:
            tops = feature_table(self.features, space).max(axis=0).toarray().ravel().astype(np.float64)
            variances = variances + 0.25 * tops**2 * people * self.units
        return np.asarray(np.sqrt(variances) / (people * self.units))

    def _noise_variances(self, space: Space, people: int) -> Floats:
        """Of the noise on each sum."""
        return self.known(space, people).noise.variances

    def expected_error(self, query: Query, people: int) -> float | None:
        return None

    # What it hides

    def rates(self, space: Space) -> Floats:
        """The rate of the noise of every coordinate, as it is sampled."""
        return np.array([float(rate) for rate in self._exact_rates(space)])

    def _exact_rates(self, space: Space) -> list[Fraction]:
        weights, which = np.unique(self.features.weights(space), return_inverse=True)
        exact = [rational_rate(self.factor * float(weight)) for weight in weights]
        return [exact[index] for index in which]

    def check(self, query: Query) -> None:
        space = space_of(query)
        if self.trusted in ("nobody", "curator") and (self.sharers != 1 or self.shares != 1 or self.together != 1):
            raise PlanError(f"{self.trusted} takes whole vectors with whole noise; the task is damaged.")
        if self.sharers < 1 or feature_table(self.features, space).shape[1] != self.coordinates:
            raise PlanError(f"the features of this query are not the {self.coordinates:,} that the task is made for.")
        _ = self.packed  # refuses a modulus or a number of shares that cannot be
        if isinstance(query, UserHistogram) and query.people.items is None:
            fits = self.most_items is not None and self.most_items >= 1 and self.units >= 1 and self.floor is None
        else:
            item_count = query.people.items if isinstance(query, UserHistogram) else 1
            fits = self.most_items is None and self.units == item_count
        if not fits:
            raise PlanError("the vectors are made for another number of items than people hold; the task is damaged.")
        if self.most_items is not None and self._largest_average(space) >= 2**63:
            raise PlanError(
                f"averages of {self.most_items:,} items in {self.units:,} units do not fit 64 bits, and people with the same shares "
                "would get different vectors; use fewer units."
            )
        if self.floor is not None and (self.trusted == "curator" or floor_slope(self.floor, self.features, space) is None):
            raise PlanError("values are randomized first in a way that is not accounted for; the task is damaged.")

    def security(self, honest: int) -> float:
        """Of one pile of mixed shares, in bits."""
        return packed_security_bits(honest, self.shares, [2**self.packed.group_bits])

    def accounts(self, query: Query, rounds: int) -> VectorAccounts:
        space = space_of(query)
        stretch = 1.0 if self.most_items is None else round_up(float(rounding_factor(self.most_items, self.units)), 2)
        return VectorAccounts(space, self.features, self.rates(space), self.units, stretch, isinstance(query, Histogram), rounds)

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        if self.trusted in ("shuffler", "aggregator") and honest < self.sharers:
            raise ConditionError("Noisy vectors", f"noise shared among no more than {honest:,} honest people", f"{self.sharers:,}")
        ideal = self.accounts(query, rounds).ideal(target)
        shape: Shape = "flat" if isinstance(query.values_in, Categories) and query.items is None else target.shape
        protects: Protects = "people together" if shape == "linear" else "one person"
        if query.items is not None:
            protects = "one user's items"
        if self.trusted != "shuffler":
            pure = ideal.covers(target.epsilon, 0.0, target.distance, target.shape)
            return Account(ideal, target.with_delta(0.0) if pure else target, protects, 0.0 if pure else target.delta, ideal.bound, shape)
        sigma = self.security(honest)
        mixed = SplitAndMix(ideal, sigma, self.packed.groups * rounds)
        return Account(mixed, target, protects, target.delta, mixed.bound, shape)

    def warning(self, query: Query) -> str:
        if self.floor is not None or self.trusted in ("nobody", "curator"):
            return ""
        bare = no_noise_probability(self.rates(space_of(query)), self.sharers)
        return (
            f"If the {self.trusted} colludes there is in effect no protection: one person's share of the noise is nothing at all with "
            f"probability {format_delta(bare)}, and then her vector is read as it is."
        )

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        mixed, lines = self.trusted == "shuffler", []
        sigma, sharings = (self.security(honest), self.packed.groups * rounds) if mixed else (0.0, 1)
        if isinstance(query, Histogram) and target.shape == "linear" and target.delta > 0.0:
            accounts = self.accounts(query, rounds)
            large_moves, sentences = SplitAndMix(accounts.far(), sigma, sharings) if mixed else accounts.far(), []
            for distance in sorted({target.distance, query.diameter}):
                epsilon = large_moves.epsilon(target.delta, distance)
                if math.isfinite(epsilon) and format_epsilon(epsilon) != format_epsilon(accounts.slope * distance):
                    sentences.append(
                        f"epsilon {format_epsilon(epsilon)} if they move by {f'{format_distance(distance)} {query.unit}'.rstrip()}"
                    )
            if sentences:
                delta = format_delta(target.delta)
                lines.append(f"{SINGLE_PERSON_REMARK}, with the same delta of {delta}: {' and '.join(sentences)}.")
        if mixed:
            max_epsilon, ideal = largest_mixed_epsilon(sharings, sigma, target.delta), self.accounts(query, rounds).ideal(target)
            if (
                ideal.delta(max_epsilon, target.distance) > 0.0
            ):  # the noise takes some of delta there too, but no more than at a smaller epsilon
                left = max(0.0, target.delta - ideal.delta(target.epsilon, target.distance))
                max_epsilon = largest_mixed_epsilon(sharings, sigma, left)
            lines.append(
                f"Shares are mixed well enough for a total epsilon of {format_distance(max_epsilon)}, over everybody who moves; "
                "beyond that delta grows."
            )
        return lines

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if self.trusted == "nobody":
            return self.guarantee(query, target, 1, rounds)
        epsilon, bound = math.inf, "raw values seen" if query.items is None else "raw items seen"
        if self.trusted != "curator":
            space, accounts = space_of(query), self.accounts(query, rounds)
            epsilon, bound = accounts.alone(self.sharers, target.distance), "pure, one share of the noise"
            if self.floor is not None:
                slope = floor_slope(self.floor, self.features, space)
                floor_epsilon = math.inf if slope is None else round_up(rounds * self.units * slope * target.distance, 4)
                epsilon, bound = (floor_epsilon, "pure, values randomized first") if floor_epsilon < epsilon else (epsilon, bound)
        return single_person_guarantee(query, target, rounds, epsilon, bound, step=self.step)


@lru_cache(maxsize=32)
def feature_table(features: Features, space: Space) -> csr_array:
    """The features of every point, made once."""
    return features.validate_table(space)


@lru_cache(maxsize=32)
def _laws(floor: Randomizer) -> Blur:
    if has_law_of(floor, PlanarGeometric):
        across, up = floor.axes
        return up.rows(), across.rows()
    return (np.asarray(floor.rows(), dtype=np.float64),)


def floor_slope(floor: Randomizer, features: Features, space: Space) -> float | None:
    """What one randomized item gives away per unit of distance, at most; None if the sums' own promise would not survive it.

    Statement: clamped geometric noise on a line or on the axes of a grid: the same noise brings no two points farther apart on any axis,
    so that no pair costs more than before; randomized response on labels, any two of which are 1 apart: single cells cost the same for
    any two. See docs/proofs/noisy-vectors.md.
    """
    lattice = Lattice.of(space)
    if has_law_of(floor, BoundedGeometric) and lattice is not None and floor.inputs == max(lattice.sides) == space.domain.size:
        return lattice.per_unit(floor_loss(float(floor.exact_rate), 1.0))
    if has_law_of(floor, PlanarGeometric) and lattice is not None and lattice.sides == (floor.width, floor.height):
        same = (floor.cell, floor.metric) == (lattice.step, "euclidean" if lattice.straight else "manhattan")
        return round_up(floor.rate, 4) if same else None
    if has_law_of(floor, KaryRandomizedResponse) and isinstance(features, Cells) and type(space.metric) is Discrete:
        return floor.local_epsilon() if floor.inputs == space.domain.size else None
    return None
