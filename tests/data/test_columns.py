"""Columns of texts and files: delimiters, missing values, non-numbers and line numbers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.data import ColumnSource, CsvFormat, column_requests, open_columns
from metricshuffle.data.cell_parsing import cell_problem, is_missing, parse_numbers
from metricshuffle.errors import InputError


def opened(path: Path, content: bytes | str, *names: str, **form: Any) -> ColumnSource:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_columns(path, column_requests(names), CsvFormat(**form))


def read(path: Path, content: bytes | str, *names: str, **form: Any) -> list[Any]:
    """The first of the wanted columns."""
    return [
        value
        for chunk in opened(path, content, *names, **form).chunks()
        for value in chunk.columns[0].tolist()
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("content", "remark"),
    [
        ("id,kcal\n1,3\n2,4\n", None),
        ("id,kcal\r\n1,3\r\n2,4\r\n", None),
        ("id;kcal\n1;3\n2;4\n", "separated by semicolons (--delimiter ';')"),
        ("id\tkcal\r\n1\t3\r\n2\t4", "separated by tabs (--delimiter tab)"),
        ("id|kcal\n1|3\n2|4\n", "separated by vertical bars"),
        ('"id, of whom";kcal\n1;3\n2;4\n', "separated by semicolons"),
        ("sep=;\nid;kcal\n1;3\n2;4\n", None),
        ("\n\nid,kcal\n1,3\n2,4\n", None),
        (b"\xef\xbb\xbfkcal,id\n3,1\n4,2\n", None),
        ("id\tkcal\r\n1\t3\r\n2\t4\r\n".encode("utf-16"), "separated by tabs"),
        (gzip.compress(b"id;kcal\n1;3\n2;4\n", mtime=0), "separated by semicolons"),
        (gzip.compress(b"\xef\xbb\xbfkcal\n3\n4\n", mtime=0), None),
        (" kcal , id\n 3 ,1\n4,2\n", None),
        ('"kcal\nof today",kcal\n1,3\n2,4\n', None),
    ],
)
def test_what_separates_fields(file: Path, content: bytes | str, remark: str | None) -> None:
    """Delimiters are detected in the header, encodings and compression by the first bytes."""
    table = opened(file, content, "kcal")
    assert [value for chunk in table.chunks() for value in chunk.columns[0]] == [3.0, 4.0]
    assert (remark is None) == (table.remarks == [])
    assert remark is None or remark in table.remarks[0]


def test_columns_by_number(file: Path) -> None:
    """Without a header, and the first line counts."""
    table = opened(file, "1,3\n2,4\n", "2", header=False)
    assert table.remarks == [f"Columns of {file} are named by their numbers, 1 to 2."]
    chunk = next(table.chunks())
    assert (chunk.columns[0].tolist(), chunk.places.tolist()) == ([3.0, 4.0], [1, 2])
    with pytest.raises(
        InputError, match=r"no column '3' \(column\); its columns are: 1, 2, because no_header=True"
    ):
        opened(file, "1,3\n", "3", header=False)
    with pytest.raises(
        InputError, match="if these are values and it has no header, pass no_header=True"
    ):
        opened(file, "1,3\n2,4\n", "kcal")
    with pytest.raises(
        InputError, match="has commas and semicolons; say which separate its fields with delimiter"
    ):
        opened(file, "3,5;7\n", "1", header=False)
    assert read(file, "3,5;7\n", "1", header=False, decimal=",") == [3.5]


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ("km;x\n3,5;a\n2;b\n", {"decimal": ","}),
        ('km,x\n"3,5",a\n2,b\n', {"decimal": ","}),
        ("km\n3,5\n2\n", {"decimal": ",", "delimiter": ";"}),
        ('km,x\n"3,5",a\n2,b\n', {"decimal": ",", "delimiter": ","}),
        ("km\tx\n3.5\ta\n2\tb\n", {}),
    ],
)
def test_decimals(file: Path, content: str, form: dict[str, str]) -> None:
    assert read(file, content, "km", **form) == [3.5, 2.0]


def test_a_point_among_decimal_commas_is_no_number() -> None:
    """1.234 may be a thousand or a little more than one: nobody guesses."""
    assert parse_numbers(["1.234", "2,5"], ",").tolist() == ["1.234", 2.5]
    assert parse_numbers(["1.234", "2,5"], ".").tolist() == [1.234, "2,5"]
    assert parse_numbers(["1_0", "2", ""]).tolist() == ["1_0", 2.0, None]


@check_all(
    ("cell", "reason"),
    [
        ("3,5", "has a decimal comma"),
        (",5", "has a decimal comma"),
        ("0,125", "has a decimal comma"),
        ("1,234", "has a separator of thousands or a decimal comma"),
        ("1,234,567", "has separators of thousands"),
        ("1,234.5", "has separators of thousands"),
        ("1.234,5", "has separators of thousands"),
        ("1.234.567", "has separators of thousands"),
        ("1'234", "has separators of thousands"),
        ("1 234", "has separators of thousands"),
        ("1\u202f234", "has separators of thousands"),
        ("2024-01-05", "is a date or a time"),
        ("2024-01-05T10:00:00Z", "is a date or a time"),
        ("05.01.2024", "is a date or a time"),
        ("1/5/24 10:00", "is a date or a time"),
        ("10:30", "is a date or a time"),
        ("5 January 2024", "is a date or a time"),
        ("Jan 5, 2024", "is a date or a time"),
        ("12%", "has a percent sign"),
        ("12 kcal", "has a unit"),
        ("12.5km", "has a unit"),
        ("$12", "has a unit"),
        ("True", "is a truth value and not a number"),
        ("\u22125", "begins with a dash that is not a minus sign"),
        ("NA", "is missing"),
        (" ", "is missing"),
        ("many", "is text and not a number"),
        ("mar", "is text and not a number"),
        ("0x1f", "is text and not a number"),
    ],
)
def test_why_a_cell_is_no_number(cell: str, reason: str) -> None:
    told = cell_problem(cell)
    assert told is not None
    assert told.reason == reason
    assert (told.remedy == "") == (reason == "is text and not a number")


def test_numbers_are_not_complained_about() -> None:
    """Numbers of a file are read before; in a frame a text is no number, whatever it says."""
    assert all(cell_problem(cell) is None for cell in (3, 2.5, np.int64(3), float("inf")))
    assert all(cell_problem(cell) is not None for cell in ("3", " -4.5e2 ", "inf"))
    assert cell_problem("3.5", ",") is not None
    assert not any(map(is_missing, ["0", 0, 0.0, False, "-", "nano"]))
    assert all(
        map(is_missing, ["", "NaN", "null", "#N/A", "<NA>", None, float("nan"), np.float64("nan")])
    )


def test_a_blank_line_is_a_missing_value_where_there_is_one_column(file: Path) -> None:
    """And nothing where there are several, because a row of several has its delimiters."""
    assert read(file, "kcal\n3\n\n4\n", "kcal") == [3.0, None, 4.0]
    assert read(file, "kcal,x\n3,\n\n4,\n", "kcal") == [3.0, 4.0]


def test_rows_know_their_lines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind blank lines, quoted line ends and other chunks."""
    monkeypatch.setattr("metricshuffle.data.source.CHUNK_ROWS", 3)
    monkeypatch.setattr("metricshuffle.data.csv_reader.LINES_PER_BLOCK", 2)
    text = 'n,name\r\n1,"a\r\nb"\r\n\r\n4,"c"\r\n5,"d\n\ne"\r\n8,f\r\n9,g\r\n'
    places = [
        (int(value), int(place))
        for chunk in opened(file, text, "n").chunks()
        for value, place in zip(chunk.columns[0], chunk.places - 1, strict=True)
    ]
    assert places == [(1, 1), (4, 4), (5, 5), (8, 8), (9, 9)]


