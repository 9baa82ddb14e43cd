"""Comparison for the mean of a function: noise for moves of items, or for whole users."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.user_items.lipschitz import lipschitz_constant
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_sigma
from metricshuffle.accounting.user_items.query_polytope import polytope_constant, query_polytope
from metricshuffle.citations import theorem
from metricshuffle.display import Brief
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.candidates.answer_calibration import NAMES, NORMS
from metricshuffle.planning.plan import plan
from metricshuffle.privacy.target import Target, checked_users
from metricshuffle.protocols.answer_noise import AnswerNoise, KNormNoise, Noise
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.queries.user_queries import UserLinearQuery
from metricshuffle.randomizers.corner_vectors import Duchi
from metricshuffle_papers.compare.methods import Hides, Model
from metricshuffle_papers.compare.shown import ShownComparison

MOST_DUCHI_COLUMNS = 16


@dataclass(frozen=True)
class LinearMethod:
    """Method with the mean absolute error of a coordinate."""

    name: str
    model: Model
    hides: Hides
    error: float
    strength: float
    """Scale of the noise on one answer."""


@dataclass(frozen=True)
class LinearComparison(ShownComparison, Brief):
    """Comparison of methods for one function.

    `constant` is the change of the function per unit of distance, `width` its largest change (both
    in the sum norm).
    """

    users: int
    epsilon: float
    rate: float
    delta: float
    diameter: float
    constant: float
    width: float
    methods: tuple[LinearMethod, ...]

    def best(self, model: Model, hides: Hides) -> LinearMethod:
        """Method with the least error for a model and a kind of privacy."""
        return min(
            (one for one in self.methods if (one.model, one.hides) == (model, hides)),
            key=lambda one: one.error,
        )

    def gain(self, model: Model) -> float:
        """Factor by which the error is smaller under the earth mover's distance; < 1 is a loss."""
        return self.best(model, "user").error / self.best(model, "earth mover").error

    @property
    def wins(self) -> bool:
        """Whether Laplace noise for moves is less than for whole users.

        That is, rate/constant > epsilon/width.
        """
        return self.rate / self.constant > self.epsilon / self.width * (1.0 + 1e-9)

    def sentences(self) -> list[str]:
        """Sentences with the rule, the winner in each model, and what was relaxed."""
        models: tuple[Model, ...] = ("central", "local")
        found = [
            "The rule: hiding moves takes less Laplace noise than hiding users iff rate/constant "
            f"({format_number(self.rate / self.constant)}) is "
            f"above epsilon/range ({format_number(self.epsilon / self.width)}); here it "
            f"{'is' if self.wins else 'is not'}."
        ]
        for model in models:
            ours = self.best(model, "earth mover")
            theirs = self.best(model, "user")
            gain = self.gain(model)
            verdict = (
                f"{format_number(round(gain, 2))} times less than"
                if gain >= 1.0
                else f"{format_number(round(1.0 / gain, 2))} times as much as"
            )
            found.append(
                f"{model}: {ours.name} is off by {format_number(ours.error)} on average, "
                f"{verdict} the best user-level method "
                f"({theirs.name}, {format_number(theirs.error)})."
            )
        whole = self.rate * self.diameter
        if whole <= self.epsilon * (1.0 + 1e-9):
            return [
                *found,
                "Nothing was relaxed: replacing all of a user's items costs no more than "
                "under user-level privacy.",
            ]
        return [
            *found,
            "What was relaxed: replacing all of a user's items costs epsilon "
            f"{format_number(whole)} instead of "
            f"{format_number(self.epsilon)}.",
        ]


def compare_linear(
    query: UserLinearQuery, users: int, *, epsilon: float, rate: float, delta: float = 0.0
) -> LinearComparison:
    """Compare expected errors, by formula.

    `epsilon` protects a whole user, `rate` (per unit) a user's moves; the Gaussian methods need a
    delta above 0.
    """
    if not isinstance(query, UserLinearQuery):
        raise InputError(f"compare_linear needs a UserLinearQuery, got {type(query).__name__}.")
    users = checked_users(users)
    diameter = query.diameter
    Target(epsilon, delta, diameter)  # raises InputError for invalid targets
    made = plan(query, Target(rate * diameter, delta, diameter), users, trusted="curator")
    ours = [
        LinearMethod(
            offer.protocol,
            "central" if offer.trusted == "curator" else "local",
            "earth mover",
            offer.expected_error,
            noise.scale,
        )
        for offer in made.candidates
        if isinstance(offer.mechanism, NoisyAnswers)
        for noise in (offer.mechanism.noise,)
    ]
    widths = _widths(query)
    theirs = _noise_for_users(query, users, epsilon, delta, widths)
    theirs += (
        [duchi_mean(query, users, epsilon)] if query.table.shape[1] <= MOST_DUCHI_COLUMNS else []
    )
    own = polytope_for_users(query, users, epsilon)
    theirs += [] if own is None else [own]
    return LinearComparison(
        users,
        epsilon,
        rate,
        delta,
        diameter,
        query.constant_in("l1"),
        widths["l1"],
        tuple(ours + theirs),
    )


