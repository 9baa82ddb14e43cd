"""Verdict on a published upper bound, from a certified band around the truth."""

from __future__ import annotations

from collections.abc import Callable

from metricshuffle_papers.reproduction import Row, Verdict

ALIKE = 1e-6


def upper_verdict(claim: float, lower: float, upper: float) -> Verdict | None:
    """Judge an upper bound; None where nothing is proved either way.

    false: below the certified lower bound; true: within rounding of the certified upper bound;
    loose: above it.
    """
    if claim < lower:
        return "false"
    if claim >= upper * (1.0 - ALIKE):
        return "loose" if claim > upper * (1.0 + ALIKE) else "true"
    return None


def upper_row(
    label: str,
    claim: float,
    band: tuple[float, float],
    note: str = "",
    leaked: Callable[[], float] | None = None,
) -> Row:
    """Row that compares a printed upper bound with the certified (lower, upper) around the truth.

    `leaked` is the delta of a data set at the claimed epsilon over the claimed one, for the note on
    a false claim. A claim about which nothing is proved gets a note instead of a verdict.
    """
    lower, upper = band
    verdict = upper_verdict(claim, lower, upper)
    between = f"certified between {lower:.7g} and {upper:.7g}"
    if verdict is None:
        words = (f"the formula gives {claim:.7g}, and nothing is proved either way", between, note)
        return Row(label, ours=upper, note="; ".join(filter(None, words)))
    more = (
        f"at the claimed epsilon a data set has {leaked():.5g} times the claimed delta"
        if leaked and verdict == "false"
        else ""
    )
    return Row(
        label, None, claim, upper, verdict, note="; ".join(filter(None, (more, between, note)))
    )
