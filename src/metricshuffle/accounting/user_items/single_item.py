"""Users with a single item each: one move among shuffled items, which needs no flow. Distances are in diameters."""

from __future__ import annotations

import math

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import round_down, round_up

MIN_INTERVAL_FRACTION = 1e-9  # of the distance: below, a linear promise is given up
MAX_INTERVALS = 400

Check = tuple[float, float, float]
"""(distance, epsilon, delta) of one evaluation."""


def one_move(total: float, shuffled: int, epsilon: float, distance: float) -> float:
    """delta of one move of any item randomizer with A_x <= e^(total d(x,x')) A_x', up to that distance: the pair of clones."""
    return delta_upper(ClonePair(round_up(total * distance, 4), total, total), shuffled, epsilon)


@theorem("metricshuffle", "one item at every distance")
def every_distance(total: float, shuffled: int, rate: float, delta: float, reach: float) -> tuple[bool, list[Check]]:
    """Whether one move of length w has at most `delta` at epsilon = rate * w, for every real w in (0, reach]; and the checks that tell.

    Statement: let h(w) = tanh(total w/2), D the divergence of the clone pair of p = e^(total v) with clones of mass (1 + h(u)) e^-total,
    and s(w) >= h(w), e(w) <= e^(rate w) - 1 be linear on [u, v]. Then delta(w) <= max over w in {u, v} of
    (s(w)/h(v)) D(1 + e(w) h(v)/s(w)), for every w in [u, v].
    Proof: delta(w) is at most the divergence of R_h and R_-h (docs/proofs/item-moves.md) with the mass (1 + h(w)) e^-total, and with fewer
    clones it is larger. There h(w) <= h(v), so that every a has F(a) <= a + h(w) G(a), G(a) = inf over t of (D(t) + (t-1) a)/h(v), and
    delta(w) <= sup_a s(w) G(a) - e(w) a, which for each a is linear in w: the supremum is convex, and largest at an end, where it is
    the expression above. QED
    Conditions: 0 < total <= 600, as for CloneLines. On the first piece, from 0, s = total w/2 and e = rate w, whose ratio does not
    change; on the others both are tangents at v.
    Numerics: if v itself fails, with its own clones, that is the answer; a piece that fails at an end, with the clones of u, is halved.
    Rounded up.
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
    """The larger of the checks at `low`, where it is 0 for low = 0, and at `high`, both with the clones that `low` has."""
    top, bottom = math.tanh(0.5 * total * high), round_down(math.tanh(0.5 * total * low), 4)
    fewer = round_up(total + math.log1p(round_up(top, 4)) - math.log1p(bottom), 8)
    pair = ClonePair(round_up(total * high, 4), fewer, fewer)
    if low == 0.0:
        return _scaled_divergence(pair, shuffled, 0.5 * total * high / top, rate * high, rate * high)
    step, growth = high - low, math.expm1(rate * high)
    share = (top - 0.5 * total * (1.0 - top) * (1.0 + top) * step) / top
    moved = growth - rate * math.exp(rate * high) * step
    return max(delta_upper(pair, shuffled, round_down(rate * high, 4)), _scaled_divergence(pair, shuffled, share, moved, growth))


def _scaled_divergence(pair: ClonePair, shuffled: int, share: float, moved: float, growth: float) -> float:
    """share * D(1 + moved/share); they may be off by a few units of 1 and of `most`, which they are differences of."""
    share, moved = round_up(share + 1e-14, 8), round_down(moved - 1e-14 * growth, 8)
    if not moved > 0.0:
        return math.inf
    return round_up(share * delta_upper(pair, shuffled, round_down(math.log1p(moved / share), 8)), 8)
