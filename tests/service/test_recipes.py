"""Recipes: what a client needs that reads no tasks, exact to the last digit, and a sentence where it would not be enough."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.service import client_vectors
from tests.service.client_tasks import HONEST, channel, collection_of, frequencies, load_task, sums, tasks, vectors

from metricshuffle import Categories, Histogram, Integers, Interval, Mean, Sum, UserHistogram
from metricshuffle.collection import recipes
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate
from metricshuffle.protocols.features import Cells
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers import Channel, HadamardResponse, KaryRandomizedResponse, WitchHat
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces.users import users_of
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

LABELS = Categories(["a", "b", "c", "d"])


@pytest.mark.parametrize("name", tasks())
def test_every_form_has_a_recipe_that_is_carried_and_verified(name: str) -> None:
    task = tasks()[name]
    recipe = recipe_of(task)
    assert recipe["browser"]
    assert json.loads(canonical(recipe)) == recipe
    form, payload = MessageFormat.of(task.protocol), recipe["payload"]
    assert (form.messages, form.size) == (payload["piles"] * payload["each"], payload["pile"] + payload["number"] * payload["width"])
    collection_of(task).verify()


def test_another_recipe_is_not_that_of_the_task() -> None:
    collection = collection_of(tasks()["whole numbers"])
    terms = json.loads(collection.served)
    terms["recipe"]["noise"]["rate"][0] = str(int(terms["recipe"]["noise"]["rate"][0]) + 1)
    with pytest.raises(NotCertified, match="recipe"):
        Collection(canonical(terms)).verify()


def test_weights_are_those_of_the_law_and_sum_to_all() -> None:
    table = channel(4, 7)
    rows = recipe_of(tasks()["rows"])["randomizer"]["weights"]
    assert [[int(weight) for weight in row] for row in rows] == table.weights.tolist()
    assert all(sum(map(int, row)) == 2**63 for row in rows)
    kary = recipe_of(tasks()["k-ary"])["randomizer"]
    assert int(kary["keep"]) + 3 * int(kary["other"]) == 2**63


def test_the_noise_is_the_law_that_is_accounted_for() -> None:
    """P(0) from the digits: of `columns` draws of NB(r, p) none has a jump with probability (1-p)^(r columns)."""
    shape, rate = Fraction(1, HONEST), rational_rate(0.05)
    for columns in (1, 5, 300):
        jumps = recipes._noise(shape, rate, columns)["jumps"]
        none = -math.expm1(-float(rate))
        assert int(jumps["run"], 16) / 2.0**256 == pytest.approx(none ** (float(shape) * 2 ** len(jumps["bits"])), rel=1e-12)
    law, mass = Polya(shape, float(rate)).law(-60.0), 0.0
    # P(A = B = 0) + sum P(A = k)^2 is what the law says of 0
    negative_binomial = none ** float(shape)
    mass = negative_binomial**2
    for k in range(1, 4000):
        negative_binomial *= (float(shape) + k - 1) / k * math.exp(-float(rate))
        mass += negative_binomial**2
    assert law.mass[0] == pytest.approx(mass, rel=1e-9)


class OwnChannel(Channel):
    """Draws by another law than its table."""

    kind: str = "own-channel"  # type: ignore[assignment]

    def reports(self, values: Any, randomness: Randomness) -> NDArray[Any]:
        return np.zeros(len(values), dtype=np.uint8)


def unary() -> Task:
    padded = AdditiveRandomizer(span=20, shape=Fraction(1, HONEST), rate=float(rational_rate(0.5)), padding="clamp", radius=400)
    return load_task(Mean(Integers(0, 20)), Sums(name="polya-shuffle", trusted="shuffler", randomizers=(padded,)), 5.0)


def flipped(response: CountResponse) -> Task:
    return load_task(Sum(Integers(0, 20)), Sums(name="rr-shuffle", trusted="shuffler", randomizers=(response,)), 5.0)


def summed(**changes: Any) -> Task:
    return load_task(Sum(Integers(0, 1000)), sums((1000,), 0.05, shares=1).model_copy(update=changes), 20.0)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (unary, "sealed one by one"),
        (lambda: summed(trusted="aggregator"), "sealed one by one"),
        (lambda: flipped(CountResponse(span=20, flip=0.25)), "sealed one by one"),
        (lambda: load_task(Histogram(LABELS), frequencies(OwnChannel(matrix=channel(4, 7).matrix)), 1.0, 40.0), "OwnChannel"),
        (lambda: load_task(Histogram(LABELS), frequencies(HadamardResponse(4, 2.0)), 1.0, 40.0), "HadamardResponse"),
        (
            lambda: load_task(
                Mean(Interval(0.0, 10.0)), frequencies(WitchHat(5.0, 2.0, 1.0, 2048), readout="total", step=5.0 / 2048), 1.0, 40.0
            ),
            "WitchHat",
        ),
    ],
)  # fmt: skip
def test_what_a_browser_cannot_follow_says_why_and_other_clients_can(make: Any, why: str) -> None:
    task = make()
    recipe = recipe_of(task)
    assert recipe == {"protocol": task.protocol.kind, "browser": False, "why": recipe["why"]}
    assert why in recipe["why"]
    assert recipe["why"][0].isupper()
    assert recipe["why"].endswith(".")
    assert json.loads(canonical(recipe)) == recipe
    if task.protocol.trusted == "shuffler" and task.protocol.layout.apart:
        collection_of(task).verify()


def test_tables_that_are_too_large_for_a_page_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(*vectors(Histogram(LABELS), Cells(), 0.5, floor=KaryRandomizedResponse(4, 8.0)), 1.0)
    assert recipe_of(task)["browser"]
    monkeypatch.setattr(recipes, "MAX_FEATURES", 3)
    assert "table of features has 4 entries" in recipe_of(task)["why"]
    monkeypatch.undo()
    monkeypatch.setattr(recipes, "MAX_LAWS", 0)
    assert "1 kinds of noise" in recipe_of(task)["why"]
    assert recipe_of(tasks()["rows"])["browser"]
    monkeypatch.setattr(recipes, "MAX_ROWS", 3)
    assert "a table of 4 rows and 7 columns" in recipe_of(tasks()["rows"])["why"]


def test_items_say_how_many_they_are() -> None:
    assert recipe_of(tasks()["items"])["input"]["count"] == 3
    anything = recipe_of(tasks()["any items as vectors"])["input"]
    assert (anything["count"], anything["most"]) == (None, 12)
    assert isinstance(tasks()["items"].query, UserHistogram)
    assert users_of(LABELS, 3).items == 3


def test_the_vectors_are_what_the_python_client_makes() -> None:
    assert client_vectors.FILE.read_text(encoding="utf-8") == client_vectors.text()