def _apart(query: UserLinearQuery) -> Floats:
    """Distances of user-level privacy: any two different points are 1 apart."""
    return 1.0 - np.eye(query.people.size)


def _widths(query: UserLinearQuery) -> dict[Noise, float]:
    """Largest distance of two answers in each norm.

    It is the Lipschitz constant if all points are at distance 1.
    """
    apart = _apart(query)
    table = query.coordinates.table
    return {norm: lipschitz_constant(table, apart, norm).constant for norm in NORMS}


@theorem("Hardt10", "K-norm mechanism for whole users")
def polytope_for_users(query: UserLinearQuery, users: int, epsilon: float) -> LinearMethod | None:
    """K-norm noise of the query's own polytope on the mean; None for 1 or more than 8 columns.

    Statement: replacing a user moves the sum of all answers within K, the hull of f(x) - f(y) over
    all pairs of points, so noise with density e^(-norm epsilon), in the norm of K, hides the user
    at epsilon. No other norm hides users with less noise in every direction.
    Conditions: columns that are not linearly dependent, else None.
    Numerics: an error, not a bound.
    Reference: Hardt and Talwar 2010, section 4; Imola24, Lemma 6.3.
    """
    coordinates = query.coordinates
    try:
        polytope = query_polytope(coordinates.numbers, _apart(query))
    except ConditionError:
        return None
    width = polytope_constant(coordinates.numbers, coordinates.power, _apart(query), polytope)
    noise = KNormNoise(width / epsilon, polytope.facets)
    return LinearMethod(
        "k-norm on the range", "central", "user", noise.mean_size() / users, noise.scale
    )


@theorem("Imola24", "Lemma 6.3")
def _noise_for_users(
    query: UserLinearQuery, users: int, epsilon: float, delta: float, widths: dict[Noise, float]
) -> list[LinearMethod]:
    """K-norm noise for whole users, on the mean (central) or on every answer (local).

    Statement: replacing a user moves the sum of all answers by at most the width of the answers in
    the norm, so noise with density e^(-norm epsilon/width) hides the user at epsilon.
    Conditions: none.
    Numerics: an error, not a bound.
    Reference: as Lemma 6.3.
    """
    columns = query.table.shape[1]
    scales: dict[Noise, float] = {
        norm: widths[norm] / epsilon for norm in NORMS[: 1 if columns == 1 else 3]
    }
    if delta > 0.0:
        scales["gaussian"] = widths["l2"] * gaussian_sigma(epsilon, delta)
    models: tuple[Model, ...] = ("central", "local")
    found = []
    for kind, scale in scales.items():
        noise = AnswerNoise(kind, scale, columns)
        found += [
            LinearMethod(
                f"{NAMES[kind]} on the range",
                model,
                "user",
                noise.mean_size(1 if model == "central" else users) / users,
                scale,
            )
            for model in models
        ]
    return found


@theorem("Imola24", "Lemma 6.1")
def duchi_mean(query: UserLinearQuery, users: int, epsilon: float) -> LinearMethod:
    """Duchi's local mean.

    Every coordinate of a user's answer is scaled to [-1, 1], rounded to a corner at random, and
    reported.
    Statement: a report is unbiased and each of its coordinates +-scale in units of half its range,
    so an answer in the middle has variance scale^2, others less; the mean of n has an expected
    absolute error of sqrt(2/(pi n)) scale half a range.
    Conditions: normal approximation (many users).
    Numerics: an error, not a bound.
    Reference: Duchi, Jordan, Wainwright 2018.
    """
    table = query.coordinates.table
    halves = 0.5 * (table.max(axis=0) - table.min(axis=0))
    if table.shape[1] > MOST_DUCHI_COLUMNS:
        raise NotCertified(
            f"Duchi's mean is computed for up to {MOST_DUCHI_COLUMNS} coordinates, got "
            f"{table.shape[1]}."
        )
    scale = Duchi(table.shape[1], epsilon).scale
    return LinearMethod(
        "Duchi's mean",
        "local",
        "user",
        math.sqrt(2.0 / (math.pi * users)) * scale * float(halves.mean()),
        scale,
    )
