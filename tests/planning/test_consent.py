"""Consent texts: every number is recomputed, and every sentence is guaranteed."""

from __future__ import annotations

import itertools
import math
import re
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import KINDS, load_task, planned
from tests.selfcheck.drawn_plans import drawn
from tests.tables import check_all

from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.numerics.rounding import format_rough
from metricshuffle.planning import Plan, plan
from metricshuffle.planning.consent import Consent, consent
from metricshuffle.planning.task_words import wrong_guesses
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Histogram, Mean, ShareAbove, Sum, UserHistogram
from metricshuffle.spaces import Categories, Grid, Integers, Interval, Space, users_of
from metricshuffle.tasks import Task

GUESSES = re.compile(r"(?:right at most|it is at most|may be right) ([\d,]+) times in ([\d,]+)")
PAIR = re.compile(r"such as (-?[\d,]+(?:\.\d+)?) and (-?[\d,]+(?:\.\d+)?)[ .]")


def section(said: Consent, kind: str) -> str:
    (words,) = [" ".join(part.sentences) for part in said.sections if part.kind == kind]
    return words


def guesses(words: str) -> list[float]:
    """Shares of right guesses, as they are printed."""
    rows = [[int(part.replace(",", "")) for part in row if part] for row in GUESSES.findall(words)]
    return [right / total for right, total in rows]


def least_epsilon(share: float, delta: float) -> float:
    """Epsilon at which this share of guesses can be right, by the other direction of the bound."""
    return math.log((share - delta) / (1.0 - share))


def keeps(task: Task, epsilon: float, delta: float, distance: float, shape: str) -> bool:
    """Whether what is printed is certified anew from the mechanism."""
    target = Target(epsilon, delta, distance, "linear" if shape == "linear" else "flat")
    try:
        return task.protocol.account(task.query, target, task.honest, task.rounds).kept
    except (ConditionError, NotCertified):
        return False


def check(task: Task) -> None:
    """Every sentence with a number."""
    said = consent(task)
    promise = task.guarantee
    left = task.if_shuffler_colludes
    hidden, visible, others = (section(said, kind) for kind in ("hidden", "visible", "others"))
    shares = guesses(hidden)
    assert bool(shares) == (promise.epsilon <= 30.0 and "nearly every time" not in hidden)
    for part, share in zip((1.0, 0.5), shares, strict=False):
        epsilon = least_epsilon(share, promise.delta)
        assert promise.epsilon * part <= epsilon * (1 + 1e-12) <= promise.epsilon * part + 0.8
    if len(shares) == 2:
        assert promise.shape == "linear", (
            "nearer ones are hidden better only where that is promised"
        )
    two = PAIR.search(hidden)
    if two and not isinstance(task.query, Histogram):
        low, high = (float(number.replace(",", "")) for number in two.groups())
        domain: Any = task.query.values_in  # numbers have ends
        assert domain.low <= low < high <= domain.high
        assert 0 < abs(high - low) <= promise.distance * (1 + 1e-12)
        steps = [round((value - domain.low) / task.protocol.step) for value in (low, high)]
        assert (steps[1] - steps[0]) * task.protocol.step <= promise.distance * (1 + 1e-12)
    beyond = task.query.diameter > promise.distance * (1 + 1e-9)
    assert ("Nothing is promised" in visible) == beyond
    assert ("hidden in this way" in visible) <= (promise.epsilon <= 2.0)
    kinds = {part.kind for part in said.sections}
    if task.protocol.trusted == "nobody":
        assert "collusion" not in kinds
        assert "trust no one" in others
        assert "mixer" not in said.text
    else:
        check_collusion(task, section(said, "collusion"), left)
    if task.protocol.counts_on_honest:
        assert f"fewer than {task.minimum:,} reports" in others
    if task.protocol.trusted in ("shuffler", "aggregator"):
        assert "you cannot take it back" in section(said, "withdrawal")
    assert ("all of them together" in section(said, "rounds")) == (task.rounds > 1)
    answers_what_people_ask(said, task.protocol.trusted)
    plain_words(said)


def answers_what_people_ask(said: Consent, trusted: str) -> None:
    """Questions of a reader who has only this text."""
    assert not re.search(r"\d bytes|pieces", said.text)  # a number of bytes tells people nothing
    answers = {
        "asked": "Everyone may see the result.",
        "others": "Nobody can check if answers are true, yours included. A made-up answer is "
        "hidden too, but spoils the result.",
        "withdrawal": "You do not have to take part.",
        "contact": "Ask the people",
    }
    if trusted == "shuffler":
        answers["hidden"] = "not which report is yours"
    for kind, answer in answers.items():
        assert answer in section(said, kind)


