"""What can be taken along: files and texts, each the same as the command line makes."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from metricshuffle.planning.consent import consent
from metricshuffle.report.report_page import report
from metricshuffle.report.sections.assessment import assess_collection
from metricshuffle.web.results import PlanResult

MAX_LINE_LENGTH = 100
"""Characters of a line of the command, beyond which it goes on in the next one."""


def command(result: PlanResult) -> str:
    """The same plan on the command line."""
    words = [
        f"{option} {_quoted(option, value)}".rstrip()
        for option, value in (*result.options, ("--save", "plan.json"), ("--task", "task.json"))
    ]
    lines, line = [], "metricshuffle plan"
    for word in words:
        if len(line) + len(word) > MAX_LINE_LENGTH:
            lines.append(line)
            line = " "
        line = f"{line} {word}"
    return " \\\n".join([*lines, line]) + "\n"


def _quoted(option: str, value: str) -> str:
    return value if option == "--box" else shlex.quote(value) if value else ""


def arguments(result: PlanResult) -> list[str]:
    """The same as `command`, as a list of words without what would be written."""
    listed = ["plan"]
    for option, value in result.options:
        listed += [option, *(value.split() if option == "--box" else [value] if value else [])]
    return listed


def python(result: PlanResult) -> str:
    """The same plan in Python."""
    question = result.asked
    shape = ', shape="flat"' if question.flat else ""
    if question.first == "accuracy":
        call, target = (
            "ms.plan_for_error",
            [
                f"{question.error!r},  # how far the answer may be off",
                f"{question.delta!r},  # delta",
                f"{question.distance!r},  # distance",
            ],
        )
    else:
        call, target = (
            "ms.plan",
            [f"ms.Target(epsilon={question.epsilon!r}, delta={question.delta!r}, distance={question.distance!r}{shape}),"],
        )
    options = {name: value for name, value in question.choices.items() if value is not None}
    if question.first == "accuracy" and question.flat:
        options["shape"] = "flat"
    lines = [
        "import metricshuffle as ms",
        "",
        f"plan = {call}(",
        f"    {question.python},",
        *(f"    {line}" for line in target),
        f"    users={question.users!r},",
        f"    honest={question.honest!r},",
        *(f"    {name}={value!r}," for name, value in options.items()),
        ")",
        "print(plan)",
        'plan.save("plan.json", "task.json")',
        "",
    ]
    return "\n".join(lines)


def assessment(result: PlanResult) -> str:
    """Paragraphs for an assessment, as report.html has them."""
    texts = assess_collection(result.collection).texts
    return (
        "\n\n".join(part for text in texts for part in (text.title, *(f"{heading}. {words}" for heading, words in text.paragraphs))) + "\n"
    )


def consent_text(result: PlanResult) -> str:
    """For the people who are asked, as `metricshuffle explain` says it; what is promised is verified first."""
    task = result.plan.task
    return consent(task, expected_error=result.plan.choice.expected_error).text


DOWNLOADS: dict[str, tuple[str, Callable[[PlanResult], str]]] = {
    "plan.json": ("application/json", lambda result: result.plan.to_json() + "\n"),
    "task.json": ("application/json", lambda result: result.plan.task.to_json() + "\n"),
    "assessment.txt": ("text/plain", assessment),
    "consent.txt": ("text/plain", consent_text),
    "plan.sh": ("text/plain", command),
    "plan.py": ("text/plain", python),
    "report.html": ("text/html", lambda result: report(result.collection)),
}
"""name -> type of the file, and what makes it"""
