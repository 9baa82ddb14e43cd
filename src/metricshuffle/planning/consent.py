"""Text for participants: what taking part means, in plain words, claiming no more than is true.

It is written for a reader of twelve years: short sentences, no formulas, and probabilities as the
number of right guesses in a hundred. The guarantee in exact words is added on request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from metricshuffle.planning.task_words import Say, TaskWords
from metricshuffle.planning.translation import ENGLISH, load_language
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import (
    ByGroup,
)
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.spaces import (
    Categories,
    Grid,
    Integers,
    Places,
    ZonePairs,
    Zones,
)
from metricshuffle.tasks.task import Task
from metricshuffle.tasks.wording import NO_QUESTION, quote_words

# Epsilons above which the text says that little, or nothing, is hidden.
LITTLE_EPSILON = 8.0
NOTHING_EPSILON = 30.0
# Epsilon up to which the text says that an exact answer stays hidden: a guess between two is right
# at most 89 times in 100.
HIDDEN_EPSILON = 2.0


@dataclass(frozen=True)
class Section:
    """Section of the text; `kind` names it in every language."""

    kind: str
    heading: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Consent:
    """Sections of a page for people who are asked to take part."""

    title: str
    sections: tuple[Section, ...]
    exact: Section
    """The guarantee in exact words, for those who want to check it; in English."""
    language: str = ENGLISH
    heading: str = ""
    """The title without the planner's words."""

    @property
    def text(self) -> str:
        """Plain text, one paragraph per section."""
        parts = [f"{section.heading}\n{' '.join(section.sentences)}" for section in self.sections]
        return "\n\n".join([self.title, *parts]) + "\n"

    @property
    def markdown(self) -> str:
        parts = [
            f"### {_escape_markdown(section.heading)}\n\n"
            f"{_escape_markdown(' '.join(section.sentences))}"
            for section in self.sections
        ]
        return "\n\n".join([f"## {_escape_markdown(self.title)}", *parts]) + "\n"

    def with_exact_words(self) -> Consent:
        """The same text, followed by the guarantee in exact words."""
        return replace(self, sections=(*self.sections, self.exact))


def consent(
    task: Task,
    *,
    expected_error: float | None = None,
    contact: str = "",
    minimum: int | None = None,
    language: str = ENGLISH,
) -> Consent:
    """Write what people should know before they take part in a task, which is verified first.

    Args:
        expected_error: Expected error of the plan, if at hand.
        contact: Who answers questions.
        minimum: Smallest number of reports of a collection, if it is larger than the task's.
        language: Code of a language, or path of a catalogue.
    """
    spoken = load_language(language)
    task.verify_once()
    return _Writer(task, TaskWords(task, spoken)).consent(
        expected_error, contact, task.minimum if minimum is None else minimum
    )


