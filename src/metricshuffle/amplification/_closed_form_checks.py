"""The part of `check_randomizer` that compares closed forms with the randomizer's own law.

A closed form is used for the class of randomizers that it was made for, and for subclasses that set
`keeps_law = True`. This module compares three things with the rows of the randomizer: for
subclasses, the law, distances and estimates of the class they extend; the input classes of the
other people and their representatives (`input_classes`, `input_representatives`); and the laws of
displacements (`pair_cover.DisplacementLaws`).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from metricshuffle.accounting.shuffling.geometric_blanket import displacement_laws
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.amplification.input_classes import input_classes_of
from metricshuffle.amplification.input_representatives import class_representatives
from metricshuffle.amplification.pair_cover import DisplacementLaws
from metricshuffle.errors import ConditionError
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers._checks import NAME, TOLERANCE, Pairs, blanket_excess, stop_losses
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomness import Randomness

SOME_PAIRS = 12
SOME_INPUTS = 64
FACTORS = (1.0, 1.5, 4.0)
# Tolerance between stop losses of the same laws, summed by counting and by listing.
STOP_LOSS_TOLERANCE = 1e-7


def check_closed_forms(
    randomizer: Randomizer, rows: Floats, pairs: Pairs, randomness: Randomness
) -> None:
    """Check that everything dispatched by the class of the randomizer agrees with its rows."""
    check_kept_laws(randomizer, rows, pairs)
    if not len(pairs):
        return
    own = np.array(list(itertools.islice(randomizer.pairs(), SOME_PAIRS)), dtype=np.int64).reshape(
        -1, 2
    )
    sampled_pairs = pairs[randomness.uniform_residues(SOME_PAIRS, len(pairs)).astype(np.int64)]
    chosen = [
        (int(a), int(b))
        for a, b in np.unique(np.concatenate([own, sampled_pairs]), axis=0).tolist()
    ]
    for a, b in chosen:
        law = input_classes_of(randomizer, a, b)
        if law is None:
            break
        check_types(randomizer, rows, (a, b), law, randomness)
    if (shifts := DisplacementLaws.of(randomizer, 1)) is not None:
        check_displacements(randomizer, rows, chosen, shifts)


def check_kept_laws(randomizer: Randomizer, rows: Floats, pairs: Pairs) -> None:
    """Check that a class with `keeps_law` keeps the law, distances and estimates."""
    for kind in type(randomizer).__mro__[1:]:
        if kind is Randomizer or not (isinstance(kind, type) and issubclass(kind, Randomizer)):
            break
        if not has_law_of(randomizer, kind):
            break
        some = pairs[:: 1 + len(pairs) // 1000].tolist()
        compared: dict[str, tuple[Any, Any]] = {
            "rows()": (rows, kind.rows(randomizer)),
            "distances": (
                [randomizer.distance(a, b) for a, b in some],
                [kind.distance(randomizer, a, b) for a, b in some],
            ),
            "targets()": (randomizer.targets(), kind.targets(randomizer)),
            "debiasing()": (randomizer.debiasing(), kind.debiasing(randomizer)),
        }
        for name, (inherited_value, original) in compared.items():
            if np.shape(inherited_value) != np.shape(original) or not np.allclose(
                inherited_value, original, rtol=TOLERANCE, atol=1e-300
            ):
                raise ConditionError(
                    NAME,
                    f"the {name} of {kind.__name__}, whose law it says it keeps (keeps_law)",
                    "another one",
                )


def check_types(
    randomizer: Randomizer,
    rows: Floats,
    pair: tuple[int, int],
    law: InputClassLaws,
    randomness: Randomness,
) -> None:
    """Check that every input's law is below a mixture of the types of a pair.

    Each type must be the law of its representative.
    """
    a, b = pair
    common = float(rows.min(axis=0).sum())
    if not law.blanket <= common + TOLERANCE:
        raise ConditionError(
            NAME,
            f"a closed form for inputs {a} and {b} with at most {common:.12g} in common",
            f"{law.blanket!r}",
        )
    chosen = np.arange(len(rows))
    if len(rows) > SOME_INPUTS:
        chosen = np.unique(
            np.append(randomness.uniform_residues(SOME_INPUTS, len(rows)).astype(np.int64), [a, b])
        )
    named = class_representatives(randomizer, a, b, len(law.types))
    for factor in FACTORS:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = ((rows[a] - factor * rows[b]) / rows[chosen]).ravel()
        thresholds = np.unique(
            np.append(np.quantile(ratios[np.isfinite(ratios)], np.linspace(0.0, 1.0, 12)), 0.0)
        )
        scale = STOP_LOSS_TOLERANCE * (1.0 + np.abs(thresholds))
        class_losses = np.array(
            [stop_losses(kind.a, kind.b, kind.mass, factor, thresholds) for kind in law.types]
        )
        for x in chosen.tolist():
            true = stop_losses(rows[a], rows[b], rows[x], factor, thresholds)
            if not np.any(np.all(true <= class_losses + scale, axis=1)) and not _is_below_mixture(
                class_losses + scale, true
            ):
                raise ConditionError(
                    NAME,
                    f"a closed form for inputs {a} and {b} that covers others who hold {x}",
                    f"one that does not (at e^epsilon = {factor:.4g})",
                )
        for place, code in enumerate(named):
            if code is None:
                continue
            off = np.abs(
                class_losses[place] - stop_losses(rows[a], rows[b], rows[code], factor, thresholds)
            )
            if not np.all(off <= scale):
                raise ConditionError(
                    NAME,
                    f"a closed form for inputs {a} and {b} whose others hold {code}",
                    f"a law that is off by {float(off.max()):.3g}",
                )


def _is_below_mixture(table: Floats, true: Floats) -> bool:
    """Return whether some mixture of the rows of `table` is nowhere below `true`."""
    from scipy.optimize import linprog

    solution = linprog(
        np.zeros(len(table)),
        A_ub=-table.T,
        b_ub=-true,
        A_eq=np.ones((1, len(table))),
        b_eq=[1.0],
        bounds=(0.0, 1.0),
    )
    return bool(solution.success)


def check_displacements(
    randomizer: Randomizer, rows: Floats, pairs: list[tuple[int, int]], shifts: DisplacementLaws
) -> None:
    """Check that the law of each displacement covers every pair that differs by it."""
    profile = shifts.profile
    wide = profile.spans[0] + 1
    for a, b in pairs:
        steps = (
            (abs(a - b),)
            if len(profile.spans) == 1
            else (abs(a % wide - b % wide), abs(a // wide - b // wide))
        )
        if any(step > span for step, span in zip(steps, profile.spans, strict=True)):
            raise ConditionError(
                NAME,
                f"inputs {a} and {b} on a line or grid of spans {profile.spans}",
                "one outside",
            )
        apart = randomizer.distance(a, b)
        length = profile.length(steps)
        if not abs(apart - length) <= TOLERANCE * max(apart, length):
            raise ConditionError(
                NAME,
                f"inputs {a} and {b} to be {length:.6g} apart, as the closed form of its "
                "class says",
                f"{apart!r}",
            )
        laws = [
            direction
            for law in displacement_laws(profile.spans, profile.rate, steps, steps)
            for direction in (law, law.reversed)
        ]
        excess = min(blanket_excess(law, rows, a, b) for law in laws)
        if not excess <= TOLERANCE:
            raise ConditionError(
                NAME,
                f"the closed form of its class to cover inputs {a} and {b}",
                f"one that claims {excess:.3g} too much",
            )
