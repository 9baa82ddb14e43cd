"""The title and the question in the forms of the pages: what people will be asked, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError
from metricshuffle.web.fields import WrongFields
from metricshuffle.wire.wording import tidied_question, tidied_title

if TYPE_CHECKING:
    from metricshuffle.wire.task import Task

READ = {"title": tidied_title, "question": tidied_question}


@dataclass(frozen=True)
class WatchedTask:
    """What a task says to people, and the digest that it would have without saying anything."""

    title: str
    question: str
    wordless: str

    @classmethod
    def of(cls, task: Task) -> WatchedTask:
        return cls(task.title or "", task.question or "", task.reworded().digest)


def read_words(typed: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str | None]:
    """Title and question, None where the field is empty; `fields` tells which field of the form holds which."""
    words: dict[str, str | None] = {}
    wrong: dict[str, str] = {}
    for name, tidied in READ.items():
        text = typed[fields[name]].strip(" ")
        try:
            words[name] = tidied(text) if text else None
        except InputError as refused:
            wrong[fields[name]] = f"{name.capitalize()}{str(refused).removeprefix(name)}"
    if wrong:
        raise WrongFields(wrong)
    return words


def worded(task: Task, typed: Mapping[str, str]) -> Task:
    """The task with the title and the question that were typed; where it has one of its own, that stays, and no other is taken."""
    words = read_words(typed, {name: name for name in READ})
    own = {"title": task.title, "question": task.question}
    other = [name for name in READ if own[name] is not None and words[name] not in (None, own[name])]
    if other:
        raise WrongFields({name: f"The plan has a {name} of its own, “{own[name]}”; leave this empty, or plan again." for name in other})
    filled = {name: own[name] or words[name] for name in READ}
    return task if filled == own else task.reworded(**filled)
