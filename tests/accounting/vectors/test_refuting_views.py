"""Attempts to refute what is promised of whole views: all messages of all piles, everybody's data, any number of people who move."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles import noisy_vectors as oracle

from metricshuffle.accounting.sums.split_and_mix import SplitAndMix
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.accounting.vectors.large_moves import LargeMoves
from metricshuffle.accounting.vectors.share_mixture import largest_mixed_epsilon
from metricshuffle.encodings.packed_vectors import Packed
from metricshuffle.privacy.profile import PureUpTo


def views(points: list[tuple[int, ...]], rates: list[float], q: int, together: int, messages: int, people: int) -> dict[Any, Any]:
    """For everybody's data, up to who is who, the masses of all views: of piles of `together` coordinates and a check, independent."""
    moduli = (q,) * (together + 1)
    check = [1.0] + [0.0] * (q - 1)
    noise = [[float(mass) for mass in oracle.polya_residues(Fraction(1, people), rate, q)] for rate in rates]
    data = list(itertools.combinations_with_replacement(range(len(points)), people))
    found = {everybody: np.ones(1) for everybody in data}
    for first in range(0, len(rates), together):
        laws = [*noise[first : first + together], *[check] * (together + 1)][: together + 1]
        piles = {}
        for everybody in data:
            own = [(*points[x][first : first + together], *(0,) * (together + 1))[: together + 1] for x in everybody]
            piles[everybody] = oracle.view_law(own, laws, moduli, messages)
        shown = sorted({view for law in piles.values() for view in law})
        for everybody, law in piles.items():
            found[everybody] = np.multiply.outer(found[everybody], np.array([float(law.get(view, 0)) for view in shown])).ravel()
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("points", "rates", "together", "messages", "people"),
    [
        ([(1, 1), (0, 1), (0, 0)], [0.5, 0.8], 1, 5, 2),
        pytest.param([(1, 0, 0), (0, 1, 0), (0, 0, 1)], [0.3, 0.9, 0.5], 2, 4, 2, marks=pytest.mark.slow),
        ([(1,), (0,)], [0.7], 1, 5, 3),
    ],
)
def test_whole_views_keep_the_promise(points: Any, rates: list[float], together: int, messages: int, people: int) -> None:
    """At epsilons below, at and above the loss, and at the largest that a delta of mixing is promised for; one mover, and several."""
    piles = -(-len(rates) // together)
    sigma = -0.5 * math.log2(oracle.excess(people, messages, 2 ** (together + 1)))
    laws = views(points, rates, 2, together, messages, people)
    compared, largest = 0, 0.0
    for one, other in itertools.permutations(laws, 2):
        moved = np.abs(np.sum([points[x] for x in one], axis=0) - np.sum([points[x] for x in other], axis=0))
        loss = float(np.sum(np.array(rates) * moved))
        profiles: list[Any] = [PureUpTo(loss * (1.0 + 1e-14), 1.0)]
        if sum((Counter(one) & Counter(other)).values()) == people - 1:
            (x,), (y,) = Counter(one) - Counter(other), Counter(other) - Counter(one)
            sizes = np.abs(np.subtract(points[x], points[y]))
            move = FeatureChanges(np.array(rates), sizes, np.ones_like(sizes))
            profiles.append(LargeMoves({1.0: (move,)}.__getitem__))
        reached = [largest_mixed_epsilon(piles, sigma, delta) for delta in (0.9, 0.5, 0.2) if piles * 2.0**-sigma < delta]
        for epsilon in (0.0, 0.3 * loss, 0.8 * loss, loss * (1.0 + 1e-12), 2.0 * loss, *reached):
            true = float(np.maximum(laws[one] - math.exp(epsilon) * laws[other], 0.0).sum())
            for profile in profiles:
                said = SplitAndMix(profile, sigma, piles).delta(epsilon, 1.0)
                assert true <= said * (1.0 + 1e-9) + 1e-13
                compared, largest = compared + 1, max(largest, true / said)
    assert compared > 10
    assert largest > 0.05


class Counted:
    """A source of words that are given."""

    def __init__(self, word: int) -> None:
        self.word = word

    def fill(self, out: Any) -> None:
        out[:] = self.word


def test_messages_are_those_of_the_proof() -> None:
    """Over all random bits that are read: all shares but one take all values equally often, together, and the last is the difference."""
    packed = Packed(coordinates=3, bits=1, together=3, shares=3, trusted="shuffler")
    for value in itertools.product(range(-1, 3), repeat=3):
        seen: Counter[bytes] = Counter()
        for word in range(2**8):  # 2 shares of 3 residues and a check of one bit each
            row = packed.residues(np.array([value]), Counted(word))[0].reshape(3, 4)  # type: ignore[arg-type]
            assert np.all((row.sum(axis=0) - np.array([*value, 0])) % 2 == 0)
            seen[row[:2].tobytes()] += 1
        assert set(seen.values()) == {1}
        assert len(seen) == 256
