"""Noisy vectors in mixed shares: small views, packed elements, monotone in people."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.oracles import noisy_vectors as oracle
from tests.tables import check_all

from metricshuffle.accounting.sums import split_and_mix
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix, security_bits, view_penalty
from metricshuffle.accounting.vectors.encoding_terms import (
    largest_mixed_epsilon,
    mixing_term,
    packed_security_bits,
)
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.accounting.vectors.large_moves import LargeMoves
from metricshuffle.encodings.packed_vectors import Packed
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.privacy.profile import PureProfile, PureUpTo

HALF = Fraction(1, 2)
NONE = [Fraction(1)]


def square_root(excess: Fraction) -> float:
    with mpmath.workdps(40):
        return float(mpmath.sqrt(mpmath.mpf(excess.numerator) / excess.denominator))


def test_goldens_of_the_graph() -> None:
    assert oracle.excess(2, 5, 3) == Fraction(1, 35)
    assert oracle.excess(3, 4, 3) == Fraction(61, 840)
    for (people, messages, bits), exact in {
        (19, 8, 14): 9.304164395,
        (30, 10, 16): 16.560464288,
    }.items():
        assert -math.log2(square_root(oracle.excess(people, messages, 2**bits))) == pytest.approx(
            exact, abs=1e-9
        )
        assert exact - 1e-4 < security_bits(people, messages, 2**bits) < exact


def test_goldens_of_packed_elements() -> None:
    eight = [2**16] * 8
    assert packed_security_bits(2000, 19, eight) == pytest.approx(40.481661, abs=1e-6)
    assert packed_security_bits(2000, 18, eight) == pytest.approx(34.298021, abs=1e-6)
    assert packed_security_bits(2000, 19, [2**128]) == packed_security_bits(2000, 19, eight)
    # a coordinate that is always 0 counts like any other
    assert packed_security_bits(2000, 19, [*eight, 2**20]) == pytest.approx(
        40.481661 - 10.0, abs=1e-3
    )
    assert packed_security_bits(1000, 120, [2**20] * 50) > 40.0
    assert packed_security_bits(19, 3, [2**16] * 8) == 0.0
    with pytest.raises(InputError, match="2\\^1000"):
        packed_security_bits(1000, 120, [2**20] * 51)


def test_the_mixing_term() -> None:
    assert mixing_term(10.0, 36.8, 11) == pytest.approx(1.0125661027e-6, rel=1e-10)
    assert mixing_term(20.0, 36.8, 11) == pytest.approx(0.0223, rel=1e-2)
    for sharings, sigma, delta in [
        (11, 36.8, 1e-6),
        (1, 40.0, 1e-9),
        (152, 60.0, 1e-12),
        (3, 2.0, 0.9),
        (1, 900.0, 1e-6),
    ]:
        epsilon = largest_mixed_epsilon(sharings, sigma, delta)
        with mpmath.workdps(50):
            truth = mpmath.log(
                mpmath.mpf(delta) * mpmath.power(2, mpmath.mpf(sigma) + 1) / sharings - 1
            )
        assert truth - 1e-9 * max(1, abs(truth)) <= epsilon <= truth
        assert mixing_term(epsilon, sigma, sharings) <= delta
        # the profile keeps the same promise
        assert SplitAndMix(PureProfile(epsilon), sigma, sharings).delta(epsilon, 0.5) <= delta * (
            1 + 1e-15
        )
    with pytest.raises(NotCertified, match="more messages"):
        largest_mixed_epsilon(11, 10.0, 1e-6)
    with pytest.raises(NotCertified):
        largest_mixed_epsilon(11, 40.0, 0.0)
    for wrong in (0, True, 1.5):
        with pytest.raises(InputError, match="sharings"):
            mixing_term(1.0, 40.0, wrong)  # type: ignore[arg-type]


def test_golden_of_a_whole_view() -> None:
    noise = [[oracle.laplace_residue(z, HALF, 3) for z in range(3)]]
    data = [(0,), (0,)]
    moved = [(1,), (0,)]
    ideal = oracle.hockey_stick(
        oracle.residue_sums(data, noise, (3,)), oracle.residue_sums(moved, noise, (3,)), 1
    )
    view = oracle.hockey_stick(
        oracle.view_law(data, noise, (3,), 4), oracle.view_law(moved, noise, (3,), 4), 1
    )
    assert (ideal, view) == (Fraction(1, 49), Fraction(953, 35721))
    assert view <= ideal + 2 * square_root(oracle.excess(2, 4, 3)) / 2


Piles = list[tuple[list[oracle.Vector], oracle.Vector]]
"""The values of everybody, and the moduli, of each pile."""
Noise = list[list[list[Any]]]
"""Of each pile and coordinate, the chances of one person's noise."""


