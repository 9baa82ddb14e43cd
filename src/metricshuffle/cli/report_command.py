"""`metricshuffle report`: one page about a plan and its release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import (
    Json,
    is_standard_output,
    load_plan,
    load_release,
    writable,
)

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.tasks.release import Release
    from metricshuffle.tasks.task import Task

REPORT = Path("report.html")


def report(
    plan_file: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN",
            help=(
                "Plan or task file that `metricshuffle plan` wrote (--save, --task), or a "
                "release alone, which contains its task."
            ),
        ),
    ],
    release_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="RELEASE",
            help=(
                "Release file that `metricshuffle estimate` or `metricshuffle run` wrote "
                "(--output)."
            ),
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", metavar="FILE", help="File for the HTML page; - is standard output."
        ),
    ] = REPORT,
    as_json: Json = False,
) -> None:
    """Write one page about a plan and its release, with charts and text for an assessment.

    The page is one file that needs no network.
    """
    from metricshuffle.report.template_engine import require_report_extra

    require_report_extra()
    inputs = [plan_file] if release_file is None else [plan_file, release_file]
    writable(output, *inputs)
    to_screen = is_standard_output(output, as_json=as_json)
    import json

    from metricshuffle.cli.console import note, say, screen, show_progress
    from metricshuffle.files import write_text
    from metricshuffle.report.report_page import report as page_about
    from metricshuffle.report.report_subject import ReportSubject

    content = _read(plan_file)
    release = None if release_file is None else load_release(release_file)
    collection = ReportSubject.of(content, release)
    with show_progress("Writing the report") as progress:
        page = page_about(collection, progress)
    write_text(output, page)
    if as_json:
        document = {
            "report": str(output),
            "bytes": len(page.encode()),
            "task": collection.task.digest,
            "release": collection.release is not None,
        }
        print(json.dumps(document))
    elif not to_screen:
        say(screen(), f"Report: {output}")
        note(f"{len(page.encode()) // 1024} KB, opens in any browser, needs no network.")


def _read(file: Path) -> Plan | Task | Release:
    """Read the plan, task or release in a file; once, because it may be a pipe."""
    import json

    from metricshuffle.files import read_text
    from metricshuffle.tasks.release import FORMAT

    text = read_text(file)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # the plan reader reports the problem
        data = None
    return (
        load_release(file, text)
        if isinstance(data, dict) and data.get("format") == FORMAT
        else load_plan(file, text)
    )
