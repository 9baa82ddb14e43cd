"""From columns of a file to reports, with sentences that point at the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from metricshuffle.cli.columns import Chunk, Table
from metricshuffle.cli.options import choice
from metricshuffle.declared import shown
from metricshuffle.errors import DomainError, InputError
from metricshuffle.planning import Plan
from metricshuffle.protocols.base import Reports
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid


def reports_of(plan: Plan, table: Table, *, clamp: bool, coordinates: str, tell: Callable[[str], None]) -> Iterator[Reports]:
    """Reports for every row, a chunk at a time; wrong values are counted to the end of the file and told once."""
    _checked(plan, table, coordinates)
    source = Randomness.system()
    chunks = table.chunks()
    done = 0
    for chunk in chunks:
        try:
            reports = plan.randomize(_values(plan, chunk, coordinates, clamp), source, clamp=clamp)
        except DomainError as wrong:
            raise _counted(plan, table, chunk, chunks, wrong, coordinates=coordinates, clamp=clamp) from None
        yield reports
        done += len(chunk)
        tell(f"{done:,} rows")


def _checked(plan: Plan, table: Table, coordinates: str) -> None:
    choice("coordinates", coordinates, ("cells", "points", "places"))
    needed = plan.query.axes
    if len(table.names) != needed:
        got = {1: "once", 2: "twice"}.get(len(table.names), f"{len(table.names)} times")
        raise InputError(f"a {plan.query.kind} needs --column {'twice' if needed == 2 else 'once'}, got it {got}.")
    if coordinates != "cells" and not isinstance(plan.query.domain, Grid):
        raise InputError(f"--coordinates {coordinates} is for a centroid; leave it out for a {plan.query.kind}.")
    if coordinates == "places" and getattr(plan.query.domain, "box", None) is None:
        raise InputError("--coordinates places needs a plan with --box; this plan's grid is not on a map.")


def _values(plan: Plan, chunk: Chunk, coordinates: str, clamp: bool) -> Any:
    if len(chunk.columns) == 1:
        return chunk.columns[0]
    domain = plan.query.domain
    if coordinates == "places" and isinstance(domain, Grid):
        return domain.cells_at(*chunk.columns, clamp=clamp)
    kinds = {column.dtype for column in chunk.columns}
    pairs = np.stack([column if len(kinds) == 1 else column.astype(object) for column in chunk.columns], axis=1)
    return domain.cells(pairs, clamp=clamp) if coordinates == "points" and isinstance(domain, Grid) else pairs


def _counted(
    plan: Plan, table: Table, chunk: Chunk, rest: Iterator[Chunk], wrong: DomainError, *, coordinates: str, clamp: bool
) -> DomainError:
    """What is wrong in the whole file: how many values, and on which line the first one is."""
    if wrong.where is None:
        return wrong
    where, count, total = wrong.where, wrong.where.count, chunk.first + len(chunk)
    for later in rest:
        total += len(later)
        try:
            plan.query.steps(_values(plan, later, coordinates, clamp), plan.granularity, clamp=clamp)
        except DomainError as more:
            count += more.where.count if more.where is not None else 0
    cells = ", ".join(shown(column[where.first]) for column in chunk.cells)
    named = " and ".join(repr(name) for name in table.names)
    remedy = "Correct or leave out such rows"
    if where.can_clamp and not clamp:
        remedy += ", or pass --clamp to move numbers outside to the nearest end"
    if any(re.fullmatch(r"'-?\d+,\d+'", shown(column[where.first])) for column in chunk.cells):
        remedy += "; decimals take a point and not a comma"
    if coordinates == "cells" and isinstance(plan.query.domain, Grid):
        remedy += "; --coordinates says if they are points or places instead of cells"
    return DomainError(
        f"{count:,} of {total:,} values in --column {named} of {table.path} {'is' if count == 1 else 'are'} not in {where.inside}; "
        f"the first is on {table.place(chunk.first + where.first)}: {cells} {where.reason}. {remedy}."
    )
