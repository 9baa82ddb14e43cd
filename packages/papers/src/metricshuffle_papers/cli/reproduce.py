"""`metricshuffle reproduce`: published numbers, the published formulas, and the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricshuffle.cli.shared_options import Json, whole

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout
    from metricshuffle_papers.reproduction import Item, Reproduction, Row, Settings

COLUMNS = (
    "label",
    "published",
    "as_published",
    "ours",
    "ratio",
    "verdict",
    "standard_error",
    "note",
)
INDEX = "index.html"
FAILED = 1
INTERRUPTED = 130


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ITEM", help="The name of an item; `list` names them all, `all` runs them all."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FOLDER",
            help="Where the files go; made if missing. Needed for all.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The same with fewer runs and sizes.")
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option("--runs", parser=whole, metavar="N", help="How many runs a simulation takes."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            parser=whole,
            metavar="S",
            help="Seed of the simulations; the same seed gives the same numbers.",
        ),
    ] = 1,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Places to use in place of the built-in city, for items about places: columns "
            "east and north in metres, or lat and lon "
            "in degrees.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the papers' tables and figures: printed number, published formula, and truth.

    `reproduce all --output FOLDER` writes index.html (offline) and one JSON and one CSV file per
    item. An item that fails does not stop the others: it is named at the end, and the exit code is
    1.
    """
    from metricshuffle.cli.extras import require_extras
    from metricshuffle.errors import InputError
    from metricshuffle_papers.reproduction import Settings

    if what == "list":
        _list(as_json)
        return
    settings = Settings(quick=quick, runs=runs, seed=seed, csv=_readable(csv))
    if what == "all":
        require_extras("report")
        _all(settings, _folder(output, required=True), as_json)
        return
    item = _named(what)
    if csv is not None and not item.places:
        raise InputError(
            f"{what} uses no places, so that --csv would change nothing; leave it out, or "
            f"ask for an item that does: {_on_maps()}."
        )
    _one(item, settings, _folder(output), as_json)


def _on_maps() -> str:
    from metricshuffle_papers.reproduction import items

    return ", ".join(name for name, one in items().items() if one.places) or "there is none"


def _readable(file: Path | None) -> Path | None:
    from metricshuffle.errors import InputError

    if file is not None and not file.is_file():
        raise InputError(f"cannot read {file} (--csv): there is no such file.")
    return file


def _named(name: str) -> Item:
    """Return the item of that name; otherwise raise an error with the most similar names."""
    from difflib import get_close_matches

    from metricshuffle.errors import InputError
    from metricshuffle_papers.reproduction import items

    known = items()
    if name in known:
        return known[name]
    near = (
        get_close_matches(name, [*known, "list", "all"], n=4, cutoff=0.5)
        or [one for one in known if name in one][:4]
    )
    hint = (
        f"did you mean {' or '.join(near)}? All names: metricshuffle reproduce list"
        if near
        else "metricshuffle reproduce list names all"
    )
    raise InputError(f"there is no item {name!r}; {hint}.")


def _folder(output: Path | None, *, required: bool = False) -> Path | None:
    from metricshuffle.errors import InputError
    from metricshuffle.files import make_folder

    if output is None:
        if required:
            raise InputError("reproduce all writes many files; say where with --output FOLDER.")
        return None
    return make_folder(output)


def _list(as_json: bool) -> None:
    import json

    from metricshuffle.cli.console import screen
    from metricshuffle.cli.table_layout import Column, Line, TableLayout
    from metricshuffle_papers.reproduction import items

    known = items().values()
    if as_json:
        rows = [
            {
                "name": i.name,
                "paper": i.paper,
                "label": i.label,
                "title": i.title,
                "simulated": i.simulated,
            }
            for i in known
        ]
        print(json.dumps(rows, indent=2))
        return
    columns = (
        Column("name"),
        Column("paper", once=True),
        Column("label", wraps=True),
        Column("title", wraps=True),
    )
    screen().print(
        TableLayout(
            columns, tuple(Line((item.name, item.paper, item.label, item.title)) for item in known)
        )
    )


def _one(item: Item, settings: Settings, output: Path | None, as_json: bool) -> None:
    from dataclasses import replace

    from metricshuffle.cli.console import note, say, screen, show_progress

    with show_progress(f"{item.label}") as tell:
        found = item.run(replace(settings, progress=tell))
    if output is not None:
        written(output, item, settings, found)
    if as_json:
        print(document(item, settings, found))
        return
    console = screen()
    say(console, f"{item.label}: {item.title}", "", *found.words, "")
    console.print(rows_table(found.rows))
    for index, row in enumerate(found.rows, 1):
        if row.note:
            say(console, f"[{index}] {row.label}: {row.note}")
    if output is not None:
        note(f"Written: {output / item.name}.json and .csv")


