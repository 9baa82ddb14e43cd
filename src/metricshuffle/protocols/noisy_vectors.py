"""Noisy vectors: the protocol in which everyone adds a share of noise to features of their items.

The features are whole numbers. Only the noisy sums over all people are revealed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializerFunctionWrapHandler, model_serializer

from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.accounting.vectors.compromised_shuffler import no_noise_probability
from metricshuffle.accounting.vectors.encoding_terms import packed_security_bits, rounding_factor
from metricshuffle.encodings.packed_vectors import Packed
from metricshuffle.errors import ConditionError, InputError, PlanError, argument
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.models import Positive, Whole
from metricshuffle.noise.random_rounding import round_quotients
from metricshuffle.noise.samplers import rational_rate, sample_polya_rows
from metricshuffle.numerics.rounding import format_delta, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Guarantee, Protects, Who
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.feature_estimates import FeatureEstimates
from metricshuffle.protocols.features import (
    AnyFeatures,
    Features,
    GroupFeatures,
    QueryFeatures,
    space_of,
)
from metricshuffle.protocols.features.feature_set import MAX_COORDINATES, feature_table
from metricshuffle.protocols.frequencies import AnyRandomizer
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.protocols.vector_accounts import Mixing, VectorAccounts, floor_slope
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.queries.user_queries import MAX_ITEMS
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Space, ZonePairs, Zones

# Approximate memory for the messages that are made at once.
BYTES_AT_ONCE = 2**26
# A person's number of items times the divisor fits 63 bits.
MAX_DIVISOR = (2**63 - 1) // MAX_ITEMS
FINE_MAP_POINTS = 4096
"""Above this many points, fitting a map takes seconds.

