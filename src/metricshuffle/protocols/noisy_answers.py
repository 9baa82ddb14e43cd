"""Noisy answers: numbers of what everybody holds, averaged over her items, with noise on her answer or, by a curator, on the sum of all."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile, clamping_penalty
from metricshuffle.accounting.user_items.metric_gaussian import MetricGaussian
from metricshuffle.errors import PlanError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.answer_features import AnyAnswerFeatures
from metricshuffle.protocols.answer_noise import AnswerNoise
from metricshuffle.protocols.frequencies import MIN_NORMAL_PEOPLE
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.tally import Shuffled, Tally, exact_sums
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.randomness import Randomness

BITS_PER_NUMBER = 64
# A scale is this much larger than the constant over the rate, for the roundings between them.
SCALE_SLACK = 1.0 + 2.0**-50


class NoisyAnswers(Protocol):
    """AnswerFeatures of a person's items and the noise on their average: on everybody's own vector ("nobody") or on the sum ("curator")."""

    kind: Literal["noisy-answers"] = "noisy-answers"
    features: AnyAnswerFeatures
    noise: AnswerNoise

    @property
    def layout(self) -> Layout:
        """A vector of cells of the noise; to a curator, how many items a person holds and the sums of their features."""
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
            raise PlanError("vectors are made of users' items; this task has single values, so it is damaged.")
        answers = ExactAnswers.of(self.features.coordinates(inputs.query), inputs.numbers[:, 0], inputs.sizes)
        if self.trusted == "curator":
            return np.concatenate([answers.sizes[:, None], answers.numerators.astype(np.int64)], axis=1)
        return self.noise.on_each(answers, randomness)

    # Shuffler, curator

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        if self.trusted != "curator":
            return {0: exact_sums(messages)}
        sizes = messages[:, 0]
        if len(sizes) and int(sizes.min()) < 1:
            raise PlanError("somebody is said to hold no items; a message is damaged.")
        return {int(size): exact_sums(messages[sizes == size, 1:]) for size in np.unique(sizes)}

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        if self.trusted != "curator":
            return super().published(query, tally, randomness)
        scale = Fraction(2) ** self.features.coordinates(query).power
        total = [Fraction(0)] * self.noise.coordinates
        for size, row in tally.sums.items():
            total = [mine + Fraction(number, size) for mine, number in zip(total, row, strict=True)]
        return {0: [int(cell) for cell in self.noise.on([number / scale for number in total], randomness)]}

    # Analyst

    def draws(self, people: int) -> int:
        """How many noise vectors are in the sum of so many people's."""
        return 1 if self.trusted == "curator" else people

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        people, cells = shuffled.people, shuffled.numbers
        if len(cells) != self.noise.coordinates:
            raise PlanError(f"a batch of this task is {self.noise.coordinates:,} sums; this one is not.")
        draws = self.draws(people)
        means = self.noise.middles(cells, draws) / people
        error = math.sqrt(self.noise.variance * draws) / people
        shares, errors = self.features.totals(query, means, error)
        totals, deviations = shares * people, errors * people
        certain = people < MIN_NORMAL_PEOPLE or self.trusted == "curator"

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            miss = (1.0 - level) / (totals.size if simultaneous else 1)
            # Chebyshev's inequality where there are too few draws for the normal approximation
            halves = deviations * (1.0 / math.sqrt(miss) if certain or method == "bernstein" else self.noise.width(draws, miss))
            return totals - halves, totals + halves

        return Estimate(totals, deviations, people, self.step, ends, self.features.possible(query, means))

    def expected_error(self, query: Query, people: int) -> float | None:
        """Of the means of a linear query, by formula; of shares by simulation only."""
        return None if query.shared else self.noise.mean_size(self.draws(people)) / people

    # What it hides

    def check(self, query: Query) -> None:
        needed = self.features.coordinates(query).numbers.shape[1]
        if self.modulus is not None:
            raise PlanError("sums of noisy vectors are no residues; the task is damaged.")
        if self.noise.coordinates != needed:
            raise PlanError(f"the features are {needed:,} numbers, and the noise is made for {self.noise.coordinates:,}.")
        if self.modulus is not None or self.trusted not in ("nobody", "curator"):
            raise PlanError("noisy vectors are added up as they are, by nobody in particular or by a curator; the task is damaged.")
        # Cells much finer than the noise would run out of whole numbers for some answers and not for others, which tells them apart.
        if self.noise.cell != AnswerNoise(self.noise.noise, self.noise.scale, self.noise.coordinates).cell:
            raise PlanError("the cells of the noise are not of the size that belongs to its scale; the task is damaged.")

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        profile, spent = self._profile(query, rounds), 0.0
        if self.noise.noise == "gaussian":
            spent = target.delta
        elif self.noise.noise != "l1":
            spent = clamping_penalty(target.epsilon, 2.0 * rounds * self.noise.inexactness)
        bound = profile.bound if self.noise.noise == "l1" else f"{profile.bound}, drawn nearly exactly"
        return Account(
            profile if self.noise.noise == "l1" else RarelyClampedProfile(profile, rounds * self.noise.inexactness),
            target.with_delta(spent),
            "one user's items",
            spent,
            bound,
            target.shape,
        )

    def _profile(self, query: Query, rounds: int) -> PrivacyProfile:
        """Of the law that is accounted for; what is drawn differs by `inexactness` in total variation.

        The sum over the users moves by no more than one user's answer, so both kinds of trust have the same profile.
        """
        if self.noise.noise == "gaussian":
            constant = self.features.constant(query, "l2" if self.noise.coordinates > 1 else "l1")
            # up to four roundings of 2^-53 each
            return MetricGaussian(self.noise.scale / constant / math.sqrt(rounds) * (1.0 - 2.0**-50))
        return PureProfile(rounds * self.features.constant(query, self.noise.noise) / self.noise.scale * (1.0 + 2.0**-51))

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if self.trusted == "nobody":
            return self.guarantee(query, target, 1, rounds)
        return single_person_guarantee(query, target, rounds, math.inf, "raw items seen", step=self.step)