def views_of_piles(
    piles: Piles, noise: Noise, messages: int
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The joint law of the views of several piles, and of their ideal sums."""
    views: dict[Any, Any] = {(): Fraction(1)}
    sums: dict[Any, Any] = {(): Fraction(1)}
    for (values, moduli), own in zip(piles, noise, strict=True):
        view = oracle.view_law(values, own, moduli, messages)
        total = oracle.residue_sums(values, own, moduli)
        views = {
            (*key, more): mass * chance
            for key, mass in views.items()
            for more, chance in view.items()
        }
        sums = {
            (*key, more): mass * chance
            for key, mass in sums.items()
            for more, chance in total.items()
        }
    return views, sums


def check(cases: list[Piles], noise: Noise, messages: int) -> float:
    """Largest part of the mixing term that a pair of data sets needs, over several epsilons."""
    largest = 0.0
    laws = [views_of_piles(case, noise, messages) for case in cases]
    people = len(cases[0][0][0])
    taus = [
        square_root(oracle.excess(people, messages, math.prod(moduli))) / 2
        for _, moduli in cases[0]
    ]
    for (view, ideal), (other, shifted) in product(laws, repeat=2):
        for factor in (Fraction(1), Fraction(3, 2), Fraction(4)):
            added = float(oracle.hockey_stick(view, other, factor)) - float(
                oracle.hockey_stick(ideal, shifted, factor)
            )
            term = (1.0 + float(factor)) * sum(taus)
            assert added <= term + 1e-12
            largest = max(largest, added / term)
    return largest


def test_packed_elements_with_a_check_coordinate() -> None:
    """Two coordinates and one that is always 0 in an element of Z_2^3; two people, all pairs."""
    moduli = (2, 2, 2)
    flip = [
        [float(oracle.laplace_residue(z, p, 2)) for z in range(2)] for p in (HALF, Fraction(2, 3))
    ]
    noise = [[*flip, [1.0, 0.0]]]
    cases: list[Piles] = [
        [([(*first, 0), (*second, 0)], moduli)]
        for first, second in product(product(range(2), repeat=2), repeat=2)
        if first <= second
    ]
    assert 0.01 < check(cases, noise, 3) < 1.0


def test_people_with_shares_of_noise() -> None:
    """Three people with Polya shares of shape 1/3, one coordinate modulo 3."""
    noise = [[oracle.polya_residues(Fraction(1, 3), 0.7, 3)]]
    cases: list[Piles] = [
        [([(a,), (b,), (c,)], (3,))]
        for a, b, c in [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1), (0, 1, 2)]
    ]
    assert 0.01 < check(cases, noise, 3) < 1.0


def test_two_piles() -> None:
    noise = [
        [[oracle.laplace_residue(z, HALF, 2) for z in range(2)]],
        [[oracle.laplace_residue(z, HALF, 3) for z in range(3)]],
    ]
    cases: list[Piles] = [
        [([(a,), (b,)], (2,)), ([(a,), (2 * b,)], (3,))] for a, b in product(range(2), repeat=2)
    ]
    assert 0.01 < check(cases, noise, 4) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moduli", "messages", "people"),
    [
        ((2, 2, 2), 4, 2),
        ((3, 2), 4, 2),
        ((3, 3), 3, 2),
        ((2, 2), 4, 3),
        ((2, 2, 2), 3, 3),
        ((4, 2), 3, 2),
        ((5,), 4, 3),
        ((3, 2, 2), 3, 2),
    ],
)
def test_larger_packed_elements(moduli: oracle.Vector, messages: int, people: int) -> None:
    """The last coordinate is 0 in every value, where there are several."""
    noise = [
        [float(mass) for mass in oracle.polya_residues(Fraction(1, people), 0.5, q)] for q in moduli
    ]
    if len(moduli) > 1:
        noise[-1] = [1.0] + [0.0] * (moduli[-1] - 1)
    values = [v for v in product(*map(range, moduli)) if len(moduli) == 1 or v[-1] == 0]
    zero = values[0]
    last = values[-1]
    data = [
        [zero] * people,
        [last] + [zero] * (people - 1),
        [last] * people,
        [values[1]] + [last] * (people - 1),
    ]
    assert 0.001 < check([[(one, moduli)] for one in data], [noise], messages) < 1.0


def test_more_people_do_not_raise_the_expectation() -> None:
    """Step (d) of docs/proofs/noisy-vectors.md, exactly, for one more person."""
    for messages, order in [(3, 2), (3, 7), (4, 50), (4, 1000), (6, 2**14), (9, 2**20)]:
        g = messages - 1
        found = [oracle.excess(n, messages, order) for n in range(19, 26)]
        for n, (now, after) in enumerate(pairwise(found), start=19):
            new = Fraction(1, math.comb((n + 1) * g, g))
            both = 1 - (math.comb(n * g, g) + math.comb(2 * g, g) - 1) * new
            closed = Fraction(n, math.comb(n * g, g)) * (
                1 - Fraction(n - 1, 2 * math.comb((n - 1) * g, g))
            )
            assert both * closed >= Fraction(173, 100) * new
            assert (
                after
                <= now
                + (order - 1) * new * (1 + now)
                - (1 - Fraction(1, order)) * both * order * closed
            )
            if now <= Fraction(73, 100):
                assert after <= now


@check_all("messages", [3, 5, 8, 13, 24])
@check_all("bits", [1, 16, 64, 148, 400])
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
    from metricshuffle.accounting.vectors import encoding_terms

    assert 2.0 ** (-2.0 * encoding_terms.MIN_BITS) <= 0.73
    assert view_penalty(0.0, encoding_terms.MIN_BITS) > 0.8
    assert split_and_mix.MIN_USERS >= 19


# --- whole views, by code of their own ---


def views(
    points: list[tuple[int, ...]],
    rates: list[float],
    q: int,
    together: int,
    messages: int,
    people: int,
) -> dict[Any, Any]:
    """Masses of all views for all data, up to order of people.

    Independent groups of `together` coordinates and a check.
    """
    moduli = (q,) * (together + 1)
    check = [1.0] + [0.0] * (q - 1)
    noise = [
        [float(mass) for mass in oracle.polya_residues(Fraction(1, people), rate, q)]
        for rate in rates
    ]
    data = list(itertools.combinations_with_replacement(range(len(points)), people))
    found = {everybody: np.ones(1) for everybody in data}
    for first in range(0, len(rates), together):
        laws = [*noise[first : first + together], *[check] * (together + 1)][: together + 1]
        piles = {}
        for everybody in data:
            own = [
                (*points[x][first : first + together], *(0,) * (together + 1))[: together + 1]
                for x in everybody
            ]
            piles[everybody] = oracle.view_law(own, laws, moduli, messages)
        shown = sorted({view for law in piles.values() for view in law})
        for everybody, law in piles.items():
            found[everybody] = np.multiply.outer(
                found[everybody], np.array([float(law.get(view, 0)) for view in shown])
            ).ravel()
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("points", "rates", "together", "messages", "people"),
    [
        ([(1, 1), (0, 1), (0, 0)], [0.5, 0.8], 1, 5, 2),
        pytest.param(
            [(1, 0, 0), (0, 1, 0), (0, 0, 1)], [0.3, 0.9, 0.5], 2, 4, 2, marks=pytest.mark.slow
        ),
        ([(1,), (0,)], [0.7], 1, 5, 3),
    ],
)
def test_whole_views_keep_the_promise(
    points: Any, rates: list[float], together: int, messages: int, people: int
) -> None:
    """Epsilons below, at and above the loss, and the largest with a mixing delta.

    One mover, and several.
    """
    piles = -(-len(rates) // together)
    sigma = -0.5 * math.log2(oracle.excess(people, messages, 2 ** (together + 1)))
    laws = views(points, rates, 2, together, messages, people)
    compared = 0
    largest = 0.0
    for one, other in itertools.permutations(laws, 2):
        moved = np.abs(
            np.sum([points[x] for x in one], axis=0) - np.sum([points[x] for x in other], axis=0)
        )
        loss = float(np.sum(np.array(rates) * moved))
        profiles: list[Any] = [PureUpTo(loss * (1.0 + 1e-14), 1.0)]
        if sum((Counter(one) & Counter(other)).values()) == people - 1:
            (x,), (y,) = Counter(one) - Counter(other), Counter(other) - Counter(one)
            sizes = np.abs(np.subtract(points[x], points[y]))
            move = FeatureChanges(np.array(rates), sizes, np.ones_like(sizes))
            profiles.append(LargeMoves({1.0: (move,)}.__getitem__))
        reached = [
            largest_mixed_epsilon(piles, sigma, delta)
            for delta in (0.9, 0.5, 0.2)
            if piles * 2.0**-sigma < delta
        ]
        for epsilon in (0.0, 0.3 * loss, 0.8 * loss, loss * (1.0 + 1e-12), 2.0 * loss, *reached):
            true = float(np.maximum(laws[one] - math.exp(epsilon) * laws[other], 0.0).sum())
            for profile in profiles:
                said = SplitAndMix(profile, sigma, piles).delta(epsilon, 1.0)
                assert true <= said * (1.0 + 1e-9) + 1e-13
                compared = compared + 1
                largest = max(largest, true / said)
    assert compared > 10
    assert largest > 0.05


class Counted:
    """A source of words that are given."""

    def __init__(self, word: int) -> None:
        self.word = word

    def fill(self, out: Any) -> None:
        out[:] = self.word


def test_messages_are_those_of_the_proof() -> None:
    """All shares but one are jointly uniform over the random bits; the last is the difference."""
    packed = Packed(coordinates=3, bits=1, together=3, shares=3, trusted="shuffler")
    for value in itertools.product(range(-1, 3), repeat=3):
        seen: Counter[bytes] = Counter()
        for word in range(2**8):  # 2 shares of 3 residues and a check of one bit each
            row = packed.residues(np.array([value]), Counted(word))[0].reshape(3, 4)  # type: ignore[arg-type]
            assert np.all((row.sum(axis=0) - np.array([*value, 0])) % 2 == 0)
            seen[row[:2].tobytes()] += 1
        assert set(seen.values()) == {1}
        assert len(seen) == 256
