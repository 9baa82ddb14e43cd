"""The law that a browser draws from, worked out from a recipe's numbers alone, is the law that is accounted for; another recipe is refused.

Nothing here asks the code that makes tables: each number is used as clients/js/src uses it.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.service.client_tasks import HONEST, collection_of, tasks

from metricshuffle.collection import recipes
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate
from metricshuffle.protocols.features import space_of
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer

FAR = 2**13
"""Noise up to here is followed; rates are such that hardly any lies beyond."""


def real(digits: str) -> float:
    assert len(digits) == 64
    return float(Fraction(int(digits, 16), 2**256))


def jump_law(noise: Any) -> np.ndarray[Any, Any]:
    """P(K = k) of one jump as `jump` in noise.ts draws it: a block by its digits, a place in it, and what is kept of these."""
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
            assert rate * (least - 1) <= 1.0  # (what decides there is right for such exponents only)
            k = np.arange(least, min(2 * least, FAR))
            kept[k] += chance / least * least / k * np.exp(-rate * (k - least))
    law: np.ndarray[Any, Any] = kept / kept.sum()
    return law


def no_jump(noise: Any) -> float:
    """The chance that a place has no jump, as the longest stretch says it; every binary digit of a place says the same."""
    jumps = noise["jumps"]
    none: float = real(jumps["run"]) ** (0.5 ** len(jumps["bits"]))
    for level, bit in enumerate(jumps["bits"]):
        assert real(bit) == pytest.approx(none ** (2**level) / (1.0 + none ** (2**level)), rel=1e-12)
    return none


def drawn_law(noise: Any) -> np.ndarray[Any, Any]:
    """P(Z = z) for z from 0 on, of the noise of one number."""
    rate, ends = float(Fraction(int(noise["rate"][0]), int(noise["rate"][1]))), 2 * FAR
    law = np.ones(ends, dtype=complex)
    places = np.arange(ends)
    away = np.minimum(places, ends - places)
    laplace = np.fft.fft(math.tanh(rate / 2.0) * np.exp(-rate * away))
    for _ in range(noise["whole"]):
        law = law * laplace
    if noise["jumps"] is not None:
        none, jump = no_jump(noise), np.fft.fft(jump_law(noise), ends)
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
            assert no_jump(noise) == pytest.approx((-math.expm1(-float(rate))) ** float(shape % 1), rel=1e-12)
        return
    accounted, drawn = Polya(shape, float(rate)).law(-60.0).mass, drawn_law(noise)
    shown = min(len(accounted), 400)
    assert np.abs(accounted[:shown] - drawn[:shown]).max() < 1e-12
    assert drawn[:shown] == pytest.approx(accounted[:shown], rel=1e-7, abs=1e-15)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5, 1.0, 1.5, 3.0, 20.0])
@pytest.mark.parametrize("shape", [Fraction(1, 1_000_000), Fraction(1, 40), Fraction(2, 3), Fraction(1), Fraction(7, 3)])
def test_noise_of_every_shape_and_rate(rate: float, shape: Fraction) -> None:
    for columns in (1, 3, 1000):
        check_noise(recipes._noise(shape, rational_rate(rate), columns), shape, rational_rate(rate))


def rows_of(told: Any) -> np.ndarray[Any, Any]:
    """P(report | code) as randomizers.ts draws it."""
    if told["kind"] == "rows":
        return np.array([[int(weight) / 2**63 for weight in row] for row in told["weights"]])
    if told["kind"] == "k-ary":
        size, rows = told["options"], np.full((told["options"],) * 2, int(told["other"]) / 2**63)
        rows[np.arange(size), np.arange(size)] = int(told["keep"]) / 2**63
        return rows
    rate, whole = float(Fraction(int(told["rate"][0]), int(told["rate"][1]))), np.ones((1, 1))
    for span in told["spans"]:  # columns first; a cell is row * width + column
        noise = np.arange(-4000, 4001)
        chance = math.tanh(rate / 2.0) * np.exp(-rate * np.abs(noise))
        axis = np.array([np.bincount(np.clip(code + noise, 0, span), chance, span + 1) for code in range(span + 1)])
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
        worst = np.nanmax(np.log(rows[:, None, :] / rows[None, :, :])) if len(rows) <= 64 else np.log(rows.max() / rows.min())
    assert worst <= randomizer.local_epsilon() + 1e-12


@pytest.mark.parametrize("name", tasks())
def test_the_recipe_of_every_form_draws_what_is_accounted_for(name: str) -> None:
    task = tasks()[name]
    recipe, protocol = recipe_of(task), task.protocol
    if isinstance(protocol, Sums):
        shares = Fraction(1, HONEST) if protocol.trusted == "shuffler" else Fraction(1)
        for axis, randomizer in enumerate(protocol.randomizers):
            assert isinstance(randomizer, AdditiveRandomizer)
            assert (randomizer.shape, randomizer.span) == (shares, int(recipe["spans"][axis]))
            coarse = recipe["granularity"]
            assert randomizer.granularity == int(coarse[axis] if isinstance(coarse, list) else coarse)
            check_noise(recipe["noise"], randomizer.shape, Fraction(randomizer.rate))
    elif isinstance(protocol, Frequencies):
        check_randomizer(recipe["randomizer"], protocol.randomizer)
    else:
        assert isinstance(protocol, NoisyVectors)
        if protocol.floor is not None:
            check_randomizer(recipe["floor"], protocol.floor)
        rates, columns = protocol.rates(space_of(task.query)), []
        for law in recipe["noise"]:
            columns += law["columns"]
            for column in {law["columns"][0], law["columns"][-1]}:
                check_noise(law, Fraction(1, protocol.sharers), Fraction(float(rates[column])))
        assert sorted(columns) == list(range(recipe["coordinates"])) == list(range(len(rates)))


def leaves(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else None
    return [path] if inside is None else [found for key, below in inside for found in leaves(below, (*path, key))]


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
    """By whoever verifies; and as another collection than the one that was pinned, by whoever cannot."""
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
