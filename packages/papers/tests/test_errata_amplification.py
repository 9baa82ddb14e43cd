"""Known faults of the published amplification bounds.

Unsafe ones first. The metric paper's WitchHat, Theorem 1 and Algorithms 1 and 2:
test_supplement.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.oracles import explicit_channels as channels
from tests.oracles.counterexamples import assert_no_guarantee, response_rows
from tests.oracles.multiset_laws import divergence as multiset_divergence
from tests.oracles.multiset_laws import multiset_law
from tests.oracles.same_others import count_laws, divergence
from tests.oracles.shuffled_brute_force import every_data_set, shuffled_delta
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import (
    BlanketLaw,
    delta_lower,
    delta_upper,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, ClonesProfile
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.accounting.shuffling.clone_bound import epsilon_upper as clones_epsilon
from metricshuffle.errors import ConditionError
from metricshuffle.privacy import Guarantee, Trust
from metricshuffle.randomizers import PaddedExponential
from metricshuffle.spaces import Categories, Matrix, Space, closure
from metricshuffle_papers.metric_supplement import formulas as supplement
from metricshuffle_papers.variation_ratio import formulas as paper
from metricshuffle_papers.variation_ratio import parameters as table
from metricshuffle_papers.variation_ratio.formulas import Variation


def sound(rows: list[list[float]], users: int, epsilon: float) -> dict[str, float]:
    """What the library promises for a channel at this epsilon: each must be at least the truth."""
    law = BlanketLaw.from_rows(rows, 0, 1)
    p = max(law.pure, law.reversed.pure)
    beta = 0.5 * sum(abs(x - y) for x, y in zip(rows[0], rows[1], strict=True))
    return {
        "blanket": delta_upper(law, users, epsilon),
        "three symbols": delta_upper(BlanketLaw.three_symbol(p, beta, math.exp(p)), users, epsilon),
        "clones": clones_delta(ClonePair(p, p, p), users, epsilon),
    }


# Lemma 4.5, Theorems 4.7 and 4.8: unsafe


@check_all(
    ("options", "claimed", "third", "first"),
    [
        (4, Fraction(1, 60), Fraction(1, 36), Fraction(1, 20)),
        (3, Fraction(1, 25), Fraction(1, 25), Fraction(9, 125)),
    ],
)
def test_two_people_and_randomized_response_break_the_merged_pair(
    options: int, claimed: Fraction, third: Fraction, first: Fraction
) -> None:
    """By hand: p = 3, e^epsilon = 2.4, the other person at a third value, and at a."""
    growth = Fraction(12, 5)
    pair = Variation(3.0, 2.0 / (2 + options), 3.0)
    claim = paper.merged_delta(pair, 2, math.log(2.4))
    assert claim.claim == pytest.approx(float(claimed), rel=1e-12)
    assert claim.verdict == "false"
    rows = channels.randomized_response(Fraction(3), options)
    truth = every_data_set(channels.whole_weights(rows), 0, 1, 2, growth)
    assert truth[2,] == third
    assert truth[0,] == first > claimed
    for bound in sound(response_rows(3.0, options), 2, math.log(2.4)).values():
        assert bound >= first * (1 - Fraction(1, 10**12))
    assert_no_guarantee(claim)


@check_all(
    ("options", "local", "delta", "claimed", "true_delta"),
    [
        (16, 3.0, 1e-4, 1.384623, 1.446e-4),
        (10, 2.0, 1e-5, 0.771729, 1.287e-5),
        (4, 1.0, 1e-4, 0.277300, 1.020e-4),
    ],
)
def test_a_hundred_people_break_it_too(
    options: int, local: float, delta: float, claimed: float, true_delta: float
) -> None:
    """All others at a third value, every vector of counts."""
    p = math.exp(local)
    rows = response_rows(math.exp(local), options)
    claim = paper.merged_epsilon(Variation(p, (p - 1) / (p + options - 1), p), 100, delta)
    assert claim.claim == pytest.approx(claimed, abs=6e-7)
    truth = divergence(*count_laws(rows[0], rows[1], rows[2], 100), claim.claim)
    assert truth == pytest.approx(true_delta, rel=5e-4)
    assert truth > 1.01 * delta
    assert delta_lower(BlanketLaw.from_rows(rows, 0, 1, [2]), 100, claim.claim) == pytest.approx(
        truth, rel=1e-6
    )
    assert min(sound(rows, 100, claim.claim).values()) >= truth
    assert epsilon_upper(BlanketLaw.from_rows(rows, 0, 1), 100, delta) > claim.claim
    assert_no_guarantee(claim)


def test_the_exact_epsilon_of_16_options() -> None:
    rows = response_rows(math.exp(3.0), 16)
    laws = count_laws(rows[0], rows[1], rows[2], 100)
    assert divergence(*laws, 1.416156 - 1e-6) > 1e-4 >= divergence(*laws, 1.416156 + 1e-6)


@check_all(
    ("local", "users", "claimed", "true_delta"),
    [(3.0, 20, 2.84837, 2.1e-2), (5.0, 100, 4.84938, 3.7e-2)],
)
def test_three_options_are_exact_for_one_data_set_and_far_off_for_another(
    local: float, users: int, claimed: float, true_delta: float
) -> None:
    p = math.exp(local)
    rows = response_rows(math.exp(local), 3)
    claim = paper.merged_epsilon(Variation(p, (p - 1) / (p + 2), p), users, 1e-4).claim
    assert claim == pytest.approx(claimed, abs=6e-6)
    at_a, at_b, at_c = (
        divergence(*count_laws(rows[0], rows[1], row, users), claim) for row in rows
    )
    assert at_c == pytest.approx(1e-4, rel=1e-6)
    assert at_a == pytest.approx(at_b, rel=1e-9)
    assert at_a == pytest.approx(true_delta, abs=5e-4)
    assert min(sound(rows, users, claim).values()) >= at_a


@check_all(
    "rows",
    [
        channels.local_hash(Fraction(3), 2, 3),
        channels.subset_selection(Fraction(4), 4, 2),
        channels.hadamard(Fraction(4), 4),
        channels.collision(Fraction(4), 4, 2),
    ],
)
def test_other_randomizers_with_a_common_part(rows: channels.Rows) -> None:
    """The merged pair is below the truth for some epsilon, the sound bounds for none.

    Two or three users, every data set.
    """
    p = float(channels.largest_ratio(rows))
    beta = sum(abs(x - y) for x, y in zip(rows[0], rows[1], strict=True)) / 2
    pair = Variation(p, float(beta), p)
    weights = channels.whole_weights(rows)
    broken = 0
    floats = [[float(weight) for weight in row] for row in rows]
    for growth in (Fraction(3, 2), Fraction(2), Fraction(5, 2), Fraction(27, 10)):
        truth = max(every_data_set(weights, 0, 1, 2, growth).values())
        claim = paper.merged_delta(pair, 2, math.log(growth))
        assert claim.verdict == "false"
        broken += claim.claim < 0.95 * truth
        assert all(
            bound >= truth * (1 - Fraction(1, 10**12))
            for bound in sound(floats, 2, math.log(growth)).values()
        )
    assert broken


# Appendix E: unsafe


def test_thresholds_of_appendix_e_lose_the_divergence() -> None:
    pair = Variation(3.0, 0.2, 3.0)
    printed = []
    alpha = Fraction(1, 10)
    s = Fraction(3, 5)
    r = Fraction(1, 10)
    one, two, other = channels.whole_weights(
        [[3 * alpha, alpha, s], [alpha, 3 * alpha, s], [r, r, 1 - 2 * r]]
    )
    truth = float(shuffled_delta(one, two, [other] * 4, Fraction(math.exp(0.4))))
    assert truth == pytest.approx(0.0264537, abs=5.1e-8)
    assert paper.merged_delta(pair, 5, 0.4).claim == pytest.approx(truth, rel=1e-12)
    for direction, wrong in (("P||Q", -0.0702), ("Q||P", 0.0)):
        claim = paper.appendix_e_delta(pair, 5, 0.4, direction)  # type: ignore[arg-type]
        assert claim.claim == pytest.approx(wrong, abs=2e-5)
        assert claim.verdict == "false"
        printed.append(claim)
        assert_no_guarantee(claim)
    assert max(claim.claim for claim in printed) == 0.0 < truth, "private, for free"
    # The data set behind the pair: the sound bound covers it.
    rows = [[float(Fraction(weight, sum(row))) for weight in row] for row in (one, two, other)]
    assert (
        min(
            sound(rows, 5, 0.4)["blanket"],
            clones_delta(ClonePair(math.log(3), math.log(3), math.log(3)), 5, 0.4),
        )
        >= truth
    )


@check_all("epsilon", [0.01, 0.2, 0.9])
def test_the_printed_high_is_never_positive(epsilon: float) -> None:
    for users in (2, 10, 50):
        assert paper.appendix_e_delta(Variation(3.0, 0.3, 4.0), users, epsilon, "Q||P").claim == 0.0
        assert paper.merged_divergence(Variation(3.0, 0.3, 4.0), users, epsilon, "Q||P").claim > 0.0


# Algorithm 3: unsafe


@check_all(
    ("users", "p", "beta", "q0", "q1", "true", "printed"),
    [
        (5, 3, Fraction(2, 5), 4, 2, 0.083908, 0.123643),
        (7, 2, Fraction(3, 10), 2, 3, 0.028235, 0.020597),
    ],
)
def test_weights_of_algorithm_3(
    users: int, p: int, beta: Fraction, q0: int, q1: int, true: float, printed: float
) -> None:
    """Too large in one setting, and too small, also over both directions, in the other."""
    pair = Variation(float(p), float(beta), float(q0), float(q1))
    alpha = beta / (p - 1)
    claim = paper.algorithm_3_delta(pair, users, 0.4)
    assert claim.claim == pytest.approx(printed, abs=5.1e-7)
    r0 = alpha * p / q0
    r1 = alpha * p / q1
    s = 1 - alpha - p * alpha
    one, two, other = channels.whole_weights(
        [[p * alpha, alpha, s], [alpha, p * alpha, s], [r0, r1, 1 - r0 - r1]]
    )
    truth = float(shuffled_delta(one, two, [other] * (users - 1), Fraction(math.exp(0.4))))
    assert truth == pytest.approx(true, abs=5.1e-7)
    assert paper.merged_divergence(pair, users, 0.4).claim == pytest.approx(truth, rel=1e-11)
    worse = max(claim.claim, paper.algorithm_3_delta(pair, users, 0.4, "Q||P").claim)
    assert (worse < truth) == (printed < true)
    assert (
        clones_delta(ClonePair(math.log(p), math.log(max(p, q0)), math.log(max(p, q1))), users, 0.4)
        >= truth
    )
    assert_no_guarantee(claim)
    assert paper.algorithm_3_delta(Variation(3.0, 0.4, 4.0), 5, 0.4).verdict == "true"


# Theorem 4.2: unsafe


@check_all(
    ("p", "beta", "q", "users", "delta", "claimed", "own", "factor"),
    [
        (7.4280, 0.1984, 8.1432, 1766, 2.76e-8, 0.149514, 0.178513, 29.0),
        (18.32, 0.605, 25.72, 1115, 5.8e-8, 0.357, 0.778, 17_000.0),
    ],
)
def test_the_conditions_of_theorem_4_2_are_not_enough(
    p: float,
    beta: float,
    q: float,
    users: int,
    delta: float,
    claimed: float,
    own: float,
    factor: float,
) -> None:
    """Omega < 2 log(4/delta): below the epsilon of the merged pair, an explicit data set.

    Its third symbol is everything else.
    """
    pair = Variation(p, beta, q)
    claim = paper.theorem_4_2(pair, users, delta)
    assert claim.verdict == "false"
    assert claim.claim == pytest.approx(claimed, abs=5e-4)
    assert paper.merged_epsilon(pair, users, delta).claim == pytest.approx(own, abs=5e-4)
    alpha = pair.alpha
    r = pair.r0
    s = pair.s
    rows = [[p * alpha, alpha, s], [alpha, p * alpha, s], [r, r, 1 - 2 * r]]
    truth = delta_lower(BlanketLaw.from_rows(rows, 0, 1, [2]), users, claim.claim)
    assert truth == pytest.approx(factor * delta, rel=0.02)
    assert truth == pytest.approx(paper.merged_delta(pair, users, claim.claim).claim, rel=1e-6)
    top = math.log(q)
    assert clones_epsilon(ClonePair(math.log(p), top, top), users, delta) > own
    assert_no_guarantee(claim)


def test_theorem_4_2_outside_its_conditions() -> None:
    pair = Variation(1.5, 0.02, 4.5)
    with pytest.raises(ConditionError, match=r"Omega >= 2841.*19\.58"):
        paper.theorem_4_2(pair, 3000, 1e-6)
    claim = paper.theorem_4_2(pair, 3000, 1e-6, conditions=False)
    assert claim.claim == pytest.approx(0.01347, abs=5.1e-6)
    assert claim.verdict == "false"
    assert paper.merged_epsilon(pair, 3000, 1e-6).claim == pytest.approx(0.01409, abs=5.1e-6)
    assert_no_guarantee(claim)


# Eccentricities from two searches: unsafe on general graphs


def test_two_searches_underestimate_the_reach_on_a_cycle() -> None:
    places = np.arange(12)
    hops = np.abs(places[:, None] - places)
    distances = 0.5 * np.minimum(hops, 12 - hops)
    start = int(distances[0].argmax())
    end = int(distances[start].argmax())
    two_searches = np.maximum(distances[start], distances[end])
    a = 3
    b = 4
    c = 9
    assert {two_searches[a], two_searches[b]} == {1.5, 2.0}
    assert distances.max(axis=1).tolist() == [3.0] * 12
    wrong = clones_epsilon(ClonePair(0.5, 1.5, 2.0), 1000, 1e-6)
    right = clones_epsilon(ClonePair(0.5, 3.0, 3.0), 1000, 1e-6)
    assert (wrong, right) == pytest.approx((0.13054, 0.24209), abs=5.1e-6)
    # The padded exponential mechanism on all 12 points, three of them kept: D-private, and above
    # what two searches give.
    rows = PaddedExponential(distances, 1.0, kept=(a, b, c)).rows()
    assert np.all(np.abs(np.log(rows[:, None] / rows[None])).max(axis=2) <= distances + 1e-9)
    assert delta_lower(BlanketLaw.from_rows(rows, a, b, [c]), 1000, 0.16654 - 1e-5) > 1e-6
    few = divergence(*count_laws(rows[a], rows[b], rows[c], 40), 0.1)
    assert delta_lower(BlanketLaw.from_rows(rows, a, b, [c]), 40, 0.1) == pytest.approx(
        few, rel=1e-6
    )
    assert (
        clones_delta(ClonePair(0.5, 1.5, 2.0), 40, 0.1)
        < few
        <= clones_delta(ClonePair(0.5, 3.0, 3.0), 40, 0.1)
    )
    ring = Space(Categories([str(i) for i in range(12)]), Matrix(distances))
    assert ring.reach("3") == ring.reach("4") == 3.0


# The amplified table is not closed by shortest paths


def test_the_amplified_table_closed_by_shortest_paths_is_no_guarantee() -> None:
    """Three people, padded exponential on a line: delta hides each step, but not the whole path."""
    delta = 0.006
    rate = 0.01
    line = np.abs(np.arange(41)[:, None] - np.arange(41)).astype(float)
    steps = np.array(
        [
            clones_epsilon(ClonePair(rate * step, rate * 40, rate * 40), 3, delta) if step else 0.0
            for step in range(41)
        ]
    )
    table_of_pairs = steps[line.astype(int)]
    assert not table_of_pairs.diagonal(1).any()
    assert closure(table_of_pairs)[0, 40] == 0.0
    rows = PaddedExponential(line, rate, kept=(0, 40)).rows()
    laws = [multiset_law([rows[x], rows[40], rows[40]]) for x in (0, 1, 40)]
    assert multiset_divergence(laws[0], laws[1], 0.0) <= delta
    assert multiset_divergence(laws[0], laws[2], 0.0) > 10 * delta
    assert multiset_divergence(laws[0], laws[2], float(table_of_pairs[0, 40])) <= delta


# Theorem 4.3's denominator


def test_the_printed_denominator_of_theorem_4_3() -> None:
    pair = Variation(1.5, 0.1, 1.5)
    assert paper.theorem_4_3(pair, 100_000, 1e-6).claim == pytest.approx(0.02381, abs=5.1e-6)
    assert paper.theorem_4_3_printed(pair, 100_000, 1e-6).claim == pytest.approx(
        0.00848, abs=5.1e-6
    )
    # Without a common part the pair is attained, so that what is below its epsilon is false.
    p = 1.05
    q = 3.0
    users = 2000
    delta = 1e-6
    pair = Variation(p, (p - 1) / (p + 1), q)
    printed = paper.theorem_4_3_printed(pair, users, delta)
    derived = paper.theorem_4_3(pair, users, delta)
    own = 1.0 / (1.0 + 1.0 / p)
    r = pair.r0
    attained = BlanketLaw.from_rows(
        [[own, 1 - own, 0.0], [1 - own, own, 0.0], [r, r, 1 - 2 * r]], 0, 1, [2]
    )
    assert delta_lower(attained, users, printed.claim) > 100 * delta
    assert (
        printed.claim
        < clones_epsilon(ClonePair(math.log(p), math.log(q), math.log(q)), users, delta)
        < derived.claim
    )
    assert printed.verdict == "false"
    assert_no_guarantee(printed)


# WitchHat's total variation in the published code


def test_the_published_total_variation_of_witch_hat() -> None:
    from metricshuffle.randomizers.witch_hat import WitchHatDensity

    density = WitchHatDensity(1.0, 2.0, 0.5)
    reach = 0.5
    z = np.linspace(-1 - reach, 1 + reach, 200_001)
    for apart, told, truth in ((0.05, 1.65, 0.058057), (0.3, -1.245, 0.263148)):
        row = table.witch_hat(1.0, 2.0, 0.5, apart)
        assert row.beta == pytest.approx(told, abs=5.1e-3)
        laws = [
            np.exp(-np.minimum(4 * np.abs(z - x), 2.0)) / density.normaliser for x in (0.0, apart)
        ]
        assert 0.5 * float(np.trapezoid(np.abs(laws[0] - laws[1]), z)) == pytest.approx(
            truth, abs=1e-6
        )
        assert density.total_variation(apart) == pytest.approx(truth, abs=5.1e-7)
        assert_no_guarantee(row)
        if row.beta < 0.0:
            with pytest.raises(ConditionError):
                Variation(row.p, row.beta, row.q)


# The "stronger clone": its published proof has an erratum, the pair is right for EVERY local
# epsilon


def test_the_pair_with_mass_2_over_1_plus_p_holds_for_every_extremal_randomizer() -> None:
    """Every channel of three reports with weights 1 and p, every data set of three users.

    Up to scale.
    """
    p = 3
    growth = Fraction(3, 2)
    shapes = sorted({tuple(row) for row in product((1, p), repeat=3)})
    bound = clones_delta(ClonePair(math.log(3), math.log(3), math.log(3)), 3, math.log(growth))
    assert bound == pytest.approx(
        delta_upper(BlanketLaw.clone_pair(math.log(3), 0.25, 0.25), 3, math.log(growth)), rel=1e-6
    )
    worst = Fraction(0)
    for total in {sum(shape) for shape in shapes}:
        rows = [list(shape) for shape in shapes if sum(shape) == total]
        for a, b in product(range(len(rows)), repeat=2):
            worst = max(worst, *every_data_set(rows, a, b, 3, growth).values())
    two = channels.whole_weights(channels.randomized_response(Fraction(3), 2))
    worst = max(worst, *every_data_set(two, 0, 1, 3, growth).values())
    assert worst <= bound * (1 + 1e-12)
    assert worst > 0.9 * bound
    profile = ClonesProfile(rate=math.log(3), users=3, diameter=1.0)
    assert Guarantee.from_profile(
        profile,
        delta=float(worst),
        distance=1.0,
        unit="",
        protects="one person",
        trust=Trust(trusted="shuffler"),
    ).epsilon >= math.log(growth) * (1 - 1e-9)


# Nothing here can become a guarantee


PAIR = Variation(3.0, 0.4, 4.0)
PUBLISHED: list[Callable[[], object]] = [
    lambda: paper.merged_divergence(PAIR, 5, 0.1),
    lambda: paper.merged_delta(PAIR, 5, 0.1),
    lambda: paper.merged_epsilon(PAIR, 50, 1e-3),
    lambda: paper.lower_epsilon(PAIR, 50, 1e-3),
    lambda: paper.appendix_e_delta(PAIR, 5, 0.1),
    lambda: paper.algorithm_3_delta(PAIR, 5, 0),
    lambda: paper.theorem_4_2(PAIR, 10_000, 1e-3),
    lambda: paper.theorem_4_3(PAIR, 10_000, 1e-3),
    lambda: PAIR,
    lambda: paper.theorem_4_3_printed(PAIR, 10_000, 1e-3),
    lambda: table.general(1.0),
    lambda: table.local_hash(1.0, 4),
    lambda: supplement.witch_hat_variance_bound(10.0, 2.0, 5.0, 6.0),
    lambda: supplement.theorem_1_epsilon(1.0, 2.0, 10_000, 1e-6),
    lambda: supplement.algorithm_2_epsilon(1.0, 2.0, 1.0, 10, 1e-3),
    lambda: supplement.algorithm_1_semi_metric([[0.0, 0.1], [0.1, 0.0]], 3.0, 10_000, 1e-6),
]


@check_all("published", PUBLISHED)
def test_no_published_value_becomes_a_guarantee(published: Callable[[], object]) -> None:
    assert_no_guarantee(published())
