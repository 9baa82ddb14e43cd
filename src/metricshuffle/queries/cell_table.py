"""Tables of shares: the place of each cell, and what is known about its share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.numerics.types import Floats
from metricshuffle.queries.query import Answer, Estimate
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Categories, Domain, Grid, Integers, Interval, ZonePairs, Zones


def places_of(domain: Domain, width: float = 1.0) -> dict[str, Any]:
    """Columns that give the place of each cell of a domain, in the order of their codes.

    Bins of a line have this `width`. Whole numbers: the first and the last of each bin. Real
    numbers: its edges. Grids: south, west, north and east, in degrees on a map, else in units from
    the south-west corner. Zones: their ids and representative points in degrees. Pairs of
    zones: the ids of both ends, and their blocks if there are any.
    """
    if isinstance(domain, Categories):
        return {"label": list(domain.labels)}
    if isinstance(domain, Zones):
        latitudes, longitudes = domain.degrees.T
        return {"zone": list(domain.ids), "latitude": latitudes, "longitude": longitudes}
    if isinstance(domain, ZonePairs):
        ends = dict(zip(("from", "to"), domain.ends(domain.all_values()), strict=True))
        names = {"": domain.zones.ids, "_block": domain.zones.blocks}
        return {
            f"{end}{suffix}": [column[code] for code in codes.tolist()]
            for suffix, column in names.items()
            if column is not None
            for end, codes in ends.items()
        }
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
    raise InputError(
        f"there is no table over {domain}.",
        field="domain",
        remedy="Use a grid, zones, categories, whole numbers or an interval.",
    )


def bins_of(domain: Integers | Interval, width: float) -> int:
    """Number of bins of this width on a line."""
    length = domain.high - domain.low + (1 if isinstance(domain, Integers) else 0)
    return max(1, int(np.ceil(length / width - 1e-9)))


def label_of(places: Mapping[str, Any], code: int) -> str:
    """Describe a cell in words."""
    if "label" in places:
        return str(places["label"][code])
    if "zone" in places:
        return str(places["zone"][code])
    if "from" in places:
        return f"{places['from'][code]} to {places['to'][code]}"
    if "low" in places:
        low = places["low"][code]
        high = places["high"][code]
        return _edge(low) if low == high else f"{_edge(low)} to {_edge(high)}"
    return ", ".join(
        f"{name} {float(places[name][code]):.6g}" for name in ("south", "west", "north", "east")
    )


def share_bounds(row: Mapping[str, Any]) -> str:
    """Bounds of a share, in brackets."""
    if "interval_95" in row:
        low, high = row["interval_95"]
        return f" ({low:.4f} to {high:.4f})"
    texts = [f"at most {row['at_most_95']:.4f}"] if "at_most_95" in row else []
    if "nearby" in row:
        low, high = row["nearby_95"]
        texts.append(f"nearby {row['nearby']:.4f} ({low:.4f} to {high:.4f})")
    return f" ({'; '.join(texts)})" if texts else ""


def _edge(number: float) -> str:
    """Format with six digits, or all digits of whole or large numbers, so that edges differ."""
    return (
        f"{number:.0f}"
        if number == int(number) and abs(number) < 1e15
        else f"{number:g}"
        if abs(number) < 1e4
        else f"{number:.12g}"
    )


def shares_answer(
    places: Mapping[str, Any],
    estimate: Estimate,
    level: float,
    *,
    simultaneous: bool,
    method: IntervalMethod,
) -> Answer:
    """Build the table of a histogram: for each cell a valid share, and what is known about it.

    `share` is never negative and sums to one. If cells are identified, there are the unbiased
    share, its standard error and its interval. The interval belongs to the unbiased share, is
    clipped to 0..1, and is extended to the share if a projection moved it outside, which only
    increases its coverage. Smoothed shares have no interval: instead there are an upper bound on
    each (no less than the printed share), and the share nearby with its interval. If cumulative
    shares of a line were measured, they have a band that covers all of them simultaneously.
    """
    people = estimate.people
    percent = f"{level * 100:g}"
    shares = estimate.totals / people if estimate.possible is None else estimate.possible
    columns: dict[str, Any] = {**places, "share": shares, "count": shares * people}
    errors = interval = at_most = nearby = None
    if not estimate.smoothed:
        errors = estimate.standard_errors / people
        low, high = (
            np.clip(end / people, 0.0, 1.0)
            for end in estimate.interval(level, simultaneous=simultaneous, method=method)
        )
        interval = np.column_stack([np.minimum(low, shares), np.maximum(high, shares)])
        columns |= {
            "standard_error": errors,
            f"interval_{percent}": _pairs(interval),
            "unbiased": estimate.totals / people,
        }
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
