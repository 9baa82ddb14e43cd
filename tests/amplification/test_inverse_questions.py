"""Local epsilon or people for a target: certified there, refuted just beyond, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.composition.composed_profile import TabulatedProfile
from metricshuffle.amplification.amplify import Amplification, GenericLDP, amplify, amplify_metric
from metricshuffle.amplification.inverse_search import (
    fewest,
    fewest_users,
    largest_local_epsilon,
    largest_strength,
)
from metricshuffle.errors import InputError
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    Channel,
    HadamardResponse,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    LocalHash,
    Randomizer,
    SubsetSelection,
    WitchHat,
)

FAMILIES: dict[str, tuple[Callable[[float], Randomizer | GenericLDP], float | None]] = {
    "2-RR": (lambda local: KaryRandomizedResponse(2, local), None),
    "10-RR": (lambda local: KaryRandomizedResponse(10, local), None),
    "any": (GenericLDP, None),
    "Hadamard": (lambda local: HadamardResponse(16, local), None),
    "subset": (lambda local: SubsetSelection(10, local), None),
    "geometric": (lambda rate: BoundedGeometric(4, rate), 2.0),
    "Laplace between steps": (lambda rate: LaplaceOnInterval(0.0, 1000.0, rate, 4), 300.0),
    "WitchHat": (lambda rate: WitchHat(1.0, 2.0, rate, 2), None),
}


SLOWLY = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "users", "epsilon", "delta"),
    [
        *((name, 10**6, 0.01, 1e-8) for name in FAMILIES),
        ("2-RR", 200, 0.5, 1e-3),
        *(pytest.param(name, 200, 0.5, 1e-3, marks=SLOWLY) for name in FAMILIES if name != "2-RR"),
    ],
)
def test_local_epsilons_are_certified_and_nothing_much_larger_is_possible(
    name: str, users: int, epsilon: float, delta: float
) -> None:
    family, distance = FAMILIES[name]
    found = largest_local_epsilon(family, epsilon, delta, users, distance=distance)
    assert found.certified == found.lower < found.upper
    assert amplify(family(found.lower), users).epsilon(delta, distance).upper <= epsilon
    if found.upper < math.inf:
        assert amplify(family(found.upper), users).delta(epsilon, distance).lower > delta
        assert found.upper <= (1.35 if name == "any" else 1.03) * found.lower
    else:
        assert name == "WitchHat"  # whatever the rate, one report has local epsilon 2
    assert f"{found.lower:.5g}" in found.explain()
    assert float(f"{found.lower:.5g}") == found.lower  # what is printed is what was certified


@pytest.mark.parametrize(
    ("name", "epsilon", "delta"),
    [
        ("2-RR", 0.5, 1e-3),
        ("10-RR", 0.8, 0.02),
        ("any", 0.5, 1e-3),
        *(
            pytest.param(name, *kept, marks=SLOWLY)
            for name in ("10-RR", "subset", "geometric")
            for kept in ((0.8, 0.02), (0.5, 1e-3))
        ),
    ],
)
def test_few_users_are_counted_one_by_one(name: str, epsilon: float, delta: float) -> None:
    family, distance = FAMILIES[name]
    member = family(1.0)
    found = fewest_users(member, epsilon, delta, distance=distance)
    assert 1 <= found.lower <= found.upper == found.certified
    bands = {
        users: amplify(member, users).delta(epsilon, distance)
        for users in range(max(1, int(found.lower) - 2), found.certified + 1)
    }
    assert amplify(member, found.certified).epsilon(delta, distance).upper <= epsilon
    if found.certified > 1:
        assert bands[found.certified - 1].upper > delta * (1.0 - 1e-6)
    for users, band in bands.items():
        assert (band.lower > delta) == (users < found.lower)
    assert f"{found.certified:,} honest" in found.explain()


@check_all(("epsilon", "delta"), [(1e-3, 1e-9), (1e-5, 1e-14)])
def test_many_users(epsilon: float, delta: float) -> None:
    response = KaryRandomizedResponse(10, 1.0)
    found = fewest_users(response, epsilon, delta)
    assert 10**6 < found.lower <= found.upper <= 1.001 * found.lower
    assert amplify(response, found.certified).epsilon(delta).upper <= epsilon
    assert amplify(response, int(found.lower) - 1).delta(epsilon).lower > delta
    back = largest_local_epsilon(
        lambda local: KaryRandomizedResponse(10, local), epsilon, delta, found.certified
    )
    assert back.lower == pytest.approx(1.0, rel=1e-3)


@check_all(
    ("member", "epsilon", "delta"),
    [
        (KaryRandomizedResponse(10, 6.0), 0.01, 1e-9),
        (BinaryRandomizedResponse(1.0), 1e-3, 1e-8),
        (LocalHash(100, 2.0), 0.05, 1e-8),
    ],
)
def test_fewest_users_takes_a_few_close_looks(
    member: Randomizer, epsilon: float, delta: float
) -> None:
    """Secants next to the crossing: halving took 18 to 28."""
    close: list[float] = []

    def answers(users: float, relative: float | None) -> Amplification:
        close.extend([users] if relative is None else [])
        return amplify(member, int(users), relative=relative)

    found = fewest(answers, epsilon, delta, None)
    assert len(close) <= 12
    assert found.lower <= found.upper <= found.lower * (1.0 + 2e-4)
    unit = max(1, math.floor(1e-6 * found.certified))
    assert (
        amplify(member, found.certified).epsilon(delta).upper
        <= epsilon
        < amplify(member, found.certified - 2 * unit).epsilon(delta).upper
    )
    assert amplify(member, int(found.lower) - 1).delta(epsilon).lower > delta


def test_what_needs_no_search() -> None:
    response = KaryRandomizedResponse(10, 1.0)
    alone = fewest_users(response, 1.5, 1e-9)
    assert (alone.lower, alone.upper) == (1, 1)
    assert "1 honest person certainly hide" in alone.explain()
    one = largest_local_epsilon(lambda local: KaryRandomizedResponse(10, local), 0.5, 1e-9, 1)
    assert one.lower == pytest.approx(0.5, rel=1e-4)
    pure = largest_local_epsilon(lambda local: KaryRandomizedResponse(10, local), 0.5, 0.0, 1000)
    assert pure.lower == 0.5  # nothing is gained at delta 0
    huge = largest_local_epsilon(
        lambda local: KaryRandomizedResponse(10, local), 60.0, 1e-9, 10
    )  # more than any report can give away
    assert huge.lower > 43.0
    assert huge.upper == math.inf
    assert "No larger one was found" in huge.explain()


@SLOWLY
def test_rounds_count_together() -> None:
    def family(local: float) -> KaryRandomizedResponse:
        return KaryRandomizedResponse(3, local)

    one, three = (
        largest_local_epsilon(family, 0.5, 1e-4, 1000, rounds=rounds) for rounds in (1, 3)
    )
    assert three.lower < one.lower
    assert amplify(family(three.lower), 1000, rounds=3).epsilon(1e-4).upper <= 0.5
    assert "over 3 rounds together" in three.explain()


def test_a_jagged_family_is_certified_where_it_is_answered() -> None:
    """A local epsilon that falls back now and then: nothing is taken for monotone."""

    def family(local: float) -> KaryRandomizedResponse:
        return KaryRandomizedResponse(4, local * (1.3 if int(local * 20.0) % 2 else 1.0))

    found = largest_local_epsilon(family, 0.2, 1e-5, 2000)
    assert amplify(family(found.lower), 2000).epsilon(1e-5).upper <= 0.2
    assert amplify(family(found.upper), 2000).delta(0.2).lower > 1e-5


def test_only_honest_people_count() -> None:
    def family(local: float) -> KaryRandomizedResponse:
        return KaryRandomizedResponse(3, local)

    assert (
        largest_local_epsilon(family, 0.2, 1e-5, 4000, "50%").lower
        == largest_local_epsilon(family, 0.2, 1e-5, 2000).lower
    )


def test_any_pair_of_bounds_can_be_asked() -> None:
    found = largest_strength(
        lambda rate, _: amplify_metric(rate, 1.0, 2.0, users=5000),
        0.1,
        1e-6,
        None,
        "rate",
        users=5000,
    )
    assert amplify_metric(found.lower, 1.0, 2.0, users=5000).epsilon(1e-6).upper <= 0.1
    assert "At rate" in found.explain()
    assert "padded exponential mechanism" in found.explain()
    people = fewest(
        lambda users, _: amplify_metric(0.5, 1.0, 2.0, users=int(users)), 0.1, 1e-6, None
    )
    assert amplify_metric(0.5, 1.0, 2.0, users=people.certified).epsilon(1e-6).upper <= 0.1


def test_out_of_reach() -> None:
    with pytest.raises(InputError, match=r"no number of honest people up to \S+ is enough"):
        fewest_users(Channel(np.eye(3)), 1.0, 1e-6)
    with pytest.raises(InputError, match="no number of honest people"):
        fewest_users(KaryRandomizedResponse(10, 25.0), 1e-4, 1e-9)
    with pytest.raises(InputError, match="no local epsilon down to"):
        largest_local_epsilon(lambda local: Channel(np.eye(3)), 1.0, 1e-6, 1000)


def test_bad_input() -> None:
    def family(local: float) -> KaryRandomizedResponse:
        return KaryRandomizedResponse(3, local)

    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="epsilon"):
            largest_local_epsilon(family, epsilon, 1e-6, 100)
    with pytest.raises(InputError, match="delta"):
        fewest_users(family(1.0), 1.0, 1.0)
    with pytest.raises(InputError, match="users"):
        largest_local_epsilon(family, 1.0, 1e-6, 0)
    with pytest.raises(InputError, match="options"):  # what is wrong with the family itself is told
        largest_local_epsilon(lambda local: KaryRandomizedResponse(1, local), 1.0, 1e-6, 100)
    with pytest.raises(InputError, match="distance"):
        largest_local_epsilon(lambda rate: BoundedGeometric(4, rate), 1.0, 1e-6, 100, distance=9.0)
    with pytest.raises(InputError, match="distance"):
        fewest_users(BoundedGeometric(4, 1.0), 1.0, 1e-6, distance=9.0)
    assert ms.fewest_users is fewest_users


def test_a_sampled_profile_lies_above_and_close() -> None:
    profile = amplify(KaryRandomizedResponse(10, 1.0), 10**6, relative=1e-5).upper
    sampled = TabulatedProfile(profile)
    for epsilon in (0.0, 1e-4, 1.7e-3, 3e-3, 2.0):
        truth = profile.delta(epsilon, 1.0)
        assert truth <= sampled.delta(epsilon, 1.0) <= truth * 1.01 + 1e-20
    assert sampled.pure(1.0) == profile.pure(1.0)
