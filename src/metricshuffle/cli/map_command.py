"""`metricshuffle map`: a release as a picture, or as rows for other programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import (
    Json,
    choice,
    is_standard_output,
    load_release,
    number_option,
    writable,
)
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.tasks.release import Release

FORMATS = ("html", "svg", "png", "geojson", "csv")
DRAWN = ("html", "svg", "png")
ENDINGS = {".html": "html", ".htm": "html", ".svg": "svg", ".png": "png"}
ENDINGS |= {".geojson": "geojson", ".csv": "csv"}


def map_release(
    release_file: Annotated[
        Path,
        typer.Argument(
            metavar="RELEASE",
            help="Release file that `metricshuffle run` or `metricshuffle estimate` wrote.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            metavar="FILE",
            help=(
                "File to write, ending in .html, .svg, .png, .geojson or .csv; - is standard "
                "output."
            ),
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="html|svg|png|geojson|csv",
            help="Format of the output; if left out, taken from the ending of the file name.",
        ),
    ] = None,
    background: Annotated[
        Path | None,
        typer.Option(
            "--background",
            metavar="places|FILE.geojson",
            help=(
                "What to draw on the map: `places` (towns, coasts and borders, with `pip install "
                "metricshuffle-places`), or a GeoJSON file with lines, areas and named points "
                "(property `name`), in longitude and latitude."
            ),
        ),
    ] = None,
    pannable: Annotated[
        bool,
        typer.Option(
            "--pannable",
            help=(
                "Make the .html page's map one that can be moved and zoomed, offline (needs `pip "
                "install metricshuffle-places`)."
            ),
        ),
    ] = False,
    level: Annotated[
        float, number_option("--level", "L", "Confidence level of the intervals.")
    ] = 0.95,
    as_json: Json = False,
) -> None:
    """Draw a release (.html, .svg, .png: a map, bars or steps), or write it (.geojson, .csv)."""
    kind = _kind(output, format)
    to_screen = is_standard_output(output, as_json=as_json)
    if not 0.0 < level < 1.0:
        raise InputError(f"--level must lie strictly between 0 and 1, got {level:g}.")
    if background is not None and kind not in DRAWN:
        raise InputError(f"--background is drawn in .html, .svg and .png files, not in .{kind}.")
    if pannable and kind != "html":
        raise InputError(f"--pannable is for .html files, not for .{kind}.")
    writable(output, release_file, *([background] if background else []))
    if kind in DRAWN:
        from metricshuffle.report.template_engine import require_report_extra

        require_report_extra()
    from metricshuffle.cli.console import show_progress
    from metricshuffle.files import atomic_file

    with show_progress("Drawing"):
        release = load_release(release_file)
        content = (
            _pannable_page(release, level, background)
            if pannable
            else _content(release, kind, level, background)
        )
    with atomic_file(output, "w" if isinstance(content, str) else "wb") as stream:
        stream.write(content)
    _print_summary(release, output, kind, level, as_json=as_json, to_screen=to_screen)


def _kind(output: Path, format: str | None) -> str:
    """Return the format: that of the option, else that of the file's ending."""
    if format is not None:
        return choice("format", format, FORMATS)
    ending = output.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"--output {output} does not show what to write; it must end in .html, .svg, "
            ".png, .geojson or .csv; else add --format."
        )
    return ENDINGS[ending]


def _pannable_page(release: Release, level: float, background: Path | None) -> str:
    from metricshuffle.report.pannable_map import pannable_page

    return pannable_page(release, level, background)


def _content(release: Release, kind: str, level: float, background: Path | None) -> str | bytes:
    if kind == "csv":
        from metricshuffle.report.answer_export import answer_columns, csv_text

        return csv_text(answer_columns(release, level))
    if kind == "geojson":
        from metricshuffle.report.answer_export import geojson_text

        return geojson_text(release, level)
    from metricshuffle.report.charts.answer_charts import answer_chart
    from metricshuffle.report.charts.release_maps import grid_of_box
    from metricshuffle.report.charts.zone_maps import zones_plane
    from metricshuffle.report.map_page import page
    from metricshuffle.spaces import Grid, Places, ZonePairs, Zones

    map_background = None
    if background is not None:
        from metricshuffle.cli.console import note
        from metricshuffle.report.gazetteer import load_background

        grid = release.query.values_in
        if isinstance(grid, Zones | ZonePairs):
            grid = zones_plane(grid.zones if isinstance(grid, ZonePairs) else grid)
        if isinstance(grid, Places):
            grid = grid_of_box(grid)
        if not isinstance(grid, Grid):
            raise InputError(
                f"--background is for maps, and this is a {release.query.title}; leave it out."
            )
        map_background = load_background(background, grid)
        if not (map_background.areas or map_background.lines or map_background.names):
            note(
                f"Nothing in {background} lies on the map (lines, areas, and points with a "
                "name are drawn)."
            )
    if kind == "html":
        return page(release, level, map_background)
    chart = answer_chart(release, level, name="map", background=map_background)
    if release.title is not None:
        chart = replace(chart, title=f"{release.title}: {chart.title}")
    return chart.svg() if kind == "svg" else chart.png()


def _print_summary(
    release: Release, output: Path, kind: str, level: float, *, as_json: bool, to_screen: bool
) -> None:
    """Print what was written, and the guarantees that belong to it."""
    from metricshuffle.cli.console import note, say, screen
    from metricshuffle.report.answer_export import answer_columns, promise_sentences

    columns = answer_columns(release, level)
    rows = len(next(iter(columns.values())))
    holding = columns.get("zero_inside")
    if as_json:
        import json

        document = {
            "output": str(output),
            "format": kind,
            "level": level,
            "rows": rows,
            "above_zero": None if holding is None else sum(not zero_held for zero_held in holding),
            "guarantee": str(release.guarantee),
            "if_shuffler_colludes": str(release.if_shuffler_colludes),
            "task": release.plan,
        }
        print(json.dumps(document, indent=2))
        return
    lines = [] if to_screen else [f"Wrote {output}."]
    if holding is not None:
        without = sum(not zero_held for zero_held in holding)
        lines.append(f"{without:,} of {rows:,} {100.0 * level:g} % intervals do not hold zero.")
    if kind in ("csv", "svg", "png"):
        lines.append(f"The .{kind} file holds no promises; publish them with it:")
    lines += [
        *promise_sentences(release),
        *([f"Warning: {release.warning}"] if release.warning else []),
    ]
    if to_screen:
        for line in lines:
            note(line)
    else:
        say(screen(), *lines)
