"""Tables of numbers in CSV files without a header."""

from __future__ import annotations

from pathlib import Path

from metricshuffle.errors import InputError


def rows_of_numbers(path: Path, option: str = "--matrix") -> list[list[float]]:
    """Read the numbers of a CSV file without a header."""
    rows: list[list[float]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{option} {path} is not a text file; give a CSV of numbers.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append([float(cell) for cell in line.split(",")])
        except ValueError:
            raise InputError(
                f"{option} {path}, line {number}: {line.strip()[:60]!r} is not a row of "
                "numbers separated by commas."
            ) from None
        for cell, value in zip(line.split(","), rows[-1], strict=True):
            if value == 0.0 and any(
                digit in "123456789" for digit in cell.lower().partition("e")[0]
            ):
                raise InputError(
                    f"{option} {path}, line {number}: {cell.strip()[:60]} is too small for "
                    "a double; write 0 or a larger number."
                )
        if len(rows[-1]) != len(rows[0]):
            raise InputError(
                f"{option} {path}, line {number} has {len(rows[-1])} numbers, but the "
                f"first row has {len(rows[0])}."
            )
    if len(rows) < 2:
        what = "labels" if option == "--distances" else "inputs"
        raise InputError(
            f"{option} {path} needs a row for each of at least two {what}, got {len(rows)}."
        )
    return rows
