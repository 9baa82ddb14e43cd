"""Recipes for clients that cannot read tasks: exact, with an error where not sufficient."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.collection import client_vectors
from tests.collection.client_tasks import (
    HONEST,
    channel,
    collection_of,
    frequencies,
    load_task,
    sums,
    tasks,
    vectors,
)
from tests.tables import check_all

from metricshuffle import (
    Categories,
    Grid,
    Histogram,
    Integers,
    Interval,
    Mean,
    Sum,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.collection import recipes
from metricshuffle.collection.pile_recipes import family_recipe
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate
from metricshuffle.planning.item_tables import above_of
from metricshuffle.planning.query_words import QUERIES
from metricshuffle.protocols.features import Cells, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.partition_family import PartitionFamily, family_of
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers import Channel, HadamardResponse, KaryRandomizedResponse, WitchHat
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Space
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
    form = MessageFormat.of(task.protocol)
    payload = recipe["payload"]
    assert (form.messages, form.size) == (
        payload["piles"] * payload["each"],
        payload["pile"] + payload["number"] * payload["width"],
    )
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
    """P(0) from the digits: `columns` draws of NB(r, p) have no jump with (1-p)^(r columns)."""
    shape = Fraction(1, HONEST)
    rate = rational_rate(0.05)
    for columns in (1, 5, 300):
        jumps = recipes._noise(shape, rate, columns)["jumps"]
        none = -math.expm1(-float(rate))
        assert int(jumps["run"], 16) / 2.0**256 == pytest.approx(
            none ** (float(shape) * 2 ** len(jumps["bits"])), rel=1e-12
        )
    law = Polya(shape, float(rate)).law(-60.0)
    mass = 0.0
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
    padded = AdditiveRandomizer(
        span=20,
        shape=Fraction(1, HONEST),
        rate=float(rational_rate(0.5)),
        padding="clamp",
        radius=400,
    )
    return load_task(
        Mean(Integers(0, 20)),
        Sums(name="polya-shuffle", trusted="shuffler", randomizers=(padded,)),
        5.0,
    )


def flipped(response: CountResponse) -> Task:
    return load_task(
        Sum(Integers(0, 20)),
        Sums(name="rr-shuffle", trusted="shuffler", randomizers=(response,)),
        5.0,
    )


def summed(**changes: Any) -> Task:
    return load_task(
        Sum(Integers(0, 1000)), sums((1000,), 0.05, shares=1).model_copy(update=changes), 20.0
    )


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (unary, "sealed one by one"),
        (lambda: summed(trusted="aggregator"), "sealed one by one"),
        (lambda: flipped(CountResponse(span=20, flip=0.25)), "sealed one by one"),
        (
            lambda: load_task(
                Histogram(LABELS), frequencies(OwnChannel(matrix=channel(4, 7).matrix)), 1.0, 40.0
            ),
            "OwnChannel",
        ),
        (
            lambda: load_task(Histogram(LABELS), frequencies(HadamardResponse(4, 2.0)), 1.0, 40.0),
            "HadamardResponse",
        ),
        (
            lambda: load_task(
                Mean(Interval(0.0, 10.0)),
                frequencies(WitchHat(5.0, 2.0, 1.0, 2048), readout="total", step=5.0 / 2048),
                1.0,
                40.0,
            ),
            "WitchHat",
        ),
    ],
)
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
    task = load_task(
        *vectors(Histogram(LABELS), Cells(), 0.5, floor=KaryRandomizedResponse(4, 8.0)), 1.0
    )
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


def test_every_query_of_the_command_line_has_vectors() -> None:
    """Queries on items have them for one public number of items, and for any number."""
    asked = {(name_of(task.query), task.query.items == "any") for task in tasks().values()}
    assert {name for name, _ in asked} == {*QUERIES, "by-group"}
    any_number = {name for name, is_any in asked if is_any}
    assert any_number == {name for name in QUERIES if name.startswith("user-")} - {"user-total"}


def name_of(query: Query) -> str:
    """Name of a query on the command line."""
    if isinstance(query, UserLinearQuery) and above_of(query) is not None:
        return "user-share-above"
    return query.title if isinstance(query, Histogram | UserQuery) else query.kind


# --- laws of browsers, from the numbers of a recipe alone ---


FAR = 2**13
"""Noise up to here is followed; rates are such that hardly any lies beyond."""


def real(digits: str) -> float:
    assert len(digits) == 64
    return float(Fraction(int(digits, 16), 2**256))


def jump_law(noise: Any) -> np.ndarray[Any, Any]:
    """P(K = k) of one jump as `jump` in noise.ts draws it: block, place, acceptance."""
    rate = float(Fraction(int(noise["rate"][0]), int(noise["rate"][1])))
    above = [1.0, *map(real, noise["jumps"]["blocks"]), 0.0]
    chances = [above[i] - above[i + 1] for i in range(len(above) - 1)]
    kept = np.zeros(FAR)
    for block, chance in enumerate(chances):
        least = 2**block
        if block == len(chances) - 1:
            k = np.arange(least, FAR)
            kept[k] += chance * -math.expm1(-rate) * np.exp(-rate * (k - least)) * least / k
        else:
            assert (
                rate * (least - 1) <= 1.0
            )  # (what decides there is right for such exponents only)
            k = np.arange(least, min(2 * least, FAR))
            kept[k] += chance / least * least / k * np.exp(-rate * (k - least))
    law: np.ndarray[Any, Any] = kept / kept.sum()
    return law


def no_jump(noise: Any) -> float:
    """Probability of no jump at a place, by the longest stretch; all digits agree."""
    jumps = noise["jumps"]
    none: float = real(jumps["run"]) ** (0.5 ** len(jumps["bits"]))
    for level, bit in enumerate(jumps["bits"]):
        assert real(bit) == pytest.approx(
            none ** (2**level) / (1.0 + none ** (2**level)), rel=1e-12
        )
    return none


def drawn_law(noise: Any) -> np.ndarray[Any, Any]:
    """P(Z = z) for z from 0 on, of the noise of one number."""
    rate = float(Fraction(int(noise["rate"][0]), int(noise["rate"][1])))
    ends = 2 * FAR
    law = np.ones(ends, dtype=complex)
    places = np.arange(ends)
    away = np.minimum(places, ends - places)
    laplace = np.fft.fft(math.tanh(rate / 2.0) * np.exp(-rate * away))
    for _ in range(noise["whole"]):
        law = law * laplace
    if noise["jumps"] is not None:
        none = no_jump(noise)
        jump = np.fft.fft(jump_law(noise), ends)
        more = [1.0, *map(real, noise["jumps"]["numbers"]), 0.0]
        half = np.zeros(ends, dtype=complex)
        for chance in reversed([more[m] - more[m + 1] for m in range(len(more) - 1)]):
            half = jump * (chance + half)
        half = none + (1.0 - none) * half
        law = law * half * half.conjugate()
    return np.fft.ifft(law).real[:FAR]


def check_noise(noise: Any, shape: Fraction, rate: Fraction) -> None:
    assert Fraction(int(noise["rate"][0]), int(noise["rate"][1])) == rate
    assert (noise["whole"], noise["jumps"] is None) == (int(shape), shape.denominator == 1)
    if rate < Fraction(1, 100):  # (too wide to be followed to its end)
        if noise["jumps"] is not None:
            assert no_jump(noise) == pytest.approx(
                (-math.expm1(-float(rate))) ** float(shape % 1), rel=1e-12
            )
        return
    accounted = Polya(shape, float(rate)).law(-60.0).mass
    drawn = drawn_law(noise)
    shown = min(len(accounted), 400)
    assert np.abs(accounted[:shown] - drawn[:shown]).max() < 1e-12
    assert drawn[:shown] == pytest.approx(accounted[:shown], rel=1e-7, abs=1e-15)


@check_all("rate", [0.02, 0.3, 0.5, 1.0, 1.5, 3.0, 20.0])
@check_all(
    "shape", [Fraction(1, 1_000_000), Fraction(1, 40), Fraction(2, 3), Fraction(1), Fraction(7, 3)]
)
def test_noise_of_every_shape_and_rate(rate: float, shape: Fraction) -> None:
    for columns in (1, 3, 1000):
        check_noise(recipes._noise(shape, rational_rate(rate), columns), shape, rational_rate(rate))


def rows_of(told: Any) -> np.ndarray[Any, Any]:
    """P(report | code) as randomizers.ts draws it."""
    if told["kind"] == "rows":
        return np.array([[int(weight) / 2**63 for weight in row] for row in told["weights"]])
    if told["kind"] == "k-ary":
        size = told["options"]
        rows = np.full((told["options"],) * 2, int(told["other"]) / 2**63)
        rows[np.arange(size), np.arange(size)] = int(told["keep"]) / 2**63
        return rows
    rate = float(Fraction(int(told["rate"][0]), int(told["rate"][1])))
    whole = np.ones((1, 1))
    for span in told["spans"]:  # columns first; a cell is row * width + column
        noise = np.arange(-4000, 4001)
        chance = math.tanh(rate / 2.0) * np.exp(-rate * np.abs(noise))
        axis = np.array(
            [
                np.bincount(np.clip(code + noise, 0, span), chance, span + 1)
                for code in range(span + 1)
            ]
        )
        whole = np.kron(axis, whole)
    return whole


def check_randomizer(told: Any, randomizer: Randomizer) -> None:
    rows = rows_of(told)
    assert rows.sum(axis=1) == pytest.approx(1.0, abs=1e-9)
    if isinstance(randomizer, PlanarGeometric):
        width = randomizer.axes[0].span + 1
        for one, other in ((0, width + 2), (width - 1, 3 * width - 1)):
            law = randomizer.blanket(one, other)
            assert rows[one] == pytest.approx(law.a, rel=1e-12)
            assert rows[other] == pytest.approx(law.b, rel=1e-12)
        return
    accounted = randomizer.rows()
    np.testing.assert_allclose(rows, accounted, rtol=1e-12, atol=1e-18)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = (
            np.nanmax(np.log(rows[:, None, :] / rows[None, :, :]))
            if len(rows) <= 64
            else np.log(rows.max() / rows.min())
        )
    assert worst <= randomizer.local_epsilon() + 1e-12


@check_all("name", tasks())
def test_the_recipe_of_every_form_draws_what_is_accounted_for(name: str) -> None:
    task = tasks()[name]
    recipe = recipe_of(task)
    protocol = task.protocol
    if isinstance(protocol, Sums):
        shares = Fraction(1, HONEST) if protocol.trusted == "shuffler" else Fraction(1)
        for axis, randomizer in enumerate(protocol.randomizers):
            assert isinstance(randomizer, AdditiveRandomizer)
            assert (randomizer.shape, randomizer.span) == (shares, int(recipe["spans"][axis]))
            coarse = recipe["granularity"]
            assert randomizer.granularity == int(
                coarse[axis] if isinstance(coarse, list) else coarse
            )
            check_noise(recipe["noise"], randomizer.shape, Fraction(randomizer.rate))
    elif isinstance(protocol, Frequencies):
        check_randomizer(recipe["randomizer"], protocol.randomizer)
    elif isinstance(protocol, ShufflerNoise):
        if protocol.floor is not None:
            check_randomizer(recipe["floor"], protocol.floor)
        assert (recipe["items"], recipe["drawn"]) == (protocol.items, protocol.drawn)
        check_family(recipe["family"], protocol.family(space_of(task.query)))
    else:
        assert isinstance(protocol, NoisyVectors)
        if protocol.floor is not None:
            check_randomizer(recipe["floor"], protocol.floor)
        rates = protocol.rates(space_of(task.query))
        columns = []
        for law in recipe["noise"]:
            columns += law["columns"]
            for column in {law["columns"][0], law["columns"][-1]}:
                check_noise(law, Fraction(1, protocol.sharers), Fraction(float(rates[column])))
        assert sorted(columns) == list(range(recipe["coordinates"])) == list(range(len(rates)))


def parts_by_recipe(told: Any, code: int) -> list[int]:
    """Part of every pile, or the thresholds of every window, as report.ts computes them."""
    if told["kind"] == "levels":
        return list(told["rows"][code])
    width = told["width"]
    if told["kind"] == "ramps":
        windows = range(0, told["last"], width)
        return [
            sum(code <= place < told["last"] for place in range(at, at + width)) for at in windows
        ]
    row, column = divmod(code, told["across"])
    found = []
    for shift in told["shifts"]:
        boxes = (told["across"] - 1 + shift) // width + 1
        found.append((row + shift) // width * boxes + (column + shift) // width)
    return found


def check_family(told: Any, family: PartitionFamily) -> None:
    rows = [parts_by_recipe(told, code) for code in range(len(family.table))]
    assert rows == family.table.tolist()


@check_all("width", [1, 2, 3, 4, 5, 6, 7])
@check_all("sides", [(7, 7), (9, 2), (2, 9), (8, 5)])
def test_piles_of_a_map_follow_from_a_formula(width: int, sides: tuple[int, int]) -> None:
    family = family_of(ShiftedBoxes(width), Space(Grid(*sides)))
    told = family_recipe(family, 0)
    check_family(told, family)
    assert len(json.dumps(told)) < 100


@check_all("width", [1, 2, 3, 10])
def test_piles_of_a_line_follow_from_a_formula(width: int) -> None:
    family = family_of(Ramps(width), Space(Integers(0, 11)))
    check_family(family_recipe(family, 0), family)


def test_a_table_of_parts_that_is_too_large_is_none_for_a_page() -> None:
    task = tasks()["labels of a tree"]
    assert isinstance(task.protocol, ShufflerNoise)
    family = task.protocol.family(space_of(task.query))
    assert family_recipe(family, family.table.size - 1) is None


def leaves(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part)
        if isinstance(part, list)
        else None
    )
    return (
        [path]
        if inside is None
        else [found for key, below in inside for found in leaves(below, (*path, key))]
    )


def changed(value: Any) -> Any:
    """Another value of the same sort, near to it."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    return value[:-1] + ("1" if value[-1:] != "1" else "2")


@pytest.mark.thorough
@pytest.mark.parametrize("name", tasks())
def test_whatever_is_changed_in_a_recipe_is_refused(name: str) -> None:
    """By verification, and as another collection than the pinned one."""
    collection = collection_of(tasks()[name])
    terms = json.loads(collection.served)
    every = leaves(terms["recipe"])
    for path in every[:: max(1, len(every) // 12)]:
        other = json.loads(collection.served)
        part = other["recipe"]
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = changed(part[path[-1]])
        with pytest.raises(NotCertified, match="recipe"):
            Collection(canonical(other)).verify()
        assert Collection(canonical(other)).digest != collection.digest