def check_collusion(task: Task, words: str, left: Guarantee) -> None:
    """The section about a trusted party that is not honest."""
    if task.protocol.trusted == "curator":
        assert "sees your answer as it is" in words
    elif left.epsilon > 30.0 or not task.protocol.hides_alone(task.query):
        assert "next to nothing hides your answer" in words
    else:
        (share,) = guesses(words) or (1.0,)
        assert share == 1.0 or left.epsilon <= least_epsilon(share, left.delta) * (1 + 1e-12)
        assert ("hides little" in words) == (left.epsilon > 8.0)


def plain_words(said: Consent) -> None:
    """No formulas, no Greek, short sentences, and words for a reader of twelve years."""
    assert not re.search(r"epsilon|delta|[α-ωΑ-Ω^=]", said.text)
    assert all(len(sentence.split()) <= 60 for part in said.sections for sentence in part.sentences)
    assert len(said.text.split()) < 550
    sentences = [sentence for part in said.sections for sentence in part.sentences]
    assert reading_grade(" ".join(sentences)) <= 6.0


def reading_grade(text: str) -> float:
    """Flesch-Kincaid grade; syllables are groups of vowels, without a silent e at the end."""
    words = text.split()
    sentences = [part for part in re.split(r"[.!?](?:\s|$)", text) if part.strip()]
    syllables = sum(map(count_syllables, words))
    return 0.39 * len(words) / len(sentences) + 11.8 * syllables / len(words) - 15.59


def count_syllables(word: str) -> int:
    letters = re.sub(r"[^a-z]", "", word.lower())
    groups = len(re.findall(r"[aeiouy]+", letters))
    silent = letters.endswith("e") and not letters.endswith(("le", "ee"))
    return max(1, groups - silent)


def test_the_reading_grade_knows_hard_sentences() -> None:
    hard = "Differential indistinguishability characterizes probabilistic interdependencies."
    assert reading_grade("The cat sat on the mat.") < 1.0
    assert reading_grade(hard) > 20.0


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_true(kind: str) -> None:
    check(load_task(kind))


@check_all(
    "kind",
    [
        "unary sum",
        "sum in shares",
        "local sum",
        "curator's sum",
        "labels",
        "map",
        "vectors of labels",
        "users' items",
    ],
)
def test_what_is_printed_is_certified_anew(kind: str) -> None:
    """Printed numbers are accounted for from the mechanism, not only compared."""
    task = load_task(kind)
    delta = task.guarantee.delta
    for part, share in zip((1.0, 0.5), guesses(section(consent(task), "hidden")), strict=False):
        if part == 1.0 or task.query.items is None:
            epsilon = least_epsilon(share, delta)
            assert keeps(task, epsilon, delta, task.guarantee.distance * part, "flat")


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(300, 308), marks=pytest.mark.thorough),
        pytest.param(range(308, 400), marks=pytest.mark.slow),
    ],
    ids=["few", "many"],
)
def test_random_plans(seeds: range) -> None:
    """Corner cases: one person, odd widths, flat targets, several rounds, all trust."""
    made = [answer for seed in seeds if isinstance(answer := drawn(seed)[1], Plan)]
    assert len(made) > len(seeds) / 2
    for plan_made in made:
        check(plan_made.task)


def test_the_example_of_a_histogram_is_two_ranges_within_the_distance() -> None:
    query = Histogram(Integers(0, 119, "min"), 10)
    task = plan(
        query, Target(1.0, 0.0, 25), 50, trusted="nobody", protocols=["bounded-geometric"]
    ).task
    words = section(consent(task), "hidden")
    assert "ranges of 10 min" in words
    assert "starts are at most 25 min apart, such as 40 to 49 and 60 to 69 min" in words


def test_weak_promises_are_called_weak() -> None:
    for epsilon, told in ((9.0, "That hides little"), (40.0, "Next to nothing hides")):
        task = plan(Sum(Integers(0, 20)), Target(epsilon, 0.0, 5), 40, trusted="nobody").task
        assert told in section(consent(task), "hidden")
    assert "hides little" not in consent(load_task("local sum")).text


def test_a_flat_promise_says_nothing_of_nearer_ones() -> None:
    task = plan(Sum(Integers(0, 20)), Target(1.0, 0.0, 5, "flat"), 40, trusted="nobody").task
    assert task.guarantee.shape == "flat"
    assert "half as far" not in consent(task).text
    assert "half as far" in consent(load_task("local sum")).text


def test_items_are_told_as_moves_on_average() -> None:
    words = [
        section(
            consent(
                plan(
                    UserHistogram(users_of(Space(domain), 4)),
                    Target(1.0, 0.0, distance),
                    40,
                    trusted="nobody",
                ).task
            ),
            "hidden",
        )
        for domain, distance in (
            (Integers(0, 9, "km"), 2.0),
            (Categories(["a", "b", "c"]), 0.5),
            (Categories(["a", "b", "c"]), 1.0),
        )
    ]
    assert "moved by at most 2 km on average" in words[0]
    assert "at most 50 % of them differ" in words[1]
    assert "any other items in their place." in words[2]


