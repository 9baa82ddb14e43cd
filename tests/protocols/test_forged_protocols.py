"""Received tasks are recomputed: claims that are too strong are rejected for any noise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import SMALL, plan_of
from tests.tables import check_all

from metricshuffle.errors import MetricShuffleError, NotCertified
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.privacy.target import Target
from metricshuffle.protocols import Frequencies, NoisyAnswers, Protocol, Sums
from metricshuffle.protocols.answer_features import Columns, TreeEdges
from metricshuffle.protocols.answer_noise import AnswerNoise
from metricshuffle.queries import (
    Centroid,
    Histogram,
    Mean,
    Query,
    Sum,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    KaryRandomizedResponse,
    PlanarGeometric,
    WitchHat,
)
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomizers.exponential_mechanism import ExponentialMechanism
from metricshuffle.spaces import Categories, Clustered, Grid, Integers, Interval, users_of
from metricshuffle.tasks.task import Task

FEW = Sum(Integers(0, 3))
REALS = Mean(Interval(0.0, 1.0))
LABELS = Histogram(Categories(["a", "b", "c"]))
LINE = Histogram(Integers(0, 2))
CELLS = Histogram(Grid(3, 4, 1.0))
CLUSTERS = UserHistogram(users_of(Clustered(2, 2, 0.3), 2))
AVERAGE = UserLinearQuery.average(users_of(Integers(0, 9)))
APART = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))


def noisy(
    rate: float = 0.1, shape: Fraction = Fraction(1), span: int = 3, **parts: Any
) -> AdditiveRandomizer:
    return AdditiveRandomizer(span=span, shape=shape, rate=rate, **parts)


def sums(
    *randomizers: AdditiveRandomizer | CountResponse, trusted: Who = "nobody", **parts: Any
) -> Sums:
    return Sums(name="forged", trusted=trusted, randomizers=randomizers, **parts)


def counts(randomizer: Any, trusted: Who = "nobody", **parts: Any) -> Frequencies:
    return Frequencies(name="forged", trusted=trusted, randomizer=randomizer, **parts)


def vectors(
    query: UserHistogram | UserLinearQuery,
    scale: float,
    trusted: Who = "nobody",
    width: int | None = None,
) -> NoisyAnswers:
    features = TreeEdges() if isinstance(query, UserHistogram) else Columns()
    columns = features.coordinates(query).numbers.shape[1] if width is None else width
    return NoisyAnswers(
        name="forged", trusted=trusted, features=features, noise=AnswerNoise("l1", scale, columns)
    )


def claimed(query: Query, protocol: Protocol, target: Target, users: int = 2000) -> Task:
    """The task that says of itself what such a protocol says of itself."""
    return Task(
        query=query,
        protocol=protocol,
        users=users,
        honest=users,
        guarantee=protocol.guarantee(query, target, users, 1),
        if_shuffler_colludes=protocol.alone(query, target, 1),
    )


@pytest.mark.parametrize("name", SMALL)
def test_what_was_planned_is_verified(name: str) -> None:
    """Every query and protocol, as it comes out of its file."""
    Task.from_json(plan_of(name).task.to_json()).verify()


def together(task: Task) -> Task:
    """The same with a promise about people together, whose moves add up."""
    stronger = task.guarantee.model_copy(update={"protects": "people together"})
    return Task.model_validate(
        {
            **task.model_dump(mode="json", exclude={"digest"}),
            "guarantee": stronger.model_dump(mode="json"),
        }
    )


def weaker(guarantee: Guarantee, **changes: Any) -> Guarantee:
    return guarantee.model_copy(update=changes)


SOME = (
    "sum",
    "mean of reals",
    "centroid",
    "hat",
    "labels",
    "line",
    "users' tree",
    "users' shares",
    "users' items",
    "users' mean",
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in SOME)) for name in SMALL]
)
def test_a_claim_that_is_a_little_too_strong_is_refused(name: str) -> None:
    """A fifth less epsilon, a millionth of delta, longer distance, more rounds, other trust."""
    task = plan_of(name).task
    held = task.guarantee
    stronger: dict[str, Guarantee] = {
        "epsilon": weaker(held, epsilon=0.8 * held.epsilon),
        "rounds": weaker(held, rounds=2),
        "unit": weaker(held, unit="mm"),
        "trust": weaker(
            held,
            trust=held.trust.model_copy(
                update={"trusted": "nobody" if held.trust.trusted != "nobody" else "shuffler"}
            ),
        ),
        "bound": weaker(held, bound="proved by its author"),
    }
    if held.trust.honest_reports is not None:
        stronger["honest"] = weaker(
            held,
            trust=held.trust.model_copy(update={"honest_reports": held.trust.honest_reports - 1}),
        )
    if held.delta > 0.0:
        stronger["delta"] = weaker(held, delta=1e-6 * held.delta)
    if 1.5 * held.distance <= task.query.diameter:
        stronger["distance"] = weaker(held, distance=1.5 * held.distance)
    for what, guarantee in stronger.items():
        forged = Task.model_validate(
            {
                **task.model_dump(mode="json", exclude={"digest"}),
                "guarantee": guarantee.model_dump(mode="json"),
            }
        )
        with pytest.raises(NotCertified) as told:
            forged.verify()
        assert str(told.value).endswith((".", ").")), what


@pytest.mark.parametrize(
    "name", [name for name, small in SMALL.items() if small.trusted in ("shuffler", "aggregator")]
)
def test_what_is_left_if_the_shuffler_colludes_is_checked_too(name: str) -> None:
    """A smaller epsilon than one report has is refused."""
    task = plan_of(name).task
    alone = weaker(task.if_shuffler_colludes, epsilon=0.8 * task.if_shuffler_colludes.epsilon)
    forged = Task.model_validate(
        {
            **task.model_dump(mode="json", exclude={"digest"}),
            "if_shuffler_colludes": alone.model_dump(mode="json"),
        }
    )
    with pytest.raises(NotCertified, match="claims more than is true"):
        forged.verify()


FORGED: dict[str, Callable[[], Task]] = {
    # Each of them passed once: the account was that of another protocol, of other distances, or of
    # no distance at all.
    "flipped bits without a shuffler": lambda: claimed(
        FEW, sums(CountResponse(span=3, flip=0.25)), Target(0.5, 1e-2, 3.0)
    ),
    "flipped bits by a curator, who adds nothing": lambda: claimed(
        FEW,
        sums(CountResponse(span=3, flip=0.25), trusted="curator", modulus=1009),
        Target(0.5, 1e-2, 3.0),
    ),
    "flipped bits in shares": lambda: claimed(
        FEW,
        sums(CountResponse(span=3, flip=0.25), trusted="shuffler", modulus=1009, shares=2),
        Target(0.5, 1e-2, 3.0),
    ),
    "bounded noise without a shuffler": lambda: claimed(
        FEW, sums(noisy(padding="bounded", radius=1)), Target(0.5, 0.0, 3.0)
    ),
    "padding that shows": lambda: claimed(
        FEW,
        sums(noisy(shape=Fraction(1, 2000), padding="clamp", radius=0), trusted="shuffler"),
        Target(0.5, 1e-6, 3.0),
    ),
    "less noise than it takes": lambda: claimed(
        FEW, sums(noisy(0.2), modulus=100_003), Target(0.5, 0.0, 3.0)
    ),
    "shares of a share of noise": lambda: claimed(
        FEW,
        sums(noisy(shape=Fraction(1, 20_000)), trusted="aggregator", modulus=100_003),
        Target(0.5, 1e-6, 3.0),
    ),
    "one share through a shuffler": lambda: claimed(
        FEW,
        sums(noisy(shape=Fraction(1, 2000)), trusted="shuffler", modulus=100_003, shares=1),
        Target(0.5, 1e-6, 3.0),
    ),
    "several people's deltas as if they were one's": lambda: together(
        claimed(FEW, sums(noisy(0.05, Fraction(1, 2)), modulus=100_003), Target(0.5, 0.1, 3.0))
    ),
    "noise on one of two axes": lambda: claimed(
        Centroid(Grid(4, 4)), sums(noisy(), noisy(30.0), modulus=100_003), Target(1.0, 0.0, 2.0)
    ),
    "a step as wide as the range": lambda: claimed(
        REALS, sums(noisy(30.0, span=1), step=1.0, modulus=100_003), Target(0.001, 0.0, 0.25)
    ),
    "a hat of two steps": lambda: claimed(
        REALS,
        counts(WitchHat(0.5, 20.0, 0.004, 1), step=0.5, readout="total"),
        Target(0.001, 0.0, 0.25),
    ),
    "a hat of another range": lambda: claimed(
        REALS,
        counts(WitchHat(5.0, 1.0, 0.1, 2048), step=5.0 / 2048, readout="total"),
        Target(0.1, 0.0, 0.25),
    ),
    "a hat that answers a histogram": lambda: claimed(
        Histogram(Integers(0, 20)),
        counts(WitchHat(1e6, 5.0, 1e-3, 10), "shuffler", step=1e5, readout="total"),
        Target(0.001, 1e-6, 1.0),
    ),
    "a curator of reports": lambda: claimed(
        LABELS, counts(KaryRandomizedResponse(3, 3.0), "curator"), Target(1.0, 1e-6, 1.0)
    ),
    "labels as a line": lambda: claimed(
        LABELS, counts(BoundedGeometric(2, 0.49)), Target(0.5, 0.0, 1.0)
    ),
    "labels as a line, shuffled": lambda: claimed(
        LABELS, counts(BoundedGeometric(2, 0.5), "shuffler"), Target(0.5, 1e-6, 1.0)
    ),
    "points that say they are far apart": lambda: claimed(
        LINE, counts(ExponentialMechanism(100.0 * APART, 0.1)), Target(0.01, 0.0, 1.0)
    ),
    "steps that make points near": lambda: claimed(
        LINE, counts(BoundedGeometric(2, 0.5), step=2.0), Target(0.25, 0.0, 1.0)
    ),
    "cells turned round": lambda: claimed(
        CELLS, counts(PlanarGeometric(4, 3, 0.5, 1.0)), Target(0.51, 0.0, 1.0)
    ),
    "cells as a line": lambda: claimed(
        CELLS, counts(BoundedGeometric(11, 0.5)), Target(0.51, 0.0, 1.0)
    ),
    "cells in another metric": lambda: claimed(
        CELLS, counts(PlanarGeometric(3, 4, 0.5, 1.0, "manhattan")), Target(0.765, 0.0, 1.5)
    ),
    "cells of another size": lambda: claimed(
        CELLS, counts(PlanarGeometric(3, 4, 0.5, 10.0)), Target(0.51, 0.0, 1.0)
    ),
    "a line of other length": lambda: claimed(
        LINE, counts(BoundedGeometric(5, 0.5)), Target(0.5, 0.0, 1.0)
    ),
    "a distance below a bin": lambda: claimed(
        Histogram(Integers(0, 30), 10),
        counts(BoundedGeometric(3, 5.0), step=10.0),
        Target(0.001, 0.0, 1.0),
    ),
    "items that say they are far apart": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), "shuffler", items=2, item_rate=6.8),
        Target(0.3, 1e-3, 0.3),
        300,
    ),
    "items louder than they say": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), items=2, item_rate=0.5),
        Target(1.0, 1e-3, 1.0),
        300,
    ),
    "a curator of items": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), "curator", items=2, item_rate=6.8),
        Target(1.2, 1e-3, 0.3),
        300,
    ),
    "more items than anybody holds": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), items=1, item_rate=6.8),
        Target(2.1, 0.0, 0.3),
        300,
    ),
    "items drawn from what is held": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), items=2, drawn=True, item_rate=6.8),
        Target(5.0, 1e-3, 0.3),
        300,
    ),
    "half the noise along a tree": lambda: claimed(
        CLUSTERS, vectors(CLUSTERS, 0.5), Target(1.0, 0.0, 1.0), 300
    ),
    "half the noise on a mean": lambda: claimed(
        AVERAGE, vectors(AVERAGE, 0.5), Target(1.0, 0.0, 1.0)
    ),
    "noise on too few features": lambda: claimed(
        CLUSTERS, vectors(CLUSTERS, 1.0, width=3), Target(1.0, 0.0, 1.0), 300
    ),
}


@check_all("name", FORGED)
def test_a_forged_task_is_refused(name: str) -> None:
    """A false claim in the protocol's own words is rejected."""
    with pytest.raises(MetricShuffleError, match=r"[.)]$"):
        FORGED[name]().verify()