Planning then simulates fewer releases and tries only one feature set (for zones, all sets).
"""


class NoisyVectors(FeatureEstimates, Protocol):
    """Features, the noise on each of their sums, and the encoding of a vector.

    Coordinate e has noise of rate `factor` * weights[e], rounded down to a rate that is sampled
    exactly. Everyone adds a share of shape 1/`sharers` of this noise (all of it in a local
    protocol; a curator adds all of it, once). A person's vector counts for `units`: the number of
    their items, if it is the same for everyone. With `rounding`, features are averaged over a
    person's items, multiplied by `units` / `divisor` and rounded at random to a neighbouring
    integer, and the rates are those of e^rate - 1 = `factor` * weights[e]. (Older tasks round to
    the nearest integer, for up to `most_items` items.) `floor` randomizes every item first, which
    protects people if the shuffler colludes.
    """

    kind: Literal["noisy-vectors"] = "noisy-vectors"
    features: AnyFeatures
    coordinates: Whole
    factor: Positive
    sharers: Whole = 1
    units: Whole = 1
    rounding: Literal["random"] | None = None
    divisor: Whole = 1
    most_items: Whole | None = None
    floor: AnyRandomizer | None = None
    together: Whole = 1
    """Number of coordinates per message."""
    shares: Whole = 1

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        # Tasks from before `rounding` existed have a digest of this dictionary.
        written: dict[str, object] = handler(self)
        if self.rounding is None:
            written.pop("rounding", None)
            written.pop("divisor", None)
        return written

    @property
    def encoding(self) -> str:
        has_floor = self.floor is not None or self.trusted in ("curator", "nobody")
        return f"{self.features}{'' if has_floor else ', no floor'}"

    @property
    def packed(self) -> Packed:
        return _packing(self.coordinates, self.modulus, self.together, self.shares, self.trusted)

    @property
    def layout(self) -> Layout:
        packed = self.packed
        return Layout(packed.type, packed.numbers, packed.groups, packed.width)

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
        low, high = self._value_ranges(space_of(query))
        max_value = int((high - low).max())
        if people > users or people * max_value >= (self.modulus or 0):
            room = min(users, ((self.modulus or 1) - 1) // max_value)
            raise PlanError(
                f"{people:,} reports are more than this plan's modulus has room for, "
                f"{room:,}; plan again for more people, or "
                f"say whose rows they are if a person has several ({argument('user_column')})."
            )

    def _value_ranges(self, space: Space) -> tuple[Integers64, Integers64]:
        """Range, extended to contain 0, of each coordinate of a person's vector without noise."""
        low, high = (ends.tolist() for ends in self.features.ranges(space))
        lowest = [self.units * min(end, 0) // self.divisor for end in low]
        highest = [-(-self.units * end // self.divisor) for end in high]
        if max(*highest, -min(lowest)) >= 2**63:
            raise PlanError(
                f"features of up to {max(high):,} in {self.units:,} / {self.divisor:,} units do "
                "not fit 64 bits; use fewer units."
            )
        return np.array(lowest, dtype=np.int64), np.array(highest, dtype=np.int64)

    def _count(self, people: int) -> float:
        """Number by which sums are divided to get means of the features."""
        return people * self.units / self.divisor

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        """One row of residues per person; a curator gets residues of features without noise."""
        packed = self.packed
        layout = self.layout
        people_at_once = max(1, BYTES_AT_ONCE // (8 * self.coordinates + layout.size))
        rows = np.empty((inputs.people, layout.numbers), dtype=layout.type)
        done = 0
        for part in inputs.parts(people_at_once):
            rows[done : done + part.people] = packed.residues(
                self._values(part, randomness), randomness
            )
            done += part.people
        return rows

    def _values(self, inputs: Inputs, randomness: Randomness) -> Integers64:
        """Everyone's features plus their shares of the noise."""
        # Records have several numbers; single values and items have one code.
        codes = np.ascontiguousarray(
            inputs.numbers if inputs.numbers.shape[1] > 1 else inputs.numbers[:, 0]
        )
        space = space_of(inputs.query)
        if self.floor is not None:
            codes = np.asarray(
                self.floor.codes_of(self.floor.reports(self.floor.values_of(codes), randomness)),
                dtype=np.int64,
            )
        values = self._features_of(codes, inputs.sizes, space)
        if self.rounding is not None:
            sizes = np.ones(len(values), np.int64) if inputs.sizes is None else inputs.sizes
            values = round_quotients(values, sizes * self.divisor, self.units, randomness)
        if self.trusted == "curator":
            return values
        return values + sample_polya_rows(
            Fraction(1, self.sharers), self._exact_rates(space), len(values), randomness
        )

    def _features_of(self, codes: Integers64, sizes: Integers64 | None, space: Space) -> Integers64:
        """Features of each person's items, added up, or rounded averages in older tasks."""
        if sizes is None:
            return self.features.vectors(space, codes)
        from scipy.sparse import csr_array

        table = feature_table(self.features, space)
        holdings = csr_array(
            (np.ones(len(codes), dtype=np.int64), codes, np.concatenate([[0], np.cumsum(sizes)])),
            (len(sizes), table.shape[0]),
        )
        sums = np.asarray((holdings @ table).toarray(), dtype=np.int64)
        if self.most_items is None:
            return sums
        if int(sizes.max(initial=0)) > self.most_items:
            raise InputError(
                f"a person has {int(sizes.max()):,} items, but the plan allows at most "
                f"{self.most_items:,}; leave items out, or plan again."
            )
        return np.asarray((2 * self.units * sums + sizes[:, None]) // (2 * sizes[:, None]))

    def _largest_average(self, space: Space) -> int:
        """Largest number that occurs in rounding an average to whole units."""
        max_items = self.most_items or 1
        return (
            2 * self.units * max_items * int(feature_table(self.features, space).max()) + max_items
        )

    # Shuffler, aggregator, curator

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        return {0: self.packed.total(messages)}

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        totals = list(tally.numbers)
        if self.trusted == "curator":
            noise = sample_polya_rows(
                Fraction(1), self._exact_rates(space_of(query)), 1, randomness
            )[0]
            totals = [
                (total + int(noise_value)) % (self.modulus or 2)
                for total, noise_value in zip(totals, noise, strict=True)
            ]
        return {0: totals}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        people = shuffled.people
        space = space_of(query)
        means = self._means(space, shuffled)
        if isinstance(self.features, QueryFeatures):
            return self.features.estimate(query, means, self.noise(space, people), people)
        errors = self.errors(query, people)
        possible = self.features.shares(space, means, errors, self.blur)
        known = self.known(space, people)
        return known.estimate(means, possible, people, self.step, known.band(means, errors))

    def _means(self, space: Space, shuffled: Shuffled) -> Floats:
        """Means of the features over all items, from residues of their sums."""
        modulus = self.modulus or 0
        if len(shuffled.numbers) != self.coordinates or not all(
            0 <= number < modulus for number in shuffled.numbers
        ):
            raise PlanError(
                f"a batch of this task is {self.coordinates:,} sums in "
                f"0..{(self.modulus or 1) - 1:,}; this one is different."
            )
        packed = self.packed
        lows, highs = (shuffled.people * end for end in self._value_ranges(space))
        sums = [
            packed.centred(number, int(low), int(high))
            for number, low, high in zip(shuffled.numbers, lows, highs, strict=True)
        ]
        return np.array(sums, dtype=np.float64) / self._count(shuffled.people)

    def noise(self, space: Space, people: int) -> SumNoise:
        """Noise on the sums over this many people, and the rounding of their averages."""
        shape = Fraction(1) if self.trusted == "curator" else Fraction(people, self.sharers)
        rounding = 0.0 if self.most_items is None else 0.5 / self.units
        rounded = 0 if self.rounding is None else people
        return SumNoise(shape, self.rates(space), self._count(people), rounding, rounded)

    def errors(self, query: Query, people: int) -> Floats:
        """Standard errors of the means of the features.

        If values are randomized first, an upper bound on what that adds is included.
        """
        space = space_of(query)
        variances = self.noise(space, people).variances
        if self.floor is not None:
            tops = (
                feature_table(self.features, space).max(axis=0).toarray().ravel().astype(np.float64)
            )
            variances = variances + 0.25 * tops**2 * people * self.units
        return np.asarray(np.sqrt(variances) / self._count(people))

    def expected_error(self, query: Query, people: int) -> float | None:
        """By the features' own formula, if they are made for the query; None for shares."""
        if not isinstance(self.features, QueryFeatures):
            return None
        return self.features.expected_error(query, self.noise(space_of(query), people))

    # What a liar can do

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """One liar adds half of the modulus to half of the sums, which nothing prevents.

        Added to all sums, it would not change the shares of people who are spread evenly. Means by
        group are ratios of two sums, of which the first gets it.
        """
        rows = np.zeros((liars, self.coordinates), dtype=np.int64)
        paired = isinstance(self.features, GroupFeatures)
        half = slice(None, None, 2) if paired else slice(max(1, self.coordinates // 2))
        rows[:1, half] = (self.modulus or 0) // 2
        return self.packed.residues(rows, Randomness.system())

    # What it hides

    def rates(self, space: Space) -> Floats:
        """Rate of the noise on every coordinate, as it is sampled."""
        return np.array([float(rate) for rate in self._exact_rates(space)])

    def _exact_rates(self, space: Space) -> tuple[Fraction, ...]:
        return _sampled_rates(self.features, self.factor, self.rounding is not None, space)

    def check(self, query: Query) -> None:
        space = space_of(query)
        if self.trusted in ("nobody", "curator") and (
            self.sharers != 1 or self.shares != 1 or self.together != 1
        ):
            raise PlanError(
                f"{self.trusted} takes whole vectors with whole noise; the task is damaged."
            )
        self._check_features(query)
        if self.coordinates > MAX_COORDINATES:
            raise PlanError(
                f"vectors have up to {MAX_COORDINATES:,} coordinates, not {self.coordinates:,}; "
                "the task is damaged."
            )
        if self.sharers < 1 or len(self.features.ranges(space)[0]) != self.coordinates:
            raise PlanError(
                f"the features of this query are not the {self.coordinates:,} that the "
                "task is made for."
            )
        _ = self.packed  # raises for an impossible modulus or number of shares
        if not self._fits_items(query):
            raise PlanError(
                "the vectors are made for another number of items than people have; the "
                "task is damaged."
            )
        if self.rounding is not None and not (self.units >= 1 and 1 <= self.divisor <= MAX_DIVISOR):
            raise PlanError(
                f"averages are counted in {self.units:,} / {self.divisor:,} units, but both must "
                f"be at least 1 and the second at most {MAX_DIVISOR:,}; the task is damaged."
            )
        if self.most_items is not None and self._largest_average(space) >= 2**63:
            raise PlanError(
                f"averages of {self.most_items:,} items in {self.units:,} units do not fit "
                "64 bits, and people with the same shares "
                "would get different vectors; use fewer units."
            )
        # With a floor, features made for a query would answer it about randomized values.
        if self.floor is not None and (
            self.trusted == "curator"
            or isinstance(self.features, QueryFeatures)
            or floor_slope(self.floor, self.features, space) is None
        ):
            raise PlanError(
                "values are randomized first in a way that is not accounted for; the task "
                "is damaged."
            )

    def _check_features(self, query: Query) -> None:
        features = self.features
        fits = features.check(query) if isinstance(features, QueryFeatures) else query.shared
        if not fits:
            raise PlanError(
                f"the features {features} are made for another query than a {query.kind}; the "
                "task is damaged."
            )

    def _fits_items(self, query: Query) -> bool:
        """Whether the units fit the number of values or items that a person has."""
        if self.rounding is not None:
            return self.most_items is None and self.floor is None
        if query.items == "any":
            return self.most_items is not None and self.divisor == 1 and self.floor is None
        items = 1 if query.items is None else query.items
        return self.most_items is None and self.divisor == 1 and self.units == items

    def security(self, honest: int) -> float:
        """Security of one shuffled group of shares, in bits."""
        return packed_security_bits(honest, self.shares, [2**self.packed.group_bits])

    def accounts(self, query: Query, rounds: int) -> VectorAccounts:
        """Accounts of these features and rates for a query, over `rounds` rounds."""
        space = space_of(query)
        stretch = (
            1.0
            if self.most_items is None
            else round_up(float(rounding_factor(self.most_items, self.units)), 2)
        )
        return VectorAccounts(
            space,
            self.features,
            self.rates(space),
            Fraction(self.units, self.divisor),
            stretch,
            query.items is None and self.rounding is None and self.features.exact_moves,
            rounds,
            self.rounding is not None,
        )

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        if self.trusted in ("shuffler", "aggregator") and honest < self.sharers:
            raise ConditionError(
                "Noisy vectors",
                f"noise shared among no more than {honest:,} honest people",
                f"{self.sharers:,}",
            )
        target = query.covered(target)
        ideal = self.accounts(query, rounds).ideal(target)
        shape: Shape = (
            "flat"
            if isinstance(query.values_in, Categories) and query.items is None
            else target.shape
        )
        protects: Protects = "people together" if shape == "linear" else "one person"
        if query.items is not None:
            protects = "one user's items"
        if self.trusted != "shuffler":
            pure = ideal.covers(target.epsilon, 0.0, target.distance, target.shape)
            return Account(
                ideal,
                target.with_delta(0.0) if pure else target,
                protects,
                0.0 if pure else target.delta,
                ideal.bound,
                shape,
            )
        sigma = self.security(honest)
        mixed = SplitAndMix(ideal, sigma, self.packed.groups * rounds)
        return Account(mixed, target, protects, target.delta, mixed.bound, shape)

    def warning(self, query: Query) -> str:
        if self.floor is not None or self.trusted in ("nobody", "curator"):
            return ""
        bare = no_noise_probability(self.rates(space_of(query)), self.sharers)
        unfloored = ""
        if query.items == "any" and query.shared:
            unfloored = (
                " Averages of any number of items have no floor that would limit this; with the "
                "same number of items for everybody there may be one."
            )
        elif query.shared and isinstance(query.values_in, Zones | ZonePairs):
            unfloored = " Zones have no floor that would limit this."
        return (
            f"If the {self.trusted} colludes there is in effect no protection: one "
            "person's share of the noise is 0 with probability "
            f"{format_delta(bare)}, and then their vector is fully visible.{unfloored}"
        )

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        accounts = self.accounts(query, rounds)
        target = query.covered(target)
        mixing: Mixing | None = None
        if self.trusted == "shuffler":
            mixing = Mixing(self.security(honest), self.packed.groups * rounds)
        lines = []
        if accounts.single and target.shape == "linear" and target.delta > 0.0:
            lines += accounts.single_person_remarks(query, target, mixing)
        if mixing is not None:
            lines.append(accounts.mixing_remark(target, mixing))
        return lines

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if self.trusted == "nobody":
            return self.guarantee(query, target, 1, rounds)
        target = query.covered(target)
        if self.trusted == "curator":
            bound = "raw values seen" if query.items is None else "raw items seen"
            return single_person_guarantee(query, target, rounds, math.inf, bound, step=self.step)
        epsilon = self.accounts(query, rounds).alone(self.sharers, target.distance)
        bound = "pure, one share of the noise"
        slope = (
            None if self.floor is None else floor_slope(self.floor, self.features, space_of(query))
        )
        if slope is not None:
            floor_epsilon = round_up(rounds * self.units * slope * target.distance, 4)
            if floor_epsilon < epsilon:
                epsilon = floor_epsilon
                bound = "pure, values randomized first"
        return single_person_guarantee(query, target, rounds, epsilon, bound, step=self.step)


@lru_cache(maxsize=32)
def _packing(
    coordinates: int, modulus: int | None, together: int, shares: int, trusted: Who
) -> Packed:
    """Cached packing of a protocol's messages."""
    if modulus is None or modulus < 2 or modulus & (modulus - 1):
        raise PlanError(
            "sums of noisy vectors are residues of a power of two; the task is damaged."
        )
    return Packed(coordinates, modulus.bit_length() - 1, together, shares, trusted)


@lru_cache(maxsize=32)
def _sampled_rates(
    features: Features, factor: float, rounded: bool, space: Space
) -> tuple[Fraction, ...]:
    """Cached rate of the noise on every coordinate, as it is sampled."""
    weights, which = np.unique(features.weights(space), return_inverse=True)
    losses = [factor * float(weight) for weight in weights]
    exact = [rational_rate(math.log1p(loss) if rounded else loss) for loss in losses]
    return tuple(exact[index] for index in which)
