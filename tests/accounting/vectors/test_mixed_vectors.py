"""Noisy vectors in mixed shares: whole views of small crowds, packed elements, and that more people are never worse."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import mpmath
import pytest
from tests.oracles import noisy_vectors as oracle

from metricshuffle.accounting.sums import split_and_mix
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix, security_bits, view_penalty
from metricshuffle.accounting.vectors.share_mixture import largest_mixed_epsilon, mixing_term, packed_security_bits
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.privacy.profile import PureProfile

HALF = Fraction(1, 2)
NONE = [Fraction(1)]


def square_root(excess: Fraction) -> float:
    with mpmath.workdps(40):
        return float(mpmath.sqrt(mpmath.mpf(excess.numerator) / excess.denominator))


def test_goldens_of_the_graph() -> None:
    assert oracle.excess(2, 5, 3) == Fraction(1, 35)
    assert oracle.excess(3, 4, 3) == Fraction(61, 840)
    for (people, messages, bits), exact in {(19, 8, 14): 9.304164395, (30, 10, 16): 16.560464288}.items():
        assert -math.log2(square_root(oracle.excess(people, messages, 2**bits))) == pytest.approx(exact, abs=1e-9)
        assert exact - 1e-4 < security_bits(people, messages, 2**bits) < exact


def test_goldens_of_packed_elements() -> None:
    eight = [2**16] * 8
    assert packed_security_bits(2000, 19, eight) == pytest.approx(40.481661, abs=1e-6)
    assert packed_security_bits(2000, 18, eight) == pytest.approx(34.298021, abs=1e-6)
    assert packed_security_bits(2000, 19, [2**128]) == packed_security_bits(2000, 19, eight)
    # a coordinate that is always 0 counts like any other
    assert packed_security_bits(2000, 19, [*eight, 2**20]) == pytest.approx(40.481661 - 10.0, abs=1e-3)
    assert packed_security_bits(1000, 120, [2**20] * 50) > 40.0
    assert packed_security_bits(19, 3, [2**16] * 8) == 0.0
    with pytest.raises(InputError, match="2\\^1000"):
        packed_security_bits(1000, 120, [2**20] * 51)


def test_the_mixing_term() -> None:
    assert mixing_term(10.0, 36.8, 11) == pytest.approx(1.0125661027e-6, rel=1e-10)
    assert mixing_term(20.0, 36.8, 11) == pytest.approx(0.0223, rel=1e-2)
    for sharings, sigma, delta in [(11, 36.8, 1e-6), (1, 40.0, 1e-9), (152, 60.0, 1e-12), (3, 2.0, 0.9), (1, 900.0, 1e-6)]:
        epsilon = largest_mixed_epsilon(sharings, sigma, delta)
        with mpmath.workdps(50):
            truth = mpmath.log(mpmath.mpf(delta) * mpmath.power(2, mpmath.mpf(sigma) + 1) / sharings - 1)
        assert truth - 1e-9 * max(1, abs(truth)) <= epsilon <= truth
        assert mixing_term(epsilon, sigma, sharings) <= delta
        # the profile keeps the same promise
        assert SplitAndMix(PureProfile(epsilon), sigma, sharings).delta(epsilon, 0.5) <= delta * (1 + 1e-15)
    with pytest.raises(NotCertified, match="more messages"):
        largest_mixed_epsilon(11, 10.0, 1e-6)
    with pytest.raises(NotCertified):
        largest_mixed_epsilon(11, 40.0, 0.0)
    for wrong in (0, True, 1.5):
        with pytest.raises(InputError, match="sharings"):
            mixing_term(1.0, 40.0, wrong)  # type: ignore[arg-type]


def test_golden_of_a_whole_view() -> None:
    noise = [[oracle.laplace_residue(z, HALF, 3) for z in range(3)]]
    data, moved = [(0,), (0,)], [(1,), (0,)]
    ideal = oracle.hockey_stick(oracle.residue_sums(data, noise, (3,)), oracle.residue_sums(moved, noise, (3,)), 1)
    view = oracle.hockey_stick(oracle.view_law(data, noise, (3,), 4), oracle.view_law(moved, noise, (3,), 4), 1)
    assert (ideal, view) == (Fraction(1, 49), Fraction(953, 35721))
    assert view <= ideal + 2 * square_root(oracle.excess(2, 4, 3)) / 2


Piles = list[tuple[list[oracle.Vector], oracle.Vector]]
"""The values of everybody, and the moduli, of each pile."""
Noise = list[list[list[Any]]]
"""Of each pile and coordinate, the chances of one person's noise."""


