"""Parameters p, beta and q of common randomizers as Wang24 and its code state them, with verdicts.

Table 6 of the appendix has the general, Duchi, Harmony, subset exponential and PrivKV rows; the
others are those of the main text and of the published code. beta bounds the total variation of two
reports; max(K_a, K_b) <= q K_i for every other user. They feed the merged pair (formulas.py), which
is not an upper bound unless beta = (p-1)/(p+1); a sound use of the true ones is
BlanketLaw.three_symbol with min(beta, (p-1)/(p+1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import comb

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle_papers.published import Verdict, checked_number

_LAW = "randomizers.Randomizer.blanket of the randomizer itself"
_DUMMIES = (
    "the same q with users = 1 + the number of dummy messages; q = p if other people's reports "
    "are counted"
)


@dataclass(frozen=True)
class Parameters:
    """One row: stated values, verdict on beta and q, and what to use instead.

    "loose": beta is larger than the truth.
    """

    p: float
    beta: float
    q: float
    statement: str
    verdict: Verdict
    instead: str = _LAW


def _ratio(epsilon: float) -> float:
    return math.exp(checked_number("epsilon", epsilon, 0.0, 700.0))


def _whole(name: str, value: int, low: int, high: int | None = None) -> int:
    if value != int(value) or value < low or (high is not None and value > high):
        raise InputError(
            f"{name} must be a whole number >= "
            f"{low}{'' if high is None else f' and <= {high}'}, got {value!r}."
        )
    return int(value)


def _chance(value: float) -> float:
    if not 0.0 < value < 1.0:
        raise InputError(f"a probability must lie strictly between 0 and 1, got {value!r}.")
    return value


@theorem("Wang24", "Table 6, general mechanisms, Duchi, Harmony, as published: true")
def general(epsilon: float) -> Parameters:
    """beta = (p-1)/(p+1), for any local epsilon.

    Also for Duchi and Harmony (Duchi in an even dimension is below it).
    """
    p = _ratio(epsilon)
    return Parameters(p, (p - 1.0) / (p + 1.0), p, "general mechanisms", "true")


@theorem("Wang24", "parameters of k-RR, as published: true")
def randomized_response(epsilon: float, options: int) -> Parameters:
    """beta = (p-1)/(p+d-1) on d options."""
    p = _ratio(epsilon)
    d = _whole("options", options, 2)
    return Parameters(p, (p - 1.0) / (p + d - 1.0), p, "k-RR", "true")


@theorem("Wang24", "parameters of local hash, as published: loose")
def local_hash(epsilon: float, buckets: int) -> Parameters:
    """beta = (p-1)/(p+l-1) with l buckets.

    Reference: true, and (1 - 1/l) times it if every pair collides with probability at least 1/l.
    """
    p = _ratio(epsilon)
    buckets = _whole("buckets", buckets, 2)
    return Parameters(p, (p - 1.0) / (p + buckets - 1.0), p, "local hash", "loose")


@theorem("Wang24", "parameters of RAPPOR, as published: true")
def rappor(epsilon: float) -> Parameters:
    """beta = (sqrt(p)-1)/(sqrt(p)+1), each bit kept with probability sqrt(p)/(sqrt(p)+1).

    Reference: not for optimised unary encoding (true bit 1/2), whose total variation is
    (p-1)/(2(p+1)).
    """
    p = _ratio(epsilon)
    root = math.exp(0.5 * epsilon)
    return Parameters(p, (root - 1.0) / (root + 1.0), p, "RAPPOR", "true")


@theorem("Wang24", "parameters of subset selection, as published: true")
def subset_selection(epsilon: float, options: int, chosen: int) -> Parameters:
    """beta = (p-1)(C(d-1,k-1) - C(d-2,k-2))/(p C(d-1,k-1) + C(d-1,k)), subsets of k out of d."""
    p = _ratio(epsilon)
    d = _whole("options", options, 2)
    k = _whole("chosen", chosen, 1, d - 1)
    both = comb(d - 2, k - 2) if k >= 2 else 0
    beta = (p - 1.0) * (comb(d - 1, k - 1) - both) / (p * comb(d - 1, k - 1) + comb(d - 1, k))
    return Parameters(p, beta, p, "subset selection", "true")


@theorem("Wang24", "parameters of Hadamard response, as published: true")
def hadamard(epsilon: float, outputs: int, high: int, blocks: int = 1) -> Parameters:
    """beta = s(p-1)/2/(sp+K-s) with one block, s(p-1)/(sp+K-s) with several.

    s of K outputs are likely.
    """
    p = _ratio(epsilon)
    outputs = _whole("outputs", outputs, 2)
    blocks = _whole("blocks", blocks, 1)
    s = _whole("high", high, 1, outputs - 1)
    shared = 0.5 if blocks == 1 else 1.0
    return Parameters(
        p, shared * s * (p - 1.0) / (s * p + outputs - s), p, "Hadamard response", "true"
    )


@theorem("Wang24", "parameters of Laplace and Piecewise on an interval, as published: true")
def laplace(epsilon: float) -> Parameters:
    """beta = 1 - p^(-1/2), between the two ends."""
    p = _ratio(epsilon)
    return Parameters(p, -math.expm1(-0.5 * epsilon), p, "Laplace on an interval", "true")


@theorem("Wang24", "parameters of PCKV-GRR, as published: true")
def pckv(epsilon: float, keys: int, held: int) -> Parameters:
    """beta = s(p-1)/(sp+2d-s): s held of d keys, dummy keys counted in d."""
    p = _ratio(epsilon)
    d = _whole("keys", keys, 1)
    s = _whole("held", held, 1, d)
    return Parameters(p, s * (p - 1.0) / (s * p + 2 * d - s), p, "PCKV-GRR", "true")


@theorem("Wang24", "parameters of Collision, as published: true")
def collision(epsilon: float, buckets: int, held: int) -> Parameters:
    """beta = min(s, l-s)(p-1)/(sp+l-s): s likely buckets of l."""
    p = _ratio(epsilon)
    size = _whole("buckets", buckets, 2)
    s = _whole("held", held, 1, size - 1)
    return Parameters(p, min(s, size - s) * (p - 1.0) / (s * p + size - s), p, "Collision", "true")


@theorem("Wang24", "Table 6, k-subset exponential, as published: true")
def subset_exponential(epsilon: float, options: int, held: int, chosen: int) -> Parameters:
    """beta = (p-1)(C(d-s,k) - C(d-2s,k))/(p(C(d,k) - C(d-s,k)) + C(d-s,k)).

    The value is a set of s options, reports are k out of d.
    Conditions: 2s <= d, so that two sets can be disjoint.
    """
    p = _ratio(epsilon)
    d = _whole("options", options, 2)
    s = _whole("held", held, 1, d // 2)
    k = _whole("chosen", chosen, 1, d - 1)
    beta = (
        (p - 1.0)
        * (comb(d - s, k) - comb(d - 2 * s, k))
        / (p * (comb(d, k) - comb(d - s, k)) + comb(d - s, k))
    )
    return Parameters(p, beta, p, "k-subset exponential", "true")


@theorem("Wang24", "Table 6, PrivKV, as published: loose")
def priv_kv(epsilon_1: float, epsilon_2: float, keys: int, held: int) -> Parameters:
    """beta = 2s max(E1(E2-1)/(E2+1), E1-1 + (E2-1)/(2(E2+1)))/(d(E1+1)), s held of d keys.

    E_i = e^(epsilon_i), p = E1 E2.
    Reference: at least the truth, and it can exceed (p-1)/(p+1), which the theorems forbid: use the
    smaller of the two. Exact for 2s <= d: max((s/d) E1(E2-1)/((E1+1)(E2+1)), (2s/d) max(E1-1, E1
    E2/(E2+1) - 1/2)/(E1+1)).
    """
    one = _ratio(epsilon_1)
    two = _ratio(epsilon_2)
    d = _whole("keys", keys, 1)
    s = _whole("held", held, 1, d)
    most = max(one * (two - 1.0) / (two + 1.0), one - 1.0 + (two - 1.0) / (2.0 * (two + 1.0)))
    return Parameters(one * two, 2.0 * s * most / (d * (one + 1.0)), one * two, "PrivKV", "loose")


@theorem("Wang24", "parameters of WitchHat in the published code: false")
def witch_hat(half_width: float, epsilon: float, spread: float, distance: float) -> Parameters:
    """beta = 2(e^m - e^(D/F) + D/F - m)/(F(e^m - 1) + 2B) for values d apart.

    D = min(m, 2d/F), p = e^D, q = e^m.
    Reference: false: it exceeds 1 or falls below 0. The truth is (F(e^m - e^(m-d/F)) - d)/(F(e^m -
    1) + 2B) with d at most mF.
    """
    b = checked_number("half_width", half_width, 0.0)
    f = checked_number("spread", spread, 0.0)
    local = min(epsilon, 2.0 * checked_number("distance", distance, 0.0, 2.0 * b) / f)
    q = _ratio(epsilon)
    beta = 2.0 * (q - math.exp(local / f) + local / f - epsilon) / (f * (q - 1.0) + 2.0 * b)
    instead = "randomizers.witch_hat.WitchHatDensity.total_variation, or WitchHat.blanket"
    return Parameters(math.exp(local), beta, q, "WitchHat", "false", instead)


@theorem("Wang24", "parameters of Balcer-Cheu coins, as published: true")
def coins(heads: float) -> Parameters:
    """p = inf, beta = 1, q = max(1/f, 1/(1-f)): one user's bit among coins.

    The coins show 1 with probability f.
    Conditions: users = 1 + the number of coins.
    """
    f = _chance(heads)
    return Parameters(math.inf, 1.0, max(1.0 / f, 1.0 / (1.0 - f)), "coins", "true", _DUMMIES)


@theorem("Wang24", "parameters of flipped one-hot vectors, as published: false")
def flipped_vectors(flip: float) -> Parameters:
    """p = ((1-f)/f)^2, beta = 1-2f, q = (1-f)/f: each bit of a one-hot vector flipped.

    Bits are flipped with probability f < 1/2.
    Reference: q is that of all-zero dummy vectors; if other people's vectors are counted it is
    ((1-f)/f)^2.
    """
    f = _chance(flip)
    if f >= 0.5:
        raise ConditionError("Flipped one-hot vectors of Wang24", "flip < 1/2", f"{f!r}")
    return Parameters(
        ((1.0 - f) / f) ** 2,
        1.0 - 2.0 * f,
        (1.0 - f) / f,
        "flipped one-hot vectors",
        "false",
        _DUMMIES,
    )


@theorem("Wang24", "parameters of balls into bins, as published: true")
def balls_into_bins(bins: int, own: int) -> Parameters:
    """p = inf, beta = 1, q = d/s: a value has s of d bins, and uniform messages hide it.

    Conditions: users = 1 + the uniform messages.
    """
    d = _whole("bins", bins, 2)
    return Parameters(
        math.inf, 1.0, d / _whole("own", own, 1, d), "balls into bins", "true", _DUMMIES
    )


@theorem("Wang24", "parameters of mixDUMP, as published: false")
def mix_dump(flip: float, options: int) -> Parameters:
    """p = (1-f)(d-1)/f, beta = ((1-f)(d-1) - f)/(d-1), q = (1-f)d.

    A value is kept with probability 1-f, else replaced by another of d options.
    Reference: q is that of uniform dummies; other people's reports have q = p.
    Conditions: 1-f > 1/d.
    """
    f = _chance(flip)
    d = _whole("options", options, 2)
    if (1.0 - f) * d <= 1.0:
        raise ConditionError(
            "mixDUMP of Wang24", "1 - flip > 1/options", f"{1.0 - f:g} and {1.0 / d:g}"
        )
    p = (1.0 - f) * (d - 1.0) / f
    beta = ((1.0 - f) * (d - 1.0) - f) / (d - 1.0)
    return Parameters(p, beta, (1.0 - f) * d, "mixDUMP", "false", _DUMMIES)
