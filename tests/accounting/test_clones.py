"""Asymmetric clone pair: golden values, brute force, tightness, and failures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.clone_pair_exact import pair_delta
from tests.oracles.multiset_laws import (
    Floats,
    divergence,
    multiset_law,
    private_distances,
    worst_data_set,
)
from tests.tables import check_all

from metricshuffle.accounting.shuffling.clone_bound import (
    ClonePair,
    ClonesProfile,
    delta_lower,
    delta_upper,
    epsilon_lower,
    epsilon_upper,
)
from metricshuffle.errors import InputError
from metricshuffle.privacy.guarantee import Guarantee, Trust
from metricshuffle.spaces import Grid, Integers, Space

SEED = 20


def from_masses(p: float, r0: float, r1: float) -> ClonePair:
    return ClonePair(math.log(p), math.log(p / ((p + 1) * r0)), math.log(p / ((p + 1) * r1)))


@check_all(
    ("pair", "users", "epsilon", "golden"),
    [
        (from_masses(3, 0.25, 0.25), 6, 0.0, 0.2255859375),
        (from_masses(3, 0.25, 0.25), 6, 0.4, 0.10695467398),
        (from_masses(5, 0.05, 0.12), 12, 1.0, 0.216306917754),
        (ClonePair(1, 1, 1), 100, 0.3, 0.000441095236003),
        (ClonePair(1, 1, 1), 1000, 0.1, 8.20116625013e-5),
        (ClonePair(1, 3, 2.5), 1000, 0.3, 6.24666661476e-5),
    ],
)
def test_golden_deltas(pair: ClonePair, users: int, epsilon: float, golden: float) -> None:
    digits = 5e-12  # the golden values are printed with 12 digits
    assert golden * (1 - digits) <= delta_upper(pair, users, epsilon) <= golden * (1 + 1e-9)
    assert golden * (1 - 1e-9) <= delta_lower(pair, users, epsilon) <= golden * (1 + digits)


@check_all(
    ("reach", "users", "delta", "golden"),
    [
        ((1, 1, 1), 100, 1e-4, 0.36111134465),
        ((1, 1, 1), 1000, 1e-6, 0.148670616354),
        ((1, 3, 2.5), 1000, 1e-6, 0.421853932654),
        ((1, 1, 1), 10_000, 1e-8, 0.0564473289819),
        ((0.1, 1, 1), 10_000, 1e-6, 0.00459842028599),
    ],
)
def test_golden_epsilons(
    reach: tuple[float, float, float], users: int, delta: float, golden: float
) -> None:
    pair = ClonePair(*reach)
    assert golden * (1 - 5e-12) <= epsilon_upper(pair, users, delta) <= golden * (1 + 1e-9)
    assert golden * (1 - 1e-9) <= epsilon_lower(pair, users, delta) <= golden * (1 + 5e-12)


def test_golden_direction_and_clone_mass() -> None:
    pair = from_masses(2, 0.2, 0.1)
    assert float(
        pair_delta(pair.log_p, pair.log_q0, pair.log_q1, 9, 0.1, swapped=False)
    ) == pytest.approx(0.139496832503, rel=1e-11)
    assert delta_upper(pair, 9, 0.1) >= 0.139496832503
    assert ClonePair(1, 3, 3).clone_masses[0] == pytest.approx(0.0363972634352, rel=1e-12)


def random_channel(rng: np.random.Generator, inputs: int, messages: int) -> Floats:
    """Rows near each other or far, smooth or with only two levels (the extremal ones)."""
    spread = rng.uniform(0.2, 2.5)
    powers = (
        rng.choice([0.0, 1.0], (inputs, messages))
        if rng.random() < 0.5
        else rng.random((inputs, messages))
    )
    channel = np.exp(spread * powers) * rng.uniform(0.05, 1.0, messages)
    return np.asarray(channel / channel.sum(axis=1, keepdims=True))


def check_mechanisms(seed: int, rounds: int, most_users: int) -> float:
    """Every data set of the others, those at a and at b included; the largest exact/bound seen."""
    rng = np.random.default_rng(seed)
    tightest = 0.0
    for _ in range(rounds):
        users = int(rng.integers(1, most_users + 1))
        channel = random_channel(rng, int(rng.integers(2, 4)), int(rng.integers(2, 4)))
        distances = private_distances(channel)
        reach = distances.max(axis=1)
        local = float(distances[0, 1])
        pair = ClonePair(local, float(reach[0]), float(reach[1]))
        for epsilon in (0.0, local * rng.random(), 0.9 * local):
            exact, _ = worst_data_set(channel, 0, 1, users, epsilon)
            bound = delta_upper(pair, users, epsilon)
            assert exact <= bound * (1 + 1e-9) + 1e-15, (channel, users, epsilon)
            tightest = max(tightest, exact / bound) if bound > 1e-9 else tightest
    return tightest


def test_no_mechanism_and_no_data_set_exceeds_the_bound() -> None:
    assert check_mechanisms(SEED, 60, 5) > 0.9  # some come near; the next test but one attains it


@pytest.mark.slow
def test_no_mechanism_exceeds_the_bound_in_a_long_search() -> None:
    check_mechanisms(SEED + 1, 1500, 6)


@check_all("users", [2, 7])
def test_the_bound_is_attained_by_the_pair_itself(users: int) -> None:
    pair = ClonePair(1.2, 2.0, 1.4)
    (r0, r1), own = pair.clone_masses, 1 / (1 + math.exp(-1.2))
    rest = [np.array([r0, r1, 1 - r0 - r1])] * (users - 1)
    one, other = (
        multiset_law([np.array(law), *rest]) for law in ([own, 1 - own, 0.0], [1 - own, own, 0.0])
    )
    assert delta_upper(pair, users, 0.3) == pytest.approx(divergence(one, other, 0.3), rel=1e-10)


def test_randomized_response_counterexamples_to_the_merged_pair() -> None:
    """The published pair gives 1/60 for 4-RR and 1/25 for 3-RR; the worst data set has more."""
    for options, worst, merged in ((4, 1 / 20, 1 / 60), (3, 9 / 125, 1 / 25)):
        channel = (np.ones((options, options)) + 2 * np.eye(options)) / (options + 2)
        exact, others = worst_data_set(channel, 0, 1, 2, math.log(2.4))
        assert exact == pytest.approx(worst, rel=1e-12)
        assert others in ((0,), (1,))
        assert (
            merged
            < worst
            <= delta_upper(ClonePair(math.log(3), math.log(3), math.log(3)), 2, math.log(2.4))
        )


def padded_exponential(distances: Floats) -> Floats:
    """The padded exponential mechanism on the first three points; D-private on all of them."""
    masses = np.exp(-distances[:, :3])
    sums = masses.sum(axis=1)
    pairs = [(i, j) for i in range(len(distances)) for j in range(i) if distances[i, j] > 0]
    needed = [
        (math.exp(distances[i, j]) * max(sums[i], sums[j]) - min(sums[i], sums[j]))
        / math.expm1(distances[i, j])
        for i, j in pairs
    ]
    scale = max(needed)
    return np.hstack([masses / scale, np.maximum(1 - sums / scale, 0.0)[:, None]])


def test_lower_bounds_from_padded_exponential_mechanisms_stay_below() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(12):
        points = rng.uniform(0, 1.5, (3, 2))
        distances = np.linalg.norm(points[:, None] - points[None], axis=2)
        channel = padded_exponential(distances)
        assert (private_distances(np.maximum(channel, 1e-300))[:, :] <= distances + 1e-9).all()
        reach = distances.max(axis=1)
        rest = [channel[2]] * 9
        epsilon = 0.4 * float(distances[0, 1])
        lower = divergence(
            multiset_law([channel[0], *rest]), multiset_law([channel[1], *rest]), epsilon
        )
        assert lower <= delta_upper(
            ClonePair(float(distances[0, 1]), float(reach[0]), float(reach[1])), 10, epsilon
        )


def test_extremes() -> None:
    tiny = epsilon_upper(ClonePair(1, 1, 1), 10**6, 1e-30)
    assert 0 < tiny < 0.02
    assert 0 < epsilon_upper(ClonePair(1, 1, 1), 10**12, 1e-30) < 1e-4
    assert epsilon_upper(ClonePair(0, 1, 1), 10, 1e-6) == 0
    assert delta_upper(ClonePair(0, 1, 1), 10, 0.0) == 0
    pair = ClonePair(1.5, 2, 2)
    alone = (math.exp(1.5) - math.exp(0.4)) / (math.exp(1.5) + 1)
    assert delta_upper(pair, 1, 0.4) == pytest.approx(alone, rel=1e-12)
    assert delta_upper(pair, 1, 0.4) >= alone
    assert epsilon_upper(pair, 1, alone) == pytest.approx(0.4, rel=1e-8)
    assert delta_upper(pair, 1000, 1.5) == 0
    assert epsilon_upper(pair, 10**6, 0.0) == 1.5
    assert epsilon_upper(pair, 10**6, 0.9) == 0
    assert epsilon_upper(pair, 10**6, 5e-324) == pytest.approx(1.5)
    assert delta_upper(ClonePair(1, 1, 1), 10**12, 0.5) <= 1e-290  # far below the smallest float
    far = ClonePair(800.0, 900.0, 850.0)
    assert delta_upper(far, 10**6, 20.0) == 1.0 == delta_upper(far, 10**6, 790.0)
    assert delta_lower(far, 10**6, 20.0) > 1 - 1e-8
    assert delta_lower(far, 10**6, 790.0) == 0.0
    assert epsilon_upper(far, 10**6, 1e-6) == 800.0
    assert epsilon_upper(ClonePair(50.0, 50.0, 50.0), 10, 1e-6) == pytest.approx(50.0, rel=1e-6)
    assert 0 < epsilon_upper(ClonePair(1e-9, 1e-9, 1e-9), 10, 1e-12) < 1e-9


def test_reaches_are_brought_into_range() -> None:
    assert ClonePair(2.0, 0.5, 1.0) == ClonePair(2.0, 2.0, 2.0)
    lowered = ClonePair(1.0, 9.0, 2.0)
    assert 3.0 <= lowered.log_q0 <= 3.0 + 1e-15
    assert lowered.log_q1 == 2.0
    for pair in (
        ClonePair(1e-300, 0.0, 0.0),
        ClonePair(1e-12, 1e-12, 1e-12),
        ClonePair(0.05, 0.01, 0.01),
    ):
        assert sum(pair.clone_masses) <= 1.0


positive = st.floats(0.01, 6.0)


@settings(max_examples=40, deadline=None)
@given(
    positive,
    positive,
    positive,
    st.integers(1, 5000),
    st.floats(-12, -1),
    st.sampled_from(["D", "a", "b", "n", "delta"]),
    st.floats(1.0, 2.0),
)
def test_epsilon_is_monotone(
    d: float, a: float, b: float, users: int, power: float, what: str, more: float
) -> None:
    delta = 10.0**power
    small = epsilon_upper(ClonePair(d, d + a, d + b), users, delta)
    raised = {
        "D": ClonePair(d * more, d + a, d + b),
        "a": ClonePair(d, d + a * more, d + b),
        "b": ClonePair(d, d + a, d + b * more),
    }
    if what == "n":
        assert epsilon_upper(
            ClonePair(d, d + a, d + b), math.ceil(users * more), delta
        ) <= small * (1 + 1e-8)
    elif what == "delta":
        assert epsilon_upper(
            ClonePair(d, d + a, d + b), users, min(delta * more, 0.99)
        ) <= small * (1 + 1e-8)
    else:
        assert small <= epsilon_upper(raised[what], users, delta) * (1 + 1e-8)
    assert small <= d
    assert epsilon_upper(ClonePair(d, d + b, d + a), users, delta) == pytest.approx(small, rel=1e-8)


@settings(max_examples=40, deadline=None)
@given(positive, positive, positive, st.integers(1, 10**13), st.floats(0, 1), st.floats(0, 1))
def test_delta_falls_in_epsilon(
    d: float, a: float, b: float, users: int, one: float, other: float
) -> None:
    pair = ClonePair(d, d + a, d + b)
    near, far = sorted((one * d, other * d))
    assert delta_upper(pair, users, far) <= delta_upper(pair, users, near) * (1 + 1e-3) + 1e-250
    assert delta_lower(pair, users, near) <= delta_upper(pair, users, near) <= 1.0


def test_the_profile_of_a_space() -> None:
    space = Space(Integers(0, 100))
    profile = ClonesProfile.of(space, 0.05, 10_000)
    assert profile.diameter == 100
    assert profile.epsilon(1e-6, 20) == pytest.approx(
        epsilon_upper(ClonePair(1, 5, 5), 10_000, 1e-6), rel=1e-9
    )
    assert profile.epsilon(1e-6, 20) <= profile.pure(20) == pytest.approx(1.0)
    assert profile.epsilon(1e-6, 1000) == profile.epsilon(1e-6, 100)
    assert profile.delta(0.3, 20) == pytest.approx(
        delta_upper(ClonePair(1, 5, 5), 10_000, 0.3), rel=1e-9
    )
    assert profile.epsilon(1e-6, 0) == 0 == profile.delta(0.0, 0)
    assert profile.covers(profile.epsilon(1e-6, 20), 1e-6, 20, "flat")
    middle = profile.pair(20, space.reach(40), space.reach(60))
    assert epsilon_upper(middle, 10_000, 1e-6) < profile.epsilon(1e-6, 20)
    # on a line, points at distance <= d reach at most the whole line
    narrowed = ClonesProfile(0.05, 10_000, 100, reach=lambda d: (100.0, 100.0))
    assert narrowed.epsilon(1e-6, 20) == profile.epsilon(1e-6, 20)
    sentence = Guarantee.from_profile(
        profile,
        delta=1e-6,
        distance=20,
        unit="",
        protects="one person",
        trust=Trust(trusted="shuffler", honest_reports=10_000),
    )
    assert "bound: clones" in str(sentence)


def test_a_grid_is_measured_to_its_corners() -> None:
    assert ClonesProfile.of(Space(Grid(4, 4, cell=10.0)), 0.1, 100).pair(
        10
    ).log_q0 == pytest.approx(3 * math.sqrt(2))


@check_all(
    ("call", "words"),
    [
        (lambda: ClonePair(math.nan, 1, 1), "log_p must be a finite number"),
        (lambda: ClonePair(1, math.inf, 1), "log_q0 must be a finite number"),
        (lambda: ClonePair(1, 1, -1), "log_q1 must be a finite number"),
        (lambda: ClonePair(True, 1, 1), "log_p must be"),
        (lambda: delta_upper(ClonePair(1, 1, 1), 0, 0.1), "users must be a whole number"),
        (lambda: delta_upper(ClonePair(1, 1, 1), 2**53, 0.1), "users must be at most"),
        (lambda: delta_upper(ClonePair(1, 1, 1), 10.0, 0.1), "users must be a whole number"),  # type: ignore[arg-type]
        (lambda: delta_upper(ClonePair(1, 1, 1), 10, math.nan), "epsilon must be a number"),
        (lambda: epsilon_upper(ClonePair(1, 1, 1), 10, 1.0), "delta must be a number"),
        (lambda: epsilon_upper(ClonePair(1, 1, 1), 10, math.nan), "delta must be a number"),
        (lambda: ClonesProfile(0.0, 10, 1.0), "rate must be"),
        (lambda: ClonesProfile(1.0, 10, 0.0), "diameter must be"),
        (lambda: ClonesProfile(1e200, 10, 1e200), "rate \\* diameter"),
    ],
)
def test_wrong_input_is_a_sentence(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()  # type: ignore[operator]
