"""The console's form that opens a collection: its fields, and the opening that they describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.wording_fields import with_wording

if TYPE_CHECKING:
    from metricshuffle.collection.operator.control_api import Opening
    from metricshuffle.tasks.task import Task

OPENING_FIELDS = (
    "url",
    "title",
    "question",
    "analyst",
    "asked_by",
    "run_by",
    "opens",
    "closes",
    "extends",
    "colluders",
    "round",
    "tickets",
    "delay",
    "retention",
    "same",
)
LABELS = {
    "--opens": "“Opens in”",
    "--closes": "“Closes in”",
    "--extends": "“Stays open at most”",
    "--colluders": "“Colluders”",
    "--round": "“Round”",
    "--honest": "“Honest people”",
    "--tickets": "“Tickets”",
    "--delay": "“Longest wait of a client”",
    "--retention": "“Kept for the analyst”",
}
"""Labels of the form that replace options in errors."""
MAX_COUNT = 10**13


def read_opening(text: str, typed: Mapping[str, str], now: float) -> Opening:
    """Read the opening of the plan or task in `text` from the form; errors go to their fields."""
    from metricshuffle.collection.keys import analyst_of
    from metricshuffle.collection.operator.control_api import (
        Opening,
        parse_duration_option,
        parse_time_option,
    )

    if not text:
        raise FieldErrors(
            {
                "plan": (
                    "Choose the plan or the task, as the planner page or `metricshuffle "
                    "plan --save` wrote it."
                )
            }
        )
    with errors_at_field("plan"):
        task = with_wording(_read_task(text), typed)
    with errors_at_field("analyst"):
        analyst = analyst_of(typed["analyst"], typed["asked_by"])
    with errors_at_field("opens"):
        opens = parse_time_option(typed["opens"] or "0s", now, "--opens")
    with errors_at_field("closes"):
        closes = parse_time_option(typed["closes"] or "1h", opens, "--closes")
        if closes <= now:
            raise InputError("--closes must lie in the future.")
    with errors_at_field("extends"):
        extends = parse_time_option(typed["extends"] or "0s", closes, "--extends")
        if extends < closes:
            raise InputError("--extends must not lie before the closing time.")
    with errors_at_field("delay"):
        delay = parse_duration_option(typed["delay"] or "0s", "--delay")
    with errors_at_field("retention"):
        retention = parse_duration_option(typed["retention"] or "30d", "--retention")
    colluders = _count("colluders", typed["colluders"], 0)
    number = _count("round", typed["round"], 1)
    tickets = _count("tickets", typed["tickets"] or "0", 0)
    needed = task.honest + colluders
    field = "colluders"
    if number > task.rounds:
        field = "round"
    elif tickets and tickets < needed <= task.users:
        field = "tickets"
    with errors_at_field(field):
        return Opening(
            task=task,
            analyst=analyst,
            colluders=colluders,
            opens=opens,
            closes=closes,
            extends=extends,
            retention=retention,
            delay=delay,
            round=number,
            admission="tickets" if tickets else "open",
            tickets=tickets,
            apart=not typed["same"],
        )


def with_labels(text: str) -> str:
    """Replace options in an error by the labels of the form."""
    for option, label in LABELS.items():
        text = text.replace(option, label)
    return text


@contextmanager
def errors_at_field(name: str) -> Iterator[None]:
    """Attach errors to a field of the form."""
    try:
        yield
    except FieldErrors:
        raise
    except MetricShuffleError as error:
        text = with_labels(str(error))
        raise FieldErrors({name: f"{text[:1].upper()}{text[1:]}"}) from None


def _count(name: str, text: str, minimum: int) -> int:
    if not (
        text.isascii()
        and text.isdigit()
        and len(text) <= len(str(MAX_COUNT))
        and minimum <= int(text) <= MAX_COUNT
    ):
        raise FieldErrors(
            {
                name: (
                    f"{name.capitalize()} must be a whole number of at least {minimum}, got "
                    f"{text[:40]!r}."
                )
            }
        )
    return int(text)


def _read_task(text: str) -> Task:
    """Read the task in a plan or a task file."""
    import json

    from metricshuffle.planning import Plan
    from metricshuffle.tasks.task import TASK_FORMAT, Task

    try:
        file_format = json.loads(text).get("format")
    except (ValueError, AttributeError):
        raise InputError("this file is neither a plan nor a task.") from None
    task = Task.from_json(text) if file_format == TASK_FORMAT else Plan.from_json(text).task
    task.verify_once()  # people must not be asked under a guarantee that fails
    return task