BROKEN: dict[str, Callable[[], Task]] = {
    # As private as they say, and of no use: nobody should take part in them either.
    "no shares": lambda: claimed(
        FEW, sums(noisy(), modulus=100_003, shares=0), Target(0.5, 0.0, 3.0)
    ),
    "shares of unary messages": lambda: claimed(
        FEW, sums(noisy(padding="clamp", radius=1), shares=2), Target(0.5, 0.0, 3.0)
    ),
    "counts as residues": lambda: claimed(
        LINE, counts(BoundedGeometric(2, 0.5), modulus=101), Target(0.51, 0.0, 1.0)
    ),
    "vectors as residues": lambda: claimed(
        CLUSTERS, vectors(CLUSTERS, 1.01).model_copy(update={"modulus": 101}), Target(1.0, 0.0, 1.0)
    ),
    "draws from single values": lambda: claimed(
        LINE, counts(BoundedGeometric(2, 0.5), drawn=True), Target(0.51, 0.0, 1.0)
    ),
    "the total of items": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), items=2, item_rate=6.8, readout="total"),
        Target(14.0 * 0.3, 0.0, 0.3),
        300,
    ),
}


@check_all("name", BROKEN)
def test_a_task_that_cannot_be_run_is_refused(name: str) -> None:
    """Before anybody sends anything."""
    with pytest.raises(NotCertified, match=r"[.)]$"):
        BROKEN[name]().verify()


