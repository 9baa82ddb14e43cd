"""Parsing of single cells: missing values, numbers, and the reason why others are invalid."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import argument

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "nat"})
"""Texts for a missing value, in lower case: of R, SQL, spreadsheets and pandas."""
SIGN = r"[+-]?"
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([t ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d\d)( .*)?"
    rf"|\d{{1,2}}:\d\d(:\d\d([.,]\d+)?)?( ?[ap]m)?|\d{{1,2}}[-. ]*{MONTH}[-., ]*\d*( "
    rf".*)?|{MONTH}[-. ]*\d{{1,2}}\b.*"
)
DECIMAL_COMMA = re.compile(rf"{SIGN}\d*,\d+")
DECIMAL_POINT = re.compile(rf"{SIGN}\d*\.\d+")
THOUSANDS = re.compile(rf"{SIGN}\d{{1,3}}(([,.'\u2019 \u00a0\u202f])\d{{3}})(\2\d{{3}})*([.,]\d+)?")
ONE_GROUP = re.compile(rf"{SIGN}[1-9]\d{{0,2}},\d{{3}}")
PERCENT = re.compile(rf"{SIGN}[\d.,]+\s*%")
UNIT = re.compile(rf"{SIGN}\d[\d.,]*\s*[^\d\s.,:/-][^\d]*|[$\u20ac\u00a3\u00a5]\s*{SIGN}\d[\d.,]*")
TRUTH = frozenset({"true", "false", "yes", "no"})
OTHER_MINUS = re.compile(r"[\u2212\u2013\u2014]\s*\d[\d.,]*")


@dataclass(frozen=True)
class CellProblem:
    """Problem of a cell, and the remedy for all cells that have it."""

    reason: str
    remedy: str = ""


TEXT_PROBLEM = CellProblem("is text and not a number")


def is_missing(cell: object) -> bool:
    """Return whether a cell is empty, or has a text for a missing value."""
    if isinstance(cell, str):
        return cell.strip().casefold() in MISSING
    return cell is None or (isinstance(cell, float | np.floating) and cell != cell)


def parse_numbers(cells: list[str], decimal_mark: str = ".") -> NDArray[Any]:
    """Parse cells as doubles; if any is not a number, as objects with the unparsed texts."""
    # Python reads 1_000 as a number; in a table it is more likely a mistake.
    together = "".join(cells)
    texts = cells
    if decimal_mark == "," and "." not in together:  # a point would separate thousands
        texts = [text.replace(",", ".") for text in cells]
    if "_" not in together and (decimal_mark == "." or "." not in together):
        try:
            return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
        except ValueError:
            pass
    return np.array([_number(text, decimal_mark) for text in cells], dtype=object)


def _number(text: str, decimal_mark: str) -> float | str | None:
    if not text.strip():
        return None
    if "_" in text or (decimal_mark == "," and "." in text):
        return text
    try:
        return float(text if decimal_mark == "." else text.replace(",", "."))
    except ValueError:
        return text


def as_cells(values: object) -> NDArray[Any]:
    """Convert a column of a frame: numbers unchanged, others as objects.

    Missing values become None, decimals become floats.
    """
    column = np.asarray(values)
    if column.dtype.kind in "iuf":
        return column
    return object_array(
        map(_moment, column) if column.dtype.kind in "mM" else map(_plain, column.tolist()),
        len(column),
    )


def object_array(cells: Iterable[object], count: int) -> NDArray[Any]:
    """Array of the cells as single objects, even if they are lists."""
    return np.fromiter(cells, dtype=object, count=count)


def _plain(cell: object) -> object:
    if isinstance(cell, decimal.Decimal):
        return float(cell)
    return None if type(cell).__name__ in ("NAType", "NaTType") else cell


def _moment(cell: Any) -> Any:
    """Convert a datetime to text, a timedelta to `datetime.timedelta`, NaT to None."""
    if np.isnat(cell):
        return None
    return (
        str(cell)
        if isinstance(cell, np.datetime64)
        else datetime.timedelta(seconds=float(cell / np.timedelta64(1, "s")))
    )


def cell_problem(cell: object, decimal_mark: str = ".") -> CellProblem | None:
    """Return why a cell is not a number; None if it is one, or the reason is unknown."""
    if is_missing(cell):
        return CellProblem(
            "is missing", f"{argument('drop_missing', True)} leaves out rows with a missing value"
        )
    if isinstance(cell, datetime.date | datetime.time | datetime.timedelta | np.datetime64):
        return DATE_PROBLEM
    if isinstance(cell, bool | np.bool_):
        return TRUTH_VALUE_PROBLEM
    if isinstance(cell, list | tuple | dict | set | bytes):
        return CellProblem(f"is a {type(cell).__name__} and not a number")
    return _problem_of_text(cell.strip(), decimal_mark) if isinstance(cell, str) else None


DATE_PROBLEM = CellProblem(
    "is a date or a time",
    "turn dates and times into numbers first, like minutes after midnight or days since 1 January",
)
TRUTH_VALUE_PROBLEM = CellProblem(
    "is a truth value and not a number", "write 1 and 0 for true and false"
)


def _problem_of_text(text: str, decimal_mark: str) -> CellProblem:
    if _is_number(text, decimal_mark):
        # Only in a frame: in a CSV file such a text is read as a number.
        return CellProblem("is text and not a number", "turn that column into numbers first")
    comma = argument("decimal", ",")
    read_again = f"if the comma marks decimals, read the file with {comma}"
    if DATE.fullmatch(text.casefold()):
        return DATE_PROBLEM
    if decimal_mark == "," and DECIMAL_POINT.fullmatch(text):
        return CellProblem(
            f"has a point, but {comma} says that decimals take a comma",
            "write all numbers alike, without separators of thousands",
        )
    if ONE_GROUP.fullmatch(text) and decimal_mark == ".":
        return CellProblem(
            "has a separator of thousands or a decimal comma",
            f"leave separators of thousands out; {read_again}",
        )
    if DECIMAL_COMMA.fullmatch(text) and decimal_mark == ".":
        return CellProblem("has a decimal comma", read_again)
    if THOUSANDS.fullmatch(text):
        return CellProblem(
            "has separators of thousands", "write numbers without separators of thousands"
        )
    if PERCENT.fullmatch(text):
        return CellProblem("has a percent sign", "write numbers without percent signs")
    if text.casefold() in TRUTH:
        return TRUTH_VALUE_PROBLEM
    if OTHER_MINUS.fullmatch(text):
        return CellProblem(
            "begins with a dash that is not a minus sign", "write - before negative numbers"
        )
    if UNIT.fullmatch(text):
        return CellProblem("has a unit", "write numbers without units")
    return TEXT_PROBLEM


def _is_number(text: str, decimal_mark: str) -> bool:
    return isinstance(_number(text, decimal_mark), float)