def test_one_number_is_told_as_one() -> None:
    task = plan(ShareAbove(Integers(0, 20), 9, 5), Target(1.0, 1e-6, 5.0), 300).task
    sentence = "into one whole number. It adds a random number to it and sends the sum."
    assert sentence in " ".join(consent(task).text.split())


def test_errors_and_contacts_are_told_where_they_are_known() -> None:
    made = planned("labels")
    said = consent(
        made.task, expected_error=made.choice.expected_error, contact="Write to privacy@example.org"
    )
    error = format_rough(100 * made.choice.expected_error)
    assert f"off by about {error} % of the people" in said.text
    assert section(said, "contact").startswith("Write to privacy@example.org.")
    assert "off by" not in consent(made.task).text


def test_markdown_shows_labels_as_they_are() -> None:
    task = plan(
        Histogram(Categories(["*yes*", "<b>no</b>"])), Target(1.0, 0.0, 1), 50, trusted="nobody"
    ).task
    assert r"\*yes\*, \<b\>no\</b\>" in consent(task).markdown
    assert "*yes*, <b>no</b>" in consent(task).text


@check_all("epsilon", [0.0, 0.05, 0.5, math.log(2), 1.0, 2.0, 7.3, 12.0, 29.0])
def test_wrong_guesses_are_never_said_too_often(epsilon: float) -> None:
    """The exact bound in fractions of a large denominator, and the two laws that attain it."""
    for delta in (0.0, 1e-9, 0.25, 1.0):
        bound = wrong_guesses(epsilon, delta)
        with localcontext() as context:
            context.prec = 60
            exact = (1 - Decimal(delta)) / (Decimal(epsilon).exp() + 1)
            assert exact * (1 - Decimal("1e-13")) <= Decimal(bound) <= exact
    odds = math.exp(epsilon)
    first = (odds / (1 + odds), 1 / (1 + odds))
    attained = 0.5 * (first[1] + (1 - first[0]))  # randomized response, guessed as it is
    assert wrong_guesses(epsilon, 0.0) == pytest.approx(attained, rel=1e-12)


def test_a_bound_that_cannot_be_computed_promises_nothing() -> None:
    for epsilon, delta in ((math.inf, 0.0), (math.nan, 0.0), (1.0, math.nan), (-1.0, 0.0)):
        assert wrong_guesses(epsilon, delta) == 0.0


def test_no_family_of_laws_is_guessed_more_often() -> None:
    """The best guess between two laws, against the bound at the epsilon they really have."""
    rng = np.random.default_rng(5)
    for _ in range(500):
        laws = rng.dirichlet(np.full(4, 0.5), size=2) + 1e-12
        laws /= laws.sum(axis=1, keepdims=True)
        wrong_share = 0.5 * float(np.minimum(*laws).sum())
        for epsilon in (0.0, 0.3, 1.5):
            delta = max(
                float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
                for first, second in (laws, laws[::-1])
            )
            assert wrong_guesses(epsilon, min(1.0, delta)) <= wrong_share * (1 + 1e-9)


def test_places_and_real_numbers_are_measured_as_they_are_protected() -> None:
    grid = plan(Histogram(Grid(4, 4, 100.0, "m")), Target(1.0, 0.0, 200), 50, trusted="nobody").task
    assert "two squares whose middles are at most 200 m apart" in consent(grid).text
    real = plan(
        Mean(Interval(0.0, 1.0, "h")),
        Target(1.0, 0.0, 0.5),
        50,
        granularity=0.25,
        trusted="nobody",
        protocols=["geometric-local"],
    ).task
    words = section(consent(real), "hidden")
    assert "when rounded to steps of" in words
    first, second = map(float, PAIR.findall(words)[0])
    assert second - first <= 0.5


def test_no_two_sections_share_a_heading() -> None:
    headings = [part.heading for part in consent(load_task("map")).sections]
    assert all(one != other for one, other in itertools.combinations(headings, 2))


@pytest.mark.parametrize("floor", ["never", "always"])
def test_a_mixer_that_adds_reports_can_read_them_where_they_are_not_sealed(floor: Any) -> None:
    task = plan(
        Histogram(Categories(["a", "b", "c"])),
        Target(1.0, 1e-6, 1.0),
        300,
        protocols=["shuffler-noise"],
        floor=floor,
        max_local_epsilon=None if floor == "never" else 3.0,
    ).task
    said = consent(task)
    words = section(said, "collusion")
    assert ("The mixer can read your report" in words) == (floor == "never")
    assert ("next to nothing hides" in words) == (floor == "never")
    assert ("as it is" in section(said, "sent")) == (floor == "never")
