"""The analyst of a sum: what adders answer, the comparison of their sets, and the release."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collection.local_adders import Adders
from tests.collection.sums import sum_task
from tests.collection.test_adder_calls import AdderCalls

from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.download import OutputAnnouncement
from metricshuffle.collection.analyst.sum_collector import (
    AdderTotal,
    FetchedTotals,
    SumCollecting,
    TotalLink,
    check_same_set,
)
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.sealed_boxes import ADDED, NotOpened, PrivateKey
from metricshuffle.collection.terms import Collection
from metricshuffle.errors import InputError, PlanError
from metricshuffle.tasks.release import Release

VALUES = (3, 5, 9)


@pytest.fixture
def adders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adders]:
    group = Adders(tmp_path, 2, monkeypatch)
    yield group
    group.close()


@pytest.fixture
def collection(adders: Adders) -> SumCollection:
    """Sum that is released."""
    collection = adders.opened()
    for value in VALUES:
        adders.report(collection, value)
    adders.wait(200)
    assert adders.advance(collection.digest) == ["released"] * 2
    return collection


@pytest.fixture
def answers(adders: Adders, collection: SumCollection) -> list[dict[str, Any]]:
    """Answers of the adders to the analyst."""
    path = f"/v1/collections/{collection.digest}/release"
    read = []
    for adder in adders.all:
        calls = AdderCalls(adder)
        read.append(calls.call("GET", path, authorization=f"Bearer {adders.analyst.token}").json)
        calls.close()
    return read


def read_total(
    collection: SumCollection, key: AnalystKey, place: int, content: object
) -> AdderTotal:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    link = TotalLink(collection, place, key)

    async def read() -> AdderTotal:
        return await link._read(httpx.Response(200, content=body))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, read()).result()


def fetched(collection: SumCollection, totals: list[AdderTotal]) -> FetchedTotals:
    check_same_set(collection, totals)
    hashed, people = totals[0].subject
    announced = OutputAnnouncement(collection.digest, people, 0, hashed)
    return FetchedTotals(Path("unused"), announced, 0, tuple(totals))


def test_the_release_is_the_sum_of_the_values(
    adders: Adders, collection: SumCollection, answers: list[dict[str, Any]]
) -> None:
    totals = [
        read_total(collection, adders.analyst, place, answer)
        for place, answer in enumerate(answers)
    ]
    release = SumCollecting(adders.analyst, collection).release([fetched(collection, totals)])
    assert release.value == sum(VALUES)
    assert release.collected is not None
    assert release.collected.people == len(VALUES)
    again = Release.from_json(release.to_json())
    assert again.to_json() == release.to_json()
    said = str(release)
    assert "2 adders (https://adder-0.example, https://adder-1.example)" in said
    assert "fewer than all 2 of them work together" in said
    assert "the 3 reports without 0 declared colluders" in said
    assert "moved the sum by anything, unseen" in said
    assert "second promise is what holds" in said


def test_any_single_total_is_not_the_sum(
    adders: Adders, collection: SumCollection, answers: list[dict[str, Any]]
) -> None:
    """Each total is uniform by itself; both together are the sum."""
    totals = [
        read_total(collection, adders.analyst, place, answer)
        for place, answer in enumerate(answers)
    ]
    residues = [int(total.residues[0]) for total in totals]
    assert sum(residues) % collection.shares.modulus == sum(VALUES)
    with pytest.raises(PlanError, match="does not answer with a total"):
        read_total(collection, adders.analyst, 1, answers[0])


def test_another_adder_that_fetches_with_the_analysts_token_reads_nothing(
    adders: Adders, collection: SumCollection, answers: list[dict[str, Any]]
) -> None:
    """Every adder gets the token when the analyst asks it; totals are sealed for the analyst."""
    form = collection.shares
    key = adders.all[0].service.signing.secret
    for private in (PrivateKey(key), PrivateKey.new()):
        with pytest.raises(NotOpened):
            private.opened(bytes.fromhex(answers[1]["total"]), form.total_info(1))
    assert len(answers[1]["total"]) == 2 * (form.share_size + ADDED)


def test_answers_that_are_not_totals_are_refused_in_words(
    adders: Adders, collection: SumCollection, answers: list[dict[str, Any]]
) -> None:
    answer = answers[0]
    form = collection.shares
    size = form.share_size
    public = adders.analyst.private.public
    large = public.sealed(b"\xff" * size, form.total_info(0)).hex()
    elsewhere = public.sealed(bytes(size), form.total_info(1)).hex()
    changed: list[object] = [
        b"",
        b"[]",
        b"\xff\xff",
        b"{}",
        {**answer, "people": "3"},
        {**answer, "people": True},
        {**answer, "names": "0"},
        {**answer, "names": 7},
        {**answer, "signatures": []},
        {**answer, "signatures": None},
        {**answer, "total": "zz"},
        {**answer, "total": large},
        {**answer, "total": elsewhere},
        {**answer, "total": "ff" * size},
        {**answer, "total": "00" * (size + 1)},
        {**answer, "adder": 1},
    ]
    for content in changed:
        with pytest.raises(PlanError, match=r"does not answer with a total|not an answer"):
            read_total(collection, adders.analyst, 0, content)
    with pytest.raises(PlanError, match="more than a total"):
        read_total(collection, adders.analyst, 0, b"x" * 20_000)
    unsigned: list[object] = [
        {**answer, "people": 2},
        {**answer, "names": "ab" * 32},
        {**answer, "signatures": answer["signatures"][::-1]},
        {**answer, "signatures": ["00" * 64] * 2},
    ]
    for content in unsigned:
        with pytest.raises(PlanError, match="not signed by all adders"):
            read_total(collection, adders.analyst, 0, content)


def test_different_sets_are_refused(
    adders: Adders, collection: SumCollection, answers: list[dict[str, Any]]
) -> None:
    """Both adders sign a second set together: each answer is valid, and they do not agree."""
    from metricshuffle.collection.adder.sum_signatures import SumStatement

    names = [b"n" * 32, b"o" * 32]
    other = [
        SumStatement.signed(collection.digest, place, names, adder.service.signing)
        for place, adder in enumerate(adders.all)
    ]
    second = {
        **answers[1],
        "people": 2,
        "names": other[0].hashed,
        "signatures": [statement.signature for statement in other],
    }
    totals = [
        read_total(collection, adders.analyst, 0, answers[0]),
        read_total(collection, adders.analyst, 1, second),
    ]
    with pytest.raises(PlanError, match="different sets of reports"):
        check_same_set(collection, totals)
    few = [
        SumStatement.signed(collection.digest, place, names[:1], adder.service.signing)
        for place, adder in enumerate(adders.all)
    ]
    both = [
        read_total(
            collection,
            adders.analyst,
            place,
            {
                **answer,
                "people": 1,
                "names": few[0].hashed,
                "signatures": [statement.signature for statement in few],
            },
        )
        for place, answer in enumerate(answers)
    ]
    with pytest.raises(PlanError, match="summed 1 reports"):
        check_same_set(collection, both)


def test_another_set_than_before_is_refused(
    adders: Adders, collection: SumCollection, tmp_path: Path
) -> None:
    collecting = SumCollecting(adders.analyst, collection)
    record = collecting._first_output(tmp_path / "release.json", collection)
    record.note("ab" * 32)
    with pytest.raises(PlanError, match="another set"):
        record.note("cd" * 32)


def test_a_sum_has_no_parts(adders: Adders, collection: SumCollection) -> None:
    with pytest.raises(InputError, match="has no parts"):
        Analyst(adders.analyst).collecting([collection, collection])
    with pytest.raises(PlanError, match="its format is"):
        Collection.read(collection.served)
    assert sum_task().digest == collection.task.digest