TRUE: dict[str, Callable[[], Task]] = {
    "noise that is just enough": lambda: claimed(
        FEW, sums(noisy(0.16), modulus=100_003), Target(0.5, 0.0, 3.0)
    ),
    "a line": lambda: claimed(LINE, counts(BoundedGeometric(2, 0.5)), Target(0.51, 0.0, 1.0)),
    "a channel that tells all labels apart alike": lambda: claimed(
        LABELS,
        counts(Channel([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])),
        Target(0.7, 0.0, 1.0),
    ),
    "points that say they are near": lambda: claimed(
        LINE, counts(ExponentialMechanism(APART, 0.1)), Target(0.11, 0.0, 1.0)
    ),
    "cells": lambda: claimed(
        CELLS, counts(PlanarGeometric(3, 4, 0.5, 1.0)), Target(0.51, 0.0, 1.0)
    ),
    "items": lambda: claimed(
        CLUSTERS,
        counts(KaryRandomizedResponse(4, 2.0), items=2, item_rate=6.8),
        Target(14.0 * 0.3, 0.0, 0.3),
        300,
    ),
    "noise along a tree": lambda: claimed(
        CLUSTERS, vectors(CLUSTERS, 1.01), Target(1.0, 0.0, 1.0), 300
    ),
}


@check_all("name", TRUE)
def test_a_true_task_of_ones_own_is_accepted(name: str) -> None:
    """The same shapes of task, with enough noise: nothing is refused for being unusual."""
    TRUE[name]().verify()


def test_moves_of_several_people_add_up_where_no_delta_is_needed() -> None:
    """Pure reports cover a total distance; with delta, only one person's move."""
    pure = claimed(FEW, sums(noisy(0.16), modulus=100_003), Target(0.5, 0.0, 3.0))
    assert pure.guarantee.protects == "people together"
    impure = claimed(FEW, sums(noisy(0.05, Fraction(1, 2)), modulus=100_003), Target(0.5, 0.1, 3.0))
    assert impure.guarantee.protects == "one person"
    impure.verify()


def test_linear_promises_of_a_metric_of_ones_own_need_whole_steps() -> None:
    """Nothing is checked between whole steps, so linear is rejected and flat is not."""
    half = ExponentialMechanism(
        0.5 * APART, 0.2
    )  # a quarter of a step apart in the middle of a step
    with pytest.raises(NotCertified, match="between whole steps"):
        claimed(LINE, counts(half), Target(0.2, 0.0, 1.0))
    claimed(LINE, counts(half), Target(0.21, 0.0, 1.0, "flat")).verify()
