"""delta at infinite epsilon: the probability of impossible outputs, never undercut."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import multiset_weights
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.composition.composed_profile import compose_rounds
from metricshuffle.accounting.shuffling.binary_exact_bound import BinaryReports
from metricshuffle.accounting.shuffling.binary_exact_bound import delta_bracket as two_reports
from metricshuffle.accounting.shuffling.blanket_bound import BlanketProfile
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise, Clamped, QuantisedProfile
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.amplification.groups import Groups
from metricshuffle.amplification.metric_channel import MetricChannelProfile
from metricshuffle.amplification.random_task import RandomTask
from metricshuffle.errors import InputError
from metricshuffle.noise.bounded_sum import tabulated_sum
from metricshuffle.noise.polya import Polya
from metricshuffle.privacy.profile import FARTHEST_EPSILON, PureProfile, PureUpTo, checked_epsilon
from metricshuffle.protocols.frequencies import shuffled_profile, single_report_profile
from metricshuffle.randomizers import Channel, KaryRandomizedResponse

FAR = (800.0, 1e5, FARTHEST_EPSILON, math.inf)
TOTAL = 16


def ruled_out(rows: list[list[int]], a: int, b: int, others: list[list[int]]) -> float:
    """Probability, if the first person holds a, of multisets that are impossible with b."""
    first = multiset_weights([rows[a], *others])
    second = multiset_weights([rows[b], *others])
    return float(
        Fraction(
            sum(weight for counts, weight in first.items() if not second.get(counts)),
            TOTAL ** (len(others) + 1),
        )
    )


def truth(rows: list[list[int]], crowds: list[list[list[int]]]) -> float:
    """Largest value over all pairs and all laws of the others (a list for each)."""
    pairs = itertools.permutations(range(len(rows)), 2)
    return max(
        ruled_out(rows, a, b, list(held)) for a, b in pairs for held in itertools.product(*crowds)
    )


def drawn_channel(seed: int) -> list[list[int]]:
    """Weights with zeros among them."""
    drawn = np.random.default_rng(seed)
    inputs = int(drawn.integers(2, 4))
    outputs = int(drawn.integers(2, 5))
    while True:
        shares = drawn.dirichlet(np.ones(outputs), inputs) * (drawn.random((inputs, outputs)) < 0.6)
        if np.all(shares.sum(axis=1) > 0.0):
            rows = [drawn.multinomial(TOTAL, share / share.sum()).tolist() for share in shares]
            return [[int(weight) for weight in row] for row in rows]


def channel_of(rows: list[list[int]], **more: Any) -> Channel:
    return Channel(np.array(rows) / TOTAL, **more)


def test_infinity_stays_a_number_and_what_is_no_number_is_refused() -> None:
    assert checked_epsilon(math.inf) == FARTHEST_EPSILON
    assert checked_epsilon(3) == 3.0
    with pytest.raises(InputError):
        checked_epsilon(math.nan)


def test_the_identity_hides_nothing() -> None:
    identity = Channel(np.eye(2))
    assert ms.amplify(identity, 1).delta(math.inf).upper == 1.0
    assert ms.amplify(identity, 1, rounds=2).delta(math.inf).upper == 1.0
    assert identity.local_profile().delta(math.inf, 1.0) == 1.0
    assert identity.local_delta(0, 1, math.inf) == 1.0
    (member,) = ms.amplify(Groups([(identity, 1)], dummies=[([1.0, 0.0], 1)])).delta(math.inf)
    assert member is not None
    assert member.upper == 1.0
    assert not identity.local_profile().covers(math.inf, 0.5, 1.0, "flat")


@check_all("seed", range(12))
def test_no_upper_bound_is_below_what_the_other_input_rules_out(seed: int) -> None:
    rows = drawn_channel(seed)
    channel = channel_of(rows)
    alone = truth(rows, [])
    apart = channel_of(rows, distances=1.0 - np.eye(len(rows)))
    for epsilon in FAR:
        for profile in (
            channel.local_profile(),
            single_report_profile(channel),
            single_report_profile(apart),
            BlanketProfile(channel.blankets, 1),
        ):
            assert profile.delta(epsilon, 1.0) == pytest.approx(alone, abs=1e-9)
            assert profile.delta(epsilon, 1.0) >= alone
        for people in (1, 2, 3):
            exact = truth(rows, [rows] * (people - 1))
            found = ms.amplify(channel, people).delta(epsilon)
            assert found.lower * (1 - 1e-9) <= exact <= found.upper * (1 + 1e-12)
            for profile in (
                MetricChannelProfile(apart, people),
                shuffled_profile(channel, people),
                BlanketProfile(channel.blankets, people),
            ):
                assert profile.delta(epsilon, 1.0) >= exact * (1 - 1e-12)


@check_all("seed", range(8))
def test_rounds_groups_and_lists_of_values_are_covered(seed: int) -> None:
    rows = drawn_channel(seed)
    more = drawn_channel(seed)[::-1]
    channel = channel_of(rows)
    alone = truth(rows, [])
    uniform = [TOTAL // len(rows[0])] * len(rows[0])
    uniform[0] += TOTAL - sum(uniform)
    for epsilon in (800.0, math.inf):
        twice = 1.0 - (1.0 - alone) ** 2
        assert ms.amplify(channel, 1, rounds=2).delta(epsilon).upper >= twice * (1 - 1e-12)
        assert compose_rounds(channel.local_profile(), 2).delta(epsilon, 1.0) >= twice * (1 - 1e-12)
        assert ms.amplify(RandomTask((0.5, 0.5), (channel, channel)), 1).delta(
            epsilon
        ).upper >= alone * (1 - 1e-12)
        members = ms.amplify(
            Groups([(channel, 2), (channel_of(more), 1)], dummies=[(np.array(uniform) / TOTAL, 1)])
        ).delta(epsilon)
        crowds = [[rows, more, [uniform]], [rows, rows, [uniform]]]
        for found, own, others in zip(members, (rows, more), crowds, strict=True):
            exact = truth(own, others)
            assert found is not None
            assert found.lower * (1 - 1e-9) <= exact <= found.upper * (1 + 1e-12)


def test_sums_of_bounded_noise_keep_what_lies_beyond_their_support() -> None:
    noise = tabulated_sum(Polya(Fraction(1), 1.0), 3, 2)  # two draws from -3..3
    exact = AdditiveNoise(noise)
    masses = np.concatenate([noise.masses[:0:-1], noise.masses])
    law = np.convolve(masses, masses)
    for steps in (1, 2, 5):
        beyond = float(law[-steps:].sum())
        for epsilon in FAR:
            assert exact.delta(epsilon, steps) == pytest.approx(beyond, rel=1e-6)
            assert exact.delta(epsilon, steps) >= beyond * (1 - 1e-9)
            assert exact.curve(np.array([0.0, epsilon]), steps)[1] >= beyond * (1 - 1e-9)
            for profile in (
                Clamped(exact, 1e-3),
                RarelyClampedProfile(exact, 1e-9),
                SplitAndMix(exact, 40.0),
                QuantisedProfile(exact, 1),
            ):
                assert profile.delta(epsilon, steps) >= beyond * (1 - 1e-9)
            assert compose_rounds(exact, 2).delta(epsilon, steps) >= (1.0 - (1.0 - beyond) ** 2) * (
                1 - 1e-9
            )


def test_what_is_private_without_a_delta_stays_so() -> None:
    for epsilon in FAR:
        assert PureProfile(1.0).delta(epsilon, 3.0) == 0.0
        assert PureUpTo(1.0, 2.0).delta(epsilon, 1.0) == 0.0
        assert PureUpTo(1.0, 2.0).delta(epsilon, 3.0) == 1.0
        assert ms.amplify(KaryRandomizedResponse(4, 1.0), 10).delta(epsilon).upper == 0.0
    assert two_reports(
        BinaryReports.from_rows(np.array([[1.0, 0.0], [0.5, 0.5]]), 0, 1), 3, math.inf
    ).upper == pytest.approx(0.5, rel=1e-9)
    with pytest.raises(InputError, match="finite"):
        ms.fewest_users(KaryRandomizedResponse(4, 1.0), math.inf, 1e-6)