def test_lines_with_other_numbers_of_fields_are_counted_to_the_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metricshuffle.data.csv_reader.LINES_PER_BLOCK", 20)
    lines = "".join(
        "1\n" if row % 10 == 3 else "1,2,3\n" if row == 5 else "1,2\n" for row in range(80)
    )
    with pytest.raises(InputError) as told:
        read(file, f"a,b\n{lines}", "a")
    assert "9 lines of" in str(told.value)
    assert (
        "than the 2 that its header names: line 5 has 1; line 7 has 3; line 15 has 1; line "
        "25 has 1; line 35 has 1; and 4 more." in str(told.value)
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"kcal,name\n3,a\n4,Ren\xe9\n", r"not in UTF-8, see line 3 \(perhaps it is in Latin-1"),
        (b"kcal,name\n" + b"3,a\n" * 20_000 + b"4,Ren\xe9\n", "see line 20002"),
        (b"kcal,n\xe4me\n3,a\n", "see line 1"),
        ("kcal\n3\n".encode("utf-16")[:-1], "begins like UTF-16 text and is damaged"),
        (b'kcal,name\n3,"abc\n4,def\n', "unexpected end of data at line 3"),
        (b"PK\x03\x04....", "an Excel workbook; save the sheet as CSV"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"\xfd7zXZ\x00", "compressed with xz"),
        (b"\x28\xb5\x2f\xfd", "compressed with Zstandard"),
        (gzip.compress(b"kcal\n3\n" * 100, mtime=0)[:-9], "damaged or cut short"),
        (b"", "is empty; it needs a header line"),
        (b"\n\n", "is empty"),
        (b"kcal\n", "has a header but no rows"),
        (b"kcal,kcal\n1,2\n", "more than one column 'kcal'"),
        (b"PAR1....", "not a Parquet file, or it is damaged"),
    ],
)
def test_what_cannot_be_read_is_told(file: Path, content: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(file, content, "kcal")


@check_all(
    ("delimiter", "mark"),
    [("tab", "\t"), ("\\t", "\t"), ("TAB", "\t"), ("\t", "\t"), (";", ";"), (None, None)],
)
def test_how_a_delimiter_is_written(delimiter: str | None, mark: str | None) -> None:
    assert CsvFormat.of(delimiter, ".", no_header=False) == CsvFormat(mark)


@check_all(
    ("delimiter", "decimal", "told"),
    [
        ("", ".", "delimiter"),
        ("ab", ".", "delimiter"),
        ('"', ".", "delimiter"),
        ("\n", ".", "delimiter"),
        (";", "x", "decimal must be a point or a comma"),
    ],
)
def test_formats_that_do_not_exist(delimiter: str, decimal: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        CsvFormat.of(delimiter, decimal, no_header=False)


def test_a_file_that_nobody_reads_to_the_end_is_closed(file: Path) -> None:
    """Warnings are errors here: an open file would tell."""
    for content in ("kcal\n3\n", gzip.compress(b"kcal\n3\n")):
        opened(file, content, "kcal")
        assert len(next(opened(file, content, "kcal").chunks())) == 1
