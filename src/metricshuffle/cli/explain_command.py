"""`metricshuffle explain`: what taking part means, for the people who are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricshuffle.cli.shared_options import Json, PlanFile, choice, is_standard_output, load_plan, writable

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
    is_standard_output(output, as_json=as_json)
    if format == "html":
        from metricshuffle.errors import require

        require("jinja2", "report")
    from metricshuffle.cli.console import encodable_text, note

    plan = load_plan(plan_file)
    task = plan.task if isinstance(plan, Plan) else plan
    consent_text = consent(task, expected_error=plan.choice.expected_error if isinstance(plan, Plan) else None, contact=contact)
    if format == "html":
        from metricshuffle.report.template_engine import render_template

        text = render_template("explain.html.jinja", consent=consent_text)  # without styles: those of the page it is pasted into apply
    else:
        text = consent_text.markdown if format == "markdown" else consent_text.text
    if output is not None:
        write_text(str(output), text)
    if as_json:
        sections = [{"heading": section.heading, "sentences": list(section.sentences)} for section in consent_text.sections]
        print(json.dumps({"task": task.digest, "title": consent_text.title, "sections": sections}, indent=2))
    elif output is None:
        print(encodable_text(text), end="")
    else:
        note(f"Wrote {output}.")
