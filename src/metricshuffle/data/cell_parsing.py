"""Single cells: which are missing, which are numbers, and in words why others are not."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricshuffle.data.spelling import Spelling

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "nat"})
"""What tables write where a value is missing, in small letters: R, SQL, spreadsheets and pandas."""
SIGN = r"[+-]?"
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([t ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d\d)( .*)?"
    rf"|\d{{1,2}}:\d\d(:\d\d([.,]\d+)?)?( ?[ap]m)?|\d{{1,2}}[-. ]*{MONTH}[-., ]*\d*( .*)?|{MONTH}[-. ]*\d{{1,2}}\b.*"
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
    """What is the matter with a cell, and what to do about all that have the same."""

    reason: str
    remedy: str = ""


TEXT_PROBLEM = CellProblem("is text and not a number")


def is_missing(cell: Any) -> bool:
    """Whether nothing stands in a cell, or a word that says so."""
    if isinstance(cell, str):
        return cell.strip().casefold() in MISSING
    return cell is None or (isinstance(cell, float | np.floating) and cell != cell)


def parse_numbers(cells: list[str], decimal_mark: str = ".") -> NDArray[Any]:
    """Cells as doubles; if one is no number, as objects with the text that it is."""
    # Python reads 1_000 as a number; in a table it is more likely a mistake.
    together = "".join(cells)
    texts = cells
    if decimal_mark == "," and "." not in together:  # a point would be a separator of thousands
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


def as_cells(values: Any) -> NDArray[Any]:
    """A column of a frame: numbers as they are, all else as objects: what is missing as None, decimals as numbers."""
    column = np.asarray(values)
    if column.dtype.kind in "iuf":
        return column
    return object_array(map(_moment, column) if column.dtype.kind in "mM" else map(_plain, column.tolist()), len(column))


def object_array(cells: Iterable[Any], count: int) -> NDArray[Any]:
    """Cells as they are, each in a place of its own, also if they are lists."""
    return np.fromiter(cells, dtype=object, count=count)


def _plain(cell: Any) -> Any:
    if isinstance(cell, decimal.Decimal):
        return float(cell)
    return None if type(cell).__name__ in ("NAType", "NaTType") else cell


def _moment(cell: Any) -> Any:
    """Text for a moment, which is shown in a sentence, and None for none."""
    if np.isnat(cell):
        return None
    return str(cell) if isinstance(cell, np.datetime64) else datetime.timedelta(seconds=float(cell / np.timedelta64(1, "s")))


def cell_problem(cell: Any, spelling: Spelling, decimal_mark: str = ".") -> CellProblem | None:
    """Why a cell is no number; None if it is one, or nothing is known about it."""
    if is_missing(cell):
        return CellProblem("is missing", f"{spelling.flag('drop_missing')} leaves out rows with a missing value")
    if isinstance(cell, datetime.date | datetime.time | datetime.timedelta | np.datetime64):
        return DATE_PROBLEM
    if isinstance(cell, bool | np.bool_):
        return TRUTH_VALUE_PROBLEM
    if isinstance(cell, list | tuple | dict | set | bytes):
        return CellProblem(f"is a {type(cell).__name__} and not a number")
    return _problem_of_text(cell.strip(), spelling, decimal_mark) if isinstance(cell, str) else None


DATE_PROBLEM = CellProblem(
    "is a date or a time", "turn dates and times into numbers first, like minutes after midnight or days since 1 January"
)
TRUTH_VALUE_PROBLEM = CellProblem("is a truth value and not a number", "write 1 and 0 for true and false")


def _problem_of_text(text: str, spelling: Spelling, decimal_mark: str) -> CellProblem | None:
    if _is_number(text, decimal_mark):
        # In a file such a text would have been read as a number.
        return None if spelling.as_options else CellProblem("is text and not a number", "turn that column into numbers first")
    asked_for = f"pass {spelling('decimal', ',')}" if spelling.as_options else "read the file with a decimal comma"
    if DATE.fullmatch(text.casefold()):
        return DATE_PROBLEM
    if decimal_mark == "," and DECIMAL_POINT.fullmatch(text):
        return CellProblem(f"has a point, but {spelling('decimal', ',')} says that decimals take a comma",
                         "write all numbers alike, without separators of thousands")  # fmt: skip
    if ONE_GROUP.fullmatch(text) and decimal_mark == ".":
        return CellProblem("has a separator of thousands or a decimal comma",
                         f"leave separators of thousands out; if the comma marks decimals, {asked_for}")  # fmt: skip
    if DECIMAL_COMMA.fullmatch(text) and decimal_mark == ".":
        return CellProblem("has a decimal comma", f"if the comma marks decimals, {asked_for}")
    if THOUSANDS.fullmatch(text):
        return CellProblem("has separators of thousands", "write numbers without separators of thousands")
    if PERCENT.fullmatch(text):
        return CellProblem("has a percent sign", "write numbers without percent signs")
    if text.casefold() in TRUTH:
        return TRUTH_VALUE_PROBLEM
    if OTHER_MINUS.fullmatch(text):
        return CellProblem("begins with a dash that is no minus sign", "write - before negative numbers")
    if UNIT.fullmatch(text):
        return CellProblem("has a unit", "write numbers without units")
    return TEXT_PROBLEM


def _is_number(text: str, decimal_mark: str) -> bool:
    return isinstance(_number(text, decimal_mark), float)
