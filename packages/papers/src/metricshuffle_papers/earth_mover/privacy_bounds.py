"""Privacy bounds of Imola24 (earth mover's distance) as published.

"Metric Differential Privacy at the User-Level via the Earth Mover's Distance". They exist for
comparison. Nothing here is a `PrivacyProfile`, so no guarantee, plan or release can be made of it.
Distances are divided by the diameter. item_rate = alpha_0 of one item's randomizer, rate = alpha
per unit of earth mover's distance, m = items of one user, N = shuffled items (m in the local model,
users * m in the central one). Section 6, on errors: error_bounds.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, Model
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_delta
from metricshuffle.accounting.user_items.published_rate import (
    LARGEST,
    allows,
    largest_item_rate,
    moved_epsilon,
    spread,
    whole,
)
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle_papers.published import (
    Published,
    Verdict,
    checked_number,
    checked_people,
    open_delta,
)

Reading = Literal["fixed point", "delta e^-rate", "whole distance only"]

_FLOW = "accounting.user_items.item_reports"
_GROUP = "accounting.user_items.user_privacy.group_delta"
_SAMPLING = "accounting.user_items.subsampled_items"
_GAUSSIAN = "accounting.user_items.metric_gaussian.gaussian_sigma, calibrated at the diameter"


def shuffled_items(users: int, items: int, model: Model) -> int:
    """Number N of items that are shuffled together."""
    return ItemShuffle.of(model, users, items).shuffled


def _spread(item_rate: float, reports: float, log_term: float) -> float:
    """8 sqrt(e^alpha_0 log_term/N) + 8 e^alpha_0/N."""
    return spread(checked_number("item_rate", item_rate, 0.0, LARGEST), reports, log_term)


def _h(item_rate: float, reports: float, moved: float, total: float, log_term: float) -> float:
    """h(N; x0, x1) with x0 = moved, x1 = total, ln(4 x0/delta) = log_term."""
    return moved_epsilon(
        checked_number("item_rate", item_rate, 0.0, LARGEST), reports, moved, total, log_term
    )


def _checked_condition(statement: str, item_rate: float, reports: float, log_term: float) -> None:
    most = math.log(reports / (16.0 * log_term))
    if not item_rate < most:
        raise ConditionError(
            f"{statement} of Imola24",
            f"alpha_0 < ln(N/(16 ln(..))) = {most:.6g}",
            f"{item_rate:.6g}",
        )


@theorem("Imola24", "Lemma B.1, as published: loose")
def lemma_b_1(item_rate: float, distance: float, reports: int, delta: float) -> Published:
    """Epsilon of one item that moves by `distance` <= 1 among N shuffled ones.

    Statement: ln(1 + tanh(alpha_0 d/2)(8 sqrt(e^alpha_0 ln(4/delta)/N) + 8 e^alpha_0/N)).
    Conditions: alpha_0 <= ln(N/(16 ln(2/delta))).
    Reference: true, and about four to seven times what accounting.shuffling certifies. Its proof
    writes e^-eps0 for e^eps0 before the last line, and Lemma B.5, on which it rests, needs the
    ratio bounded both ways.
    """
    log_4 = math.log(4.0 / open_delta(delta))
    n = checked_people(reports)
    checked_number("distance", distance, 0.0, 1.0)
    most = math.log(n / (16.0 * math.log(2.0 / delta)))
    if not item_rate <= most:
        raise ConditionError(
            "Lemma B.1 of Imola24",
            f"alpha_0 <= ln(N/(16 ln(2/delta))) = {most:.6g}",
            f"{item_rate:.6g}",
        )
    return Published(
        _h(item_rate, n, 1.0, distance, log_4), "Lemma B.1", "loose", "accounting.shuffling"
    )


@theorem("Imola24", "Theorem 4.3, as published: loose")
def theorem_4_3(
    item_rate: float, distances: Sequence[float], reports: int, delta: float
) -> Published:
    """Epsilon of a change that moves items by `distances` among N shuffled ones.

    Its delta is delta e^epsilon.
    Statement: |v|_0 ln(1 + tanh(alpha_0 |v|_1/(2 |v|_0))(8 sqrt(e^alpha_0 ln(4 |v|_0/delta)/N) + 8
    e^alpha_0/N)).
    Conditions: alpha_0 < ln(N/(16 ln(4N/delta))).
    Reference: true, by group privacy with one epsilon for every step.
    """
    n = checked_people(reports)
    moves = [checked_number("distance", d, 0.0, 1.0) for d in distances if d != 0.0]
    if not 1 <= len(moves) <= n:
        raise InputError(f"between 1 and {n} items must move, got {len(moves)}.")
    _checked_condition("Theorem 4.3", item_rate, n, math.log(4.0 * n / open_delta(delta)))
    claim = _h(
        item_rate, n, float(len(moves)), math.fsum(moves), math.log(4.0 * len(moves) / delta)
    )
    return Published(claim, "Theorem 4.3", "loose", _FLOW)


def _judged(
    statement: str,
    item_rate: float,
    users: int,
    items: int,
    delta: float,
    model: Model,
    conditions: bool,
) -> tuple[int, float]:
    """N and ln(4m/delta) of Theorem 4.4."""
    n = shuffled_items(users, items, model)
    log_term = math.log(4.0 * items) - math.log(open_delta(delta))
    if conditions:
        _checked_condition(statement, item_rate, n, log_term)
    return n, log_term


@theorem("Imola24", "Theorem 4.4, as published: loose")
def theorem_4_4(
    item_rate: float, users: int, items: int, delta: float, model: Model, *, conditions: bool = True
) -> Published:
    """Rate of m items of one user among N shuffled ones.

    `delta` is the theorem's own, not the delta' it claims.
    Statement: sup over w of h(N; m, mw)/w = (m alpha_0/2)(8 sqrt(e^alpha_0 ln(4m/delta)/N) + 8
    e^alpha_0/N): h is concave in w, so that the sup is the slope at 0 and not the value at w = 1.
    Conditions: alpha_0 < ln(N/(16 ln(4m/delta))), which the theorem does not mention and its proof
    needs; `conditions=False` skips the check.
    Reference: true. Where the condition fails, the claim is at least m alpha_0, which plain
    composition gives with delta = 0.
    """
    n, log_term = _judged("Theorem 4.4", item_rate, users, items, delta, model, conditions)
    return Published(
        0.5 * items * item_rate * _spread(item_rate, n, log_term),
        f"Theorem 4.4, {model}",
        "loose",
        _FLOW,
    )


@theorem("Imola24", "delta' of Theorem 4.4, as published: loose")
def theorem_4_4_delta(
    item_rate: float, users: int, items: int, delta: float, model: Model, *, conditions: bool = True
) -> Published:
    """delta' = delta e^h(N; m, m); values of at least 1 are vacuous."""
    n, log_term = _judged("Theorem 4.4", item_rate, users, items, delta, model, conditions)
    whole = _h(item_rate, n, items, items, log_term) + math.log(delta)
    return Published(math.exp(min(whole, 700.0)), f"delta' of Theorem 4.4, {model}", "loose", _FLOW)


