"""Sentences of docs/errata.md about amplification, with every number computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from tests.docs.written import number
from tests.oracles import explicit_channels as channels
from tests.oracles.counterexamples import response_rows
from tests.oracles.multiset_laws import divergence as multiset_divergence
from tests.oracles.multiset_laws import multiset_law
from tests.oracles.same_others import count_laws, divergence
from tests.oracles.shuffled_brute_force import every_data_set, multiset_weights, shuffled_delta

from metricshuffle.accounting.shuffling.blanket_bound import (
    BlanketLaw,
    delta_lower,
    delta_upper,
    epsilon_upper,
)
from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import epsilon_upper as clones_epsilon
from metricshuffle.accounting.shuffling.closed_form_bounds import theorem_1
from metricshuffle.randomizers import PaddedExponential
from metricshuffle.randomizers.witch_hat import WitchHatDensity
from metricshuffle.spaces import closure
from metricshuffle_papers.metric_supplement import formulas as supplement
from metricshuffle_papers.variation_ratio import formulas as paper
from metricshuffle_papers.variation_ratio import parameters as table
from metricshuffle_papers.variation_ratio.formulas import Variation


def two_people() -> Iterator[str]:
    """Lemma 4.5: four options, by hand."""
    options = 4
    p = Fraction(3)
    growth = Fraction(12, 5)
    rows = channels.randomized_response(p, options)
    kept = rows[0][0]
    other = rows[0][1]
    yield (
        f"randomized response over {options} options a, b, c, d with e^local epsilon = "
        f"{p}: the own option is reported with "
        f"probability {kept}, each other with {other}"
    )
    yield f"The first person holds a or b, the second holds c, and e^epsilon = {float(growth)}"
    weights = channels.whole_weights(rows)
    laws = [multiset_weights([weights[x], weights[2]]) for x in (0, 1)]
    whole = sum(laws[0].values())
    total = Fraction(0)
    for names, counts in (("a a", (2, 0, 0, 0)), ("a c", (1, 0, 1, 0)), ("a d", (1, 0, 0, 1))):
        first, second = (Fraction(law[counts], whole) * 36 for law in laws)
        gain = max(first - growth * second, Fraction(0))
        total += gain
        yield (
            f"| {names} | {first}/36 | {second}/36 | {'0' if not gain else f'{float(gain):g}/36'} |"
        )
    truth = every_data_set(weights, 0, 1, 2, growth)
    assert truth[2,] == total / 36
    yield f"The rest adds nothing, so the true delta is {truth[2,]}"
    yield f"if the second person holds a it is {truth[0,]}"
    claim = paper.merged_delta(Variation(3.0, 2.0 / (2 + options), 3.0), 2, math.log(growth)).claim
    yield f"The theorems give {Fraction(claim).limit_denominator(1000)}"
    assert claim < truth[2,] < truth[0,]
    floats = [[float(weight) for weight in row] for row in rows]
    assert delta_upper(BlanketLaw.from_rows(floats, 0, 1), 2, math.log(growth)) >= float(
        truth[0,]
    ) * (1 - 1e-12)


def many_people() -> Iterator[str]:
    """Theorem 4.7 with a hundred people, 4.2, 4.3 and Appendix E."""
    options = 16
    local = 3.0
    users = 100
    delta = 1e-4
    p = math.exp(local)
    rows = [
        [(p if x == y else 1.0) / (p + options - 1) for y in range(options)] for x in range(options)
    ]
    claim = paper.merged_epsilon(Variation(p, (p - 1) / (p + options - 1), p), users, delta).claim
    laws = count_laws(rows[0], rows[1], rows[2], users)
    upper = epsilon_upper(BlanketLaw.from_rows(rows, 0, 1), users, delta)
    assert claim < upper
    yield (
        f"{options} options, local epsilon {number(local)}, {users} people, delta "
        f"{number(delta)}: the theorem gives epsilon "
        f"{claim:.4f}, where the true delta is at least {number(divergence(*laws, claim), 4)}"
    )
    yield f"our upper bound is {math.ceil(upper * 1e4) / 1e4:.4f}"
    p = math.exp(5.0)
    rows = response_rows(math.exp(5.0), 3)
    claim = paper.merged_epsilon(Variation(p, (p - 1) / (p + 2), p), users, delta).claim
    at_a = divergence(*count_laws(rows[0], rows[1], rows[0], users), claim)
    yield (
        "with 3 options, local epsilon 5 and everybody else at a, the true delta at the "
        f"promised epsilon {claim:.3f} is "
        f"{number(at_a, 2)}, {at_a / delta:.0f} times the {number(delta)} asked for"
    )
    pair = Variation(7.4280, 0.1984, 8.1432)
    users = 1766
    delta = 2.76e-8
    claim = paper.theorem_4_2(pair, users, delta).claim
    factor = delta_lower(attained(pair), users, claim) / delta
    yield (
        f"p = {number(pair.p)}, beta = {number(pair.beta)}, q = {number(pair.q0)}, "
        f"{users:,} people, delta {number(delta)}: the "
        f"theorem gives epsilon {claim:.4f}, where an explicit channel has {factor:.0f} "
        "times that delta"
    )
    pair = Variation(1.05, 0.05 / 2.05, 3.0)
    users = 2000
    delta = 1e-6
    printed = paper.theorem_4_3_printed(pair, users, delta).claim
    derived = paper.theorem_4_3(pair, users, delta).claim
    lost = delta_lower(attained(pair), users, printed) / delta
    sound = clones_epsilon(ClonePair(math.log(1.05), math.log(3), math.log(3)), users, delta)
    assert printed < sound < derived
    assert lost > 100
    yield (
        f"p = 1.05, beta = 0.05/2.05, q = 3, {users:,} people, delta {number(delta)}: "
        "printed, the theorem gives "
        f"{number(printed, 3)}, derived {number(derived, 3)}; the clone pair certifies "
        f"{number(sound, 3)}, and at the printed value "
        "an explicit channel has more than 100 times the delta"
    )


def attained(pair: Variation) -> BlanketLaw:
    """Channel behind the pair: three reports, and the others hold a third value."""
    p = pair.p
    alpha = pair.alpha
    r = pair.r0
    s = pair.s
    return BlanketLaw.from_rows(
        [[p * alpha, alpha, s], [alpha, p * alpha, s], [r, r, 1 - 2 * r]], 0, 1, [2]
    )


def slips() -> Iterator[str]:
    """Appendix E, Algorithm 3 and Table 6."""
    pair = Variation(3.0, 0.2, 3.0)
    users = 5
    epsilon = 0.4
    alpha = Fraction(1, 10)
    s = Fraction(3, 5)
    r = Fraction(1, 10)
    first, second, other = channels.whole_weights(
        [[3 * alpha, alpha, s], [alpha, 3 * alpha, s], [r, r, 1 - 2 * r]]
    )
    truth = float(shuffled_delta(first, second, [other] * (users - 1), Fraction(math.exp(epsilon))))
    low, high = (
        paper.appendix_e_delta(pair, users, epsilon, direction).claim
        for direction in ("P||Q", "Q||P")
    )
    yield (
        f"p = 3, beta = 0.2, q = 3, {users} people, epsilon {number(epsilon)}: the two "
        f"directions come out as {low:.4f} and "
        f"{number(high)}; counted out, delta is {truth:.4f}"
    )
    pair = Variation(2.0, 0.3, 2.0, 3.0)
    claim = max(
        paper.algorithm_3_delta(pair, 7, 0.4, direction).claim for direction in ("P||Q", "Q||P")
    )
    alpha = Fraction(3, 10)
    first, second, other = channels.whole_weights(
        [
            [2 * alpha, alpha, 1 - 3 * alpha],
            [alpha, 2 * alpha, 1 - 3 * alpha],
            [alpha, alpha * 2 / 3, 1 - alpha - alpha * 2 / 3],
        ]
    )
    truth = float(shuffled_delta(first, second, [other] * 6, Fraction(math.exp(0.4))))
    assert claim < truth
    yield (
        f"p = 2, beta = 0.3, q0 = 2, q1 = 3, 7 people, epsilon 0.4: printed {claim:.4f}, "
        f"counted out {truth:.4f}"
    )
    f = Fraction(1, 4)
    people = channels.largest_ratio(channels.bitwise(1 - f, f, 3, range(3)))
    yield (
        f"flips with probability {float(f)}: the ratio is "
        f"{number(table.flipped_vectors(0.25).q)} against an all-zero dummy, and "
        f"{people} against another person's vector"
    )
    mixed = table.mix_dump(0.3, 5)
    yield (
        f"mixDUMP with flips of 0.3 over 5 options: {number(mixed.q)} against a uniform "
        f"dummy, {mixed.p:.2f} against another "
        "person's report"
    )


def witch_hat() -> Iterator[str]:
    """Variance, total variation, Theorem 1, Algorithms 1 and 2."""
    density = WitchHatDensity(10.0, 2.0, 5.0)
    claim = supplement.witch_hat_variance_bound(10.0, 2.0, 5.0, 6.0).claim
    assert claim < density.variance(6.0) <= density.variance_bound(6.0)
    yield (
        f"B = 10, m = 2, F = 5, x = 6: the bound is {claim:.1f}, the exact variance "
        f"{density.variance(6.0):.1f}; with the square it "
        f"is {density.variance_bound(6.0):.1f}"
    )
    near, far = (table.witch_hat(1.0, 2.0, 0.5, apart).beta for apart in (0.05, 0.3))
    exact = [WitchHatDensity(1.0, 2.0, 0.5).total_variation(apart) for apart in (0.05, 0.3)]
    assert near > 1.0
    assert far < 0.0
    yield (
        f"B = 1, m = 2, F = 0.5: {near:.2f} for points 0.05 apart and {far:.3f} for points "
        f"0.3 apart; the truth is {exact[0]:.4f} "
        f"and {exact[1]:.4f}"
    )
    log_ratio = math.log(math.exp(1.0) + math.exp(0.9))
    loose = supplement.theorem_1_epsilon(0.1, log_ratio, 10**6, 1e-8).claim
    sharp = theorem_1(0.1, log_ratio, 10**6, 1e-8)
    yield (
        f"distance 0.1 on a line of length 1, a million people, delta {number(1e-8)}: "
        f"{number(loose, 3)} as printed, "
        f"{number(sharp, 3)} with the right factor"
    )
    weak, every = (
        supplement.algorithm_2_epsilon(2.0, 2.5, 1.0, 60, 1e-4, printed=printed).claim
        for printed in (True, False)
    )
    yield (
        f"distances 2, 2.5 and 1, 60 people, delta {number(1e-4)}: {weak:.2f} as printed, "
        f"{every:.2f} with all outcomes"
    )
    target = np.abs(np.arange(9.0)[:, None] - np.arange(9.0)) / 8.0
    local = supplement.algorithm_1_semi_metric(target, 4.5, 100_000, 1e-6)
    defect = max(
        float(local[i, k] - local[i, j] - local[j, k])
        for i in range(9)
        for j in range(9)
        for k in range(9)
    )
    yield (
        f"nine points on a line of length 1, 100,000 people, delta {number(1e-6)}, largest "
        "local epsilon 4.5: one side of a "
        f"triangle is {defect:.1f} longer than the other two together"
    )


def whole_domain() -> Iterator[str]:
    """The closed table, and two searches."""
    delta = 0.006
    rate = 0.01
    line = np.abs(np.arange(41)[:, None] - np.arange(41)).astype(float)
    steps = np.array(
        [
            clones_epsilon(ClonePair(rate * step, rate * 40, rate * 40), 3, delta) if step else 0.0
            for step in range(41)
        ]
    )
    distances = steps[line.astype(int)]
    assert not distances.diagonal(1).any()
    assert closure(distances)[0, 40] == 0.0
    rows = PaddedExponential(line, rate, kept=(0, 40)).rows()
    laws = [multiset_law([rows[x], rows[40], rows[40]]) for x in (0, 40)]
    truth = multiset_divergence(laws[0], laws[1], 0.0)
    yield (
        f"Three people, whole numbers 0..40, rate {number(rate)}, delta {number(delta)}: "
        "delta alone hides every single step, so "
        "each has epsilon 0, and the shortest path from 0 to 40 has epsilon 0 too. The "
        "true delta of that pair at epsilon 0 is "
        f"{truth:.2f}"
    )
    wrong = clones_epsilon(ClonePair(0.5, 1.5, 2.0), 1000, 1e-6)
    right = clones_epsilon(ClonePair(0.5, 3.0, 3.0), 1000, 1e-6)
    hops = np.minimum(
        np.abs(np.arange(12)[:, None] - np.arange(12)),
        12 - np.abs(np.arange(12)[:, None] - np.arange(12)),
    )
    cycle = PaddedExponential(0.5 * hops, 1.0, kept=(3, 4, 9)).rows()
    reached = 0.166
    assert wrong < reached < right
    assert delta_lower(BlanketLaw.from_rows(cycle, 3, 4, [9]), 1000, reached) > 1e-6
    yield (
        f"a ring of 12 points, 0.5 between neighbours, 1,000 people, delta {number(1e-6)}: "
        "the two searches see a reach of 1.5 and "
        f"2 and give epsilon {wrong:.3f}; an explicit randomizer has more than "
        f"{number(reached)}. The reach is 3, and the clone "
        f"pair certifies {math.ceil(right * 1e3) / 1e3:.3f}"
    )


PARTS = (two_people, many_people, slips, witch_hat, whole_domain)
