"""Title and question of a task, in the forms of the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError
from metricshuffle.tasks.wording import normalize_question, normalize_title
from metricshuffle.web.form_fields import FieldErrors

if TYPE_CHECKING:
    from metricshuffle.tasks.task import Task

NORMALIZERS = {"title": normalize_title, "question": normalize_question}


@dataclass(frozen=True)
class TaskWording:
    """Title and question of a task, and the digest of the task without them."""

    title: str
    question: str
    wordless_digest: str

    @classmethod
    def of(cls, task: Task) -> TaskWording:
        return cls(task.title or "", task.question or "", task.reworded().digest)


def read_wording(typed: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str | None]:
    """Read title and question, None if empty; `fields` has the form field of each."""
    words: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    for name, normalize in NORMALIZERS.items():
        text = typed[fields[name]].strip(" ")
        try:
            words[name] = normalize(text) if text else None
        except InputError as refused:
            errors[fields[name]] = refused.text(lambda word, _: word.capitalize())
    if errors:
        raise FieldErrors(errors)
    return words


def with_wording(task: Task, typed: Mapping[str, str]) -> Task:
    """Return the task with the typed title and question; existing ones cannot be changed."""
    words = read_wording(typed, {name: name for name in NORMALIZERS})
    own = {"title": task.title, "question": task.question}
    conflicts = [
        name
        for name in NORMALIZERS
        if own[name] is not None and words[name] not in (None, own[name])
    ]
    if conflicts:
        raise FieldErrors(
            {
                name: (
                    f"The plan has a {name} of its own, “{own[name]}”; leave this empty, or "
                    "plan again."
                )
                for name in conflicts
            }
        )
    filled = {name: own[name] or words[name] for name in NORMALIZERS}
    return task if filled == own else task.reworded(**filled)
