"""Test vectors of the JavaScript client: `python -m tests.collection.client_vectors`.

Every case has its random words, as the bytes that both clients read them from, and the result;
words at every threshold and next to it are included. The number of words read is recorded too: what
is read next must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.collection.client_tasks import channel, tasks

from metricshuffle.collection import recipes
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.sealed_boxes import BoxFormat
from metricshuffle.encodings.modular_shares import Modular
from metricshuffle.noise import samplers
from metricshuffle.noise.compound_poisson import jump_tables
from metricshuffle.noise.samplers import rational_rate, sample_discrete_laplace, sample_polya
from metricshuffle.numerics.types import Integers64, Words
from metricshuffle.queries.query import Query
from metricshuffle.randomizers import KaryRandomizedResponse
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import (
    Categories,
    Grid,
    KeyedNumbers,
    LabelledNumbers,
    LabelSets,
    NumberRows,
    Places,
    ZonePairs,
    Zones,
)
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

FILE = Path(__file__).parents[2] / "clients" / "js" / "test" / "vectors.json"
REPORTS_EACH = 6
LARGEST = 2**64 - 1


class Replayed(Randomness):
    """Known words, returned one after the other; `at` counts those that were used."""

    def __init__(self, words: Words) -> None:
        super().__init__(bytes(32))
        self.all = words
        self.at = 0

    def fill(self, buffer: Words) -> None:
        assert self.at + buffer.size <= self.all.size, "more words are needed"
        buffer[:] = self.all[self.at : self.at + buffer.size]
        self.at += buffer.size

    @property
    def used(self) -> str:
        return self.all[: self.at].astype("<u8").tobytes().hex()


def replayed(words: Sequence[int], more: str = "more") -> Replayed:
    """Return these words, and then more known ones."""
    behind = Randomness.seeded(more).words(20_000)
    return Replayed(np.concatenate([np.array(words, dtype=np.uint64), behind]))


@contextmanager
def no_word_wasted() -> Iterator[None]:
    """Make samplers return words that they read ahead, so that the next read follows."""
    driven = samplers._driven

    def frugal(
        kernel: Callable[[Words, Integers64], int],
        goal: int,
        randomness: Randomness,
        buffer_words: int,
    ) -> None:
        assert isinstance(randomness, Replayed)
        start = randomness.at
        used = 0

        def counted(words: Words, state: Integers64) -> int:
            nonlocal used
            position = kernel(words, state)
            used += position
            return position

        driven(counted, goal, randomness, buffer_words)
        randomness.at = start + used

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samplers, "_driven", frugal)
        yield


def beside(thresholds: Sequence[int], most: int = LARGEST) -> list[int]:
    """Every threshold and its existing neighbours."""
    return sorted(
        {
            number
            for limit in thresholds
            for number in (limit - 1, limit, limit + 1)
            if 0 <= number <= most
        }
    )


# Parts


def residue_cases() -> list[dict[str, Any]]:
    cases = []
    for modulus in (2, 3, 7, 302041, 2**32, 2**62 - 57, 2**62, 2**63 - 25):
        end = 2**64 // modulus * modulus
        source = replayed(beside([end, modulus]), f"residues {modulus}")
        found = source.uniform_residues(12, modulus)
        cases.append(
            {
                "modulus": str(modulus),
                "count": 12,
                "words": source.used,
                "residues": [str(int(number)) for number in found],
            }
        )
    return cases


def below_cases() -> list[dict[str, Any]]:
    """Words whose product with an odd bound has a lower half at or next to the limit."""
    from metricshuffle.noise import _sampling_kernels as kernels

    cases = []
    for bound in (3, 5, 40_001, 2**31 - 1, 2**61 - 1, 2**62 - 57):
        for lower in beside([2**64 % bound]):
            source = replayed([lower * pow(bound, -1, 2**64) % 2**64], f"below {bound}")
            number, source.at = kernels.below(source.all, 0, np.uint64(bound))
            cases.append({"bound": str(bound), "words": source.used, "number": str(int(number))})
    return cases


def row_cases() -> dict[str, Any]:
    """Words at and next to every partial sum of every row; reports use the upper 63 bits."""
    table = channel(5, 9)
    cases = []
    for code, row in enumerate(table.weights.tolist()):
        for number in beside(
            np.cumsum(np.array(row, dtype=object)).tolist()[:-1], TOTAL_WEIGHT - 1
        ):
            for word in (2 * number, 2 * number + 1):
                source = replayed([word])
                report = int(table.reports(np.array([code]), source)[0])
                cases.append([code, source.used, report])
    weights = [[str(weight) for weight in row] for row in table.weights.tolist()]
    return {"randomizer": {"kind": "rows", "weights": weights}, "cases": cases}


def kary_cases() -> list[dict[str, Any]]:
    """Words where the value ends and every option begins.

    Half a word gives the upper 32 of 63 bits, a second word the others if needed.
    """
    found = []
    for options, epsilon in ((2, 1.0), (5, 2.0), (12, 0.3)):
        law = KaryRandomizedResponse(options, epsilon)
        cases = []
        limits = [law.keep + option * law.other for option in range(options)]
        for number in beside(limits, TOTAL_WEIGHT - 1):
            for code in {0, options // 2, options - 1}:
                source = replayed([(number >> 31) | 0xABCD << 32, (number & (2**31 - 1)) << 33])
                report = int(law.reports(np.array([code]), source)[0])
                cases.append([code, source.used, report])
        randomizer = {
            "kind": "k-ary",
            "options": options,
            "keep": str(law.keep),
            "other": str(law.other),
        }
        found.append({"randomizer": randomizer, "cases": cases})
    return found


def rank_cases() -> list[dict[str, Any]]:
    """Words at and next to every real number that words are compared with."""
    from metricshuffle.noise import _sampling_kernels as kernels

    found = []
    for shape, rate in ((Fraction(1, 40), 0.05), (Fraction(1, 3), 1.5)):
        tables = jump_tables(shape, rational_rate(rate), recipes.DIGIT_WORDS)
        for rows in (tables.runs[:1], tables.bits[:2], tables.numbers[:-1], tables.blocks):
            digits = recipes._digits(rows)
            cases = []
            for text in digits:
                limit = int(text, 16)
                for number in (limit - 1, limit + 1):
                    words = [
                        number >> 64 * place & LARGEST
                        for place in range(recipes.DIGIT_WORDS - 1, -1, -1)
                    ]
                    source = replayed(words)
                    rank, used = kernels.rank(source.all, 0, rows, 0, len(rows))
                    source.at = used
                    cases.append([source.used, int(rank)])
            found.append({"rows": digits, "cases": cases})
    return found


def noise_cases() -> list[dict[str, Any]]:
    """Shares of one person and of many, whole noise, and rates far below and above one."""
    cases = []
    for shape, rate, columns in (
        (Fraction(1, 40), 0.05, 1),
        (Fraction(1, 40), 0.05, 300),
        (Fraction(1, 3), 1e-6, 60),
        (Fraction(7, 3), 0.5, 20),
        (Fraction(1), 0.05, 40),
        (Fraction(1, 100000), 0.001, 2000),
        (Fraction(1, 2), 30.0, 30),
        (Fraction(999, 1000), 0.2, 50),
    ):
        source = replayed([], f"noise {shape} {rate} {columns}")
        with no_word_wasted():
            drawn = sample_polya(shape, rational_rate(rate), columns, source)
        law = recipes._noise(shape, rational_rate(rate), columns)
        cases.append(
            {
                "noise": law,
                "columns": columns,
                "words": source.used,
                "values": [str(int(value)) for value in drawn],
            }
        )
    return cases


def laplace_cases() -> list[dict[str, Any]]:
    cases = []
    for rate in (2.0**-30, 0.02, 1.0, 3.7, 40.0):
        exact = rational_rate(rate)
        source = replayed([], f"laplace {rate}")
        with no_word_wasted():
            drawn = sample_discrete_laplace(exact, 30, source)
        text = [str(exact.numerator), str(exact.denominator)]
        cases.append(
            {"rate": text, "words": source.used, "values": [str(int(value)) for value in drawn]}
        )
    return cases


def share_cases() -> list[dict[str, Any]]:
    cases = []
    for modulus, messages, value in (
        (302041, 11, 17),
        (302041, 3, -5),
        (2**62, 5, -(2**40)),
        (3, 4, 2),
        (1001, 1, 1000),
    ):
        source = replayed([], f"shares {modulus} {messages}")
        form = Modular(modulus, messages, "shuffler" if messages > 1 else "nobody")
        shares = form.shares(np.array([value]), source)[0]
        cases.append(
            {
                "modulus": str(modulus),
                "value": str(value),
                "words": source.used,
                "shares": [str(int(share)) for share in shares],
            }
        )
    return cases


def place_cases() -> list[dict[str, Any]]:
    """Places in boxes around the world, each at least a centimetre from an edge of its cell."""
    cases = []
    for sides, cell in (
        ((46.9, 7.35, 46.99, 7.52), 100.0),
        ((-34.2, 18.2, -33.6, 19.1), 1000.0),
        ((-1.0, -70.0, 2.0, -67.0), 5000.0),
        ((78.0, 10.0, 79.5, 20.0), 2000.0),
        ((40.5, -74.3, 41.0, -73.6), 250.0),
    ):
        grid = Grid.from_box(*sides, cell)
        draws = Randomness.seeded(f"places {sides}").words(80).astype(np.float64) / 2.0**64
        south, west, north, east = sides
        latitudes = south + (north - south) * draws[:40]
        longitudes = west + (east - west) * draws[40:]
        assert grid.box is not None
        offset = np.mod(grid.box.plane(latitudes, longitudes), cell)
        clear = np.all((offset > 0.01) & (offset < cell - 0.01), axis=1)
        cells = grid.cells_at(latitudes, longitudes)
        rows = [
            [repr(float(latitude)), repr(float(longitude)), *map(int, place)]
            for latitude, longitude, place, kept in zip(
                latitudes, longitudes, cells, clear, strict=True
            )
            if kept
        ]
        cases.append({"input": recipes._value(grid, 1.0, "down"), "cases": rows})
    return cases


def sealing_cases() -> list[dict[str, Any]]:
    """Lengths of messages, and the data that a box is bound to."""
    digest = bytes(range(32))
    cases = []
    for messages in (1, 5, 10, 20, 200):
        for ticket in (0, 16):
            for hops in (1, 3):
                form = BoxFormat(digest, 9, messages, ticket, hops)
                cases.append(
                    {
                        "messages": messages,
                        "payload": 9,
                        "ticket": ticket,
                        "hops": hops,
                        "size": form.report_size,
                    }
                )
    return cases


# Whole reports


def person(query: Query, source: Randomness) -> Any:
    """Random value, often an end of the range."""
    domain = query.values_in
    held = getattr(query, "people", None)
    if held is not None:
        return [point(domain, source) for _ in range(held.items or 1 + source.below(9))]
    return point(domain, source)


def some_of(labels: Sequence[str], most: int, source: Randomness) -> list[str]:
    """Return none to `most` of the labels, in any order."""
    left = list(labels)
    return [left.pop(source.below(len(left))) for _ in range(source.below(most + 1))]


def point(domain: Any, source: Randomness) -> Any:
    if isinstance(domain, Categories):
        return domain.labels[source.below(len(domain.labels))]
    if isinstance(domain, Zones):
        return domain.ids[source.below(len(domain.ids))]
    if isinstance(domain, Grid):
        return [source.below(domain.width), source.below(domain.height)]
    if isinstance(domain, ZonePairs):
        return [point(domain.zones, source), point(domain.zones, source)]
    if isinstance(domain, NumberRows):
        return [point(domain.numbers, source) for _ in domain.columns]
    if isinstance(domain, LabelSets):
        return some_of(domain.labels.labels, domain.most, source)
    if isinstance(domain, KeyedNumbers):
        keys = some_of(domain.keys.labels, domain.most, source)
        return [[key, point(domain.numbers, source)] for key in keys]
    if isinstance(domain, LabelledNumbers):
        return [point(domain.labels, source), point(domain.numbers, source)]
    if isinstance(domain, Places):
        sides = ((domain.south, domain.north), (domain.west, domain.east))
        if source.below(4) == 0:  # a corner, or where doubles are finer than points
            return (
                [side[source.below(2)] for side in sides]
                if domain.west > 0
                else [1e-17 * source.below(100), -3e-18 * source.below(100)]
            )
        return [float(low + (high - low) * (source.below(10**15) / 10**15)) for low, high in sides]
    if source.below(4) == 0:
        return (domain.low, domain.high)[source.below(2)]
    if isinstance(domain.low, int):
        return domain.low + source.below(domain.high - domain.low + 1)
    return float(domain.low + (domain.high - domain.low) * (source.below(10**6) / 10**6))


def payloads_of(task: Task, value: Any, source: Randomness) -> list[str]:
    """Messages of a report of the Python client, in hexadecimal digits."""
    messages = task.randomize([value], source).messages
    return [
        bytes(payload).hex()
        for payload in MessageFormat.of(task.protocol).split_messages(messages)[0]
    ]


def mixed_messages(form: MessageFormat, payloads: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Payloads of reports, one row each, in the order of their bytes, or so within each pile."""
    piles = payloads.reshape(len(payloads), max(1, form.piles), -1, form.size).swapaxes(0, 1)
    rows = piles.reshape(len(piles), -1, form.size)
    return np.concatenate([row[np.lexsort(row.T[::-1])] for row in rows])


def report_cases() -> dict[str, Any]:
    found = {}
    for name, task in tasks().items():
        values = Randomness.seeded(f"values {name}")
        cases = []
        for index in range(REPORTS_EACH):
            value = person(task.query, values)
            source = replayed([], f"report {name} {index}")
            with no_word_wasted():
                payloads = payloads_of(task, value, source)
            cases.append({"value": value, "words": source.used, "payloads": payloads})
        found[name] = {"recipe": recipe_of(task), "cases": cases}
    return found


def vectors() -> dict[str, Any]:
    return {
        "residues": residue_cases(),
        "below": below_cases(),
        "rows": row_cases(),
        "kary": kary_cases(),
        "ranks": rank_cases(),
        "laplace": laplace_cases(),
        "noise": noise_cases(),
        "shares": share_cases(),
        "places": place_cases(),
        "sealing": sealing_cases(),
        "reports": report_cases(),
    }


def text() -> str:
    """Text of the file, one case per line."""
    parts = []
    for name, content in vectors().items():
        parts.append(f"{json.dumps(name)}: {json.dumps(content, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
