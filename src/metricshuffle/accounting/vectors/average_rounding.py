"""People with different numbers of items: everybody sends the same total, in whole units, and what the rounding costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError

# Up to here the exact factor is found from the neighbours among all fractions, a few hundred thousand of them.
MAX_EXACT = 1000


@theorem("metricshuffle", "Noisy vectors, people with different numbers of items")
def rounding_factor(most_items: int, units: int, *, public_sizes: bool = False) -> Fraction:
    """By what the slope grows when round(T c/m) is sent for a person whose m items have the feature c in all; T = `units`.

    Statement: let u = c/m and v = c'/m' with whole c, c' >= 0 and 1 <= m, m' <= M = `most_items`, and r(c, m) = (2Tc + m) // (2m) (half a
    unit is rounded up). Then |r(c, m) - r(c', m')| <= factor * T |u - v|, and the factor is the smallest such, at most
    1 + M(M-1)/T, and 1 if T is a multiple of 1, ..., M. With `public_sizes` m = m', and it is max over m of m ceil(T/m)/T <= 1 + (M-1)/T.
    So if sum_e rate_e |phi_e(x) - phi_e(y)| <= slope * distance(x, y), two people's sent vectors differ by at most
    factor * T * slope * (earth mover's distance of their items, each person's with total mass 1).
    Conditions: whole-number features of any size, as many coordinates as there are: it holds coordinate by coordinate. At least one item
    each (who has none is refused, or holds a declared point for nothing). Items are counted as they are: randomized first, on the
    person's side, people with different numbers of items are not protected any more (docs/proofs/noisy-vectors.md, (h)).
    Proof: r depends on u alone, rises with u, and r(u + 1) = r(u) + T. The slope of a chord is a mean of the slopes between the
    neighbours on the way, so the steepest chord joins neighbours among the fractions of denominators <= M in [0, 1]. Neighbours c/m, c'/m'
    lie 1/(m m') apart (Farey), so the factor is the largest m m' (r' - r)/T. Rounding adds less than 1 to T |u - v|, and
    |u - v| >= 1/(m m'), m m' <= M(M-1) unless m = m', when |u - v| >= 1/m.
    Numerics: exact up to M = 1000; beyond, 1 + M(M-1)/T, or 1 if T is a multiple.
    """
    for name, value in (("most_items", most_items), ("units", units)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number >= 1, got {value!r}.")
    if public_sizes:
        return max(Fraction(m * -(-units // m), units) for m in range(1, most_items + 1))
    if most_items > MAX_EXACT:
        # 1, ..., M have a common multiple of at least 2^(M-1), so fewer units are none, and it need not be computed
        multiple = most_items <= units.bit_length() and units % math.lcm(*range(1, most_items + 1)) == 0
        return Fraction(1) if multiple else 1 + Fraction(most_items * (most_items - 1), units)
    steepest = max(
        m * n * (_round_to_units(units, above, n) - _round_to_units(units, below, m)) for below, m, above, n in _neighbours(most_items)
    )
    return Fraction(steepest, units)


def _round_to_units(units: int, count: int, items: int) -> int:
    return (2 * units * count + items) // (2 * items)


def _neighbours(largest: int) -> Iterator[tuple[int, int, int, int]]:
    """a, b, c, d for all neighbours a/b < c/d among the fractions in [0, 1] with denominators up to `largest`."""
    a, b, c, d = 0, 1, 1, largest
    while c <= d:
        yield a, b, c, d
        if (c, d) == (1, 1):
            return
        k = (largest + b) // d
        a, b, c, d = c, d, k * c - a, k * d - b
