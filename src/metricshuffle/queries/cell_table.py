"""Tables of shares: where each cell lies, and what is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.query import Answer, Estimate
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Categories, Domain, Grid, Integers, Interval


def places_of(domain: Domain, width: float = 1.0) -> dict[str, Any]:
    """The columns that say where the cells of a domain lie, in the order of their codes; bins of a line are `width` wide.

    Whole numbers: the first and the last of each bin. Real numbers: its edges. Grids: south, west, north and east, in degrees
    on a map, else in units from the south-west corner.
    """
    if isinstance(domain, Categories):
        return {"label": list(domain.labels)}
    if isinstance(domain, Grid):
        corners = domain.all_values().astype(np.float64) * domain.cell
        if domain.box is not None:
            south, west = domain.degrees(corners)
            north, east = domain.degrees(corners + domain.cell)
        else:
            (west, south), (east, north) = corners.T, (corners + domain.cell).T
        return {"south": south, "west": west, "north": north, "east": east}
    if isinstance(domain, Integers):
        first = np.arange(domain.low, domain.high + 1, int(width))
        return {"low": first, "high": np.minimum(first + int(width) - 1, domain.high)}
    if isinstance(domain, Interval):
        count = bins_of(domain, width)
        edges = domain.low + width * np.arange(count + 1, dtype=np.float64)
        return {"low": edges[:-1], "high": np.minimum(edges[1:], domain.high)}
    raise InputError(f"there is no table over {domain}.")


def bins_of(domain: Integers | Interval, width: float) -> int:
    """How many bins of that width a line takes."""
    length = domain.high - domain.low + (1 if isinstance(domain, Integers) else 0)
    return max(1, int(np.ceil(length / width - 1e-9)))


def label_of(places: Mapping[str, Any], code: int) -> str:
    """A cell in words."""
    if "label" in places:
        return str(places["label"][code])
    if "low" in places:
        low, high = places["low"][code], places["high"][code]
        return _edge(low) if low == high else f"{_edge(low)} to {_edge(high)}"
    return ", ".join(f"{name} {float(places[name][code]):.6g}" for name in ("south", "west", "north", "east"))


def _edge(number: float) -> str:
    """Six digits, and all of whole or large numbers: neighbours must not have one name."""
    return f"{number:.0f}" if number == int(number) and abs(number) < 1e15 else f"{number:g}" if abs(number) < 1e4 else f"{number:.12g}"


def shares_answer(places: Mapping[str, Any], estimate: Estimate, level: float, *, simultaneous: bool, method: IntervalMethod) -> Answer:
    """The table of a histogram: for each cell a possible share, and what is known about it.

    `share` is never negative and sums to one. Where cells are told apart: the unbiased share, its standard error and interval. The
    interval belongs to the unbiased share, is cut to what is possible, and is widened to the share where a projection left it, which
    only makes it hold more often. Smoothed shares have none: what each is at most (no less than the share that is told), and the share
    nearby with its interval. Where the shares up to each cell of a line were measured, they come with a band that holds for all of
    them together.
    """
    people, percent = estimate.people, f"{level * 100:g}"
    shares = estimate.totals / people if estimate.possible is None else estimate.possible
    columns: dict[str, Any] = {**places, "share": shares, "count": shares * people}
    errors = interval = at_most = nearby = None
    if not estimate.smoothed:
        errors = estimate.standard_errors / people
        low, high = (np.clip(end / people, 0.0, 1.0) for end in estimate.interval(level, simultaneous=simultaneous, method=method))
        interval = np.column_stack([np.minimum(low, shares), np.maximum(high, shares)])
        columns |= {"standard_error": errors, f"interval_{percent}": _pairs(interval), "unbiased": estimate.totals / people}
    if estimate.at_most is not None:
        at_most = np.maximum(estimate.at_most(level, simultaneous), shares)
        columns[f"at_most_{percent}"] = at_most
    if estimate.nearby is not None:
        nearby = np.column_stack(estimate.nearby.ends(level, simultaneous))
        columns |= {"nearby": estimate.nearby.shares, f"nearby_{percent}": _pairs(nearby)}
    if estimate.band is not None:
        columns["cumulative"] = np.minimum(np.cumsum(shares), 1.0)
        columns[f"cumulative_{percent}"] = _pairs(np.column_stack(estimate.band(level)))
    return Answer(Table(columns), errors, interval, at_most=at_most, nearby=nearby)


def _pairs(rows: Floats) -> list[tuple[float, ...]]:
    return [tuple(row) for row in rows.tolist()]
