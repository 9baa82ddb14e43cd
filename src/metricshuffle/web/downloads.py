"""Files of a plan that the page offers for download, the same as the command line writes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricshuffle.planning.item_tables import item_files

if TYPE_CHECKING:
    from metricshuffle.queries.query import Query
    from metricshuffle.web.results import PlanResult

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"

MAX_LINE_LENGTH = 100
"""Maximum characters in a line of the command."""


def command(result: PlanResult) -> str:
    """The command line that makes the same plan, after those that write the files it reads."""
    lines = []
    line = "metricshuffle plan"
    for option in (
        *result.asked.request.to_command(),
        ("--save", "plan.json"),
        ("--task", "task.json"),
    ):
        words = " ".join(map(shlex.quote, option))
        if len(line) + len(words) > MAX_LINE_LENGTH:
            lines.append(line)
            line = " "
        line = f"{line} {words}"
    return file_commands(result.asked.request.query) + " \\\n".join([*lines, line]) + "\n"


def file_commands(query: Query) -> str:
    """Commands of a shell that write the files which the options of a query name."""
    return "".join(
        f"printf %s {shlex.quote(text)} > {name}\n" for name, text in item_files(query).items()
    )


def arguments(result: PlanResult) -> list[str]:
    """The same as a list of arguments, without the output files."""
    return ["plan", *(word for option in result.asked.request.to_command() for word in option)]


def python(result: PlanResult) -> str:
    """Python code that makes the same plan."""
    return (
        "import metricshuffle as ms\n\nplan = "
        f'{result.asked.request.to_python()}\nprint(plan)\nplan.save("plan.json", '
        '"task.json")\n'
    )


def assessment(result: PlanResult) -> str:
    """Paragraphs of an assessment, as in report.html."""
    from metricshuffle.report.sections.assessment import assess_collection

    texts = assess_collection(result.collection).texts
    return (
        "\n\n".join(
            part
            for text in texts
            for part in (text.title, *(f"{heading}. {words}" for heading, words in text.paragraphs))
        )
        + "\n"
    )


def consent_text(result: PlanResult) -> str:
    """Text for participants, as `metricshuffle explain` writes it; the guarantee is verified."""
    from metricshuffle.planning.consent import consent

    task = result.plan.task
    return consent(task, expected_error=result.plan.choice.expected_error).text


def report_html(result: PlanResult) -> str:
    """HTML report on the plan."""
    from metricshuffle.report.report_page import report

    return report(result.collection)


@dataclass(frozen=True)
class Download:
    """A file that a page offers: its title, its type, and the function that writes it."""

    title: str
    media_type: str
    write: Callable[[PlanResult], str]


DOWNLOADS = {
    "plan.json": Download(
        "The plan: every candidate, and the task", JSON, lambda result: result.plan.to_json() + "\n"
    ),
    "task.json": Download(
        "The task that travels to clients, shuffler and analyst",
        JSON,
        lambda result: result.plan.task.to_json() + "\n",
    ),
    "assessment.txt": Download("Paragraphs for a data-protection assessment", TEXT, assessment),
    "consent.txt": Download(
        "What taking part means, for the people who are asked", TEXT, consent_text
    ),
    "plan.sh": Download("The same as a command line", TEXT, command),
    "plan.py": Download("The same in Python", TEXT, python),
    "report.html": Download("One page about the plan, to hand on", HTML, report_html),
}
