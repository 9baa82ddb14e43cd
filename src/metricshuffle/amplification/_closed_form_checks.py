"""The part of `metricshuffle.testing.check_randomizer` that looks at closed forms: what is used for the class says what its own law says.

Closed forms are used for the classes they were made for, and for classes that say `keeps_law = True`. What is compared: the law, distances
and estimates of the class that is extended; the types of the others and the inputs that they are named after (`other_laws`, `sorts`); and
the laws of displacements (`every_pair.Displaced`).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from metricshuffle.accounting.beyond_blanket.laws import OthersLaws
from metricshuffle.accounting.blanket.geometric_pairs import displacement_laws
from metricshuffle.amplification.every_pair import Displaced
from metricshuffle.amplification.other_laws import others_of
from metricshuffle.amplification.sorts import named_sorts
from metricshuffle.errors import ConditionError
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers._checks import NAME, TOLERANCE, Pairs, blanket_excess, stop_losses
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.randomness import Randomness

SOME_PAIRS, SOME_INPUTS = 12, 64
FACTORS = (1.0, 1.5, 4.0)
SAME = 1e-7  # of stop losses that are sums over the same laws, by counting and by listing


def check_closed_forms(randomizer: Randomizer, rows: Floats, pairs: Pairs, randomness: Randomness) -> None:
    """Raise unless everything that is dispatched by the class of the randomizer agrees with its rows."""
    check_kept_laws(randomizer, rows, pairs)
    if not len(pairs):
        return
    own = np.array(list(itertools.islice(randomizer.pairs(), SOME_PAIRS)), dtype=np.int64).reshape(-1, 2)
    drawn = pairs[randomness.uniform_residues(SOME_PAIRS, len(pairs)).astype(np.int64)]
    chosen = [(int(a), int(b)) for a, b in np.unique(np.concatenate([own, drawn]), axis=0).tolist()]
    for a, b in chosen:
        law = others_of(randomizer, a, b)
        if law is None:
            break
        check_types(randomizer, rows, (a, b), law, randomness)
    if (shifts := Displaced.of(randomizer, 1)) is not None:
        check_displacements(randomizer, rows, chosen, shifts)


def check_kept_laws(randomizer: Randomizer, rows: Floats, pairs: Pairs) -> None:
    """What a class that says `keeps_law` extends has the same law, distances and estimates."""
    for kind in type(randomizer).__mro__[1:]:
        if kind is Randomizer or not (isinstance(kind, type) and issubclass(kind, Randomizer)):
            break
        if not has_law_of(randomizer, kind):
            break
        some = pairs[:: 1 + len(pairs) // 1000].tolist()
        compared: dict[str, tuple[Any, Any]] = {
            "rows()": (rows, kind.rows(randomizer)),
            "distances": ([randomizer.distance(a, b) for a, b in some], [kind.distance(randomizer, a, b) for a, b in some]),
            "targets()": (randomizer.targets(), kind.targets(randomizer)),
            "debiasing()": (randomizer.debiasing(), kind.debiasing(randomizer)),
        }
        for name, (kept, original) in compared.items():
            if np.shape(kept) != np.shape(original) or not np.allclose(kept, original, rtol=TOLERANCE, atol=1e-300):
                raise ConditionError(NAME, f"the {name} of {kind.__name__}, whose law it says it keeps (keeps_law)", "another one")


def check_types(randomizer: Randomizer, rows: Floats, pair: tuple[int, int], law: OthersLaws, randomness: Randomness) -> None:
    """The types by counting: every input's law is below a mixture of them, and each is that of the input it is named after."""
    a, b = pair
    common = float(rows.min(axis=0).sum())
    if not law.blanket <= common + TOLERANCE:
        raise ConditionError(NAME, f"a closed form for inputs {a} and {b} with at most {common:.12g} in common", f"{law.blanket!r}")
    chosen = np.arange(len(rows))
    if len(rows) > SOME_INPUTS:
        chosen = np.unique(np.append(randomness.uniform_residues(SOME_INPUTS, len(rows)).astype(np.int64), [a, b]))
    named = named_sorts(randomizer, a, b, len(law.types))
    for factor in FACTORS:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = ((rows[a] - factor * rows[b]) / rows[chosen]).ravel()
        thresholds = np.unique(np.append(np.quantile(ratios[np.isfinite(ratios)], np.linspace(0.0, 1.0, 12)), 0.0))
        scale = SAME * (1.0 + np.abs(thresholds))
        told = np.array([stop_losses(kind.a, kind.b, kind.mass, factor, thresholds) for kind in law.types])
        for x in chosen.tolist():
            true = stop_losses(rows[a], rows[b], rows[x], factor, thresholds)
            if not np.any(np.all(true <= told + scale, axis=1)) and not _mixed(told + scale, true):
                raise ConditionError(
                    NAME, f"a closed form for inputs {a} and {b} that covers others who hold {x}",
                    f"one that does not (at e^epsilon = {factor:.4g})",
                )  # fmt: skip
        for place, code in enumerate(named):
            if code is None:
                continue
            off = np.abs(told[place] - stop_losses(rows[a], rows[b], rows[code], factor, thresholds))
            if not np.all(off <= scale):
                raise ConditionError(
                    NAME, f"a closed form for inputs {a} and {b} whose others hold {code}", f"a law that is off by {float(off.max()):.3g}"
                )


def _mixed(told: Floats, true: Floats) -> bool:
    """Whether a mixture of the rows of `told` is nowhere below `true`."""
    from scipy.optimize import linprog

    found = linprog(np.zeros(len(told)), A_ub=-told.T, b_ub=-true, A_eq=np.ones((1, len(told))), b_eq=[1.0], bounds=(0.0, 1.0))
    return bool(found.success)


def check_displacements(randomizer: Randomizer, rows: Floats, pairs: list[tuple[int, int]], shifts: Displaced) -> None:
    """The law of a displacement covers every pair at it, at its distance."""
    profile = shifts.profile
    wide = profile.spans[0] + 1
    for a, b in pairs:
        steps = (abs(a - b),) if len(profile.spans) == 1 else (abs(a % wide - b % wide), abs(a // wide - b // wide))
        if any(step > span for step, span in zip(steps, profile.spans, strict=True)):
            raise ConditionError(NAME, f"inputs {a} and {b} on a line or grid of spans {profile.spans}", "one outside")
        apart, told = randomizer.distance(a, b), profile.length(steps)
        if not abs(apart - told) <= TOLERANCE * max(apart, told):
            raise ConditionError(NAME, f"inputs {a} and {b} to be {told:.6g} apart, as the closed form of its class says", f"{apart!r}")
        laws = [way for law in displacement_laws(profile.spans, profile.rate, steps, steps) for way in (law, law.reversed)]
        excess = min(blanket_excess(law, rows, a, b) for law in laws)
        if not excess <= TOLERANCE:
            raise ConditionError(
                NAME, f"the closed form of its class to cover inputs {a} and {b}", f"one that claims {excess:.3g} too much"
            )