def views_of_piles(piles: Piles, noise: Noise, messages: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The joint law of the views of several piles, and of their ideal sums."""
    views: dict[Any, Any] = {(): Fraction(1)}
    sums: dict[Any, Any] = {(): Fraction(1)}
    for (values, moduli), own in zip(piles, noise, strict=True):
        view, total = oracle.view_law(values, own, moduli, messages), oracle.residue_sums(values, own, moduli)
        views = {(*key, more): mass * chance for key, mass in views.items() for more, chance in view.items()}
        sums = {(*key, more): mass * chance for key, mass in sums.items() for more, chance in total.items()}
    return views, sums


def check(cases: list[Piles], noise: Noise, messages: int) -> float:
    """The largest part of the mixing term that some pair of data sets needs, over several epsilons."""
    largest = 0.0
    laws = [views_of_piles(case, noise, messages) for case in cases]
    people = len(cases[0][0][0])
    taus = [square_root(oracle.excess(people, messages, math.prod(moduli))) / 2 for _, moduli in cases[0]]
    for (view, ideal), (other, shifted) in product(laws, repeat=2):
        for factor in (Fraction(1), Fraction(3, 2), Fraction(4)):
            added = float(oracle.hockey_stick(view, other, factor)) - float(oracle.hockey_stick(ideal, shifted, factor))
            term = (1.0 + float(factor)) * sum(taus)
            assert added <= term + 1e-12
            largest = max(largest, added / term)
    return largest


def test_packed_elements_with_a_check_coordinate() -> None:
    """Two coordinates and one that is always 0 in one element of Z_2^3; two people, every pair of data sets."""
    moduli = (2, 2, 2)
    flip = [[float(oracle.laplace_residue(z, p, 2)) for z in range(2)] for p in (HALF, Fraction(2, 3))]
    noise = [[*flip, [1.0, 0.0]]]
    cases: list[Piles] = [
        [([(*first, 0), (*second, 0)], moduli)] for first, second in product(product(range(2), repeat=2), repeat=2) if first <= second
    ]
    assert 0.01 < check(cases, noise, 3) < 1.0


def test_people_with_shares_of_noise() -> None:
    """Three people with Polya shares of shape 1/3, one coordinate modulo 3."""
    noise = [[oracle.polya_residues(Fraction(1, 3), 0.7, 3)]]
    cases: list[Piles] = [[([(a,), (b,), (c,)], (3,))] for a, b, c in [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1), (0, 1, 2)]]
    assert 0.01 < check(cases, noise, 3) < 1.0


def test_two_piles() -> None:
    noise = [[[oracle.laplace_residue(z, HALF, 2) for z in range(2)]], [[oracle.laplace_residue(z, HALF, 3) for z in range(3)]]]
    cases: list[Piles] = [[([(a,), (b,)], (2,)), ([(a,), (2 * b,)], (3,))] for a, b in product(range(2), repeat=2)]
    assert 0.01 < check(cases, noise, 4) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moduli", "messages", "people"),
    [((2, 2, 2), 4, 2), ((3, 2), 4, 2), ((3, 3), 3, 2), ((2, 2), 4, 3), ((2, 2, 2), 3, 3), ((4, 2), 3, 2), ((5,), 4, 3), ((3, 2, 2), 3, 2)],
)
def test_larger_packed_elements(moduli: oracle.Vector, messages: int, people: int) -> None:
    """The last coordinate is 0 in every value, where there are several."""
    noise = [[float(mass) for mass in oracle.polya_residues(Fraction(1, people), 0.5, q)] for q in moduli]
    if len(moduli) > 1:
        noise[-1] = [1.0] + [0.0] * (moduli[-1] - 1)
    values = [v for v in product(*map(range, moduli)) if len(moduli) == 1 or v[-1] == 0]
    zero, last = values[0], values[-1]
    data = [[zero] * people, [last] + [zero] * (people - 1), [last] * people, [values[1]] + [last] * (people - 1)]
    assert 0.001 < check([[(one, moduli)] for one in data], [noise], messages) < 1.0


def test_more_people_do_not_raise_the_expectation() -> None:
    """Step (d) of docs/proofs/noisy-vectors.md, exactly: the inequality for one more person, and what follows from it."""
    for messages, order in [(3, 2), (3, 7), (4, 50), (4, 1000), (6, 2**14), (9, 2**20)]:
        g = messages - 1
        found = [oracle.excess(n, messages, order) for n in range(19, 26)]
        for n, (now, after) in enumerate(pairwise(found), start=19):
            new = Fraction(1, math.comb((n + 1) * g, g))
            both = 1 - (math.comb(n * g, g) + math.comb(2 * g, g) - 1) * new
            closed = Fraction(n, math.comb(n * g, g)) * (1 - Fraction(n - 1, 2 * math.comb((n - 1) * g, g)))
            assert both * closed >= Fraction(173, 100) * new
            assert after <= now + (order - 1) * new * (1 + now) - (1 - Fraction(1, order)) * both * order * closed
            if now <= Fraction(73, 100):
                assert after <= now


@pytest.mark.parametrize("messages", [3, 5, 8, 13, 24])
@pytest.mark.parametrize("bits", [1, 16, 64, 148, 400])
def test_sigma_does_not_fall_as_people_are_added(messages: int, bits: int) -> None:
    """The computed sigma, too, up to what its middle term jumps by where people are few."""
    sizes = [*range(19, 60), *range(60, 300, 7), *range(300, 2001, 100)]
    found = [security_bits(n, messages, 2**bits) for n in sizes]
    assert all(after >= before - 1e-6 for before, after in pairwise(found))


@pytest.mark.slow
@pytest.mark.parametrize("messages", [3, 4, 6, 10, 16, 24])
def test_sigma_does_not_fall_for_every_number_up_to_2000(messages: int) -> None:
    for bits in (1, 8, 16, 21, 64, 128, 148, 400):
        found = [security_bits(n, messages, 2**bits) for n in range(19, 2001)]
        assert all(after >= before - 1e-6 for before, after in pairwise(found))


def test_the_least_bits_are_those_the_proof_needs() -> None:
    from metricshuffle.accounting.vectors import share_mixture

    assert 2.0 ** (-2.0 * share_mixture.MIN_BITS) <= 0.73
    assert view_penalty(0.0, share_mixture.MIN_BITS) > 0.8
    assert split_and_mix.MIN_USERS >= 19
