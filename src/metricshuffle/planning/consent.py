"""What taking part means, in plain words for the people who are asked: short sentences, no formulas, and nothing that is not promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from metricshuffle.numerics.rounding import format_distance, format_epsilon, format_number, format_rough, round_up
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Histogram, UserHistogram, UserLinearQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.spaces import Categories, Discrete, Domain, Grid, Integers, Places
from metricshuffle.tasks.task import Task
from metricshuffle.tasks.wording import NO_QUESTION, question_sentence, quote_words

# Odds that shift by thousands are told as hiding little, and those beyond any use as hiding nothing.
LITTLE_EPSILON, NOTHING_EPSILON = 8.0, 30.0
MAX_LISTED = 8
MAX_ODDS = 10**15
TITLE = "What it means to take part"


@dataclass(frozen=True)
class Section:
    heading: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Consent:
    """The sections of a page for people who are asked to take part."""

    title: str
    sections: tuple[Section, ...]

    @property
    def text(self) -> str:
        """Plain text, a paragraph a section."""
        parts = [f"{section.heading}\n{' '.join(section.sentences)}" for section in self.sections]
        return "\n\n".join([self.title, *parts]) + "\n"

    @property
    def markdown(self) -> str:
        parts = [f"### {section.heading}\n\n{_escape_markdown(' '.join(section.sentences))}" for section in self.sections]
        return "\n\n".join([f"## {_escape_markdown(self.title)}", *parts]) + "\n"


def consent(task: Task, *, expected_error: float | None = None, contact: str = "", minimum: int | None = None) -> Consent:
    """What people should know before they take part in a task, which is verified first.

    `expected_error` is that of the plan, if it is at hand; `contact` says who answers questions; `minimum` is the least number of
    reports of a collection, if it asks for more than the task does.
    """
    task.verify_once()
    return Consent(
        TITLE if task.title is None else f"{quote_words(task.title)}: {TITLE[:1].lower()}{TITLE[1:]}",
        (
            Section("What you are asked", (_words(task), _question_section(task), *_result_section(task, expected_error))),
            Section("What leaves your device", _sent_section(task)),
            Section("What nobody learns", _hidden_section(task)),
            Section("What is not hidden", _not_hidden_section(task)),
            Section("Whom you rely on", _trust_section(task, task.minimum if minimum is None else minimum)),
            Section("How often", (_rounds_section(task),)),
            Section("If you change your mind", (_withdrawal_section(task),)),
            Section("Questions", _contact_section(task, contact)),
        ),
    )


# What is collected


def _words(task: Task) -> str:
    return NO_QUESTION if task.question is None else question_sentence(task.question)


def _question_section(task: Task) -> str:
    query = task.query
    if isinstance(query, UserQuery):
        items, max_items = query.items, getattr(task.protocol, "most_items", None)
        any_number = "all your items, as many as you have" if max_items is None else f"all your items, {max_items:,} at most"
        many = any_number if items == "any" else f"{items:,} item{'s' * (items != 1)}"
        return f"You are asked for {many}; each is {_one_of(query.values_in)}."
    return f"You are asked for one answer: {_one_of(query.values_in)}."


def _one_of(domain: Domain) -> str:
    """A value in words."""
    if isinstance(domain, Categories):
        names = ", ".join(domain.labels[:MAX_LISTED])
        more = len(domain.labels) - MAX_LISTED
        return f"one of {names}{f' and {more:,} more' if more > 0 else ''}"
    if isinstance(domain, Grid):
        return (
            f"a square of a grid of {domain.width:,} by {domain.height:,} squares, each {format_number(domain.cell)} {domain.unit}".rstrip()
            + " wide"
        )
    if isinstance(domain, Places):
        return f"a place, as latitude and longitude, within {domain.box}"
    whole = "a whole number" if isinstance(domain, Integers) else "a number"
    low, high, unit = (getattr(domain, name) for name in ("low", "high", "unit"))
    return f"{whole} from {format_number(low)} to {format_number(high)} {unit}".rstrip()


def _result_section(task: Task, expected_error: float | None) -> tuple[str, ...]:
    query, people = task.query, f"about {task.users:,} people" if task.users > 1 else "one person"
    off = ""
    if isinstance(query, Histogram):
        places = isinstance(query.domain, Grid)
        what = "a map of how many are in each square" if places else "how many gave each answer"
        off = (
            ""
            if expected_error is None
            else f"; its shares are off by about {format_rough(100.0 * expected_error)} % of the people on average"
        )
    elif isinstance(query, UserHistogram):
        what = "how the items of all together are spread, where everybody counts the same"
    elif isinstance(query, UserLinearQuery):
        what = "an average over the items of all, where everybody counts the same"
    else:
        what = {"mean": "the average of all answers", "centroid": "the middle of all places"}.get(query.kind, "the sum of all answers")
        off = (
            ""
            if expected_error is None
            else f"; it is off by about {format_number(expected_error)} {query.error_unit}".rstrip() + " on average"
        )
    return (f"From the answers of {people} one result is made: {what}{off}.",)


# What is sent


def _sent_section(task: Task) -> tuple[str, ...]:
    protocol, bits = task.protocol, task.protocol.bits_per_user
    size = f"{bits:,} bit{'s' * (bits != 1)}" if bits <= 64 else f"{-(-bits // 8):,} bytes"
    if protocol.trusted == "curator":
        return ("Your answer leaves your device as it is and goes to the curator, who adds random noise to the result.",)
    small = (
        "" if protocol.trusted == "nobody" else " The noise of one person may be little or none; it is that of all together that hides you."
    )
    if isinstance(protocol, NoisyVectors):
        how = f"Your device turns your answer into {protocol.coordinates:,} whole numbers, adds random noise to them and sends them.{small}"
    elif isinstance(protocol, Sums) and isinstance(protocol.randomizers[0], AdditiveRandomizer):
        how = f"Your device adds random noise to your answer and sends what comes out.{small}"
    else:
        likelier = "some reports likelier than others, and a report may be the answer itself"
        how = f"Your device sends a report that it draws at random: your answer only makes {likelier}."
        if isinstance(protocol, Frequencies) and protocol.items > 1:
            which = f"{protocol.items:,} items that it draws from yours" if protocol.drawn else f"each of your {protocol.items:,} items"
            how = f"Your device draws a report at random for {which}, and sends these: an item only makes {likelier}."
    pieces = protocol.messages_per_user
    split = "" if pieces == 1 else f" in {pieces:,} pieces"
    return (how, f"That is {size}{split}, the same for everybody.")


# What nobody learns


def _hidden_section(task: Task) -> tuple[str, ...]:
    promise = task.guarantee
    if promise.epsilon > NOTHING_EPSILON:
        return (_example(task), "Next to nothing about which of them is yours is promised to be hidden.")
    seen = {"nobody": "from your report, by anybody,", "shuffler": "from the mixed reports", "aggregator": "from the sums"}
    over = "" if task.rounds == 1 else f" This counts all {task.rounds} times together."
    weak = " That hides little." if promise.epsilon > LITTLE_EPSILON else ""
    odds = f"Whatever can be found out {seen.get(promise.trust.trusted, 'from the result')} is {odds_text(promise)}.{weak}{over}"
    return (_example(task), odds, *_distance_sentence(task))


def odds_text(promise: Guarantee, share: float = 1.0) -> str:
    """What an epsilon and a delta say about two things that might be true: never less than that. `share` of the epsilon counts."""
    factor = round_up(math.exp(round_up(promise.epsilon * share, 4)), 8)
    chance = "" if promise.delta == 0.0 else f", plus a chance of at most {rarity_text(promise.delta)}"
    return f"at most {format_epsilon(factor, 3 if factor < 2.0 else 2)} times as likely with one of them as with the other{chance}"


def rarity_text(delta: float) -> str:
    """A probability above 0, never less than it is."""
    once = min(MAX_ODDS, int(1 / Decimal(repr(delta))))
    digits = max(0, len(str(once)) - 2)
    return f"1 in {once // 10**digits * 10**digits:,}" if once > 1 else "1"


def _example(task: Task) -> str:
    """Two things that a person may hold and that are within the distance of each other."""
    query, distance, unit = task.query, task.guarantee.distance, f" {task.query.unit}" if task.query.unit else ""
    domain = query.values_in
    if isinstance(query, UserQuery):
        return _other_items(query, distance, unit)
    if isinstance(domain, Categories):
        return f"Think of any two answers, such as {domain.labels[0]} and {domain.labels[1]}."
    if isinstance(domain, Grid):
        return f"Think of any two squares whose middles are at most {format_distance(distance)}{unit} apart."
    if isinstance(domain, Places):
        return f"Think of any two places at most {format_distance(distance)}{unit} apart on the ground."
    if isinstance(query, Histogram):
        bins = math.floor(distance / query.step * (1.0 + 1e-12))
        first = (query.cells - 1 - bins) // 2
        pair = f"{query.label(first)} and {query.label(first + bins)}{unit}"
        if query.between(1.0) == "values":
            return f"Think of any two numbers at most {format_distance(distance)}{unit} apart, such as {pair}."
        wide = f"Your number is counted in ranges {format_number(query.step)}{unit} wide."
        return f"{wide} Think of any two ranges whose starts are at most {format_distance(distance)}{unit} apart, such as {pair}."
    two = number_pair(domain, distance, task.protocol.step)
    such = "" if two is None else f", such as {two[0]} and {two[1]}{unit}"
    rounded = "" if isinstance(domain, Integers) else f" when rounded to steps of {format_number(task.protocol.step)}{unit}"
    return f"Think of any two numbers at most {format_distance(distance)}{unit} apart{rounded}{such}."


def number_pair(domain: Domain, distance: float, step: float) -> tuple[str, str] | None:
    """Two numbers of the domain, as printed, that are within the distance also after each is rounded to a step; None if none is short."""
    low, high = (Decimal(repr(getattr(domain, name))) for name in ("low", "high"))
    whole = isinstance(domain, Integers)
    max_gap = Decimal(repr(distance)) - (Decimal(0) if whole else 2 * Decimal(repr(step)))
    if max_gap <= 0:
        return None
    unit = Decimal(1) if whole else Decimal(1).scaleb(max_gap.adjusted() - 1)
    apart = max_gap.quantize(unit, rounding=ROUND_FLOOR)
    first = ((low + high - apart) / 2).quantize(unit, rounding=ROUND_CEILING) if not whole else (low + high - apart) // 2
    if not (apart > 0 and low <= first and first + apart <= high):
        return None
    return tuple(f"{number:,f}" for number in (first, first + apart))  # type: ignore[return-value]


def _other_items(query: UserQuery, distance: float, unit: str) -> str:
    if isinstance(query.people.items_in.metric, Discrete):
        differ = f", where at most {format_distance(float(100 * Decimal(repr(distance))))} % of them differ" if distance < 1.0 else ""
        return f"Think of your items as they are, and of any other items in their place{differ}."
    return (
        f"Think of your items as they are, and of the same items moved by at most {format_distance(distance)}{unit} on average "
        "over all of them"
        f"{_measure_text(query)}."
    )


def _measure_text(query: Query) -> str:
    between = query.between(1.0)
    return "" if between == "values" else f" (measured between {between})"


def _distance_sentence(task: Task) -> tuple[str, ...]:
    """That nearer ones are hidden better, where that is promised and there are any."""
    promise, query = task.guarantee, task.query
    alike = isinstance(query.values_in, Categories) and not isinstance(query, UserQuery)
    smallest = query.people.nearest / (query.items if isinstance(query.items, int) else 1) if isinstance(query, UserQuery) else _step(query)
    if promise.shape == "flat" or alike or promise.distance < 2.0 * smallest:
        return ()
    return (f"Nearer ones are hidden better: half as far apart, it is {odds_text(promise, 0.5)}.",)


def _step(query: Query) -> float:
    domain = query.values_in
    return (
        query.step
        if isinstance(query, Histogram)
        else domain.cell
        if isinstance(domain, Grid)
        else 1.0
        if isinstance(domain, Integers)
        else 0.0
    )


# What is not hidden


def _not_hidden_section(task: Task) -> tuple[str, ...]:
    query, promise = task.query, task.guarantee
    unit = f" {query.unit}" if query.unit else ""
    lines = []
    if query.diameter > promise.distance * (1.0 + 1e-9):
        what = "Items that are moved farther" if isinstance(query, UserQuery) else "Answers that are farther apart"
        lines.append(
            f"{what} than {format_distance(promise.distance)}{unit} may be told apart more easily: about those, up to "
            f"{format_number(query.diameter)}{unit}, nothing is promised."
        )
    lines.append("That you took part is not hidden, nor how many did.")
    if isinstance(query, UserQuery) and query.items != "any":
        lines.append("How many items you hold is not hidden.")
    lines.append("The result may tell things about many people that also hold for you.")
    return (*lines, *_collusion_section(task))


def _collusion_section(task: Task) -> tuple[str, ...]:
    """What is left if whoever is trusted is not honest."""
    who, left = task.protocol.trusted, task.if_shuffler_colludes
    if who == "nobody":
        return ()
    if who == "curator":
        return ("The curator sees your answer as it is.",)
    case = f"If the {who} works together with those who read the result"
    if not left.epsilon <= NOTHING_EPSILON or task.protocol.warning(task.query):  # whatever the number on paper is
        return (f"{case}, next to nothing is hidden.",)
    if left.epsilon <= task.guarantee.epsilon:
        return (f"{case}, what they can find out is still {odds_text(left)}.",)
    little = ", which hides little" if left.epsilon > LITTLE_EPSILON else ""
    return (f"{case}, less is hidden: what they can find out is then {odds_text(left)}{little}.",)


# Who, how often, and how to leave


def _trust_section(task: Task, minimum: int) -> tuple[str, ...]:
    who = task.protocol.trusted
    if who == "nobody":
        return ("You need to trust nobody but your own device: what is said above holds whoever gets your report.",)
    if who == "curator":
        return ("You rely on the curator, who must keep your answer to herself and publish nothing but the result.",)
    does = {
        "shuffler": "it mixes them and must forget who sent which",
        "aggregator": "it adds them up and must show nothing but sums",
    }[who]
    everybody = task.honest == task.users
    counted = f"all {task.users:,}" if everybody else f"{task.honest:,} of the {task.users:,}"
    return (
        f"You rely on the {who}, the service that gets the reports of all: {does}.",
        f"You also rely on the others: what is said above counts on honest reports from {counted} people. "
        f"If {'anybody cheats' if everybody else 'more of them stay away or cheat'}, less is hidden; with fewer than {minimum:,} "
        "reports there is no result.",
    )


def _rounds_section(task: Task) -> str:
    if task.rounds == 1:
        return "You are asked once. If you are asked again, more can be found out."
    return f"You are asked up to {task.rounds:,} times. What is said above covers all of them together; after that, more can be found out."


def _withdrawal_section(task: Task) -> str:
    who = task.protocol.trusted
    if who in ("shuffler", "aggregator"):
        lost = "mixed" if who == "shuffler" else "added up"
        return f"You need not take part. Once the reports are {lost} nobody can tell which one was yours, so it cannot be taken back."
    where = "answer" if who == "curator" else "report"
    return f"You need not take part. Once the result is made your {where} cannot be taken out of it."


def _contact_section(task: Task, contact: str) -> tuple[str, ...]:
    contact_text = contact.strip() or "Ask whoever invited you to take part."
    but = "" if task.title is None and task.question is None else ", but for the words of whoever planned it,"
    return (
        contact_text if contact_text[-1] in ".!?" else f"{contact_text}.",
        f"Anybody can check what is said here{but} with the file of this task ({task.digest[:16]}) and the free program metricshuffle.",
    )


def _escape_markdown(text: str) -> str:
    """Text in which no character means anything to Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|&~${}" else letter for letter in text)
