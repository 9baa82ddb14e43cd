"""Whole views of an analyst who counts messages and dummies, in exact fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

Law = Sequence[Fraction]
View = dict[tuple[int, ...], Fraction]


def geometric_law(ratio: Fraction, radius: int) -> list[Fraction]:
    """Law on 0..2 radius in proportion to ratio^|z - radius|."""
    weights = [ratio ** abs(z - radius) for z in range(2 * radius + 1)]
    return [weight / sum(weights) for weight in weights]


def table_law(weights: Sequence[int]) -> list[Fraction]:
    """Law of the dummies from the weights of a dyadic table."""
    both = [*weights[:0:-1], *weights]
    return [Fraction(weight, sum(both)) for weight in both]


def view(law: Law, piles: Sequence[Sequence[int]], points: Sequence[int], hops: int = 1) -> View:
    """Law of the counts of all parts; piles[j][x] is the part of x.

    A pile of two parts has complementary dummies, others have independent ones.
    """
    whole: View = {(): Fraction(1)}
    for parts in piles:
        number = max(parts) + 1
        base = [sum(parts[x] == part for x in points) for part in range(number)]
        noise: View = {(0,) * number: Fraction(1)}
        for _ in range(hops):
            noise = _added(noise, _dummies(law, number))
        counts = {
            tuple(b + z for b, z in zip(base, drawn, strict=True)): chance
            for drawn, chance in noise.items()
        }
        whole = {
            (*left, *right): chance * more
            for left, chance in whole.items()
            for right, more in counts.items()
        }
    return whole


def _dummies(law: Law, parts: int) -> View:
    if parts == 2:
        top = len(law) - 1
        return {(z, top - z): chance for z, chance in enumerate(law)}
    return {
        drawn: math.prod((law[z] for z in drawn), start=Fraction(1))
        for drawn in itertools.product(range(len(law)), repeat=parts)
    }


def _added(left: View, right: View) -> View:
    total: View = {}
    for one, chance in left.items():
        for other, more in right.items():
            key = tuple(a + b for a, b in zip(one, other, strict=True))
            total[key] = total.get(key, Fraction(0)) + chance * more
    return total


def mixture(views: Sequence[tuple[Fraction, View]]) -> View:
    mixed: View = {}
    for weight, law in views:
        for key, chance in law.items():
            mixed[key] = mixed.get(key, Fraction(0)) + weight * chance
    return mixed


def divergence(first: View, second: View, factor: Fraction) -> Fraction:
    """Largest P(S) - factor Q(S): delta at epsilon = ln factor."""
    return sum(
        (
            max(Fraction(0), chance - factor * second.get(key, Fraction(0)))
            for key, chance in first.items()
        ),
        Fraction(0),
    )


def ramp_view(law: Law, point: int, width: int, thresholds: int, *, own_width: bool) -> View:
    """Law of the counts of ones of random ramps, for one person; each bit with its dummies."""
    whole: View = {(): Fraction(1)}
    for start in range(0, thresholds, width):
        stop = min(start + width, thresholds)
        above = sum(threshold >= point for threshold in range(start, stop))
        chance = Fraction(above, stop - start if own_width else width)
        bits = {1: chance, 0: 1 - chance}
        new: View = {}
        for key, mass in whole.items():
            for bit, of_bit in bits.items():
                for z, of_z in enumerate(law):
                    at = (*key, z + bit)
                    new[at] = new.get(at, Fraction(0)) + mass * of_bit * of_z
        whole = new
    return whole