@theorem("Imola24", "Theorem 4.4 solved for alpha_0, as published: loose")
def theorem_4_4_item_rate(
    rate: float,
    delta: float,
    users: int,
    items: int,
    model: Model,
    reading: Reading = "fixed point",
) -> Published:
    """Largest item rate that Theorem 4.4 allows for a rate and a delta; else ConditionError.

    Statement: the theorem's delta is delta e^-h(N; m, m) ("fixed point"), or delta e^-rate, which
    is smaller and simpler. "whole distance only" is how the paper's example comes to 3.0: h(N; m,
    m) = rate at delta e^-rate, with no requirement for w < 1.
    Conditions: as for `theorem_4_4`.
    Numerics: bisection, the last value that satisfies.
    Reference: the first two are true; the last does not follow from the theorem: h(w)/w is largest
    at w -> 0.
    """
    n = shuffled_items(users, items, model)
    log_term = math.log(4.0 * items) - math.log(open_delta(delta))
    checked_number("rate", rate, 0.0)

    def allowed(item_rate: float) -> bool:
        if reading == "whole distance only":
            return _h(item_rate, n, items, items, log_term + rate) <= rate
        inner = log_term + (
            rate if reading == "delta e^-rate" else whole(item_rate, n, items, log_term)
        )
        return allows(item_rate, rate, n, items, inner)

    found = largest_item_rate(allowed)
    if found is None:
        raise ConditionError(
            "Theorem 4.4 of Imola24", "N > 16 ln(4m/delta)", f"N = {n} and {16.0 * log_term:.6g}"
        )
    verdict: Verdict = "false" if reading == "whole distance only" else "loose"
    return Published(found, f"Theorem 4.4 for alpha_0, {model}, {reading}", verdict, _FLOW)


