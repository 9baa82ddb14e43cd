"""The deterministic parts of `metricshuffle.testing.check_randomizer`.

Checks that draw reports are in `_sampler_checks.py`. Each check raises a ConditionError that names
the violated condition and the place. All pairs of up to FEW_INPUTS inputs are checked. Methods
inherited from the base class are derived from `rows` there and are checked for a few pairs only.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.errors import ConditionError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers.randomizer import LocalProfile, Pair, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces.distance_matrix import open_triangle

NAME = "A randomizer"
TOLERANCE = 1e-9
CLOSE_TOLERANCE = 1e-12
FEW_INPUTS = 100
FEW_PAIRS = 50
MANY_PAIRS = 400
MAX_LEVELS = 64
CHUNK = 2**21
# A randomizer with more than FEW_INPUTS inputs may list pairs; if the number of these pairs times
# that of reports is larger than this, they are not all compared.
MAX_WORK = 2**26
LARGEST_JSON = 2**20

Pairs = Integers64


def inherits_all(randomizer: Randomizer, *names: str) -> bool:
    """Return whether all of these methods are those of the base class, derived from the rows."""
    return all(getattr(type(randomizer), name) is getattr(Randomizer, name) for name in names)


def thin_pairs(pairs: Pairs, max_pairs: int) -> Pairs:
    """Return at most `max_pairs` of the pairs, evenly spread, including the first and the last."""
    return (
        pairs
        if len(pairs) <= max_pairs
        else pairs[np.unique(np.linspace(0, len(pairs) - 1, max_pairs).astype(np.int64))]
    )


def spread_inputs(count: int, most: int) -> Integers64:
    """Return all inputs, or `most` of them, evenly spread."""
    return (
        np.arange(count)
        if count <= most
        else np.unique(np.linspace(0, count - 1, most).astype(np.int64))
    )


def validate_rows(randomizer: Randomizer) -> Floats:
    """Return the matrix of laws, after checking it.

    Every row must be a law, `law` must return the same rows, and every call the same matrix.
    """
    rows = np.array(randomizer.rows(), dtype=np.float64)
    if rows.shape != (randomizer.inputs, randomizer.outputs):
        raise ConditionError(
            NAME, f"rows of shape {(randomizer.inputs, randomizer.outputs)}", f"shape {rows.shape}"
        )
    for x, row in enumerate(rows):
        total = math.fsum(row)
        if not (np.all(row >= 0.0) and abs(total - 1.0) <= TOLERANCE):
            raise ConditionError(
                NAME,
                "rows of probabilities that sum to one",
                f"{total!r} (smallest entry {float(row.min())!r}) in row {x}",
            )
    for x in spread_inputs(len(rows), 8 if inherits_all(randomizer, "law") else 4096).tolist():
        if not np.allclose(randomizer.law(x), rows[x], rtol=CLOSE_TOLERANCE, atol=1e-300):
            raise ConditionError(
                NAME, "law(x) to be row x of rows()", f"a different law for x = {x}"
            )
    check_rows_again(randomizer, rows)
    return rows


def check_rows_again(randomizer: Randomizer, rows: Floats) -> None:
    """Check that a second call of `rows` returns the same matrix."""
    again = np.asarray(randomizer.rows(), dtype=np.float64)
    if again.shape != rows.shape or not np.array_equal(again, rows):
        difference = (
            "another shape"
            if again.shape != rows.shape
            else f"another law in row {int(np.argwhere(again != rows)[0][0])}"
        )
        raise ConditionError(NAME, "rows() that are the same at every call", difference)


def most_exposed(rows: Floats) -> tuple[float, Pair]:
    """Return the largest |log ratio| of two inputs at any report, and two inputs that have it."""
    high = rows.max(axis=0)
    low = rows.min(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(high > 0.0, high / low, 1.0)
    y = int(np.argmax(ratios))
    return math.log(float(ratios[y])), (int(np.argmax(rows[:, y])), int(np.argmin(rows[:, y])))


def some_pairs(randomizer: Randomizer, rows: Floats, most: int) -> Pairs:
    """Return all ordered pairs of up to FEW_INPUTS inputs.

    With more inputs: the worst pair, `most` that the randomizer lists, and `most` evenly spread.
    """
    count = randomizer.inputs
    own = list(
        itertools.islice(
            validated_pairs(randomizer, randomizer.pairs(), "pairs()"),
            None if count <= FEW_INPUTS else most,
        )
    )
    if count <= FEW_INPUTS:
        return np.array(list(itertools.permutations(range(count), 2)), dtype=np.int64).reshape(
            -1, 2
        )
    places = np.unique(np.linspace(0, count * (count - 1) - 1, most).astype(np.int64))
    first, second = np.divmod(places, count - 1)
    evenly = np.column_stack([first, second + (second >= first)])
    both = np.concatenate([np.array([most_exposed(rows)[1], *own], dtype=np.int64), evenly])
    return np.unique(np.concatenate([both, both[:, ::-1]]), axis=0)


def validated_pairs(randomizer: Randomizer, pairs: Iterable[Pair], source: str) -> Iterator[Pair]:
    """Yield the pairs, checking that each consists of two different inputs."""
    for a, b in pairs:
        if not (0 <= a < randomizer.inputs and 0 <= b < randomizer.inputs and a != b):
            raise ConditionError(
                NAME,
                f"{source} of two different inputs out of 0..{randomizer.inputs - 1}",
                f"the pair {(a, b)}",
            )
        yield int(a), int(b)


def chunks(pairs: Pairs, width: int) -> Iterator[slice]:
    """Yield slices of the pairs whose rows roughly fit in the cache."""
    step = max(1, CHUNK // max(1, width))
    for start in range(0, len(pairs), step):
        yield slice(start, start + step)


def true_epsilons(rows: Floats, pairs: Pairs) -> Floats:
    """Return max |log K_a/K_b| of every pair; inf where only one of them rules a report out."""
    out = np.zeros(len(pairs))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rows)
        for part in chunks(pairs, rows.shape[1]):
            gaps = np.abs(logs[pairs[part, 0]] - logs[pairs[part, 1]])
            # A report that both rule out gives NaN.
            out[part] = np.max(np.where(np.isnan(gaps), 0.0, gaps), axis=1)
    return out


def stop_losses(
    first: Floats, second: Floats, common: Floats, factor: float, thresholds: Floats
) -> Floats:
    """Return E(G - t)_+ for every t, per pair, with G = (K_a - factor K_b)/w.

    G has mass w at each report, and the remaining mass at 0. A report with w = 0 adds (K_a - factor
    K_b)_+ itself.
    The delta of shuffled reports is a mean of a convex function of sums of such G, and E G is the
    same for all pairs. So a pair with no larger stop losses at every t has no larger delta.
    """
    gaps = first - factor * second
    left = 1.0 - common.sum(axis=-1)
    alone = np.maximum(0.0, -thresholds) * left
    if first.ndim == 1:
        return np.asarray(np.maximum(0.0, gaps - thresholds[:, None] * common).sum(axis=1) + alone)
    # All thresholds at once would not fit in the cache.
    columns = [np.maximum(0.0, gaps - t * common).sum(axis=1) for t in thresholds.tolist()]
    return np.asarray(np.stack(columns, axis=1) + alone)


def check_guarantee(randomizer: Randomizer, rows: Floats, pairs: Pairs, epsilons: Floats) -> None:
    """Check that local_epsilon, local_delta and total_variation cover every pair."""
    worst, (first, second) = most_exposed(rows)
    derived = inherits_all(randomizer, "local_epsilon", "blanket")
    overall = math.inf
    # In the excluded case it would only be the largest of many derived numbers.
    if not (derived and inherits_all(randomizer, "pairs") and len(pairs) > MANY_PAIRS):
        overall = randomizer.local_epsilon()
        if not worst <= overall * (1.0 + TOLERANCE) + CLOSE_TOLERANCE:
            raise ConditionError(
                NAME,
                f"local_epsilon() to be at least {worst:.12g}, as inputs {first} and {second} have",
                f"{overall!r}",
            )
    known = {
        (a, b): epsilon for (a, b), epsilon in zip(pairs.tolist(), epsilons.tolist(), strict=True)
    }
    for a, b in thin_pairs(pairs, FEW_PAIRS if derived else len(pairs)).tolist():
        claimed = randomizer.local_epsilon(a, b)
        if not known[a, b] <= claimed * (1.0 + TOLERANCE) + CLOSE_TOLERANCE:
            raise ConditionError(
                NAME,
                f"local_epsilon of inputs {a} and {b} to be at least {known[a, b]:.12g}",
                f"{claimed!r}",
            )
        if not claimed <= overall * (1.0 + TOLERANCE) + CLOSE_TOLERANCE:
            raise ConditionError(
                NAME,
                f"local_epsilon() to cover inputs {a} and {b}, which have {claimed!r}",
                f"{overall!r}",
            )
    for a, b in thin_pairs(
        pairs, FEW_PAIRS if inherits_all(randomizer, "local_delta") else len(pairs)
    ).tolist():
        epsilon = 0.5 * min(known[a, b], 2.0)
        leaked = hockey_stick(rows[a], rows[b], math.exp(epsilon))
        claimed = randomizer.local_delta(a, b, epsilon)
        if not leaked <= claimed + TOLERANCE * leaked + CLOSE_TOLERANCE:
            raise ConditionError(
                NAME,
                f"local_delta of inputs {a} and {b} to be at least {leaked:.12g} at {epsilon:.6g}",
                f"{claimed!r}",
            )
    for a, b in thin_pairs(
        pairs, FEW_PAIRS if inherits_all(randomizer, "total_variation") else len(pairs)
    ).tolist():
        apart = hockey_stick(rows[a], rows[b], 1.0)
        claimed = randomizer.total_variation(a, b)
        if not apart <= claimed + TOLERANCE * apart + CLOSE_TOLERANCE:
            raise ConditionError(
                NAME,
                f"total_variation of inputs {a} and {b} to be at least {apart:.12g}",
                f"{claimed!r}",
            )


def hockey_stick(first: Floats, second: Floats, factor: float) -> float:
    """Return sum (first - factor second)_+."""
    return float(np.maximum(0.0, first - factor * second).sum())


def validate_distances(randomizer: Randomizer, rows: Floats, pairs: Pairs) -> Floats:
    """Return the distances of the pairs, after checking that they are a metric.

    No distance may exceed the diameter, and only inputs with the same law may be at distance 0.
    """
    known = {(a, b): float(randomizer.distance(a, b)) for a, b in pairs.tolist()}
    distances = np.array(list(known.values()))
    for (a, b), distance in known.items():
        back = known[b, a]
        if not 0.0 <= distance < math.inf:
            raise ConditionError(
                NAME,
                "distances that are finite numbers >= 0",
                f"{distance!r} for inputs {a} and {b}",
            )
        if not abs(distance - back) <= TOLERANCE * max(distance, back):
            raise ConditionError(
                NAME,
                "the same distance in both directions",
                f"{distance!r} from {a} to {b} and {back!r} from {b} to {a}",
            )
        if distance == 0.0 and not np.array_equal(rows[a], rows[b]):
            raise ConditionError(
                NAME,
                "a positive distance between inputs with different laws",
                f"0 for inputs {a} and {b}",
            )
    chosen = spread_inputs(randomizer.inputs, FEW_INPUTS).tolist()
    table = np.array([[float(randomizer.distance(a, b)) for b in chosen] for a in chosen])
    if not np.all(np.diag(table) == 0.0):
        a = chosen[int(np.argmax(np.diag(table) != 0.0))]
        raise ConditionError(
            NAME,
            "distance 0 between an input and itself",
            f"{randomizer.distance(a, a)!r} for input {a}",
        )
    opened = open_triangle(0.5 * (table + table.T), TOLERANCE)
    if opened is not None:
        i, j, k = opened
        raise ConditionError(
            NAME,
            "distances that satisfy the triangle inequality",
            f"{table[i, k]!s} from {chosen[i]} to {chosen[k]}, but {table[i, j]!s} + "
            f"{table[j, k]!s} by way of {chosen[j]}",
        )
    if len(pairs):
        farthest = max(known, key=known.__getitem__)
        if not known[farthest] <= randomizer.diameter * (1.0 + CLOSE_TOLERANCE) < math.inf:
            a, b = farthest
            raise ConditionError(
                NAME,
                f"a diameter of at least {known[farthest]!r}, as inputs {a} and {b} have",
                f"{randomizer.diameter!r}",
            )
    return distances


def levels_of(distances: Floats, most: int) -> list[float]:
    """Return the different distances, or `most` of them.

    Distances that differ only by rounding count as one, the largest.
    """
    ordered = np.unique(distances[distances > 0.0])
    if not ordered.size:
        return []
    levels = ordered[np.append(ordered[1:] > ordered[:-1] * (1.0 + CLOSE_TOLERANCE), True)]
    return [float(levels[place]) for place in spread_inputs(len(levels), most)]


def check_profile(
    randomizer: Randomizer, rows: Floats, pairs: Pairs, epsilons: Floats, distances: Floats
) -> None:
    """Check that local_profile covers every pair at its distance, with and without a delta.

    delta is checked at a few epsilons.
    """
    profile = randomizer.local_profile()
    order = np.argsort(distances, kind="stable")
    derived = isinstance(profile, LocalProfile) and profile.randomizer is randomizer
    levels = levels_of(distances, len(pairs))
    # A derived profile uses pairs_within, local_epsilon and local_delta, which have own checks.
    if derived:
        levels = [
            level for level in levels[:1] if np.count_nonzero(distances <= level) <= FEW_PAIRS
        ]
    grown = np.maximum.accumulate(epsilons[order])
    for level in levels:
        place = int(np.searchsorted(distances[order], level, side="right")) - 1
        claimed = profile.pure(level)
        if not grown[place] <= claimed * (1.0 + TOLERANCE) + CLOSE_TOLERANCE:
            a, b = pairs[order[int(np.argmax(epsilons[order][: place + 1]))]].tolist()
            raise ConditionError(
                NAME,
                f"local_profile to give epsilon >= {grown[place]:.12g} at distance "
                f"{level:.6g}, as inputs {a} and {b} have",
                f"{claimed!r}",
            )
    max_epsilon = float(np.max(epsilons[np.isfinite(epsilons)], initial=0.0))
    common = np.zeros(rows.shape[1])
    for epsilon in sorted({share * min(max_epsilon, 8.0) for share in (0.0, 0.3, 0.6, 0.9)}):
        factor = math.exp(epsilon)
        leaked = np.empty(len(pairs))
        for part in chunks(pairs, rows.shape[1]):
            leaked[part] = stop_losses(
                rows[pairs[part, 0]], rows[pairs[part, 1]], common, factor, np.zeros(1)
            )[:, 0]
        grown = np.maximum.accumulate(leaked[order])
        for level in [levels[place] for place in spread_inputs(len(levels), MAX_LEVELS)]:
            place = int(np.searchsorted(distances[order], level, side="right")) - 1
            claimed = profile.delta(epsilon, level)
            if not grown[place] <= claimed + TOLERANCE:
                a, b = pairs[order[int(np.argmax(leaked[order][: place + 1]))]].tolist()
                raise ConditionError(
                    NAME,
                    f"local_profile to give delta >= {grown[place]:.12g} at epsilon "
                    f"{epsilon:.6g} for {a} and {b}",
                    f"{claimed!r}",
                )


def blanket_excess(law: BlanketLaw, rows: Floats, a: int, b: int) -> float:
    """Return by how much the blanket law claims too much (> 0) for the pair (a, b) of these rows.

    It compares `stop_losses` at a few e. As functions of t they are convex and, for the blanket
    law, linear between the values of its G; so these values decide (at most 16 are used).
    """
    common = rows.min(axis=0)
    worst = -math.inf
    half_way = math.exp(0.5 * min(law.pure, 16.0))
    support = law.mass > 0.0
    for factor in (0.5, 1.0, 1.3, 2.5, half_way):
        values = np.unique((law.a[support] - factor * law.b[support]) / law.mass[support])
        thresholds = np.append(values[spread_inputs(len(values), 16)], 0.0)
        true = stop_losses(rows[a], rows[b], common, factor, thresholds)
        claimed = stop_losses(law.a, law.b, law.mass, factor, thresholds)
        # Far from 0 both losses are large and accurate only to a few units in the last place.
        worst = max(worst, float(np.max((true - claimed) / np.maximum(1.0, np.abs(thresholds)))))
    return worst


def check_blanket(randomizer: Randomizer, rows: Floats, pairs: Pairs) -> None:
    """Check that the blanket of a pair claims no more than all inputs have in common."""
    max_mass = float(rows.min(axis=0).sum())
    for a, b in thin_pairs(
        pairs, FEW_PAIRS if inherits_all(randomizer, "blanket") else len(pairs)
    ).tolist():
        law = randomizer.blanket(a, b)
        if not float(law.mass.sum()) <= max_mass + TOLERANCE:
            raise ConditionError(
                NAME,
                f"a blanket of mass <= {max_mass:.12g} for {a} and {b}",
                f"{float(law.mass.sum())!r}",
            )
        excess = blanket_excess(law, rows, a, b)
        if not excess <= TOLERANCE:
            raise ConditionError(
                NAME,
                f"a blanket of inputs {a} and {b} that all inputs have in common",
                f"one that claims {excess:.3g} too much",
            )


def check_estimator(randomizer: Randomizer, rows: Floats) -> None:
    """Check that `targets` are the means of `debiasing`, and `variances` its variances."""
    debiasing = np.asarray(randomizer.debiasing(), dtype=np.float64)
    targets = np.asarray(randomizer.targets(), dtype=np.float64)
    if (
        targets.ndim != 2
        or len(targets) != len(rows)
        or debiasing.shape != (rows.shape[1], targets.shape[1])
    ):
        raise ConditionError(
            NAME,
            f"targets with {len(rows)} rows, and debiasing with {rows.shape[1]} rows and "
            "as many columns",
            f"shapes {targets.shape} and {debiasing.shape}",
        )
    # A sum of large terms that cancel is accurate to a few units in the last place of the terms.
    off = np.abs(rows @ debiasing - targets)
    room = TOLERANCE * np.maximum(1.0, np.abs(targets)) + CLOSE_TOLERANCE * (
        rows @ np.abs(debiasing)
    )
    if not np.all(off <= room):
        x, column = (int(index) for index in np.argwhere(~(off <= room))[0])
        raise ConditionError(
            NAME,
            f"debiasing with the mean {float(targets[x, column])!r} for input {x}, target {column}",
            f"an error of {off[x, column]:.3g}",
        )
    if not inherits_all(randomizer, "variances"):
        second = rows @ debiasing**2
        off = np.abs(np.asarray(randomizer.variances()) - np.maximum(0.0, second - targets**2))
        if not np.all(off <= TOLERANCE * np.maximum(1.0, second)):
            x, column = (
                int(index)
                for index in np.argwhere(~(off <= TOLERANCE * np.maximum(1.0, second)))[0]
            )
            raise ConditionError(
                NAME,
                f"the variance of debiasing for input {x}, target {column}",
                f"an error of {off[x, column]:.3g}",
            )


def check_json(randomizer: Randomizer, rows: Floats) -> None:
    """Check that the randomizer survives a round trip through JSON, which plans and tasks store."""
    if "kind" not in type(randomizer).model_fields or rows.size > LARGEST_JSON:
        return  # a plan cannot contain a randomizer without a kind
    whole = "JSON that holds the whole randomizer"
    try:
        again = Randomizer.of_kind(json.loads(randomizer.model_dump_json()))
    except Exception as error:
        raise ConditionError(
            NAME, whole, f"what cannot be read back ({type(error).__name__}: {error})"
        ) from error
    if type(again) is not type(randomizer):
        raise ConditionError(NAME, whole, f"a {type(again).__name__} when it was read back")
    assert isinstance(again, Randomizer)  # noqa: S101 - as its type is
    chosen = spread_inputs(randomizer.inputs, 20)
    pairs = [(a, b) for a, b in itertools.permutations(chosen.tolist(), 2)]
    seed = "check_randomizer: read back"
    compared: dict[str, Callable[[Randomizer], Any]] = {
        "rows()": lambda source: source.rows(),
        "distance": lambda source: [source.distance(a, b) for a, b in pairs],
        "diameter": lambda source: source.diameter,
        "local_epsilon": lambda source: [
            source.local_epsilon(a, b) for a, b in pairs[:: 1 + len(pairs) // 20]
        ],
        "targets()": lambda source: source.targets(),
        "debiasing()": lambda source: source.debiasing(),
        "reports": lambda source: source.codes_of(
            source.reports(source.values_of(np.repeat(chosen, 20)), Randomness.seeded(seed))
        ),
    }
    for name, look in compared.items():
        if not np.array_equal(np.asarray(look(randomizer)), np.asarray(look(again))):
            raise ConditionError(NAME, whole, f"another {name} when it was read back")
