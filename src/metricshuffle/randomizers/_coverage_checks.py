"""The part of `check_randomizer` that checks that the listed pairs represent all pairs of inputs.

Listed pairs are those of `pairs`, `pairs_within` and `blankets`. Each bound needs the following for
every pair that is not listed:

* the blanket: a listed pair that is worse over what all inputs have in common (`check_covered`);
* beyond the blanket: a listed pair that is worse over the whole law of every other input
  (`check_whole_laws`);
* two reports, exactly: a listed pair whose probabilities enclose it (`check_two_reports`);
* clones, and epsilon without a delta: a listed pair with a larger local epsilon (`check_epsilons`).

A listed pair represents both directions, because the accounts evaluate both. Lower bounds need no
check: they are about data sets that exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.errors import ConditionError
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers._checks import (
    CLOSE_TOLERANCE,
    FEW_INPUTS,
    FEW_PAIRS,
    MAX_WORK,
    NAME,
    TOLERANCE,
    Pairs,
    chunks,
    inherits_all,
    levels_of,
    stop_losses,
    thin_pairs,
    true_epsilons,
    validated_pairs,
)
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness

FEW_LEVELS = 12
MANY_LEVELS = 64
THRESHOLDS = 16
WHOLE_WORK = 2**28  # numbers computed to compare whole laws


def check_pairs(
    randomizer: Randomizer,
    rows: Floats,
    pairs: Pairs,
    epsilons: Floats,
    distances: Floats,
    randomness: Randomness,
) -> int | None:
    """Check that `pairs`, `pairs_within` and `blankets` represent all pairs.

    Returns the number of pairs compared by whole laws; None if all were.
    """
    if not len(pairs):
        return None
    compared: int | None = None
    looks: list[tuple[str, float]] = [("pairs()", math.inf)]
    derived = inherits_all(randomizer, "pairs", "pairs_within")
    levels = levels_of(distances, FEW_LEVELS if derived else MANY_LEVELS)
    done: set[tuple[frozenset[tuple[int, int]], int]] = set()
    looks += [(f"pairs_within({level!r})", level) for level in (*levels, randomizer.diameter)]
    for source, level in looks:
        own = list(
            validated_pairs(
                randomizer,
                randomizer.pairs() if level == math.inf else randomizer.pairs_within(level),
                source,
            )
        )
        known = {*own, *((b, a) for a, b in own)}
        pairs_within = pairs[distances <= level * (1.0 + CLOSE_TOLERANCE)]
        unlisted = np.array(
            [pair for pair in pairs_within.tolist() if tuple(pair) not in known], dtype=np.int64
        ).reshape(-1, 2)
        key = (frozenset(known), len(pairs_within))
        again = key in done
        done.add(key)
        if (
            len(unlisted)
            and not again
            and (randomizer.inputs <= FEW_INPUTS or len(known) * rows.shape[1] <= MAX_WORK)
        ):
            standing = np.array(sorted(known), dtype=np.int64).reshape(-1, 2)
            check_epsilons(rows, unlisted, standing, source)
            check_covered(rows, unlisted, standing, epsilons, source)
            if rows.shape[1] == 2:
                check_two_reports(rows, unlisted, standing, source)
            whole_law_count = check_whole_laws(
                rows, unlisted, standing, epsilons, source, randomness
            )
            compared = (
                whole_law_count
                if compared is None
                else compared
                if whole_law_count is None
                else min(whole_law_count, compared)
            )
        if not inherits_all(randomizer, "blankets"):
            laws = [
                direction for law in randomizer.blankets(level) for direction in (law, law.reversed)
            ]
            check_covered(rows, pairs_within, laws, epsilons, f"blankets({level!r})")
    return compared


def fail_for(source: str, pair: tuple[int, int], how: str) -> None:
    a, b = pair
    raise ConditionError(
        NAME,
        f"{source} to represent all pairs of inputs",
        f"none that is as distinguishable as inputs {a} and {b} ({how})",
    )


def check_epsilons(rows: Floats, pairs: Pairs, standing: Pairs, source: str) -> None:
    """Check that no pair has a larger local epsilon than all representatives."""
    largest = float(np.max(true_epsilons(rows, standing), initial=0.0))
    own = true_epsilons(rows, pairs)
    worst = int(np.argmax(own))
    if not own[worst] <= largest * (1.0 + TOLERANCE) + CLOSE_TOLERANCE:
        a, b = pairs[worst].tolist()
        fail_for(
            source,
            (a, b),
            f"with a local epsilon of {own[worst]:.6g}, where {largest:.6g} is the largest",
        )


def check_two_reports(rows: Floats, pairs: Pairs, standing: Pairs, source: str) -> None:
    """Check that, with two reports, each pair is enclosed by a representative.

    Both laws of the enclosed pair are then mixtures of the representative's laws, and A - eB of a
    mixed pair is at most the same share of it. If the smallest and the largest probability of a
    report add up to one, the other report may take its place.
    """
    chances = rows[:, 1]
    low = chances[standing].min(axis=1)
    high = chances[standing].max(axis=1)
    if abs(float(chances.min() + chances.max()) - 1.0) <= CLOSE_TOLERANCE:
        low, high = np.concatenate([low, 1.0 - high]), np.concatenate([high, 1.0 - low])
    own_low = chances[pairs].min(axis=1)
    own_high = chances[pairs].max(axis=1)
    covered = (
        (low[None, :] <= own_low[:, None] + CLOSE_TOLERANCE)
        & (high[None, :] >= own_high[:, None] - CLOSE_TOLERANCE)
    ).any(axis=1)
    if not covered.all():
        a, b = pairs[int(np.argmin(covered))].tolist()
        fail_for(source, (a, b), "no listed pair encloses it")


def _factors(epsilons: Floats) -> list[float]:
    """Return a few e^epsilon, from 1 to three quarters of the largest epsilon (at most 8)."""
    max_epsilon = min(8.0, float(np.max(epsilons[np.isfinite(epsilons)], initial=1.0)))
    return sorted({math.exp(share * max_epsilon) for share in (0.0, 0.25, 0.5, 0.75)})


def _thresholds(ratios: Floats) -> Floats:
    finite = ratios[np.isfinite(ratios)]
    return np.unique(
        np.append(
            np.quantile(finite, np.linspace(0.0, 0.999, THRESHOLDS)) if finite.size else [], 0.0
        )
    )


def check_covered(
    rows: Floats,
    pairs: Pairs,
    standing: Pairs | Sequence[BlanketLaw],
    epsilons: Floats,
    source: str,
) -> None:
    """Check that each pair is dominated by a representative at every t (`stop_losses`).

    This is checked at each of a few e = e^epsilon.
    """
    common = rows.min(axis=0)
    for factor in _factors(epsilons):
        sample = thin_pairs(pairs, FEW_PAIRS)
        support = common > 0.0
        ratios = (
            rows[sample[:, 0]][:, support] - factor * rows[sample[:, 1]][:, support]
        ) / common[support]
        thresholds = _thresholds(ratios)
        parts = (
            [
                stop_losses(
                    rows[standing[part, 0]], rows[standing[part, 1]], common, factor, thresholds
                )
                for part in chunks(standing, common.size)
            ]
            if isinstance(standing, np.ndarray)
            else [stop_losses(law.a, law.b, law.mass, factor, thresholds)[None] for law in standing]
        )
        covering_losses = (
            np.unique(np.concatenate([np.empty((0, len(thresholds))), *parts]), axis=0)
            * (1.0 + TOLERANCE)
            + TOLERANCE
        )
        for part in chunks(pairs, max(rows.shape[1], covering_losses.size)):
            true = stop_losses(
                rows[pairs[part, 0]], rows[pairs[part, 1]], common, factor, thresholds
            )
            covered = np.all(true[:, None, :] <= covering_losses[None, :, :], axis=2).any(axis=1)
            if not covered.all():
                a, b = pairs[part][int(np.argmin(covered))].tolist()
                fail_for(source, (a, b), f"at e^epsilon = {factor:.4g}")


def types_of(rows: Floats, pair: Sequence[int], factor: float, thresholds: Floats) -> Floats:
    """Return E(G_x - t)_+ for every t and each input x that another person may hold.

    G_x = (K_a - factor K_b)/K_x under K_x; of equal rows, only one is returned.
    """
    a, b = pair
    count = len(rows)
    first = np.broadcast_to(rows[a], rows.shape)
    second = np.broadcast_to(rows[b], rows.shape)
    losses = np.empty((count, len(thresholds)))
    gaps = first - factor * second
    for place, threshold in enumerate(thresholds.tolist()):
        losses[:, place] = np.maximum(0.0, gaps - threshold * rows).sum(axis=1)
    rounded = np.round(losses, 11)  # equal up to rounding
    return losses[np.unique(rounded, axis=0, return_index=True)[1]]


def check_whole_laws(
    rows: Floats,
    pairs: Pairs,
    standing: Pairs,
    epsilons: Floats,
    source: str,
    randomness: Randomness,
) -> int | None:
    """Check that each pair is dominated, over the law of every other input, by a representative.

    Statement: the bound beyond the blanket is a mean of convex functions of independent sums of
    G_x, where x are the inputs of the others, and the largest such mean over these inputs. If every
    G_x of a pair is below some G_x' of a listed pair in convex order, its bound is no larger.

    Returns the number of pairs compared if there were too many (those that look worst and some at
    random), or None if all were.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(rows > 0.0, 1.0 / rows, 0.0)
    factors = _factors(epsilons)
    compared = None
    max_pairs = max(64, WHOLE_WORK // (rows.size * (THRESHOLDS + 1) * len(factors)))
    spreads = _spreads(rows, inverse, pairs)
    sizes = _spreads(rows, inverse, standing)
    if len(pairs) > max_pairs:
        order = np.argsort(-spreads, kind="stable")
        worst = order[: max_pairs // 2]
        others = order[max_pairs // 2 :]
        chosen = np.unique(
            np.append(
                worst,
                others[
                    randomness.uniform_residues(max_pairs - max_pairs // 2, len(others)).astype(
                        np.int64
                    )
                ],
            )
        )
        pairs = pairs[chosen]
        spreads = spreads[chosen]
        compared = max_pairs
    for factor in factors:
        sample = thin_pairs(pairs, FEW_PAIRS)
        gaps = rows[sample[:, 0]] - factor * rows[sample[:, 1]]
        thresholds = _thresholds((gaps[:, None, :] * thin_pairs(inverse, 20)[None, :, :]).ravel())
        known: dict[int, Floats] = {}
        for pair, spread in zip(pairs.tolist(), spreads.tolist(), strict=True):
            true = types_of(rows, pair, factor, thresholds)
            # A representative with the same laws comes first.
            for place in np.argsort(np.abs(sizes - spread), kind="stable").tolist():
                if place not in known:
                    known[place] = (
                        types_of(rows, standing[place].tolist(), factor, thresholds)
                        * (1.0 + TOLERANCE)
                        + TOLERANCE
                    )
                if np.all(true[:, None, :] <= known[place][None, :, :], axis=2).any(axis=1).all():
                    break
            else:
                fail_for(
                    source,
                    (pair[0], pair[1]),
                    f"at e^epsilon = {factor:.4g}, among others who hold the input that "
                    "hides it least",
                )
    return compared


def _spreads(rows: Floats, inverse: Floats, pairs: Pairs) -> Floats:
    """Return the largest mean square of (K_a - K_b)/K_x over x, which decides for many people."""
    out = np.empty(len(pairs))
    for part in chunks(pairs, rows.shape[1]):
        out[part] = ((rows[pairs[part, 0]] - rows[pairs[part, 1]]) ** 2 @ inverse.T).max(axis=1)
    return out
