"""`metricshuffle solve`: find a local metric and a randomizer for a target after shuffling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricshuffle.cli.shared_options import (
    Honest,
    Json,
    Users,
    choice,
    is_standard_output,
    number,
    number_option,
    whole_option,
    writable,
)
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout
    from metricshuffle.solving.solution import SolvedMetric
    from metricshuffle.spaces import Space

WHERE = "What values there are"
PROMISE = "What is promised"
CHOICE = "What is chosen and shown"

Low = Annotated[float | None, number_option("--low", "A", "Smallest possible number.", WHERE)]
High = Annotated[float | None, number_option("--high", "B", "Largest possible number.", WHERE)]
Step = Annotated[
    float | None,
    number_option(
        "--step",
        "S",
        "Step S between possible numbers: low, low + S, ..., high; 1 if left out.",
        WHERE,
    ),
]
Around = Annotated[
    bool,
    typer.Option(
        "--around",
        rich_help_panel=WHERE,
        help="The numbers lie on a circle, as hours do: low is one step after high.",
    ),
]
Width = Annotated[
    int | None, whole_option("--width", "CELLS", "Grid: number of cells from west to east.", WHERE)
]
Height = Annotated[
    int | None,
    whole_option("--height", "CELLS", "Grid: number of cells from south to north.", WHERE),
]
Cell = Annotated[
    float | None,
    number_option("--cell", "C", "Grid: side of a cell in units; 1 if left out.", WHERE),
]
TreeFile = Annotated[
    Path | None,
    typer.Option(
        "--tree",
        metavar="FILE",
        rich_help_panel=WHERE,
        help=(
            "Labels on a tree: CSV file without a header; each row has a label, its parent "
            "(empty for the root) and optionally the length of the link (1)."
        ),
    ),
]
Distances = Annotated[
    Path | None,
    typer.Option(
        "--distances",
        metavar="FILE",
        rich_help_panel=WHERE,
        help=(
            "Any values: CSV file without a header that contains the matrix of their "
            "distances, one row per value."
        ),
    ),
]
Epsilon = Annotated[
    float,
    number_option("--epsilon", "E", "Total epsilon at --distance after shuffling.", PROMISE),
]
Distance = Annotated[
    float,
    number_option(
        "--distance",
        "D",
        (
            "Distance at which --epsilon is required, in units of the values; at other "
            "distances epsilon is proportional."
        ),
        PROMISE,
    ),
]
Delta = Annotated[
    float,
    number_option(
        "--delta", "X", "Delta for every pair of values; must be greater than 0.", PROMISE
    ),
]
GridOption = Annotated[
    int,
    whole_option("--grid", "M", "Number of values to try for the largest local epsilon.", CHOICE),
]
AlgorithmOption = Annotated[
    str,
    typer.Option(
        "--algorithm",
        metavar="all|1|3|1N",
        rich_help_panel=CHOICE,
        help=(
            "Bound for any randomizer (docs/theorems.md): Corollary 1 (1), Corollary 2 (3), "
            "the clone pair (1N), or the best of them (all)."
        ),
    ),
]
LeastOption = Annotated[
    str,
    typer.Option(
        "--least",
        metavar="shares|report",
        rich_help_panel=CHOICE,
        help=(
            "Error to minimize: of the shares of a histogram (shares), or of one report as "
            "an estimate of its value (report)."
        ),
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE",
        rich_help_panel=CHOICE,
        help=(
            "Write the randomizer to this file as JSON, for `plan --randomizer FILE` and "
            "`amplify --randomizer file:FILE`."
        ),
    ),
]


def solve(
    epsilon: Epsilon,
    distance: Distance,
    delta: Delta,
    users: Users,
    honest: Honest = None,
    low: Low = None,
    high: High = None,
    step: Step = None,
    around: Around = False,
    width: Width = None,
    height: Height = None,
    cell: Cell = None,
    tree: TreeFile = None,
    distances: Distances = None,
    algorithm: AlgorithmOption = "all",
    least: LeastOption = "shares",
    grid: GridOption = 16,
    save: Save = None,
    as_json: Json = False,
) -> None:
    """Find a local metric, and a randomizer, that meet an epsilon per distance after shuffling."""
    choice("algorithm", algorithm, ("all", "1", "3", "1N"))
    choice("least", least, ("shares", "report"))
    for name, value in (("epsilon", epsilon), ("distance", distance)):
        if not value > 0:
            raise InputError(f"--{name} must be greater than 0, got {value:g}.")
    if not 0 < delta < 1:
        raise InputError(
            f"--delta must lie between 0 and 1, got {delta:g}; with delta 0 a shuffler "
            "changes nothing."
        )
    if not 1 <= grid <= 1000:
        raise InputError(f"--grid must be a whole number from 1 to 1000, got {grid}.")
    writable(save, option="--save")
    to_screen = is_standard_output(save, as_json=as_json)
    space, steps = Values(low, high, around, width, height, cell, tree, distances, step).space()

    from metricshuffle.cli.console import note, show_progress
    from metricshuffle.privacy.target import Target
    from metricshuffle.solving.solution import solve as solved

    options: dict[str, Any] = {"step": steps, "algorithm": algorithm, "least": least, "grid": grid}
    with show_progress("Solving"):
        result = solved(space, Target(epsilon, delta, distance), users, honest, **options)
        text = result.to_json() if as_json else result.why()
    if save is not None:
        result.save(str(save))
    if as_json:
        print(text)
    elif not to_screen:
        _show(result)
        note(
            f"Wrote {save}."
            if save is not None
            else "Nothing was saved; --save FILE keeps the randomizer."
        )


def _show(result: SolvedMetric) -> None:
    from metricshuffle.cli.console import say, screen

    console = screen()
    say(console, result.why(), "")
    console.print(solved_table(result))
    say(
        console, "", *filter(None, (result.error_sentence(), *result.summaries(), result.trade_off))
    )


def solved_table(result: SolvedMetric) -> TableLayout:
    """Table of epsilon by distance: for the target, any randomizer of the metric, and this one.

    For randomizers, it has the epsilon of one report alone and that of shuffled reports.
    """
    from metricshuffle.cli.table_layout import Column, Line, TableLayout
    from metricshuffle.numerics.rounding import format_epsilon, format_number
    from metricshuffle.solving.solution import allowed_text

    headings = [
        "distance",
        "promised",
        "any randomizer:\nalone",
        "any randomizer:\nshuffled",
        "this one:\nalone",
        "this one:\nshuffled",
    ]
    columns = tuple(
        Column(heading, number=True)
        for heading in headings[: 6 if result.randomizer is not None else 4]
    )
    lines = []
    for row in result.certified:
        own = (
            []
            if result.randomizer is None
            else [row.randomizer_local or 0.0, row.randomizer_certified or 0.0]
        )
        certain = (format_epsilon(value) for value in (row.certified, *own))
        lines.append(
            Line(
                (
                    format_number(row.distance),
                    format_epsilon(row.promised),
                    allowed_text(row.local),
                    *certain,
                )
            )
        )
    return TableLayout(columns, tuple(lines))


@dataclass(frozen=True)
class Values:
    """The options that describe the possible values."""

    low: float | None
    high: float | None
    around: bool
    width: int | None
    height: int | None
    cell: float | None
    tree: Path | None
    distances: Path | None
    step: float | None

    def space(self) -> tuple[Space, float | None]:
        """Return the space, and the step of its numbers (None for whole numbers)."""
        kinds = {
            "--low and --high": ("low", "high", "step", "around"),
            "--width and --height": ("width", "height", "cell"),
            "--tree": ("tree",),
            "--distances": ("distances",),
        }
        given_names = {
            name for name, value in vars(self).items() if value is not None and value is not False
        }  # 0.0 counts as given
        named = [words for words, options in kinds.items() if given_names & set(options)]
        if len(named) != 1:
            raise InputError(
                f"say what values there are by one of {', '.join(kinds)}; got "
                f"{' and '.join(named) or 'none of them'}."
            )
        from metricshuffle.spaces import Categories, Grid, Space

        for name in {
            "--low and --high": ("low", "high"),
            "--width and --height": ("width", "height"),
        }.get(named[0], ()):
            if getattr(self, name) is None:
                raise InputError(f"--{name} is missing: give both {named[0]}.")
        if named[0] == "--low and --high":
            return self._numbers()
        if self.width is not None and self.height is not None:
            return Space(
                Grid(self.width, self.height, 1.0 if self.cell is None else self.cell)
            ), None
        if self.tree is not None:
            return read_tree(self.tree), None
        assert self.distances is not None  # noqa: S101 - the only one left
        from metricshuffle.cli.number_table import rows_of_numbers
        from metricshuffle.spaces import Matrix

        if not self.distances.is_file():
            raise InputError(f"cannot read {self.distances}: there is no such file (--distances).")
        metric = Matrix(rows_of_numbers(self.distances, "--distances"))
        return Space(Categories([str(code) for code in range(metric.size or 0)]), metric), None

    def _numbers(self) -> tuple[Space, float | None]:
        from metricshuffle.solving.local_metric import LineTarget
        from metricshuffle.spaces import Circle, Integers, Interval, Space

        assert self.low is not None and self.high is not None  # noqa: S101, PT018 - checked by space()
        step = 1.0 if self.step is None else self.step
        if not self.low < self.high:
            raise InputError(f"--low must be below --high, got {self.low:g} and {self.high:g}.")
        if not step > 0:
            raise InputError(f"--step must be greater than 0, got {step:g}.")
        line = LineTarget(self.low, self.high, 1.0, 1.0, step)  # checks the step
        whole_numbers = step == 1.0 and self.low == int(self.low) and self.high == int(self.high)
        numbers = (
            Integers(int(self.low), int(self.high))
            if whole_numbers
            else Interval(self.low, self.high)
        )
        return Space(
            numbers, Circle((line.steps + 1) * step) if self.around else None
        ), None if whole_numbers else step


def read_tree(path: Path) -> Space:
    """Read labels along a tree from a file."""
    import csv

    from metricshuffle.files import read_text
    from metricshuffle.spaces import Categories, Space, Tree

    rows = [
        [cell.strip() for cell in row]
        for row in csv.reader(read_text(path).splitlines())
        if any(cell.strip() for cell in row)
    ]
    place: dict[str, int] = {}
    for row_number, row in enumerate(rows, start=1):
        if not 1 <= len(row) <= 3 or not row[0] or row[0] in place:
            raise InputError(
                f"--tree {path}, row {row_number}: give a unique label, its parent (empty for "
                "the root) and a length, separated by commas."
            )
        place[row[0]] = len(place)
    parents = []
    lengths = []
    for row_number, row in enumerate(rows, start=1):
        parent = row[1] if len(row) > 1 else ""
        if parent and parent not in place:
            raise InputError(
                f"--tree {path}, row {row_number}: the parent {parent[:40]!r} is not a label "
                "of this file."
            )
        parents.append(place[parent] if parent else -1)
        try:
            lengths.append(number(row[2]) if len(row) > 2 and row[2] else 1.0)
        except ValueError:
            raise InputError(
                f"--tree {path}, row {row_number}: the length {row[2][:40]!r} is not a "
                "finite number."
            ) from None
    if len(place) < 2:
        raise InputError(f"--tree {path} must name at least two labels, got {len(place)}.")
    return Space(Categories(list(place)), Tree(parents, lengths))
