"""Release of the analyst: a value, an interval and two guarantees, with task and tally."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from pydantic import ValidationError

from metricshuffle.data.value_reading import Reading
from metricshuffle.display import Plottable, plot_result
from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.files import read_text, write_text
from metricshuffle.models import (
    StoredModel,
    content_digest,
    parse_json,
    same_values,
    validation_error,
)
from metricshuffle.numerics.rounding import format_number
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.guarantee import Guarantee, released_sentences
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.queries.cell_table import label_of, share_bounds
from metricshuffle.queries.flows import Flows
from metricshuffle.queries.mean_and_sum import NumberQuery
from metricshuffle.queries.query import Answer, Estimate
from metricshuffle.queries.result_table import Library, Table, frame, plain_answer
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.tasks.collection_summary import Collected
from metricshuffle.tasks.wording import wording_lines

if TYPE_CHECKING:
    from metricshuffle.estimation.inversion import IntervalMethod
    from metricshuffle.tasks.task import Task

FORMAT = "metricshuffle-release/3"
TASK_FORMAT = "metricshuffle-task/1"
# Releases of version 2 have other intervals for shares, which are computed again and not compared.
OLDER_FORMAT = "metricshuffle-release/2"
UNCHANGED_COLUMNS = (
    "label",
    "low",
    "high",
    "south",
    "west",
    "north",
    "east",
    "share",
    "count",
    "cumulative",
)
# Number of printed rows of a table, and the size up to which all are printed.
PRINTED_ROWS = 8
MAX_ROWS_PRINTED_WHOLE = 12


class Release(Plottable):
    """Estimate with its guarantees.

    `interval(level)` covers the true answer over the people who reported (the noise only: it says
    nothing about people who did not report). Smoothed shares have no interval, but `at_most(level)`
    and `nearby(level)`.

    Args:
        raw_values_seen: all roles ran on one machine, whose operator saw the values.
        collected: summary of the collection, if sealed reports came over a network.
        reading: how values were read, if one machine had them.
    """

    format: ClassVar[str] = FORMAT

    def __init__(
        self,
        task: Task,
        shuffled: Shuffled,
        *,
        raw_values_seen: bool = False,
        expected_error: float | None = None,
        collected: Collected | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.task = task
        self.shuffled = shuffled
        self.raw_values_seen = raw_values_seen
        self.expected_error = expected_error
        self.collected = collected
        self.reading = Reading() if reading is None else reading

    @classmethod
    def of(
        cls,
        task: Task,
        shuffled: Shuffled,
        *,
        raw_values_seen: bool,
        expected_error: float | None = None,
        collected: Collected | None = None,
        reading: Reading | None = None,
    ) -> Release:
        """Create the release of a shuffled batch; raises if the batch gives no valid answer."""
        release = cls(
            task,
            shuffled,
            raw_values_seen=raw_values_seen,
            expected_error=expected_error,
            collected=collected,
            reading=reading,
        )
        if collected is not None:
            collected.check(task, shuffled.people)
        _ = release.answer
        return release

    @cached_property
    def estimate(self) -> Estimate:
        """Totals behind the answer, with their errors."""
        return self.task.protocol.estimate(self.task.query, self.shuffled)

    @cached_property
    def answer(self) -> Answer:
        """Value, standard error and 95 % interval."""
        return self.task.query.answer(self.estimate, 0.95)

    @property
    def value(self) -> Any:
        """Number, pair (latitude and longitude on a map), or table with a row for each cell."""
        return self.answer.value

    @property
    def standard_error(self) -> Any:
        """Standard error of the value, in the same shape (one per row of a table).

        Raises InputError for smoothed shares, which have none.
        """
        if self.answer.standard_error is None:
            raise InputError(self.estimate.no_interval("standard error"))
        return self.answer.standard_error

    @property
    def plane(self) -> Answer | None:
        """For a place in degrees: the answer in units from the south-west corner of the grid."""
        return self.answer.plane

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal"
    ) -> Any:
        """Return an interval that covers the true answer with probability at least `level`.

        It is (low, high), one for each axis (jointly), or a row for each cell of a table.

        Args:
            simultaneous: all rows of a table hold at once.
            method: "normal" is an approximation for many reports where single reports are
                randomized; "bernstein" holds for any number of reports and any values, as do all
                intervals of noisy vectors.

        Raises InputError for smoothed shares, which have none.
        """
        if simultaneous and not isinstance(self.value, Table):
            raise InputError(
                "simultaneous intervals are for tables; the intervals of a place hold "
                "jointly as they are."
            )
        if self.estimate.smoothed:
            raise InputError(self.estimate.no_interval())
        return self.task.query.answer(
            self.estimate, level, simultaneous=simultaneous, method=method
        ).interval

    def at_most(self, level: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """Upper bounds on the true shares of cells, for smoothed shares.

        They hold with probability at least `level`, whatever values people have; with
        `simultaneous`, for all cells at once.
        """
        if self.estimate.at_most is None:
            raise InputError(self._no_smoothing())
        return np.asarray(self._smoothed(level, simultaneous).at_most)

    def nearby(self, level: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """Intervals (low, high) of the true share around each cell, for smoothed shares.

        People count less the farther away they are. The intervals hold with probability at least
        `level`, whatever values people have; with `simultaneous`, for all cells at once. The share
        itself is a column of the value.
        """
        if self.estimate.nearby is None:
            raise InputError(self._no_smoothing())
        return np.asarray(self._smoothed(level, simultaneous).nearby)

    def _smoothed(self, level: float, simultaneous: bool) -> Answer:
        if not 0.0 < level < 1.0:
            raise InputError(
                f"{argument('level')} must lie strictly between 0 and 1, got {level!r}."
            )
        return self.task.query.answer(self.estimate, level, simultaneous=simultaneous)

    def _no_smoothing(self) -> str:
        if self.estimate.smoothed:
            return self.estimate.no_interval("bound of this kind")
        return "this is for smoothed shares only; use release.interval(0.95) for this answer."

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee if the trusted party is honest (see `if_shuffler_colludes`)."""
        return self.task.guarantee

    @property
    def if_shuffler_colludes(self) -> Guarantee:
        """Guarantee if the trusted party colludes with the analyst."""
        return self.task.if_shuffler_colludes

    @property
    def reports(self) -> int:
        return self.shuffled.people

    @property
    def round(self) -> int:
        return self.shuffled.batch.round

    @property
    def rounds(self) -> int:
        return self.task.rounds

    @property
    def protocol(self) -> str:
        return self.task.protocol.name

    @property
    def query(self) -> Any:
        return self.task.query

    @property
    def title(self) -> str | None:
        return self.task.title

    @property
    def question(self) -> str | None:
        """Question that people were asked, in the planner's words."""
        return self.task.question

    @property
    def plan(self) -> str:
        """Digest of the task."""
        return self.task.digest

    @property
    def unsafe_seeded(self) -> bool:
        return self.shuffled.batch.seeded

    @property
    def damage(self) -> Damage:
        """How far one of the people who reported could move this answer by a lie."""
        return self.task.protocol.damage(self.task.query, self.reports)

    @property
    def warning(self) -> str:
        """Warnings of fragile estimates and of how values were read; empty without warnings."""
        return " ".join(filter(None, (self.estimate.warning, self.reading.warning(self.query))))

    @property
    def remarks(self) -> list[str]:
        """Sentences that a reader of the answer should know."""
        return [*self.query.remarks(), *self.reading.remarks(self.query)]

    # Files

    def to_json(self) -> str:
        """JSON document: the answer, the task and the tally it is computed from, a checksum."""
        answer = self.answer
        task = self.task
        document: dict[str, Any] = {
            "format": FORMAT,
            "query": task.query.model_dump(mode="json"),
            "value": plain_answer(answer.value),
            "standard_error": plain_answer(answer.standard_error),
            "interval_95": plain_answer(answer.interval),
            "reports": self.reports,
            "round": self.round,
            "rounds": self.rounds,
            "protocol": self.protocol,
            "guarantee": task.guarantee.model_dump(mode="json"),
            "if_shuffler_colludes": task.if_shuffler_colludes.model_dump(mode="json"),
            "damage": asdict(self.damage),
            "raw_values_seen": self.raw_values_seen,
            "unsafe_seeded": self.unsafe_seeded,
            "expected_error": self.expected_error,
            "plan": task.digest,
        }
        if isinstance(answer.value, Table):  # each row of the table has its own
            del document["standard_error"], document["interval_95"]
        if isinstance(task.query, SummedQuery):  # a place on a grid is counted in cells
            in_cells = not isinstance(task.query, NumberQuery) and task.query.rounding is None
            document["granularity"] = task.protocol.grain * (
                1.0 if in_cells else task.protocol.step
            )
        if answer.plane is not None:
            plane = answer.plane
            document["plane"] = {
                "unit": task.query.unit,
                "value": plane.value,
                "standard_error": plane.standard_error,
                "interval_95": plane.interval,
            }
        if self.warning:
            document["warning"] = self.warning
        if self.reading != Reading():
            document["reading"] = self.reading.model_dump(mode="json", exclude_defaults=True)
        if self.collected is not None:
            document["collected"] = self.collected.model_dump(mode="json")
        document["task"] = json.loads(task.to_json())
        document["tally"] = {
            "people": self.reports,
            "messages": self.shuffled.messages,
            "round": self.round,
            "sums": {str(key): row for key, row in self.shuffled.sums.items()},
            **self.shuffled.noise_fields,
        }
        return json.dumps(
            {**document, "checksum": content_digest(json.loads(json.dumps(document)))}, indent=2
        )

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read the output of `to_json`.

        The answer is computed again from the tally; an edited one is rejected.
        """
        data = parse_json(text, "a release")
        if not isinstance(data, dict) or data.get("format") not in (FORMAT, OLDER_FORMAT):
            named = data.get("format") if isinstance(data, dict) else None
            raise PlanError(f"this is not a release: its format is {named!r}, not {FORMAT!r}.")
        if data.get("checksum") != content_digest(
            {name: value for name, value in data.items() if name != "checksum"}
        ):
            raise PlanError(
                "this release was edited or damaged: its checksum does not match its "
                "content; ask for it again."
            )
        task = cast(
            "Task", StoredModel.formats[TASK_FORMAT].from_json(json.dumps(data.get("task")))
        )
        try:
            tally = data["tally"]
            sums = {int(key): [int(number) for number in row] for key, row in tally["sums"].items()}
            batch = task.batch(int(tally["round"]), seeded=bool(data["unsafe_seeded"]))
            shuffled = Shuffled(
                batch,
                int(tally["people"]),
                int(tally["messages"]),
                sums,
                task.protocol.modulus,
                **Shuffled.read_noise(tally),
            )
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise PlanError(
                f"this release is damaged: its tally cannot be read ({error}); ask for it again."
            ) from None
        try:
            collected = (
                None
                if data.get("collected") is None
                else Collected.model_validate(data["collected"])
            )
            reading = Reading.model_validate(data.get("reading", {}))
        except ValidationError as error:
            raise PlanError(
                "this release is damaged: how its values were read or collected cannot be "
                f"read. {validation_error(error)}"
            ) from None
        release = task.estimate(
            shuffled,
            raw_values_seen=bool(data.get("raw_values_seen")),
            expected_error=data.get("expected_error"),
            collected=collected,
            reading=reading,
        )
        computed = plain_answer(release.value)
        if data["format"] == OLDER_FORMAT and release.query.shared:
            computed = [
                {name: part for name, part in row.items() if name in UNCHANGED_COLUMNS}
                for row in computed
            ]
        if not same_values(computed, data.get("value")):
            raise PlanError(
                "this release was edited or damaged: its value is not what its tally "
                "gives; ask for it again."
            )
        return release

    def save(self, path: str | Path) -> None:
        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Release:
        return cls.from_json(read_text(path))

    def to_frame(self, library: Library | None = None) -> Any:
        """Answer as a frame with a row for each cell, or one row.

        `library` is "pandas", "polars" or "pyarrow"; None for one that is installed.
        """
        if isinstance(self.value, Table):
            return self.value.to_frame(library)
        low_high = np.atleast_2d(np.array(self.interval(0.95), dtype=np.float64))
        values = np.atleast_1d(self.value)
        errors = np.atleast_1d(self.standard_error)
        pair = ["latitude", "longitude"] if self.plane is not None else ["east", "north"]
        names = [self.query.kind] if len(values) == 1 else pair
        return frame(
            {
                "label": names,
                "value": values.tolist(),
                "standard_error": errors.tolist(),
                "low_95": low_high[:, 0].tolist(),
                "high_95": low_high[:, 1].tolist(),
            },
            library,
        )

    def plot(self, *, level: float = 0.95) -> Any:
        """Plot the answer with its intervals: a number or a place, bars, steps, or a map.

        Returns an altair chart if altair is installed, else an object that displays as SVG.
        """
        return plot_result(self, level=level)

    # Text

    @property
    def caveat(self) -> str:
        """What the guarantee without an honest shuffler does not say; empty if there is nothing."""
        hops = 0 if self.collected is None else len(self.collected.hops)
        return self.task.protocol.caveat(self.query, self.shuffled, hops)

    @property
    def sentences(self) -> list[str]:
        """Both guarantees, what weakens them, and the summary of a collection."""
        texts = released_sentences(
            self.guarantee,
            self.if_shuffler_colludes,
            caveat=self.caveat,
            raw_values_seen=self.raw_values_seen,
            unsafe_seeded=self.unsafe_seeded,
        )
        return texts if self.collected is None else [*texts, *self.collected.sentences(self.task)]

    @property
    def decimals(self) -> int:
        """Number of decimals that shows two digits of the error."""
        errors = self.answer.standard_error
        error = (
            0.0
            if errors is None
            else float(np.max(np.atleast_1d(np.asarray(errors, dtype=np.float64))))
        )
        return max(0, 1 - math.floor(math.log10(error))) if 0.0 < error < math.inf else 0

    def __repr__(self) -> str:
        value = (
            repr(self.value)
            if isinstance(self.value, Table)
            else measured(self.value, self.decimals)
        )
        return (
            f"Release({self.task.query.title} = {value}, {self.reports:,} reports, "
            f"{self.protocol}, epsilon {self.guarantee.epsilon:g})"
        )

    def __str__(self) -> str:
        answer = self._table_lines() if isinstance(self.value, Table) else self._value_lines()
        lines = [*wording_lines(self.title, self.question), *answer]
        people = "users" if self.query.items is not None else "reports"
        origin = (
            f"from {self.reports:,} {people if self.reports != 1 else people[:-1]} "
            f"({self.protocol})"
        )
        lines += [
            origin if self.rounds == 1 else f"{origin}, round {self.round} of {self.rounds}",
            *self.remarks,
        ]
        if self.expected_error is not None and self.query.shared and self.query.items is not None:
            unit = f" {self.query.error_unit}" if self.query.error_unit else ""
            lines.append(f"{self.query.measure}: {format_number(self.expected_error)}{unit}")
        lines += [*self.sentences, self.damage.sentence(self.query)]
        if self.query.items is not None:
            lines.append(self.task.full_replacement)
        return "\n".join([*lines, *([f"Warning: {self.warning}"] if self.warning else [])])

    def _value_lines(self) -> list[str]:
        unit = f" {self.query.unit}" if self.query.unit and self.plane is None else ""
        value = measured(self.value, self.decimals)
        interval = measured(self.answer.interval, self.decimals)
        lines = [f"{self.query.title} = {value}{unit}, 95 % interval {interval}"]
        if self.plane is not None:
            error = max(np.atleast_1d(np.asarray(self.plane.standard_error, dtype=np.float64)))
            decimals = max(0, 1 - math.floor(math.log10(error))) if error > 0.0 else 0
            place = measured(self.plane.value, decimals)
            around = measured(self.plane.interval, decimals)
            lines.append(
                f"that is {place} {self.query.unit} (east, north) from the south-west "
                f"corner, 95 % interval {around}"
            )
        return lines

    def blocks(self, level: float = 0.95, *, simultaneous: bool = False) -> Table:
        """Flows between blocks of zones, with intervals; jointly at the level if `simultaneous`.

        Only for `Flows` whose zones have blocks; the value of the release is the table of smoothed
        flows between zones.
        """
        if not isinstance(self.query, Flows):
            raise InputError(f"a {self.query.title} has no blocks; they belong to flows.")
        return self.query.block_flows(self.estimate, level, simultaneous=simultaneous)

    def _table_lines(self) -> list[str]:
        table = self.value
        summary = self._row_summary(len(table), self.query.row_name)
        measured_blocks = self.estimate.nearby is not None
        if isinstance(self.query, Flows) and self.query.by_blocks and measured_blocks:
            table = self.blocks()
            summary = (
                f"{len(table):,} flows between blocks, each with its 95 % interval; "
                f"{len(self.value):,} flows between zones are smoothed and have none"
            )
        key = next(name for name in ("share", "value", "mean") if name in table.columns)
        order = (
            np.argsort(-np.asarray(table[key], dtype=np.float64), kind="stable")
            if key == "share"
            else np.arange(len(table))
        )
        shown_codes = order if len(order) <= MAX_ROWS_PRINTED_WHOLE else order[:PRINTED_ROWS]
        lines = [f"{self.query}: {summary}"]
        for code in shown_codes:
            row = table[int(code)]
            if key == "share":
                lines.append(
                    f"  {label_of(table.columns, int(code))}: {row['share']:.4f}{share_bounds(row)}"
                )
            else:
                low, high = row["interval_95"]
                lines.append(
                    f"  {row['label']}: {format_number(row[key])} "
                    f"({format_number(low)} to {format_number(high)}){_counted(row)}"
                )
        return lines + (
            [f"  ... and {len(order) - len(shown_codes):,} more"]
            if len(shown_codes) < len(order)
            else []
        )

    def _row_summary(self, rows: int, each: str) -> str:
        """Number of rows, and what is known of each."""
        estimate = self.estimate
        if not estimate.smoothed:
            return (
                f"one {each} with its 95 % interval"
                if rows == 1
                else f"{rows:,} {each}s, each with its 95 % interval"
            )
        extras = ["what it is at most (95 %)"] if estimate.at_most is not None else []
        extras += (
            [f"the share {estimate.nearby.words} with its 95 % interval"]
            if estimate.nearby is not None
            else []
        )
        smoothed = f"{rows:,} smoothed shares" if rows > 1 else "one smoothed share"
        return (
            f"{smoothed} without intervals, each with {' and '.join(extras)}"
            if extras
            else f"{smoothed}, without intervals"
        )


def _counted(row: dict[str, Any]) -> str:
    """Number of people of a group."""
    if "count_95" not in row:
        return ""
    low, high = row["count_95"]
    empty = ", may be empty" if row["may_be_empty"] else ""
    return f", {row['count']:,.1f} people ({low:,.1f} to {high:,.1f}){empty}"


def measured(value: object, decimals: int) -> str:
    """Format a number, a pair or an interval with a number of decimals."""
    if isinstance(value, tuple):
        return "(" + ", ".join(measured(part, decimals) for part in value) + ")"
    return f"{float(str(value)):,.{decimals}f}"