@dataclass(frozen=True)
class _Writer:
    """Writer of the sections about one task in one language."""

    task: Task
    words: TaskWords

    @property
    def say(self) -> Say:
        return self.words.say

    def consent(self, expected_error: float | None, contact: str, minimum: int) -> Consent:
        say = self.say
        heading = title = say("What it means to take part")
        if self.task.title is not None:
            title = f"{self._quote(self.task.title)}: {heading[:1].lower()}{heading[1:]}"
        parts = {
            "asked": (say("What you are asked"), self.asked(expected_error)),
            "sent": (say("What leaves your device"), self.sent()),
            "hidden": (self.hidden_heading(), self.hidden()),
            "collusion": (self.collusion_heading(), self.collusion()),
            "visible": (say("What stays visible"), self.visible()),
            "others": (say("If people make things up or stay away"), self.others(minimum)),
            "rounds": (say("How often"), self.rounds()),
            "withdrawal": (say("Can you take it back?"), self.withdrawal()),
            "contact": (say("Questions"), self.contact(contact)),
        }
        sections = tuple(
            Section(kind, heading, sentences)
            for kind, (heading, sentences) in parts.items()
            if sentences
        )
        fallback = (
            (str(self.task.if_shuffler_colludes),) if self.task.protocol.trusted != "nobody" else ()
        )
        size = (
            f"Everyone's report has {self.task.protocol.bits_per_user:,} bits in "
            f"{self.task.protocol.messages_per_user:,} messages."
        )
        sentences = (str(self.task.guarantee), *fallback, size)
        exact = Section("exact", say("In exact words"), sentences)
        return Consent(title, sections, exact, self.words.language.code, heading)

    def _quote(self, words: str) -> str:
        opening, closing = self.say("“ ”").split()
        return quote_words(words, opening, closing)

    # What is asked

    def asked(self, expected_error: float | None) -> tuple[str, ...]:
        task = self.task
        say = self.say
        if task.question is None:
            question = say(NO_QUESTION)
        else:
            end = "" if task.question[-1] in ".!?" else "."
            quoted = self._quote(task.question)
            question = say("Those who plan this ask: {question}", question=quoted) + end
        return (question, self._answer_wanted(), *self._result(expected_error))

    def _answer_wanted(self) -> str:
        query = self.task.query
        say = self.say
        value = self.words.value_text(query.values_in)
        if not isinstance(query, UserQuery):
            return say("You give one answer: {value}.", value=value)
        items = query.items
        max_items = getattr(self.task.protocol, "most_items", None)
        if items == "any" and max_items is None:
            return say("You give all your items. Each item is {value}.", value=value)
        if items == "any":
            return say(
                "You give all your items, up to {most}. Each item is {value}.",
                most=self.words.count(max_items or 0),
                value=value,
            )
        if items == 1:
            return say("You give one item: {value}.", value=value)
        return say(
            "You give {items} items. Each item is {value}.",
            items=self.words.count(int(items or 0)),
            value=value,
        )

    def _result(self, expected_error: float | None) -> tuple[str, ...]:
        say = self.say
        users = self.task.users
        outcome = self.words.outcome()
        made = (
            say("Your answer becomes the result: {outcome}.", outcome=outcome)
            if users == 1
            else say(
                "The answers of about {people} people become one result: {outcome}.",
                people=self.words.count(users),
                outcome=outcome,
            )
        )
        readers = say("Everyone may see the result.")
        return (made, *self.words.error_sentences(expected_error), readers)

    # What is sent

    def sent(self) -> tuple[str, ...]:
        protocol = self.task.protocol
        say = self.say
        if protocol.trusted == "curator":
            return (
                say("Your device sends your answer as it is to one party, the curator."),
                say("The curator adds random noise to the result, not to your answer."),
            )
        if isinstance(protocol, ShufflerNoise):
            return (
                say("Your device changes your answer by chance and sends what comes out.")
                if protocol.changes_answers
                else say("Your device sends your answer as it is."),
                say(
                    "This is your report. The mixer adds made-up reports to those of all people, "
                    "so that others cannot know the exact counts."
                ),
            )
        if isinstance(protocol, NoisyVectors) and protocol.coordinates == 1:
            how = [
                say("Your device turns your answer into one whole number."),
                say("It adds a random number to it and sends the sum."),
                *self._small_noise(),
            ]
        elif isinstance(protocol, NoisyVectors):
            how = [
                say(
                    "Your device turns your answer into {numbers} whole numbers.",
                    numbers=self.words.count(protocol.coordinates),
                ),
                say("It adds a random number to each of them and sends the sums."),
                *self._small_noise(),
            ]
        elif isinstance(protocol, Sums) and isinstance(protocol.randomizers[0], AdditiveRandomizer):
            how = [
                say("Your device adds a random number to your answer and sends the sum."),
                *self._small_noise(),
            ]
        elif isinstance(protocol, Frequencies) and protocol.items > 1:
            drawn = (
                say(
                    "Your device picks {items} of your items by chance.",
                    items=self.words.count(protocol.items),
                )
                if protocol.drawn
                else say(
                    "Your device takes your {items} items one by one.",
                    items=self.words.count(protocol.items),
                )
            )
            how = [
                drawn,
                say("It draws a report by chance for each, and sends the reports."),
                say("The item makes some reports more likely; the report may be the item itself."),
            ]
        else:
            how = [
                say("Your device draws a report by chance and sends it."),
                say(
                    "Your answer makes some reports more likely; the report may be the answer "
                    "itself."
                ),
            ]
        if protocol.trusted != "nobody":
            how.append(
                say(
                    "What it sends is your report. What hides you is that the reports of all "
                    "people come together."
                )
            )
        return tuple(how)

    def _small_noise(self) -> tuple[str, ...]:
        if self.task.protocol.trusted == "nobody":
            return ()
        return (self.say("The random number of one person may be small or zero."),)

    # What can be learned if everyone keeps to the rules

    def hidden_heading(self) -> str:
        if self.task.protocol.trusted == "nobody":
            return self.say("What others can learn")
        return self.say("What others can learn, if everyone keeps to the rules")

    def hidden(self) -> tuple[str, ...]:
        say = self.say
        promise = self.task.guarantee
        seen = {
            "nobody": say("Anyone may see your report."),
            "shuffler": say(
                "All reports go to a mixer (the shuffler), which mixes them and must forget who "
                "sent which. Others see only the mix, not which report is yours."
            ),
            "aggregator": say(
                "All reports go to an adder (the aggregator), which adds them up. Others see only "
                "the sums."
            ),
            "curator": say("The curator publishes only the result."),
        }[promise.trust.trusted]
        example = self.words.example()
        if promise.epsilon > NOTHING_EPSILON:
            return (seen, example, say("Next to nothing hides which of the two is yours."))
        lines = [
            seen,
            example,
            say(
                "Imagine someone who knows the answers of all others, and that yours is one of "
                "these two. They think both equally likely, and guess which one."
            ),
            say(
                "Even their best guess is right at most {guesses}. This limit is what hidden means "
                "here. Tossing a coin would be right 50 times in 100.",
                guesses=self.words.guesses(promise),
            ),
        ]
        if promise.epsilon > LITTLE_EPSILON:
            lines.append(say("That hides little."))
        if self._nearer_is_hidden_better():
            lines.append(
                say(
                    "If the two are at most half as far apart, it is at most {guesses}.",
                    guesses=self.words.guesses(promise, 0.5),
                )
            )
        if self.task.rounds > 1:
            lines.append(
                say(
                    "This counts all {rounds} times together.",
                    rounds=self.words.count(self.task.rounds),
                )
            )
        return tuple(lines)

    def _nearer_is_hidden_better(self) -> bool:
        """Whether some values are nearer than the distance, and the guarantee hides them better."""
        promise = self.task.guarantee
        query = self.task.query
        labels = isinstance(query.values_in, Categories) and not isinstance(query, UserQuery)
        smallest = (
            query.people.nearest / (query.items if isinstance(query.items, int) else 1)
            if isinstance(query, UserQuery)
            else _smallest_step(query)
        )
        return promise.shape == "linear" and not labels and promise.distance >= 2.0 * smallest

    # What is left if the trusted party cheats

    def collusion_heading(self) -> str:
        return {
            "nobody": "",
            "shuffler": self.say("If the mixer cheats"),
            "aggregator": self.say("If the adder cheats"),
            "curator": self.say("If the curator cheats"),
        }[self.task.protocol.trusted]

    def collusion(self) -> tuple[str, ...]:
        """What remains hidden if the trusted party is not honest."""
        say = self.say
        trusted = self.task.protocol.trusted
        if trusted == "nobody":
            return ()
        if trusted == "curator":
            return (say("The curator sees your answer as it is, and could pass it on."),)
        left = self.task.if_shuffler_colludes
        protocol = self.task.protocol
        if isinstance(protocol, ShufflerNoise) and protocol.floor is None:
            return (
                say("The mixer can read your report, and could pass it on."),
                say("Then next to nothing hides your answer."),
            )
        case = {
            "shuffler": say("The mixer could work together with those who read the result."),
            "aggregator": say("The adder could work together with those who read the result."),
        }[trusted]
        if not left.epsilon <= NOTHING_EPSILON or not protocol.hides_alone(self.task.query):
            return (case, say("Then next to nothing hides your answer."))
        bound = say(
            "Then the same guess may be right {guesses}.",
            guesses=self.words.guesses(left),
        )
        if left.epsilon > LITTLE_EPSILON:
            return (case, bound, say("That hides little."))
        return (case, bound)

    # What is not hidden

    def visible(self) -> tuple[str, ...]:
        query = self.task.query
        say = self.say
        promise = self.task.guarantee
        lines = []
        if query.diameter > promise.distance * (1.0 + 1e-9):
            if promise.epsilon <= HIDDEN_EPSILON:
                lines.append(self._roughly_visible())
            limit = self.words.distance(promise.distance)
            if isinstance(query, UserQuery):
                lines.append(
                    say("Nothing is promised for moves of more than {limit}.", limit=limit)
                )
            elif isinstance(query.values_in, Places | Grid | Zones | ZonePairs):
                lines.append(
                    say("Nothing is promised for places more than {limit} apart.", limit=limit)
                )
            else:
                lines.append(
                    say("Nothing is promised for answers more than {limit} apart.", limit=limit)
                )
        lines.append(say("Others may see that you took part, and how many people did."))
        if isinstance(query, UserQuery) and query.items != "any":
            lines.append(say("Others may see how many items you have."))
        lines.append(
            say("The result says things about many people; some of these may be true of you.")
        )
        return tuple(lines)

    def _roughly_visible(self) -> str:
        query = self.task.query
        if isinstance(query, UserQuery):
            return self.say(
                "Your exact items are hidden in this way, but roughly where they lie may show."
            )
        if isinstance(query.values_in, Places | Grid | Zones | ZonePairs):
            return self.say(
                "Your exact place is hidden in this way, but roughly where it is may show."
            )
        return self.say(
            "Your exact answer is hidden in this way, but roughly how large it is may show."
        )

    # The others, how often, and how to leave

    def others(self, minimum: int) -> tuple[str, ...]:
        say = self.say
        task = self.task
        made_up = " ".join(
            [
                say("Nobody can check if answers are true, yours included."),
                say("A made-up answer is hidden too, but spoils the result."),
                self._liar(),
            ]
        )
        trusted = task.protocol.trusted
        if trusted == "nobody":
            return (say("You need to trust no one but your own device."), made_up)
        if trusted == "curator":
            return (made_up,)
        if not task.protocol.counts_on_honest:
            return (
                say(
                    "What is said here does not depend on the other people. But the mixer must "
                    "keep its made-up reports secret: with them, one knows the exact counts."
                ),
                made_up,
            )
        if task.honest == task.users:
            counted = say(
                "What is said here counts on honest reports from all {users} people. If one of "
                "them cheats, less is hidden.",
                users=self.words.count(task.users),
            )
        else:
            counted = say(
                "What is said here counts on honest reports from {honest} of the {users} people. "
                "If more of them cheat or stay away, less is hidden.",
                honest=self.words.count(task.honest),
                users=self.words.count(task.users),
            )
        return (
            counted,
            say(
                "With fewer than {minimum} reports there is no result.",
                minimum=self.words.count(minimum),
            ),
            made_up,
        )

    def _liar(self) -> str:
        """How far one person who makes up what they send can move the result."""
        task = self.task
        damage = task.protocol.damage(task.query, task.users)
        if damage.one is None:
            return self.say("Even one made-up report can make the result wrong by any amount.")
        moved = self.words.number(damage.text(task.query).removeprefix("about "))
        if damage.certified:
            return self.say(
                "One made-up report can make the result wrong by {moved} at most.",
                moved=moved,
            )
        return self.say(
            "One made-up report can make the result wrong by about {moved}.", moved=moved
        )

    def rounds(self) -> tuple[str, ...]:
        if self.task.rounds == 1:
            return (
                self.say("You are asked once."),
                self.say(
                    "If you answer other questions, before or later, a bit more can be learned "
                    "each time."
                ),
                *self._list_on_device(),
            )
        return (
            self.say(
                "You are asked up to {rounds} times. What is said here covers all of them "
                "together.",
                rounds=self.words.count(self.task.rounds),
            ),
            self.say("After that, a bit more can be learned about you each time."),
            *self._list_on_device(),
        )

    def _list_on_device(self) -> tuple[str, ...]:
        """What the clients of a collection do; a curator is sent answers in other ways."""
        if self.task.protocol.trusted == "curator":
            return ()
        return (
            self.say(
                "If you take part on a web page or with a program of metricshuffle, your device "
                "keeps a list of your reports."
            ),
            self.say("You can set a limit there. You are then asked before you go over it."),
        )

    def withdrawal(self) -> tuple[str, ...]:
        say = self.say
        trusted = self.task.protocol.trusted
        free = say("You do not have to take part.")
        if trusted == "shuffler":
            return (
                free,
                say(
                    "Once you have sent your report, you cannot take it back: when the reports are "
                    "mixed, nobody can find yours."
                ),
            )
        if trusted == "aggregator":
            return (
                free,
                say(
                    "Once you have sent your report, you cannot take it back: when the reports are "
                    "added up, nobody can find yours."
                ),
            )
        return (free, say("Once the result is made, your report stays in it."))

    def contact(self, contact: str) -> tuple[str, ...]:
        say = self.say
        task = self.task
        asked = contact.strip() or say("Ask the people who invited you.")
        check = (
            say(
                "Anyone can check what is said here with the file of this task ({digest}) and the "
                "free program metricshuffle.",
                digest=task.digest[:16],
            )
            if task.title is None and task.question is None
            else say(
                "Anyone can check what is said here, but not the planner's own words, with the "
                "file of this task ({digest}) and the free program metricshuffle.",
                digest=task.digest[:16],
            )
        )
        return (asked if asked[-1] in ".!?" else f"{asked}.", check)


def _smallest_step(query: Query) -> float:
    domain = query.values_in
    if isinstance(query, RecordQuery):
        return query.smallest_move
    if isinstance(query, CellQuery | ByGroup):
        return query.step
    if isinstance(domain, Grid):
        return domain.cell
    return 1.0 if isinstance(domain, Integers) else 0.0


def _escape_markdown(text: str) -> str:
    """Escape all characters that have a meaning in Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|&~${}" else letter for letter in text)