def _all(settings: Settings, output: Path | None, as_json: bool) -> None:
    import json
    from collections import Counter

    from metricshuffle.cli.console import print_error
    from metricshuffle.files import write_text
    from metricshuffle_papers.pages.reproduction import page
    from metricshuffle_papers.reproduction import items

    assert output is not None  # noqa: S101 - _folder(required=True)
    known = list(items().values())
    found, failed, stopped = _run(known, settings, output)
    write_text(output / INDEX, page(known, found, failed, settings))
    counts = Counter(row.verdict for one in found.values() for row in one.rows)
    if as_json:
        print(
            json.dumps(
                {
                    "page": str(output / INDEX),
                    "items": list(found),
                    "verdicts": counts,
                    "failed": failed,
                    "stopped": stopped,
                }
            )
        )
    else:
        print(
            f"{len(found)} of {len(known)} items: "
            f"{', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}."
        )
        print(f"Page: {output / INDEX} (opens in any browser, needs no network)")
    for name, reason in failed.items():
        print_error(f"{name} failed: {reason} (metricshuffle reproduce {name} tells more)")
    if stopped:
        finished = "1 item that was" if len(found) == 1 else f"{len(found)} items that were"
        print_error(f"interrupted; {output} holds the {finished} finished.")
        raise SystemExit(INTERRUPTED)
    if failed:
        raise typer.Exit(FAILED)


def _run(
    known: list[Item], settings: Settings, output: Path
) -> tuple[dict[str, Reproduction], dict[str, str], bool]:
    """Run items; return the results, the failures with reasons, and whether it was interrupted.

    Each item's files are written when it is finished.
    """
    from dataclasses import replace

    from metricshuffle.cli.console import counting

    found: dict[str, Reproduction] = {}
    failed: dict[str, str] = {}
    by_name = {item.name: item for item in known}
    with counting(list(by_name)) as names:
        try:
            for name, tell in names:
                try:
                    found[name] = by_name[name].run(replace(settings, progress=tell))
                    written(output, by_name[name], settings, found[name])
                except (
                    Exception
                ) as wrong:  # one failed item must not stop the others; it is named at the end
                    found.pop(name, None)
                    for kind in (
                        "json",
                        "csv",
                    ):  # of an earlier run, which this page does not describe
                        (output / f"{name}.{kind}").unlink(missing_ok=True)
                    failed[name] = " ".join(f"{type(wrong).__name__}: {wrong}".split())
        except KeyboardInterrupt:
            return found, failed, True
    return found, failed, False


def written(folder: Path, item: Item, settings: Settings, found: Reproduction) -> None:
    """Write the item's rows as JSON (with its words and charts) and as CSV."""
    import csv
    from io import StringIO

    from metricshuffle.files import write_text
    from metricshuffle.report.answer_export import escape_csv_cell

    lines = StringIO()
    writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {
            name: "" if value is None else escape_csv_cell(value)
            for name, value in cells(row).items()
        }
        for row in found.rows
    )
    write_text(folder / f"{item.name}.json", document(item, settings, found) + "\n")
    write_text(folder / f"{item.name}.csv", lines.getvalue())


def cells(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COLUMNS}


def document(item: Item, settings: Settings, found: Reproduction) -> str:
    """Return one JSON document; infinite values are null (and explained in the note)."""
    import json
    import math

    rows = [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in cells(row).items()
        }
        for row in found.rows
    ]
    how = {
        "quick": settings.quick,
        "runs": settings.runs,
        "seed": settings.seed,
        "csv": None if settings.csv is None else str(settings.csv),
    }
    charts = [
        {"title": one.title, "caption": one.caption, "specification": one.specification}
        for one in found.charts
    ]
    about = {
        "item": item.name,
        "paper": item.paper,
        "label": item.label,
        "title": item.title,
        "simulated": item.simulated,
    }
    return json.dumps(
        {**about, "settings": how, "words": found.words, "rows": rows, "charts": charts}, indent=1
    )


def rows_table(rows: tuple[Row, ...]) -> TableLayout:
    """Table of the rows for the terminal; numbered notes follow below it."""
    from metricshuffle.cli.table_layout import Column, Line, TableLayout
    from metricshuffle_papers.pages.reproduction import shown

    numbers = ("published", "as published", "ours", "+-", "ratio")
    columns = (
        Column(),
        Column(wraps=True, heads=True),
        *(Column(name, number=True) for name in numbers),
        Column("verdict"),
    )
    colours = {
        "reproduced": "green",
        "true": "green",
        "not reproduced": "yellow",
        "impossible": "red",
        "false": "red",
    }
    lines = []
    for index, row in enumerate(rows, 1):
        cells = (
            f"[{index}]" if row.note else "",
            row.label,
            shown(row.published, digits=6),
            shown(row.as_published),
            shown(row.ours),
            shown(row.standard_error, digits=2),
            shown(row.ratio, digits=3),
            "" if row.verdict == "ours" else row.verdict,
        )
        lines.append(Line(cells, last=colours.get(row.verdict, "")))
    return TableLayout(columns, tuple(lines))
