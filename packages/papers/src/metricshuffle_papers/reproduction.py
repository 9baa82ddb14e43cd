"""Items, settings and results of `metricshuffle reproduce`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal

from metricshuffle.errors import InputError

Verdict = Literal["reproduced", "not reproduced", "impossible", "true", "loose", "false", "ours"]
"""Verdict on a published number or formula; "ours" if nothing was printed.

reproduced / not reproduced / impossible are for a number, true / loose / false for a formula.
"""

# Allowed difference from the printed number: standard errors, or relative to it, or its rounding.
STANDARD_ERRORS = 3.0
RELATIVE = 0.02
RULE = (
    "A printed number counts as reproduced if what the paper's own method gives lies "
    f"within {STANDARD_ERRORS:g} standard errors of it, "
    f"within {100.0 * RELATIVE:g} %, or within half a unit of its last digit where it is rounded; "
    "as impossible if it lies beyond a bound that holds for every mechanism, or for the "
    "one it is claimed for, with the promised privacy."
)


@dataclass(frozen=True)
class Row:
    """One row of an item's table.

    `ratio` compares ours with the printed number, or else with the formula as printed.
    """

    label: str
    published: float | None = None
    """Number printed in the paper, from `published_value`."""
    as_published: float | None = None
    """Value of the paper's own formula."""
    ours: float | None = None
    verdict: Verdict = "ours"
    standard_error: float | None = None
    """Standard error of `ours`, if it comes from a simulation."""
    note: str = ""
    """Reason; for "impossible" and "false", the bound or the counterexample."""

    @property
    def ratio(self) -> float | None:
        claimed = self.as_published if self.published is None else self.published
        if claimed is None or self.ours is None or claimed == 0.0 or not math.isfinite(self.ours):
            return None
        return self.ours / claimed


def judged(
    published: float, found: float, standard_error: float | None = None, rounding: float = 0.0
) -> Verdict:
    """Judge whether `found`, computed by the paper's own method, is the number it prints (RULE)."""
    allowed = max(STANDARD_ERRORS * (standard_error or 0.0), RELATIVE * abs(published), rounding)
    return "reproduced" if abs(found - published) <= allowed else "not reproduced"


@dataclass(frozen=True)
class Chart:
    """Self-contained Vega-Lite specification and a sentence that describes it."""

    title: str
    specification: dict[str, Any]
    caption: str


@dataclass(frozen=True)
class Reproduction:
    """Result of an item; the first sentence of `words` is the finding."""

    words: tuple[str, ...]
    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    `quick` keeps every row but takes fewer runs and sizes; `csv` replaces the built-in city.
    """

    quick: bool = False
    runs: int | None = None
    seed: int = 1
    csv: Path | None = None
    progress: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        if self.runs is not None and (
            isinstance(self.runs, bool) or not isinstance(self.runs, int) or self.runs < 2
        ):
            raise InputError(
                f"runs must be a whole number >= 2 (a standard error needs two), got {self.runs!r}."
            )

    def runs_or(self, quick: int, full: int) -> int:
        """Number of runs of a simulation."""
        return self.runs if self.runs is not None else quick if self.quick else full


@dataclass(frozen=True)
class Item:
    """Table, figure or statement of a paper.

    `paper` is a key of `citations.PAPERS`, `label` the paper's own.
    """

    name: str
    paper: str
    label: str
    title: str
    run: Callable[[Settings], Reproduction]
    simulated: bool = False
    """Whether `runs` and `seed` matter."""
    places: bool = False
    """Whether `csv` matters, for items about people on a map."""


NOT_AT_HAND: dict[str, str] = {
    "Athanasiou25": "We had its text, not its drawings: of the figures only the captions and what "
    "is "
    "said "
    "about them survive, so the "
    "curves are ours. The file of addresses in Austin is not available; the location "
    "figures use a synthetic city, or your own file (in Austin with the rectangles of both "
    "footnotes).",
    "Imola24": "We had its text, not its drawings.",
    "Wang24": "We had its text, not its drawings: curves are ours.",
    "WitchHat": (
        "We had only the supplement: the main text and Figures 1 to 12 are not in our sources, "
        "so nothing is said about them."
    ),
}
"""Parts of each paper that were missing when it was compared."""


@cache
def items() -> dict[str, Item]:
    """All items by name, in order: the ITEMS of every module in every paper's `items` folder."""
    import metricshuffle_papers as home

    found: list[Item] = []
    for paper in iter_modules(home.__path__, f"{home.__name__}."):
        if paper.ispkg and find_spec(f"{paper.name}.items") is not None:
            folder = import_module(f"{paper.name}.items")
            for module in iter_modules(folder.__path__, f"{folder.__name__}."):
                found += import_module(module.name).ITEMS
    return {item.name: item for item in sorted(found, key=_place)}


def _place(item: Item) -> tuple[str | int, ...]:
    """Sort key of an item; numbers in its name sort as numbers, so Figure 9 precedes Figure 13."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", item.name))


@cache
def _values(paper: str) -> dict[str, Any]:
    text = (
        resources.files("metricshuffle_papers")
        .joinpath(paper, "values.json")
        .read_text(encoding="utf-8")
    )
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def published_value(paper: str, table: str, row: str) -> float:
    """Number as printed, from values.json in the folder `paper` (table label, then row).

    It is not repeated anywhere else.
    """
    return float(_values(paper)[table][row])


def printed_rounding(paper: str, table: str, row: str) -> float:
    """Half a unit of the last digit of a number stored as text ("0.065"): its rounding error."""
    _, _, decimals = str(_values(paper)[table][row]).partition(".")
    return 0.5 * 10.0 ** -len(decimals)


def published_rows(paper: str, table: str) -> tuple[str, ...]:
    """Names of a table's rows, in the order of the paper."""
    return tuple(_values(paper)[table])