def published_item_rate(
    rate: float, delta: float, users: int, items: int, model: Model
) -> float | None:
    """Item rate of Theorem 4.4, inverted correctly (fixed point); None where it does not apply."""
    try:
        return theorem_4_4_item_rate(rate, delta, users, items, model).claim
    except ConditionError:
        return None


@theorem("Imola24", "Equations (6) and (7), as published: loose")
def equation_item_rate(
    rate: float, delta: float, users: int, items: int, model: Model
) -> Published:
    """alpha_0 of Eq. (6), local, or Eq. (7), central.

    Statement: with L = ln(4m e^rate/delta) and ratio = rate sqrt(N/m)/(16 sqrt(m L)), alpha_0 =
    ratio/2 if ratio <= 2, else 2 ln ratio.
    Conditions: rate < m in the second case.
    Reference: the second case of (6) is empty, as L > rate; below alpha_0 = 4 the equations follow
    from Theorem 4.4, up to 8 times too small, or from composition. Beyond, Theorem 4.4's own rate
    is alpha_0/4 times the requested one: they do not follow, and the verdict is "false".
    """
    n = shuffled_items(users, items, model)
    log_term = math.log(4.0 * items) - math.log(open_delta(delta))
    log_term += checked_number("rate", rate, 0.0)
    ratio = rate * math.sqrt(n / items) / (16.0 * math.sqrt(items * log_term))
    if ratio > 2.0 and not rate < items:
        raise ConditionError(
            f"Eq. ({6 if model == 'local' else 7}) of Imola24", "rate < m", f"{rate:g} and {items}"
        )
    claim = 0.5 * ratio if ratio <= 2.0 else 2.0 * math.log(ratio)
    supported = claim * items <= rate or 0.5 * items * claim * _spread(claim, n, log_term) <= rate
    return Published(
        claim,
        "Eq. (6)" if model == "local" else "Eq. (7)",
        "loose" if supported else "false",
        _FLOW,
    )


@theorem("Imola24", "Text after Lemma 4.2, as published: false")
def lemma_4_2_scale(rate: float, users: int = 1, *, text: bool = False) -> Published:
    """Scale of the Gamma noise for a query with Lipschitz constant 1.

    Statement: omega = 1/(users rate); in the text omega/rate.
    Reference: the lemma is true for l1, l2 and linf (elsewhere the direction must be uniform in the
    ball, with Gamma(d+1)); the text divides by the rate twice and has rate^2 for a rate.
    """
    omega = 1.0 / (checked_people(users) * checked_number("rate", rate, 0.0))
    return Published(
        omega / rate if text else omega,
        "text after Lemma 4.2" if text else "Lemma 4.2",
        "false" if text else "true",
        "Lemma 4.2",
    )


@theorem("Imola24", "Gaussian width of Sections 4.1 and 6.1, as published: false")
def gaussian_width(
    rate: float, delta: float, users: int = 1, *, classical: bool = False, text: bool = False
) -> Published:
    """Width of Gaussian noise for a query with Lipschitz constant 1.

    Statement: sqrt(1.25 ln(1/delta)) omega, omega = 1/(users rate); `text`: omega/rate, as printed;
    `classical`: sqrt(2 ln(1.25/delta)).
    Reference: no constant of either form holds for every rate. The verdict is that of the exact
    delta at distance 1, the worst distance.
    """
    constant = math.sqrt(
        2.0 * math.log(1.25 / open_delta(delta)) if classical else 1.25 * math.log(1.0 / delta)
    )
    scale = lemma_4_2_scale(rate, users, text=text).claim
    held = gaussian_delta(rate, 1.0 / (constant * scale * checked_people(users))) <= delta
    return Published(
        constant * scale,
        "Gaussian width" + (", text" if text else ""),
        "true" if held else "false",
        _GAUSSIAN,
    )


