"""Shuffler noise: the protocol in which people send parts of piles and a shuffler adds dummies.

A message is the index of a person's part of a pile. The shuffler cannot read sealed messages; it
adds dummies of its own to every pile and mixes. Privacy depends neither on the number of people
nor on how many of them are honest, only on a shuffler that draws its dummies and keeps them secret.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.dummies.dummy_losses import DummyLaw
from metricshuffle.accounting.dummies.dummy_profiles import (
    DrawnDummies,
    GradedDummies,
    LinearDummies,
    OnePersonDummies,
    RampDummies,
)
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.models import Positive, Whole
from metricshuffle.noise.dyadic_table import LARGEST_RADIUS
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, round_up
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Guarantee, Protects
from metricshuffle.privacy.profile import PrivacyProfile, Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.damage import NO_LIMIT, Damage
from metricshuffle.protocols.feature_estimates import FeatureEstimates
from metricshuffle.protocols.features import AnyFeatures, QueryFeatures, space_of
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.protocols.frequencies import AnyRandomizer
from metricshuffle.protocols.item_accounts import drawn_codes
from metricshuffle.protocols.partition_family import PartitionFamily, family_of
from metricshuffle.protocols.pile_totals import PileTotals
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import MAX_NOISE_SETS, Shuffled, Tally
from metricshuffle.protocols.vector_accounts import floor_slope
from metricshuffle.protocols.vector_intervals import KnownShares
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.randomizers.randomizer import smallest_type
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Space

# Relative accuracy of fitted shares.
DAMAGE_SLACK = 1.0 + 1e-6
# Seconds in which one core seals a dummy for a service.
SEALING_SECONDS = 155e-6
SUBTRACTED = (
    "The shuffler knows the dummies that it added: whoever runs it and reads a published tally "
    "can subtract them, and then knows the counts without their noise"
)

UNSEALED = (
    "Reports in files are not sealed, and it reads the values there; sealed ones it reads with the "
    "analyst's help."
)
SEALED = "Reports were sealed, and it reads them with the analyst's help only."
REPEATED_NOISE = (
    "The publisher added as many dummies again, which the shuffler does not know: with its own it "
    "learns no more from this tally than others, if it does not see the batch without them."
)


class ShufflerNoise(FeatureEstimates, Protocol):
    """Parts of the piles of a partition family, and the law of the dummies of every part.

    `features` are the indicators of the parts (see `PartitionFamily`), `sizes` the number of parts
    of each pile. Every part gets `radius` dummies on average, and at most twice as many, with
    probabilities in proportion to e^(-`rate` |z - radius|). A person with several `items` sends a
    message for each item in every pile. If `drawn`, people draw `items` of their items with
    replacement, however many they have. `floor` randomizes every item first, which protects people
    if the shuffler colludes.
    """

    kind: Literal["shuffler-noise"] = "shuffler-noise"
    features: AnyFeatures
    sizes: tuple[Whole, ...]
    rate: Positive
    radius: Whole
    items: Whole = 1
    drawn: bool = False
    floor: AnyRandomizer | None = None

    @property
    def encoding(self) -> str:
        words = f"{self._family_words}, {self.items:,} drawn" if self.drawn else self._family_words
        return f"{words}{'' if self.floor is not None else ', no floor'}"

    @property
    def _family_words(self) -> str:
        if self.features.kind != "ramps":
            return str(self.features)
        return "thresholds" if self.width == 1 else f"random ramps {self.width}"

    @property
    def width(self) -> int:
        """Number of thresholds of a window, if it is sent as one random bit; otherwise 1."""
        return int(getattr(self.features, "width", 1)) if self.features.kind == "ramps" else 1

    @property
    def law(self) -> DummyLaw:
        """Law of the dummies of a part."""
        return DummyLaw.geometric(self.rate, self.radius)

    @property
    def dummies(self) -> int:
        """Mean number of dummies in a round."""
        return sum(self.sizes) * self.radius

    @property
    def sealing_seconds(self) -> float:
        """Seconds that a shuffler of a service seals dummies in a round, on one core."""
        return SEALING_SECONDS * self.dummies

    @property
    def layout(self) -> Layout:
        piles = len(self.sizes)
        type_ = np.dtype(smallest_type(max(self.sizes))).newbyteorder("<")
        return Layout(type_, piles * self.items, piles)

    @property
    def bits_per_user(self) -> int:
        return self.items * sum(max(1, (size - 1).bit_length()) for size in self.sizes)

    @property
    def row(self) -> int:
        return sum(self.sizes)

    @property
    def coordinates(self) -> int:
        """Number of features: parts, or piles of two parts."""
        return len(self.sizes) if self._complementary else self.row

    @property
    def _complementary(self) -> bool:
        """Whether all piles have two parts, with complementary dummies (see `check`)."""
        kind = self.features.kind
        return kind == "ramps" or (tuple(self.sizes) == (2,) and kind != "cells")

    @property
    def changes_answers(self) -> bool:
        """Whether people change their answers by chance before they send them."""
        return self.floor is not None or self.width > 1 or self.drawn

    @property
    def counts_on_honest(self) -> bool:
        return False

    @property
    def adds_noise(self) -> bool:
        return True

    @property
    def draws_items(self) -> bool:
        return self.drawn

    @property
    def identifies_points(self) -> bool:
        """Whether a share is a count of cells, or the difference of two thresholds."""
        return self.width == 1 and (self._complementary or self.features.kind == "cells")

    def family(self, space: Space) -> PartitionFamily:
        return family_of(self.features, space)

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[np.generic]:
        """One row of parts per person, pile by pile; the parts of several items are sorted."""
        codes = np.ascontiguousarray(inputs.numbers[:, 0])
        if self.drawn:
            sizes = np.ones(inputs.people, np.int64) if inputs.sizes is None else inputs.sizes
            codes = drawn_codes(codes, sizes, self.items, randomness)
        if self.floor is not None:
            codes = np.asarray(
                self.floor.codes_of(self.floor.reports(self.floor.values_of(codes), randomness)),
                dtype=np.int64,
            )
        parts = self.family(space_of(inputs.query)).drawn_parts(codes, randomness)
        piles = len(self.sizes)
        rows = parts.reshape(inputs.people, self.items, piles).transpose(0, 2, 1)
        # The order of a person's items would reveal more than their counts.
        return np.sort(rows, axis=2).reshape(inputs.people, -1).astype(self.layout.type)

    # Shuffler

    @property
    def totals(self) -> PileTotals:
        """What counts must add up to."""
        sizes = tuple(self.sizes)
        return PileTotals(sizes, self.items, self.rate, self.radius, self._complementary)

    @property
    def _starts(self) -> Integers64:
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def counted(self, messages: NDArray[np.generic]) -> dict[int, list[int]]:
        self.check_width(messages)
        sizes = np.repeat(np.array(self.sizes, dtype=np.int64), self.items)
        parts = messages.astype(np.int64)
        if parts.size and (parts.min() < 0 or np.any(parts >= sizes)):
            raise PlanError("a message names a part that its pile does not have.")
        places = parts + np.repeat(self._starts[:-1], self.items)
        return {0: np.bincount(places.ravel(), minlength=self.row).tolist()}

    @property
    def max_noise_sets(self) -> int:
        return MAX_NOISE_SETS

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        """The counts of all parts with their dummies.

        Dummies are drawn here, once, unless shufflers have added theirs before.
        """
        counts = list(tally.numbers)
        self.totals.check(counts, tally.people, tally.noise_sets)
        return {0: counts if tally.noise_sets else self._with_dummies(query, counts, randomness)}

    def _with_dummies(self, query: Query, counts: list[int], randomness: Randomness) -> list[int]:
        """Counts with one more set of dummies."""
        dummies = self.draw_dummies(query, randomness)
        return [count + extra for count, extra in zip(counts, dummies, strict=True)]

    def draw_dummies(self, query: Query, randomness: Randomness) -> list[int]:
        """Numbers of dummies of all parts in one set, drawn from the law that is accounted for."""
        complementary = self.family(space_of(query)).complementary
        draws = len(self.sizes) if complementary else self.row
        noise = self.law.table.draw(draws, randomness)
        if complementary:
            noise = np.column_stack([-noise, noise]).ravel()
        return [self.radius + int(extra) for extra in noise]

    def with_publisher_noise(
        self, query: Query, shuffled: Shuffled, randomness: Randomness
    ) -> Shuffled:
        """Return the counts with one more set of dummies.

        Statement: the account of the shuffler's set holds for this set, too, against all parties
        that do not know it, and so also against a shuffler that subtracts its own.
        """
        if shuffled.publisher_noise:
            raise InputError(
                "these counts have noise of the publisher already.",
                field="publisher_noise",
                remedy="Give the file that `metricshuffle shuffle` wrote.",
            )
        self.totals.check(shuffled.numbers, shuffled.people, shuffled.noise_sets)
        counts = self._with_dummies(query, shuffled.numbers, randomness)
        seeded = shuffled.batch.seeded or randomness.unsafe_seeded
        return replace(
            shuffled,
            batch=replace(shuffled.batch, seeded=seeded),
            sums={0: counts},
            noise_sets=shuffled.noise_sets + 1,
            publisher_noise=True,
        )

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        counts = shuffled.numbers
        people = shuffled.people
        sets = shuffled.noise_sets
        self.totals.check(counts, people, sets)
        space = space_of(query)
        family = self.family(space)
        known = KnownShares(self.features, space, self.noise(space, people, sets), self.floor)
        sums = family.feature_counts(np.array(counts, dtype=np.int64)) - sets * self.radius
        means = sums / known.noise.count
        errors = self.errors(query, people, sets)
        possible = self.features.shares(space, means, errors, self.blur)
        return known.estimate(means, possible, people, self.step, known.band(means, errors))

    def noise(self, space: Space, people: int, sets: int = 1) -> SumNoise:
        """Noise on the sums of the features: that of sets of dummies, and of the bits of ramps.

        Statement: let t be the radius and Z the dummies of a part minus t. The law of Z is the
        geometric law, cut to -t..t, with all weights but that of 0 rounded down. So |Z| is
        stochastically smaller than under the Polya law of shape 1 and the same rate, and so are
        sums of several Z (for symmetric unimodal laws). The bit of a ramp is v/width rounded at
        random, and a drawn item counts 0 or 1 for a cell or threshold.
        """
        reports = people * self.items
        rates = np.full(self.coordinates, self.rate)
        rounded = reports if self.width > 1 or self.drawn else 0
        return SumNoise(Fraction(sets), rates, reports / self.width, 0.0, rounded)

    def errors(self, query: Query, people: int, sets: int = 1) -> Floats:
        space = space_of(query)
        noise = self.noise(space, people, sets)
        variances = noise.variances
        if self.floor is not None:
            tops = (
                feature_table(self.features, space).max(axis=0).toarray().ravel().astype(np.float64)
            )
            variances = variances + 0.25 * tops**2 * people * self.items
        return np.asarray(np.sqrt(variances) / noise.count)

    def bit_variances(self, space: Space, shares: Floats, people: int) -> Floats | None:
        if self.width == 1:
            return None
        return people * self.items * self.family(space).bit_variances(shares)

    def expected_error(self, query: Query, people: int) -> float | None:
        """None: errors of shares are simulated."""
        return None

    def damage(self, query: Query, people: int) -> Damage:
        """Return how far one participant who lies can move the answer.

        Statement: a lie moves a projected share of a cell by at most 1/people and all shares in sum
        by 2/people, so it moves them by an earth mover's distance of at most diameter/people. It
        moves the distribution function from thresholds by at most 1/people, so a share by 2/people
        (with one threshold by 1/people), and an earth mover's distance of diameter/people.
        Proof: a lie moves one message from a part to another in every pile. The projection onto
        the simplex has the Jacobian I - 11'/k on its support of k cells, which maps a difference of
        two unit vectors to changes of at most 1, and of 2 in all. Isotonic regression is a minimum
        of maxima of means, so it moves by no more than its input does. QED
        Numbers for wider ramps, for values that are randomized first, and for levels of a tree
        under users' items are not certified. Boxes have no number, and levels none for shares,
        because liars may send parts that fit no point.
        """
        moved = DAMAGE_SLACK / people
        exact = self.floor is None and not self.drawn and self.identifies_points
        if self.features.kind == "shifted-boxes":
            return NO_LIMIT
        if self.floor is not None:
            try:
                lowest, highest = Inversion.of(self.floor).contributions
            except NotCertified:
                return NO_LIMIT
            moved *= float((highest - lowest).max())
        if query.items is not None:
            return Damage(query.diameter * moved, certified=exact)
        if self._complementary:
            return Damage(moved * min(2, len(self.sizes)), certified=exact)
        return Damage(moved, certified=exact) if len(self.sizes) == 1 else NO_LIMIT

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """Bits of thresholds in reverse of their true order, or the first part of every pile."""
        row = np.zeros(self.layout.numbers, dtype=self.layout.type)
        if self._complementary:
            row[: len(row) // 2] = 1
        return np.tile(row, (liars, 1))

    # What it hides

    def check(self, query: Query) -> None:
        space = space_of(query)
        if self.modulus is not None or self.trusted != "shuffler" or self.step != 1.0:
            raise PlanError("dummies are those of a shuffler, in counts; the task is damaged.")
        if not query.shared or isinstance(self.features, QueryFeatures):
            raise PlanError(
                f"counts of parts do not answer a {query.kind} with {self.features}; the task is "
                "damaged."
            )
        family = self.family(space)
        if tuple(family.sizes.tolist()) != tuple(self.sizes):
            raise PlanError(
                f"the piles of {self.features} are not those that the task is made for."
            )
        if family.complementary != self._complementary:
            raise PlanError("the dummies of this task are not those of its piles.")
        if self.drawn and (
            query.items != "any" or self.floor is not None or not self.identifies_points
        ):
            raise PlanError("items are drawn in a way that is not accounted for.")
        if not self.drawn and self.items != (1 if query.items is None else query.items):
            raise PlanError("the messages are made for another number of items than users have.")
        if not 1 <= self.radius <= LARGEST_RADIUS:
            raise PlanError(
                f"a shuffler adds 1 to {LARGEST_RADIUS:,} dummies of a part on average, not "
                f"{self.radius:,}; the task is damaged."
            )
        if self.floor is not None and (
            self.width > 1 or floor_slope(self.floor, self.features, space) is None
        ):
            raise PlanError(
                "values are randomized first in a way that is not accounted for; the task is "
                "damaged."
            )

    def profile(self, query: Query, shape: Shape, rounds: int) -> PrivacyProfile:
        """Profile of the counts over all rounds, for targets of this shape."""
        if shape == "flat" and query.items is None and self.width == 1:
            return OnePersonDummies(self.law, self.family(space_of(query)).changed, rounds)
        return self.graded_profile(query, rounds)

    def graded_profile(self, query: Query, rounds: int) -> GradedDummies:
        """Profile with a loss in proportion to the distance, of people together or users' items."""
        family = self.family(space_of(query))
        if family.width > 1:
            return RampDummies(
                self.law, family.width, family.slope, family.piles, self.items, rounds
            )
        if self.drawn:
            largest = family.changed(query.diameter)
            parts = family.piles if family.complementary else family.parts
            return DrawnDummies(
                self.law, family.slope, family.sides, largest, parts, self.items, rounds
            )
        alone = query.items is not None
        return LinearDummies(self.law, family.slope, family.sides, self.items, alone, rounds)

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        target = promised(query, target)
        shape = target.shape
        profile = self.profile(query, shape, rounds)
        protects: Protects = "people together" if shape == "linear" else "one person"
        if query.items is not None:
            protects = "one user's items"
        return Account(profile, target, protects, target.delta, profile.bound, shape)

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        target = query.covered(target)
        slope = (
            None if self.floor is None else floor_slope(self.floor, self.features, space_of(query))
        )
        if slope is None:
            bound = "raw values seen" if query.items is None else "raw items seen"
            return single_person_guarantee(query, target, rounds, math.inf, bound, step=self.step)
        epsilon = round_up(rounds * self.items * slope * target.distance, 4)
        return single_person_guarantee(
            query, target, rounds, epsilon, "pure, values randomized first", step=self.step
        )

    def warning(self, query: Query) -> str:
        return self._caveat(f"{SUBTRACTED}{self._of_what}.", UNSEALED)

    def caveat(self, query: Query, shuffled: Shuffled, hops: int = 0) -> str:
        reading = SEALED if hops else UNSEALED
        if shuffled.publisher_noise:
            return self._caveat(REPEATED_NOISE, reading)
        if hops < 2:
            return self._caveat(f"{SUBTRACTED}{self._of_what}.", reading)
        return (
            f"Each of the {hops} shufflers knows only the dummies that it added: whoever runs it "
            "and reads a published tally can subtract these, but not the others'. All of them "
            f"together know the counts without noise{self._of_what}."
        )

    @property
    def _of_what(self) -> str:
        return "" if self.floor is None else " of values that were randomized first"

    def _caveat(self, subtracting: str, reading: str) -> str:
        """What a shuffler learns from a tally, and from reports that hide nothing by themselves."""
        return subtracting if self.floor is not None else f"{subtracting} {reading}"

    def hides_alone(self, query: Query) -> bool:
        return self.floor is not None

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        lines = [
            "The promise counts on no other people: nobody else need be honest, and a batch of any "
            "size may be released. Accuracy decides: errors of shares are in inverse proportion "
            "to the number of people."
        ]
        covered = promised(query, target)
        across = query.diameter
        if covered.shape == "linear" and across > covered.distance * 1.001:
            epsilon = covered.stretched(across).epsilon
            delta = self.graded_profile(query, rounds).delta(epsilon, across)
            moved = f"{format_distance(across)} {query.unit}".rstrip()
            lines.append(
                f"At {moved} the same rate gives epsilon {format_epsilon(epsilon)} with a delta of "
                f"{format_delta(delta)}."
            )
        return lines


def promised(query: Query, target: Target) -> Target:
    """The target at the largest distance that the guarantee covers; for labels it is flat."""
    covered = query.covered(target)
    if isinstance(query.values_in, Categories) and query.items is None:
        return covered.model_copy(update={"shape": "flat"})
    return covered
