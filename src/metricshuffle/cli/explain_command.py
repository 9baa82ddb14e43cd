"""`metricshuffle explain`: the consent text for people who are asked to take part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import (
    Json,
    PlanFile,
    choice,
    is_standard_output,
    load_plan,
    writable,
)

if TYPE_CHECKING:
    from metricshuffle.planning.consent import Consent

FORMATS = ("text", "markdown", "html")


def explain(
    plan_file: PlanFile,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="text|markdown|html",
            help="Plain text, Markdown, or an HTML fragment to insert into a web page.",
        ),
    ] = "text",
    contact: Annotated[
        str,
        typer.Option(
            "--contact",
            metavar="TEXT",
            help="Sentence that says who answers questions, for the last section.",
        ),
    ] = "",
    language: Annotated[
        str,
        typer.Option(
            "--language",
            metavar="en|de|FILE.po",
            help="Language of the text, or a catalogue with its translation.",
        ),
    ] = "en",
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Add the guarantee in exact words; an HTML fragment always has it."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Write the text to this file instead of printing it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain in plain words what taking part means, for a consent page.

    The guarantees of the plan are verified first.
    """
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
    consent_text = consent(
        task,
        expected_error=plan.choice.expected_error if isinstance(plan, Plan) else None,
        contact=contact,
        language=language,
    )
    if format == "html":
        from metricshuffle.report.template_engine import render_template

        text = render_template(
            "explain.html.jinja", consent=consent_text
        )  # without styles, so that those of the surrounding page apply
    else:
        if exact:
            consent_text = consent_text.with_exact_words()
        text = consent_text.markdown if format == "markdown" else consent_text.text
    if output is not None:
        write_text(str(output), text)
    if as_json:
        print(json.dumps(_document(task.digest, consent_text), indent=2))
    elif output is None:
        print(encodable_text(text), end="")
    else:
        note(f"Wrote {output}.")


def _document(digest: str, text: Consent) -> dict[str, object]:
    sections = [
        {"kind": part.kind, "heading": part.heading, "sentences": list(part.sentences)}
        for part in text.sections
    ]
    return {"task": digest, "language": text.language, "title": text.title, "sections": sections}
