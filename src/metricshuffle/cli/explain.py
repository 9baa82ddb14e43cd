"""`metricshuffle explain`: what taking part means, for the people who are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.options import Json, PlanFile, choice, on_screen, planned, writable

FORMATS = ("text", "markdown", "html")


def explain(
    plan_file: PlanFile,
    format: Annotated[
        str, typer.Option("--format", metavar="text|markdown|html", help="Plain text, Markdown, or a fragment of HTML for a page of yours.")
    ] = "text",
    contact: Annotated[str, typer.Option("--contact", metavar="TEXT", help="Who answers questions: a sentence for the last section.")] = "",
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write it to a file instead of showing it.")] = None,
    as_json: Json = False,
) -> None:
    """Say in plain words what taking part means, for a consent page; what the plan promises is verified first."""
    import json

    from metricshuffle.files import write_text
    from metricshuffle.planning import Plan
    from metricshuffle.planning.consent import consent

    choice("format", format, FORMATS)
    writable(output, plan_file)
    on_screen(output, as_json=as_json)
    if format == "html":
        from metricshuffle.errors import require

        require("jinja2", "report")
    from metricshuffle.cli.screen import note, writable_words

    plan = planned(plan_file)
    task = plan.task if isinstance(plan, Plan) else plan
    said = consent(task, expected_error=plan.choice.expected_error if isinstance(plan, Plan) else None, contact=contact)
    if format == "html":
        from metricshuffle.pages.rendering import rendered

        text = rendered("explain.html.jinja", consent=said)  # without styles: those of the page it is pasted into apply
    else:
        text = said.markdown if format == "markdown" else said.text
    if output is not None:
        write_text(str(output), text)
    if as_json:
        sections = [{"heading": section.heading, "sentences": list(section.sentences)} for section in said.sections]
        print(json.dumps({"task": task.digest, "title": said.title, "sections": sections}, indent=2))
    elif output is None:
        print(writable_words(text), end="")
    else:
        note(f"Wrote {output}.")
