"""Delta of users with a single item each: one move among shuffled items, which needs no flow.

item_reports.py uses it for users with one item. Distances are in diameters. `total` is the rate of
the item randomizer times the diameter, `shuffled` the number of items that are shuffled together.
"""

from __future__ import annotations

import math

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down, round_up

MIN_INTERVAL_FRACTION = 1e-9  # of the distance; failure on a shorter interval refuses the guarantee
MAX_INTERVALS = 400

Check = tuple[float, float, float]
"""(distance, epsilon, delta) of one evaluation."""


def one_move(total: float, shuffled: int, epsilon: float, distance: float) -> float:
    """delta of one move up to that distance, by the pair of clones.

    Valid for any item randomizer whose law A_x of the report of x obeys A_x <= e^(total d(x,x'))
    A_x' for all points x, x' at distance d(x,x').
    """
    return delta_upper(ClonePair(round_up(total * distance, 4), total, total), shuffled, epsilon)


@theorem("metricshuffle", "one item at every distance")
def every_distance(
    total: float, shuffled: int, rate: float, delta: float, reach: float
) -> tuple[bool, list[Check]]:
    """Check delta at epsilon = rate * w for one move of every real length w in (0, reach].

    Returns whether it is at most `delta` everywhere, and the checks that decided it.

    Statement: let delta(w) be the delta of a move of length w at epsilon = rate * w, h(w) =
    tanh(total w/2), and [u, v] an interval of lengths. Let D(t) be the hockey-stick divergence at t
    = e^epsilon of the clone pair of p = e^(total v) with clones of mass (1 + h(u)) e^-total. Let
    s(w) >= h(w) and e(w) <= e^(rate w) - 1 be functions that are linear on [u, v]. Then, for every
    w in [u, v], delta(w) <= max over x in {u, v} of (s(x)/h(v)) D(1 + e(x) h(v)/s(x)).
    Proof: delta(w) is at most the divergence of R_h and R_-h, the two laws of
    docs/proofs/item-moves.md, with h = h(w) and clones of mass (1 + h(w)) e^-total. With fewer
    clones the divergence is larger, so the mass (1 + h(u)) e^-total may be used for every w in [u,
    v]. Let F(a) be the largest power of a test between the two laws whose false alarms have
    probability a. As h(w) <= h(v), F(a) <= a + h(w) G(a) for every a, with G(a) = inf over t of
    (D(t) + (t-1) a)/h(v). So delta(w) <= sup_a s(w) G(a) - e(w) a. For each a this is linear in w,
    so the supremum is convex in w and largest at an end of [u, v], where it is the expression
    above. QED.
    Conditions: 0 < total <= 600, as for CloneLines. On the first piece, from 0, s = total w/2 and e
    = rate w, whose ratio does not change; on the other pieces both are tangents at v.
    Numerics: if the check at v fails with the clones of v, the answer is no; a piece that fails at
    an end, with the clones of u, is halved. Rounded up.
    Reference: this docstring.
    """
    pending: list[tuple[float, float]] = [(0.0, reach)]
    checks: list[Check] = []
    for _ in range(MAX_INTERVALS):
        if not pending:
            return True, checks
        low, high = pending.pop()
        exact = one_move(total, shuffled, round_down(rate * high, 4), high)
        if not exact <= delta:
            return False, [*checks, (high, rate * high, exact)]
        worst = max(exact, _at_ends(total, shuffled, rate, low, high))
        if worst <= delta:
            checks.append((high, rate * high, worst))
        elif high - low < MIN_INTERVAL_FRACTION * reach:
            return False, [*checks, (high, rate * high, worst)]
        else:
            middle = 0.5 * high if low == 0.0 else 0.5 * (low + high)
            pending += [(low, middle), (middle, high)]
    return False, checks


def _at_ends(total: float, shuffled: int, rate: float, low: float, high: float) -> float:
    """Larger of the checks at `low` (0 for low = 0) and `high`, both with the clones of `low`."""
    top = math.tanh(0.5 * total * high)
    bottom = round_down(math.tanh(0.5 * total * low), 4)
    fewer = round_up(total + math.log1p(round_up(top, 4)) - math.log1p(bottom), 8)
    pair = ClonePair(round_up(total * high, 4), fewer, fewer)
    if low == 0.0:
        return _scaled_divergence(
            pair, shuffled, 0.5 * total * high / top, rate * high, rate * high
        )
    step = high - low
    growth = math.expm1(rate * high)
    share = (top - 0.5 * total * (1.0 - top) * (1.0 + top) * step) / top
    moved = growth - rate * math.exp(rate * high) * step
    return max(
        delta_upper(pair, shuffled, round_down(rate * high, 4)),
        _scaled_divergence(pair, shuffled, share, moved, growth),
    )


def _scaled_divergence(
    pair: ClonePair, shuffled: int, share: float, moved: float, growth: float
) -> float:
    """share * D(1 + moved/share), rounded up, D the divergence of `pair` (see `every_distance`).

    `share` and `moved` are differences of numbers of about the size 1 and `growth`; their errors
    may be a few units in the last place of these.
    """
    share = round_up(share + 1e-14, 8)
    moved = round_down(moved - 1e-14 * growth, 8)
    if not moved > 0.0:
        return math.inf
    return round_up(
        share * delta_upper(pair, shuffled, round_down(math.log1p(moved / share), 8)), 8
    )
