"""`metricshuffle report`: one page about a plan and its release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import Json, on_screen, planned, released, writable

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.wire.release import Release
    from metricshuffle.wire.task import Task

REPORT = Path("report.html")


def report(
    plan_file: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN",
            help="The plan or the task that `metricshuffle plan` wrote (--save, --task); or a release alone, which holds its task.",
        ),
    ],
    release_file: Annotated[
        Path | None, typer.Argument(metavar="RELEASE", help="The release that `metricshuffle estimate` or `run` wrote (--output).")
    ] = None,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the page goes; - is standard output.")] = REPORT,
    as_json: Json = False,
) -> None:
    """One page (offline, one file) about a plan and its release: three numbers, charts, what happens if, words for an assessment."""
    from metricshuffle.pages.rendering import require_report_extra

    require_report_extra()
    inputs = [plan_file] if release_file is None else [plan_file, release_file]
    writable(output, *inputs)
    to_screen = on_screen(output, as_json=as_json)
    import json

    from metricshuffle.cli.screen import note, say, screen, working
    from metricshuffle.files import write_text
    from metricshuffle.pages.collection import Collection
    from metricshuffle.pages.report import report as page_about

    asked = _read(plan_file)
    release = None if release_file is None else released(release_file)
    collection = Collection.of(asked, release)
    with working("Writing the report") as tell:
        page = page_about(collection, tell)
    write_text(output, page)
    if as_json:
        told = {
            "report": str(output),
            "bytes": len(page.encode()),
            "task": collection.task.digest,
            "release": collection.release is not None,
        }
        print(json.dumps(told))
    elif not to_screen:
        say(screen(), f"Report: {output}")
        note(f"{len(page.encode()) // 1024} KB, opens in any browser, needs no network.")


def _read(file: Path) -> Plan | Task | Release:
    """The plan, the task or the release in a file; it is read once, so that it may be a pipe."""
    import json

    from metricshuffle.files import read_text
    from metricshuffle.wire.release import FORMAT

    text = read_text(file)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # the reader of plans says what is wrong
        data = None
    return released(file, text) if isinstance(data, dict) and data.get("format") == FORMAT else planned(file, text)