@theorem("Imola24", "Lemma 5.2, as published: loose")
def lemma_5_2(distance: float, samples: int, delta: float, *, printed: bool = True) -> Published:
    """Upper bound on the earth mover's distance of two samples, with probability 1 - delta.

    Both samples have `samples` items.
    Statement: (1 + sqrt 2) distance + (3/8) ln(1/delta), printed; (3/s) ln(1/delta) in the proof.
    Reference: with 3/8 it is above 1, the largest distance, for delta < 0.069, however many
    samples; 3/s is true.
    """
    share = 3.0 / (8.0 if printed else checked_people(samples))
    claim = (1.0 + math.sqrt(2.0)) * checked_number(
        "distance", distance, 0.0, 1.0
    ) + share * math.log(1.0 / open_delta(delta))
    return Published(claim, "Lemma 5.2" + ("" if printed else " with 3/s"), "loose", _SAMPLING)


@theorem("Imola24", "Theorem 5.3, as published: loose")
def theorem_5_3_rate(epsilon: float, radius: float, samples: int, delta: float) -> Published:
    """Rate of the bounded mechanism for an (epsilon, 2 delta, radius)-discrete sampled one.

    Statement: epsilon/((1 + sqrt 2) radius + (3/s) ln(1/delta)).
    Reference: true.
    """
    claim = (
        checked_number("epsilon", epsilon, 0.0)
        / lemma_5_2(radius, samples, delta, printed=False).claim
    )
    return Published(claim, "Theorem 5.3", "loose", _SAMPLING)


@theorem("Imola24", "Theorem 1.3, as published: false")
def theorem_1_3(rate: float, radius: float, samples: int, delta: float) -> Published:
    """Epsilon at distances up to the radius after sampling, at an unchanged delta.

    Statement: rate * radius.
    Conditions: radius >= 2 ln(1/delta)/s.
    Reference: false. Laplace noise on a mean, everything at 0 against a share `radius` at 1, rate
    25, radius .008, s = 6908: delta at that epsilon is 1.677e-4, not 1e-12; the number of sampled
    ones is random, and only its mean is `radius`.
    """
    least = 2.0 * math.log(1.0 / open_delta(delta)) / checked_people(samples)
    if not checked_number("radius", radius, 0.0, 1.0) >= least:
        raise ConditionError(
            "Theorem 1.3 of Imola24", f"radius >= 2 ln(1/delta)/s = {least:.6g}", f"{radius:.6g}"
        )
    return Published(checked_number("rate", rate, 0.0) * radius, "Theorem 1.3", "false", _SAMPLING)


@theorem("Imola24", "Fact 5.1 and Table 1, as published: false")
def group_factor(epsilon: float, steps: int, *, table: bool = False) -> Published:
    """Factor by which delta grows over g steps: e^g (Fact 5.1), e^(g epsilon) (Table 1).

    Reference: the factor is (e^(g epsilon) - 1)/(e^epsilon - 1), attained by a chain of coins. Fact
    5.1 is below it for large epsilon, Table 1 for small epsilon, and each is above it elsewhere
    (with one step both are).
    """
    e = checked_number("epsilon", epsilon, 0.0, LARGEST)
    g = checked_people(steps)
    exponent = g * e if table else float(g)
    exact = math.log(math.expm1(min(g * e, 700.0))) - math.log(math.expm1(e))
    verdict: Verdict = "false" if exponent < exact else "loose"
    return Published(
        math.exp(min(exponent, 700.0)), "Table 1" if table else "Fact 5.1", verdict, _GROUP
    )
