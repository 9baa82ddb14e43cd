"""Closed forms apply to exact classes; subclasses use their own law unless it is kept."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set
from tests.randomizers.computed_cheats import (
    FalselyKary,
    MissesAPairOfWholeLaws,
    OwnTable,
    SaysItKeepsTheLaw,
)
from tests.randomizers.honest import Line

import metricshuffle as ms
from metricshuffle.amplification.groups import Groups
from metricshuffle.amplification.real_valued_pairs import takes_real_numbers
from metricshuffle.errors import ConditionError, NotCertified, PlanError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.protocols.features import Cells
from metricshuffle.protocols.frequencies import (
    Frequencies,
    displacements,
    knows_distances,
    metric_channel_profile,
    shuffled_profile,
    single_report_profile,
)
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.vector_accounts import floor_slope
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    Channel,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    PlanarGeometric,
    Randomizer,
    SubsetExponential,
    SubsetSelection,
    WitchHat,
)
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.randomizer import has_law_of
from metricshuffle.randomness import Randomness
from metricshuffle.testing import check_randomizer


class Renamed(KaryRandomizedResponse):
    """The same law, and it says so."""

    kind: Literal["renamed-for-test"] = "renamed-for-test"  # type: ignore[assignment]
    keeps_law: ClassVar[bool] = True


class RenamedAgain(Renamed):
    """Says nothing."""

    kind: Literal["renamed-again-for-test"] = "renamed-again-for-test"  # type: ignore[assignment]


def bare(parent: type[Randomizer], **members: Any) -> Any:
    """A class that extends another one and does not say that it keeps its law."""
    kind = f"bare-{parent.__name__}-for-test"
    return type(
        f"Bare{parent.__name__}",
        (parent,),
        {"__annotations__": {"kind": Literal[kind]}, "kind": kind, **members},
    )


def test_a_law_is_kept_by_the_class_itself_or_by_all_that_say_so() -> None:
    assert has_law_of(KaryRandomizedResponse(3, 1.0), KaryRandomizedResponse)
    assert has_law_of(BinaryRandomizedResponse(1.0), KaryRandomizedResponse)
    assert has_law_of(SubsetSelection(6, 1.0), SubsetExponential)
    assert has_law_of(Renamed(options=3, epsilon=1.0), KaryRandomizedResponse)
    assert not has_law_of(RenamedAgain(options=3, epsilon=1.0), KaryRandomizedResponse)
    assert not has_law_of(OwnTable(options=4, epsilon=1.0), KaryRandomizedResponse)
    assert has_law_of(SaysItKeepsTheLaw(options=4, epsilon=1.0), OwnTable)
    assert not has_law_of(SaysItKeepsTheLaw(options=4, epsilon=1.0), KaryRandomizedResponse)
    assert not has_law_of(KaryRandomizedResponse(3, 1.0), BoundedGeometric)
    assert not has_law_of("a text", Channel)
    assert takes_real_numbers(LaplaceOnInterval(0, 1, 1.0, steps=4))
    assert takes_real_numbers(WitchHat(1.0, 1.0, 1.0, steps=4))
    assert not takes_real_numbers(bare(LaplaceOnInterval)(0, 1, 1.0, steps=4))


def test_an_own_law_is_accounted_like_the_same_table() -> None:
    own, table = (
        ms.amplify(one, 10_000)
        for one in (OwnTable(options=4, epsilon=1.0), Channel(OwnTable.table))
    )
    assert own.epsilon(1e-6).upper == pytest.approx(table.epsilon(1e-6).upper, rel=1e-3)
    assert own.epsilon(1e-6).lower == pytest.approx(table.epsilon(1e-6).lower, rel=1e-3)
    assert (
        own.epsilon(1e-6).upper
        > ms.amplify(KaryRandomizedResponse(4, 1.0), 10_000).epsilon(1e-6).upper
    )
    kept = ms.amplify(Renamed(options=4, epsilon=1.0), 10_000)
    assert kept.epsilon(1e-6) == ms.amplify(KaryRandomizedResponse(4, 1.0), 10_000).epsilon(1e-6)


def test_groups_of_an_own_law_are_accounted_like_groups_of_its_table() -> None:
    same = (OwnTable(options=4, epsilon=1.0), Channel(OwnTable.table))
    own, table = (
        ms.amplify(Groups([(one, 500), (KaryRandomizedResponse(4, 2.0), 500)])) for one in same
    )
    for mine, theirs in zip(own, table, strict=True):
        assert mine.epsilon(1e-5).upper == pytest.approx(theirs.epsilon(1e-5).upper, rel=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_random_laws_under_borrowed_names_are_bounded_by_brute_force(seed: int) -> None:
    """Random tables in subclasses of built-in randomizers: the truth is within both bounds."""
    drawn = np.random.default_rng(seed)
    weights = (1 + drawn.multinomial(61, drawn.dirichlet(np.ones(3)), size=3)).tolist()

    def pairs(self: Any) -> list[tuple[int, int]]:
        return list(itertools.permutations(range(3), 2))

    own = bare(OwnTable, table=np.array(weights) / 64.0, pairs=pairs)(3, 1.0)
    assert np.array_equal(own.rows(), own.table)
    for people, growth in itertools.product((2, 3, 4), (Fraction(1), Fraction(4, 3), Fraction(3))):
        truth = float(
            max(max(every_data_set(weights, a, b, people, growth).values()) for a, b in pairs(own))
        )
        found = ms.amplify(own, people).delta(math.log(growth))
        assert found.lower * (1 - 1e-9) - 1e-12 <= truth <= found.upper * (1 + 1e-9) + 1e-12


def test_other_places_that_knew_a_class_by_its_ancestor_look_at_its_law() -> None:
    line = bare(BoundedGeometric)(4, 0.5)
    grid = bare(PlanarGeometric)(3, 3, 0.5)
    for own in (line, grid):
        assert displacements(own, 10) is None
        assert not knows_distances(own)
        assert single_report_profile(own).delta(0.1, 1.0) > 0.0
        assert shuffled_profile(own, 50).delta(0.01, 1.0) > 0.0
    assert displacements(BoundedGeometric(4, 0.5), 10) is not None
    assert (
        metric_channel_profile(
            bare(Channel)([[0.6, 0.4], [0.4, 0.6]], distances=[[0.0, 1.0], [1.0, 0.0]]), 10
        )
        is None
    )
    labels = ms.Space(ms.Categories(list("abcd")))
    assert floor_slope(KaryRandomizedResponse(4, 1.0), Cells(), labels) is not None
    assert floor_slope(OwnTable(options=4, epsilon=1.0), Cells(), labels) is None
    inverted = Inversion.of(bare(PlanarGeometric)(3, 3, 0.5))
    assert len(inverted.rows) == 1
    with pytest.raises(PlanError, match="keeps_law = True"):
        _ = Frequencies(
            name="x",
            trusted="nobody",
            readout="total",
            randomizer=bare(WitchHat)(1.0, 1.0, 1.0, steps=4),
        ).witch_hat


def test_noise_of_sums_is_accounted_for_the_class_itself() -> None:
    class InTheClear(AdditiveRandomizer):
        def reports(self, values: Any, randomness: Randomness) -> Any:
            return values

    query = ms.Sum(ms.Integers(0, 10))
    target = ms.Target(epsilon=1, delta=1e-6, distance=1)
    plan = ms.plan(query, target, users=100, protocols=["polya-shuffle"])
    protocol = plan.task.protocol
    assert isinstance(protocol, Sums)
    noise = protocol.randomizers[0]
    own = InTheClear(**{name: getattr(noise, name) for name in type(noise).model_fields})
    cheat = Sums(
        **{**{name: getattr(protocol, name) for name in Sums.model_fields}, "randomizers": (own,)}
    )
    with pytest.raises(NotCertified, match="subclasses of the noise of a sum"):
        ms.Task.of(query, cheat, target, 100)


def test_one_direction_of_pairs_within_is_accounted_in_both() -> None:
    rows = np.array(
        [
            [0.05, 0.15, 0.8],
            [0.3, 0.3, 0.4],
            [0.3, 0.4, 0.3],
            [0.31, 0.39, 0.3],
            [0.29, 0.31, 0.4],
            [0.3, 0.35, 0.35],
        ]
    )

    class Upward(Channel):
        kind: Literal["upward-for-test"] = "upward-for-test"  # type: ignore[assignment]

        def pairs_within(self, distance: float) -> Any:
            return [(a, b) for a, b in super().pairs_within(distance) if a > b]

    own = Upward(matrix=rows)
    table = Channel(rows)
    for epsilon in (0.05, 0.2):
        assert ms.amplify(own, 300).delta(epsilon).upper >= ms.amplify(table, 300).delta(
            epsilon
        ).lower * (1 - 1e-9)
    assert ms.amplify(own, 300).epsilon(1e-6).upper >= ms.amplify(table, 300).epsilon(
        1e-6
    ).lower * (1 - 1e-9)


@pytest.mark.thorough
def test_honest_classes_pass_whatever_they_extend() -> None:
    assert check_randomizer(OwnTable(options=4, epsilon=1.0), draws=2_000).inputs == 4
    assert check_randomizer(Renamed(options=4, epsilon=1.0), draws=2_000).inputs == 4
    assert check_randomizer(Line(), draws=2_000).every_pair


def test_the_cheats_would_have_been_certified_wrongly() -> None:
    """The bound of the listed pairs is below the divergence of the missing pair."""
    listed = ms.amplify(MissesAPairOfWholeLaws(), 10_000)
    missing = ms.amplify(Channel(MissesAPairOfWholeLaws().rows()), 10_000)
    assert listed.epsilon(1e-6).upper < missing.epsilon(1e-6).lower
    false = ms.amplify(FalselyKary(options=4, epsilon=1.0), 10_000)
    table = ms.amplify(Channel(OwnTable.table), 10_000)
    with pytest.raises(ConditionError, match="keeps_law"):
        check_randomizer(FalselyKary(options=4, epsilon=1.0), draws=1_000)
    assert false.epsilon(1e-6).upper < table.epsilon(1e-6).lower
