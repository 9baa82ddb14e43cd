"""What people are told who are asked to take part: every number is recomputed, and nothing is said that is not promised."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from tests.selfcheck.drawn_plans import drawn
from tests.wire.kinds import KINDS, load_task, planned

from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.numerics.rounding import format_rough
from metricshuffle.planning import Plan, plan
from metricshuffle.planning.consent import Consent, consent, odds_text, rarity_text
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Histogram, Mean, Sum, UserHistogram
from metricshuffle.spaces import Categories, Grid, Integers, Interval, Space, users_of
from metricshuffle.tasks import Task

ODDS = re.compile(r"at most ([\d,.]+) times as likely with one of them as with the other(?:, plus a chance of at most 1 in ([\d,]+))?")
PAIR = re.compile(r"such as (-?[\d,]+(?:\.\d+)?) and (-?[\d,]+(?:\.\d+)?)[ .]")


def section(said: Consent, heading: str) -> str:
    (words,) = [" ".join(part.sentences) for part in said.sections if part.heading == heading]
    return words


def odds(words: str) -> list[tuple[float, float]]:
    """(epsilon, delta) of every sentence about odds, as they are printed."""
    found = [(factor.replace(",", ""), chance.replace(",", "")) for factor, chance in ODDS.findall(words)]
    return [(math.log(float(factor)), 1.0 / int(chance) if chance else 0.0) for factor, chance in found]


def keeps(task: Task, epsilon: float, delta: float, distance: float, shape: str) -> bool:
    """Whether what is printed is certified anew from the mechanism."""
    target = Target(epsilon, delta, distance, "linear" if shape == "linear" else "flat")
    try:
        return task.protocol.account(task.query, target, task.honest, task.rounds).kept
    except (ConditionError, NotCertified):
        return False


def check(task: Task) -> None:
    """Every sentence with a number."""
    said, promise, left = consent(task), task.guarantee, task.if_shuffler_colludes
    hidden, not_hidden, trusted = (section(said, name) for name in ("What nobody learns", "What is not hidden", "Whom you rely on"))
    told = odds(hidden)
    assert bool(told) == (promise.epsilon <= 30.0)
    for part, (epsilon, delta) in zip((1.0, 0.5), told, strict=False):
        assert promise.epsilon * part <= epsilon * (1 + 1e-12) <= promise.epsilon * part + 0.1
        assert promise.delta <= delta <= max(1.2 * promise.delta, 1e-15 if promise.delta else 0.0)
    if len(told) == 2:
        assert promise.shape == "linear", "nearer ones are hidden better only where that is promised"
    two = PAIR.search(hidden)
    if two and not isinstance(task.query, Histogram):
        low, high = (float(number.replace(",", "")) for number in two.groups())
        domain = task.query.values_in
        assert getattr(domain, "low") <= low < high <= getattr(domain, "high")  # noqa: B009 - numbers have ends
        assert 0 < abs(high - low) <= promise.distance * (1 + 1e-12)
        steps = [round((value - getattr(domain, "low")) / task.protocol.step) for value in (low, high)]  # noqa: B009
        assert (steps[1] - steps[0]) * task.protocol.step <= promise.distance * (1 + 1e-12)
    far = task.query.diameter > promise.distance * (1 + 1e-9)
    assert ("nothing is promised" in not_hidden) == far
    if task.protocol.trusted == "nobody":
        assert not odds(not_hidden)
        assert "trust nobody" in trusted
        assert "shuffler" not in said.text
    elif task.protocol.trusted == "curator":
        assert "sees your answer as it is" in not_hidden
        assert "as it is" in section(said, "What leaves your device")
    elif left.epsilon > 30.0 or task.protocol.warning(task.query):
        assert "next to nothing is hidden" in not_hidden
    else:
        ((epsilon, delta),) = odds(not_hidden)
        assert left.epsilon <= epsilon * (1 + 1e-12)
        assert left.delta <= delta
        assert ("hides little" in not_hidden) == (left.epsilon > 8.0)
    if task.protocol.trusted in ("shuffler", "aggregator"):
        assert f"fewer than {task.minimum:,} reports" in trusted
        assert "cannot be taken back" in section(said, "If you change your mind")
    assert ("all of them together" in section(said, "How often")) == (task.rounds > 1)
    plain_words(said)


def plain_words(said: Consent) -> None:
    """No formulas, no Greek, and short sentences."""
    assert not re.search(r"epsilon|delta|[α-ωΑ-Ω^=]", said.text)
    assert all(len(sentence.split()) <= 60 for part in said.sections for sentence in part.sentences)
    assert len(said.text.split()) < 450


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_true(kind: str) -> None:
    check(load_task(kind))


@pytest.mark.parametrize(
    "kind", ["unary sum", "sum in shares", "local sum", "curator's sum", "labels", "map", "vectors of labels", "users' items"]
)
def test_what_is_printed_is_certified_anew(kind: str) -> None:
    """Not only compared with the guarantee: accounted from the mechanism, at the numbers that people read."""
    task = load_task(kind)
    for share, (epsilon, delta) in zip((1.0, 0.5), odds(section(consent(task), "What nobody learns")), strict=False):
        if share == 1.0 or task.query.items is None:
            assert keeps(task, epsilon, delta, task.guarantee.distance * share, "flat")


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(300, 308), marks=pytest.mark.thorough), pytest.param(range(308, 400), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_random_plans(seeds: range) -> None:
    """Corners included: one person, real numbers of odd width, flat promises, several rounds, whoever is trusted."""
    made = [answer for seed in seeds if isinstance(answer := drawn(seed)[1], Plan)]
    assert len(made) > len(seeds) / 2
    for plan_made in made:
        check(plan_made.task)


def test_the_example_of_a_histogram_is_two_ranges_within_the_distance() -> None:
    query = Histogram(Integers(0, 119, "min"), 10)
    task = plan(query, Target(1.0, 0.0, 25), 50, trusted="nobody", protocols=["bounded-geometric"]).task
    words = section(consent(task), "What nobody learns")
    assert "ranges 10 min wide" in words
    assert "starts are at most 25 min apart, such as 40 to 49 and 60 to 69 min" in words


def test_weak_promises_are_called_weak() -> None:
    for epsilon, told in ((9.0, "That hides little"), (40.0, "Next to nothing")):
        task = plan(Sum(Integers(0, 20)), Target(epsilon, 0.0, 5), 40, trusted="nobody").task
        assert told in section(consent(task), "What nobody learns")
    assert "hides little" not in consent(load_task("local sum")).text


def test_a_flat_promise_says_nothing_of_nearer_ones() -> None:
    task = plan(Sum(Integers(0, 20)), Target(1.0, 0.0, 5, "flat"), 40, trusted="nobody").task
    assert task.guarantee.shape == "flat"
    assert "Nearer" not in consent(task).text
    assert "Nearer" in consent(load_task("local sum")).text


def test_items_are_told_as_moves_on_average() -> None:
    words = [
        section(
            consent(plan(UserHistogram(users_of(Space(domain), 4)), Target(1.0, 0.0, distance), 40, trusted="nobody").task),
            "What nobody learns",
        )
        for domain, distance in ((Integers(0, 9, "km"), 2.0), (Categories(["a", "b", "c"]), 0.5), (Categories(["a", "b", "c"]), 1.0))
    ]
    assert "moved by at most 2 km on average over all of them" in words[0]
    assert "at most 50 % of them differ" in words[1]
    assert "any other items in their place." in words[2]


def test_errors_and_contacts_are_told_where_they_are_known() -> None:
    made = planned("labels")
    said = consent(made.task, expected_error=made.choice.expected_error, contact="Write to privacy@example.org")
    assert f"off by about {format_rough(100 * made.choice.expected_error)} % of the people" in said.text
    assert section(said, "Questions").startswith("Write to privacy@example.org.")
    assert "off by" not in consent(made.task).text


def test_markdown_shows_labels_as_they_are() -> None:
    task = plan(Histogram(Categories(["*yes*", "<b>no</b>"])), Target(1.0, 0.0, 1), 50, trusted="nobody").task
    assert r"\*yes\*, \<b\>no\</b\>" in consent(task).markdown
    assert "*yes*, <b>no</b>" in consent(task).text


@pytest.mark.parametrize(
    ("delta", "told"),
    [
        (1e-6, "1 in 1,000,000"),
        (1e-5, "1 in 100,000"),
        (3e-7, "1 in 3,300,000"),
        (0.4, "1 in 2"),
        (0.9, "1"),
        (1e-40, "1 in 1,000,000,000,000,000"),
    ],
)
def test_chances_are_never_told_smaller_than_they_are(delta: float, told: str) -> None:
    assert rarity_text(delta) == told


@pytest.mark.parametrize("epsilon", [0.05, 0.5, math.log(2), 1.0, 2.0, 7.3, 12.0])
def test_odds_round_up(epsilon: float) -> None:
    promise = Guarantee.model_validate({**load_task("local sum").guarantee.model_dump(), "epsilon": epsilon})
    for share in (1.0, 0.5):
        ((printed, _),) = odds(odds_text(promise, share))
        assert epsilon * share <= printed * (1 + 1e-12) <= epsilon * share + 0.1


def test_places_and_real_numbers_are_measured_as_they_are_protected() -> None:
    grid = plan(Histogram(Grid(4, 4, 100.0, "m")), Target(1.0, 0.0, 200), 50, trusted="nobody").task
    assert "two squares whose middles are at most 200 m apart" in consent(grid).text
    real = plan(
        Mean(Interval(0.0, 1.0, "h")), Target(1.0, 0.0, 0.5), 50, granularity=0.25, trusted="nobody", protocols=["geometric-local"]
    ).task
    words = section(consent(real), "What nobody learns")
    assert "when rounded to steps of" in words
    first, second = map(float, PAIR.findall(words)[0])
    assert second - first <= 0.5


def test_no_two_sections_share_a_heading() -> None:
    headings = [part.heading for part in consent(load_task("map")).sections]
    assert all(one != other for one, other in itertools.combinations(headings, 2))
