"""Noisy answers: the protocol in which noise is added to features averaged over a person's items.

The noise is added to each person's answer, or once to the sum of all answers by a curator.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile, clamping_penalty
from metricshuffle.accounting.user_items.metric_gaussian import MetricGaussian
from metricshuffle.errors import PlanError
from metricshuffle.estimation.interval_widths import MIN_NORMAL_PEOPLE
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.answer_features import AnyAnswerFeatures
from metricshuffle.protocols.answer_noise import AnswerNoise, KNormNoise
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import Shuffled, Tally, exact_sums
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.randomness import Randomness

BITS_PER_NUMBER = 64
# Factor on scales that allows for rounding errors in the quotient of the constant and the rate.
# A number that no honest report contains.
LIE = 2**40
SCALE_SLACK = 1.0 + 2.0**-50


class NoisyAnswers(Protocol):
    """Features of a person's items, and the noise on their average.

    Noise is added to everyone's own vector (trusted "nobody") or to the sum ("curator").
    """

    kind: Literal["noisy-answers"] = "noisy-answers"
    features: AnyAnswerFeatures
    noise: KNormNoise | AnswerNoise

    @property
    def layout(self) -> Layout:
        """A vector of cells of the noise; to a curator, a number of items and sums of features."""
        numbers = self.noise.coordinates + (self.trusted == "curator")
        return Layout(np.dtype("<i8"), numbers, width=numbers)

    @property
    def bits_per_user(self) -> int:
        return BITS_PER_NUMBER * self.noise.coordinates

    @property
    def row(self) -> int:
        return self.noise.coordinates

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        if inputs.sizes is None:
            raise PlanError(
                "vectors are made of users' items; this task has single values, so it is damaged."
            )
        answers = ExactAnswers.of(
            self.features.coordinates(inputs.query), inputs.numbers[:, 0], inputs.sizes
        )
        if self.trusted == "curator":
            return np.concatenate(
                [answers.sizes[:, None], answers.numerators.astype(np.int64)], axis=1
            )
        return self.noise.on_each(answers, randomness)

    # Shuffler, curator

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        if self.trusted != "curator":
            return {0: exact_sums(messages)}
        sizes = messages[:, 0]
        if len(sizes) and int(sizes.min()) < 1:
            raise PlanError("a message claims to hold no items; it is damaged.")
        return {int(size): exact_sums(messages[sizes == size, 1:]) for size in np.unique(sizes)}

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        if self.trusted != "curator":
            return super().published(query, tally, randomness)
        scale = Fraction(2) ** self.features.coordinates(query).power
        total = [Fraction(0)] * self.noise.coordinates
        for size, row in tally.sums.items():
            total = [mine + Fraction(number, size) for mine, number in zip(total, row, strict=True)]
        return {
            0: [
                int(cell)
                for cell in self.noise.on([number / scale for number in total], randomness)
            ]
        }

    # Analyst

    def draws(self, people: int) -> int:
        """Number of noise vectors in the sum over this many people."""
        return 1 if self.trusted == "curator" else people

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        people = shuffled.people
        cells = shuffled.numbers
        if len(cells) != self.noise.coordinates:
            raise PlanError(
                f"a batch of this task is {self.noise.coordinates:,} sums; this one is not."
            )
        draws = self.draws(people)
        means = self.noise.middles(cells, draws) / people
        deviation = np.sqrt(self.noise.variances * draws) / people
        shares, errors = self.features.totals(query, means, deviation)
        totals = shares * people
        deviations = errors * people
        certain = people < MIN_NORMAL_PEOPLE or self.trusted == "curator"

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (totals.size if simultaneous else 1)
            # Chebyshev's inequality if there are too few draws for the normal approximation.
            halves = deviations * (
                1.0 / math.sqrt(miss)
                if certain or method == "bernstein"
                else self.noise.width(draws, miss)
            )
            return totals - halves, totals + halves

        return Estimate(
            totals, deviations, people, self.step, ends, self.features.possible(query, means)
        )

    def expected_error(self, query: Query, people: int) -> float | None:
        """By formula for the means of a linear query; None (by simulation only) for shares."""
        return None if query.shared else self.noise.mean_size(self.draws(people)) / people

    # What a liar can do

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """A number far beyond any answer, which no check prevents."""
        rows = np.zeros((liars, self.layout.numbers), dtype=self.layout.type)
        if self.trusted == "curator":
            rows[:, 0] = 1
        rows[:, -1] = LIE
        return rows

    # What it hides

    def check(self, query: Query) -> None:
        needed = self.features.coordinates(query).numbers.shape[1]
        if self.modulus is not None:
            raise PlanError("sums of noisy answers are not residues; the task is damaged.")
        if self.noise.coordinates != needed:
            raise PlanError(
                f"the features are {needed:,} numbers, and the noise is made for "
                f"{self.noise.coordinates:,}."
            )
        if self.modulus is not None or self.trusted not in ("nobody", "curator"):
            raise PlanError(
                "noisy answers are for nobody or a curator as the trusted party; the task is "
                "damaged."
            )
        if isinstance(self.noise, KNormNoise) and self.trusted != "curator":
            raise PlanError("noise in the norm of a polytope is for a curator only.")
        # With cells much finer than the noise, some answers would overflow whole numbers and others
        # would not, which would distinguish them.
        if self.noise.cell != AnswerNoise("l1", self.noise.scale, self.noise.coordinates).cell:
            raise PlanError(
                "the cells of the noise are not of the size that belongs to its scale; the "
                "task is damaged."
            )

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        profile = self._profile(query, rounds)
        spent = 0.0
        if self.noise.noise == "gaussian":
            spent = target.delta
        elif self.noise.noise != "l1":
            spent = clamping_penalty(target.epsilon, 2.0 * rounds * self.noise.inexactness)
        bound = (
            profile.bound if self.noise.noise == "l1" else f"{profile.bound}, drawn nearly exactly"
        )
        return Account(
            profile
            if self.noise.noise == "l1"
            else RarelyClampedProfile(profile, rounds * self.noise.inexactness),
            target.with_delta(spent),
            "one user's items",
            spent,
            bound,
            target.shape,
        )

    def _profile(self, query: Query, rounds: int) -> PrivacyProfile:
        """Profile of the accounted law.

        What is drawn differs from it by `inexactness` in total variation. The sum over the users
        changes by no more than one user's answer, so both kinds of trust have the same profile.
        """
        constant = self.features.constant(query, self.noise.norm)
        if self.noise.noise == "gaussian":
            # Up to four rounding errors of 2^-53 each.
            return MetricGaussian(
                self.noise.scale / constant / math.sqrt(rounds) * (1.0 - 2.0**-50)
            )
        return PureProfile(rounds * constant / self.noise.scale * (1.0 + 2.0**-51))

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if self.trusted == "nobody":
            return self.guarantee(query, target, 1, rounds)
        return single_person_guarantee(
            query, target, rounds, math.inf, "raw items seen", step=self.step
        )
