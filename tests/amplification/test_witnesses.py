"""Data set and pair behind a lower bound: recomputed, they have at least that epsilon."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.catalogue.randomizers import COUNTED, SMALL
from tests.tables import check_all

from metricshuffle.amplification import input_representatives, worst_case_data_sets
from metricshuffle.amplification.amplify import (
    Amplification,
    amplify,
    amplify_generic,
    amplify_metric,
)
from metricshuffle.amplification.input_classes import input_classes_of
from metricshuffle.amplification.input_representatives import class_representatives
from metricshuffle.amplification.lower_bound import DataSetWitness
from metricshuffle.amplification.padded_exponential_lower import pem_rows
from metricshuffle.amplification.random_task import random_task
from metricshuffle.amplification.worst_case_data_sets import value_of
from metricshuffle.randomizers import (
    Channel,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    Randomizer,
    Rappor,
    WitchHat,
)
from metricshuffle.randomizers.channel import ChannelPair

Floats = NDArray[np.float64]


def counted(laws: list[Floats]) -> dict[tuple[int, ...], float]:
    """The law of how often each report is made, one report by each law."""
    total: dict[tuple[int, ...], float] = {(0,) * len(laws[0]): 1.0}
    for law in laws:
        after: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, mass in total.items():
            for report, chance in enumerate(law.tolist()):
                if chance:
                    after[(*counts[:report], counts[report] + 1, *counts[report + 1 :])] += (
                        mass * chance
                    )
        total = after
    return total


def given_away(first: Floats, second: Floats, others: list[Floats], epsilon: float) -> float:
    """The divergence of the shuffled reports, first from second, by the definition."""
    one = counted([first, *others])
    two = counted([second, *others])
    return math.fsum(
        max(0.0, mass - math.exp(epsilon) * two.get(counts, 0.0)) for counts, mass in one.items()
    )


def merged(rows: Floats) -> Floats:
    """Reports that all rows make in one proportion are one: fewer counts, and nothing is lost."""
    groups: dict[tuple[float, ...], Floats] = {}
    for column in rows.T:
        shape = tuple((column / column.sum()).round(13).tolist())
        groups[shape] = groups.get(shape, np.zeros(len(rows))) + column
    return np.array(list(groups.values())).T


def law_of(randomizer: Randomizer, value: Any) -> Floats:
    """Row of an input named by its value; between grid points the mixture of neighbours."""
    values = [value_of(randomizer, code) for code in range(randomizer.inputs)]
    rows = randomizer.rows()
    if value in values:
        return np.asarray(rows[values.index(value)])
    assert isinstance(randomizer, LaplaceOnInterval | WitchHat)
    place = (value - values[0]) / randomizer.step
    share = place - math.floor(place)
    return np.asarray((1.0 - share) * rows[math.floor(place)] + share * rows[math.floor(place) + 1])


def check(
    answer: Amplification,
    randomizer: Randomizer,
    distance: float | None,
    epsilon: float,
    delta: float,
) -> None:
    """Both ways to ask."""
    for band, at, least in (
        (answer.delta(epsilon, distance), epsilon, None),
        (answer.epsilon(delta, distance), None, delta),
    ):
        if band.lower == 0.0:
            assert band.attained is None
            continue
        witness = band.attained
        assert isinstance(witness, DataSetWitness)
        assert sum(many for _, many in witness.others) == answer.users - 1
        held = [value for value, many in witness.others for _ in range(many)]
        laws = merged(
            np.array(
                [law_of(randomizer, value) for value in (witness.first, witness.second, *held)]
            )
        )
        found = given_away(
            laws[0], laws[1], list(laws[2:]), band.lower * (1.0 - 1e-6) if at is None else at
        )
        assert found >= (band.lower if least is None else least) * (1.0 - 1e-7), (witness, band)
        json.dumps(witness.document(), allow_nan=False)
        if distance is not None and isinstance(randomizer, LaplaceOnInterval | WitchHat):
            assert abs(witness.first - witness.second) <= distance * (1.0 + 1e-12)


@check_all("name", SMALL)
def test_the_named_data_set_gives_away_that_much(name: str) -> None:
    randomizer, users, distance = SMALL[name]
    check(amplify(randomizer, users), randomizer, distance, 0.1, 1e-2)


CLOSED = ["RAPPOR", "subset", "PrivSet", "Hadamard", "Hadamard, blocks", "hash", "Duchi", "Harmony"]


@pytest.mark.parametrize("name", CLOSED)
def test_the_data_set_of_a_closed_form_gives_away_that_much(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worst_case_data_sets, "CLOSED_FORM_REPORTS", 0)
    randomizer, users, distance = SMALL[name]
    check(amplify(randomizer, users), randomizer, distance, 0.1, 1e-2)


@check_all("randomizer", COUNTED)
def test_every_input_class_has_an_input(randomizer: Randomizer) -> None:
    """The law of (K_a/K_x, K_b/K_x) under the named x is the one that was counted."""
    rows = randomizer.rows()
    for a, b in randomizer.pairs():
        counted_types = input_classes_of(randomizer, a, b)
        assert counted_types is not None
        codes = class_representatives(randomizer, a, b, len(counted_types.types))
        for law, code in zip(counted_types.types, codes, strict=True):
            assert code is not None
            assert 0 <= code < randomizer.inputs
            for power, other in itertools.product((1, 2), repeat=2):  # moments of the two ratios
                listed = float(
                    (
                        rows[code]
                        * (rows[a] / rows[code]) ** power
                        * (rows[b] / rows[code]) ** other
                    ).sum()
                )
                assert float(
                    (law.mass * (law.a / law.mass) ** power * (law.b / law.mass) ** other).sum()
                ) == pytest.approx(listed, rel=1e-9)


def test_families_that_are_not_known_have_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    randomizer = Rappor(3, 1.0)
    assert class_representatives(randomizer, 0, 1, 7) == [None] * 7
    monkeypatch.setattr(input_representatives, "REPRESENTATIVES", {})
    assert class_representatives(randomizer, 0, 1, 3) == [None] * 3
    monkeypatch.setattr(worst_case_data_sets, "CLOSED_FORM_REPORTS", 0)
    band = amplify(randomizer, 50).epsilon(1e-3)
    assert band.lower > 0.0
    assert band.attained is None


def test_channels_of_any_shape() -> None:
    source = random.Random(12)
    for turn in range(25):
        inputs = source.randint(2, 4)
        outputs = source.randint(2, 4)
        rows = np.array(
            [
                [source.randint(0 if turn % 3 == 0 else 1, 9) + (y == 0) for y in range(outputs)]
                for _ in range(inputs)
            ],
            dtype=float,
        )
        channel = Channel(rows / rows.sum(axis=1, keepdims=True))
        check(
            amplify(channel, source.randint(1, 5)),
            channel,
            None,
            source.uniform(0.0, 0.5),
            10.0 ** -source.uniform(1.0, 4.0),
        )


def test_one_pair_of_a_channel_is_named() -> None:
    channel = Channel([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])
    pair = amplify(ChannelPair(channel.matrix, 0, 1), 4)
    band = pair.delta(0.1)
    assert band.attained is not None
    assert {band.attained.first, band.attained.second} == {0, 1}
    assert "the inputs 0 and 1" in pair.explain(1e-2)


def test_tasks_are_named_by_lists() -> None:
    first = KaryRandomizedResponse(3, 1.0)
    second = KaryRandomizedResponse(2, 2.0)
    band = amplify(random_task([(0.25, first), (0.75, second)]), 4).delta(0.2)
    witness = band.attained
    assert witness is not None
    laws = [
        np.concatenate([0.25 * first.law(one), 0.75 * second.law(two)])
        for one, two in (witness.first, witness.second)
    ]
    held = [
        np.concatenate([0.25 * first.law(value[0]), 0.75 * second.law(value[1])])
        for value, many in witness.others
        for _ in range(many)
    ]
    assert given_away(laws[0], laws[1], held, 0.2) >= band.lower * (1.0 - 1e-9)


def test_any_randomizer_and_any_metric_name_a_mechanism() -> None:
    band = amplify_generic(1.0, 5).delta(0.1)
    witness = band.attained
    assert witness is not None
    options = int(witness.mechanism[0])
    assert witness.mechanism == f"{options}-ary randomized response"
    response = KaryRandomizedResponse(options, 1.0)
    held = [response.law(value) for value, many in witness.others for _ in range(many)]
    assert given_away(
        response.law(witness.first), response.law(witness.second), held, 0.1
    ) >= band.lower * (1.0 - 1e-9)

    band = amplify_metric(1.0, 1.0, 2.0, 1.5, users=4).delta(0.1)
    witness = band.attained
    assert witness is not None
    assert "D(a,b) = 1, D(a,c) = 2, D(b,c) = 1.5" in witness.mechanism
    rows = dict(
        zip(
            "abc",
            pem_rows([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]], (0, 1, 2)),
            strict=True,
        )
    )
    held = [rows[value] for value, many in witness.others for _ in range(many)]
    assert given_away(rows[witness.first], rows[witness.second], held, 0.1) >= band.lower * (
        1.0 - 1e-9
    )


def test_words() -> None:
    assert DataSetWitness(0, 1, ((2, 9),)).words == "inputs 0 and 1 when all others hold 2"
    assert (
        DataSetWitness(0, 1, ((1, 3), (0, 9996))).words
        == "inputs 0 and 1 when 3 others hold 1 and 9,996 hold 0"
    )
    assert DataSetWitness(0.125, 1.0, ()).words == "inputs 0.125 and 1"
    assert (
        DataSetWitness([1.0, None], list(range(20)), ()).words
        == "inputs [1, -] and [0, 1, 2, 3, 4, 5, 6, 7, ...]"
    )
