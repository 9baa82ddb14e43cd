"""Routes for analysts, operators and pages of other sites, in process."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned
from tests.collection.conftest import Clock, NewCollection
from tests.collection.local_service import SITE, Answer, Service, run
from tests.collection.running import load_task, new_tickets, report_of

from metricshuffle.collection.keys import AnalystKey, token_hash
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, canonical, instant


@pytest.fixture
def service(store: Store, tmp_path: Path, new_collection: NewCollection) -> Iterator[Service]:
    made = Service(store, tmp_path / "keys", new_collection)
    yield made
    made.intake.close()


# Whoever fetches


def released(service: Service, clock: Clock) -> tuple[Collection, bytes]:
    """Released collection and its bytes, from the reports that were sent."""
    collection = service.opened(3)
    sealing = collection.sealing
    key = collection.keys[-1]
    people = [[secrets.token_bytes(sealing.inner_size) for _ in range(3)] for _ in range(5)]

    async def sent() -> list[int]:
        return [
            (await service.post(collection, sealing.closed(boxes, key))).status for boxes in people
        ]

    assert run(sent) == [204] * 5
    early = run(lambda: service.fetch(collection))
    assert (early.status, early.json["error"]) == (
        425,
        "this collection is open and not released yet.",
    )
    clock.ahead += 200
    assert service.shuffler.advance(collection.digest) == "released"
    return collection, b"".join(sorted(box for boxes in people for box in boxes))


def test_only_whoever_fetches_gets_what_was_released(service: Service, clock: Clock) -> None:
    """The same sorted bytes every time; wrong tokens get 401 in any state."""
    strangers = [
        "",
        "x",
        service.keys.token,
        AnalystKey.new().token,
        token_hash(service.analyst.token),
        service.analyst.token[:-1],
        "\xff",
    ]

    async def refused(collection: Collection) -> set[Any]:
        answers = [
            await service.fetch(collection, token, method)
            for token in strangers
            for method in ("GET", "DELETE")
        ]
        basic = await service.ask(
            "GET",
            f"/v1/collections/{collection.digest}/release",
            authorization=f"Basic {service.analyst.token}",
        )
        return {answer.whole for answer in (*answers, basic)}

    waiting = service.opened(1, round=5)
    assert {status for status, _, _ in run(lambda: refused(waiting))} == {401}
    collection, expected = released(service, clock)
    [(status, _, _)] = run(lambda: refused(collection))
    assert status == 401
    for _ in range(2):
        answer = run(lambda: service.fetch(collection))
        assert (answer.status, answer.body) == (200, expected)
        assert (answer.headers["x-people"], answer.headers["x-left-out"]) == ("5", "0")
    state = run(lambda: service.ask("GET", f"/v1/collections/{collection.digest}/state")).json
    assert answer.headers["etag"] == f'"{state["output"]}"'
    assert (state["state"], state["people"], state["left_out"]) == ("released", 5, 0)


def test_what_was_fetched_is_acknowledged_by_its_digest(service: Service, clock: Clock) -> None:
    collection, _ = released(service, clock)
    etag = run(lambda: service.fetch(collection)).headers["etag"]

    async def deleted(**headers: str) -> int:
        return (await service.fetch(collection, method="DELETE", **headers)).status

    assert run(lambda: deleted()) == 412
    assert run(lambda: deleted(if_match="*")) == 412
    assert run(lambda: deleted(if_match=f'"{"0" * 64}"')) == 412
    assert run(lambda: service.fetch(collection)).status == 200
    assert run(lambda: deleted(if_match=etag)) == 204
    service.shuffler.advance(collection.digest)
    assert run(lambda: deleted(if_match=etag)) == 204
    gone = run(lambda: service.fetch(collection))
    assert (gone.status, "purged" in gone.json["error"]) == (410, True)


def test_an_aborted_collection_says_why_to_everybody(service: Service) -> None:
    collection = service.opened()
    told = run(
        lambda: service.control(
            "POST", f"collections/{collection.digest}/abort", {"reason": "the wrong question"}
        )
    )
    assert (told.status, told.json["state"]) == (200, "aborted")
    for answer in (
        run(lambda: service.fetch(collection)),
        run(lambda: service.ask("GET", f"/v1/collections/{collection.digest}/state")),
    ):
        assert "the wrong question" in answer.body.decode()
    assert run(lambda: service.fetch(collection)).status == 410
    assert run(lambda: service.post(collection, report_of(collection))).status == 410


def test_whether_reports_are_taken_is_said_as_it_is_decided(service: Service, clock: Clock) -> None:
    """The stated status agrees with what a report gets at the same moment.

    Not open yet, open, open beyond the closing time with too few, closed, gone.
    """

    def asked(collection: Collection) -> tuple[str, int]:
        state = run(lambda: service.ask("GET", f"/v1/collections/{collection.digest}/state")).json
        return state["phase"], run(lambda: service.post(collection, report_of(collection))).status

    start = clock() + 100
    waiting = service.opened(1, opens=start, extends=instant(start + 200))
    assert asked(waiting) == ("not open yet", 503)
    clock.ahead += 150
    assert asked(waiting) == ("open", 204)
    clock.ahead += (
        100  # a report that comes now extends it, because there are too few; nobody has looked yet
    )
    state = run(lambda: service.ask("GET", f"/v1/collections/{waiting.digest}/state")).json
    assert (state["phase"], state["until"]) == ("open", waiting.terms.closes)
    assert asked(waiting) == ("open", 204)
    clock.ahead += 100
    assert asked(waiting)[0] == "closed"
    collection, _ = released(service, clock)
    assert asked(collection)[0] == "closed"
    etag = run(lambda: service.fetch(collection)).headers["etag"]
    assert run(lambda: service.fetch(collection, method="DELETE", if_match=etag)).status == 204
    service.shuffler.advance(collection.digest)
    assert asked(collection)[0] == "gone"


# The operator


def test_the_operators_calls_need_the_operators_token(service: Service) -> None:
    collection = service.opened()
    one = f"collections/{collection.digest}"
    calls = [
        ("POST", "keys"),
        ("GET", "collections"),
        ("POST", "collections"),
        ("GET", one),
        ("POST", f"{one}/abort"),
        ("POST", f"{one}/purge"),
    ]

    async def answers() -> set[Any]:
        tokens = (
            "",
            "wrong",
            service.analyst.token,
            service.keys.token[:-1],
            token_hash(service.keys.token),
        )
        return {
            (await service.control(method, call, {"reason": "r"}, token)).whole
            for method, call in calls
            for token in tokens
        }

    [(status, headers, _)] = run(answers)
    assert status == 401
    assert (b"www-authenticate", b"Bearer") in headers
    assert service.keys.names() == [collection.terms.hops[0].key]


def test_counts_are_the_operators_until_everything_is_mixed(service: Service) -> None:
    collection = service.opened()
    assert run(lambda: service.post(collection, report_of(collection))).status == 204
    public = run(lambda: service.ask("GET", f"/v1/collections/{collection.digest}/state")).json
    assert set(public) == {
        "state",
        "phase",
        "reason",
        "closes",
        "until",
        "people",
        "left_out",
        "output",
    }
    assert (public["state"], public["people"], public["left_out"], public["output"]) == (
        "open",
        None,
        None,
        None,
    )
    own = run(lambda: service.control("GET", f"collections/{collection.digest}")).json
    assert {name: own[name] for name in ("state", "reports", "minimum", "closes", "round")} == {
        "state": "open",
        "reports": 1,
        "minimum": 4,
        "closes": collection.terms.closes,
        "round": 1,
    }
    assert run(lambda: service.control("GET", "collections")).json == {"collections": [own]}


def test_a_collection_is_opened_once(service: Service, new_collection: NewCollection) -> None:
    """201, 200 for the same bytes, 409 for another of that round, 400 for invalid ones."""

    async def made(**terms: Any) -> Collection:
        party = (await service.control("POST", "keys")).json
        del party["gateway"]
        return new_collection(
            load_task(3), hops=[{**party, "url": "http://127.0.0.1:8460"}], **terms
        )

    async def sent(collection: Collection, **more: Any) -> Answer:
        return await service.control(
            "POST", "collections", {"collection": collection.served.decode(), **more}
        )

    async def answers() -> list[int]:
        first, second = await made(), await made()
        strange = new_collection(load_task(3), round=2)
        ticketed = await made(round=2, admission="tickets")
        tickets = b"".join(new_tickets(4)).hex()
        calls = [
            sent(first),
            sent(first),
            sent(second),
            sent(strange),
            sent(ticketed),
            sent(ticketed, tickets="zz"),
            sent(ticketed, tickets=5),
            sent(ticketed, tickets=tickets[:-2]),
            sent(ticketed, tickets=tickets),
            sent(ticketed, tickets=tickets),
            service.control("POST", "collections", [1]),
            service.control("POST", "collections", {}),
            service.control("POST", "collections", {"collection": "{}"}),
            service.control("GET", f"collections/{'0' * 64}"),
            service.ask(
                "POST",
                "/v1/control/collections",
                b"{",
                authorization=f"Bearer {service.keys.token}",
            ),
            service.ask(
                "POST",
                "/v1/control/collections",
                b"{}",
                authorization=f"Bearer {service.keys.token}",
                length=str(10**10),
            ),
        ]
        told = [await call for call in calls]
        assert all(answer.json["error"].endswith(".") for answer in told if answer.status >= 400)
        return [answer.status for answer in told]

    assert run(answers) == [
        201,
        200,
        409,
        400,
        400,
        400,
        400,
        400,
        201,
        200,
        400,
        400,
        400,
        404,
        400,
        413,
    ]


# Pages of other sites


def test_pages_of_sites_that_were_allowed_may_send_and_no_others(service: Service) -> None:
    collection = service.opened()
    path = f"/v1/collections/{collection.digest}"

    async def shared(
        method: str, where: str, origin: str, body: bytes = b""
    ) -> tuple[int, str | None]:
        answer = await service.ask(method, where, body, origin=origin)
        return answer.status, answer.headers.get("access-control-allow-origin")

    async def check() -> None:
        asked = await service.ask(
            "OPTIONS", f"{path}/reports", origin=SITE, access_control_request_method="POST"
        )
        assert (asked.status, asked.headers["access-control-allow-methods"]) == (204, "POST")
        assert asked.headers["access-control-allow-headers"] == "Content-Type"
        assert await shared("POST", f"{path}/reports", SITE, report_of(collection)) == (204, SITE)
        assert await shared("POST", f"{path}/reports", SITE, b"x") == (422, SITE)
        for where in (path, f"{path}/state"):
            assert await shared("GET", where, SITE) == (200, SITE)
        for where in (f"{path}/release", "/v1/control/collections", "/healthz"):
            assert (await shared("GET", where, SITE))[1] is None
            assert (await shared("OPTIONS", where, SITE))[1] is None
        for stranger in (
            "null",
            "*",
            SITE + ".evil.example",
            SITE.replace("https", "http"),
            "https://evil.example",
        ):
            assert (await shared("OPTIONS", f"{path}/reports", stranger)) == (405, None)
            assert (await shared("GET", f"{path}/state", stranger)) == (200, None)

    run(check)


@pytest.mark.parametrize(
    ("url", "own", "strangers"),
    [
        (
            "http://127.0.0.1:8460",
            "http://127.0.0.1:8460",
            ("http://localhost:8460", "http://127.0.0.1", "http://127.0.0.1:9999"),
        ),
        (
            "https://Shuffler.example:443/hop",
            "https://shuffler.example",
            ("http://shuffler.example", "https://shuffler.example.evil"),
        ),
        ("http://[::1]:80", "http://[::1]", ("http://[::1]:81",)),
    ],
)
def test_pages_of_other_sites_cannot_make_browsers_report(
    service: Service, url: str, own: str, strangers: tuple[str, ...]
) -> None:
    """Only its own site, allowed ones, and programs; a matching Host is not enough."""
    collection = service.opened(url=url)

    async def check() -> None:
        for stranger in (*strangers, "null", "", "https://evil.example"):
            refused = await service.post(
                collection,
                report_of(collection),
                origin=stranger or " ",
                host=stranger.partition("//")[2],
            )
            assert (refused.status, refused.json["error"][:18]) == (403, "pages of that site"), (
                stranger
            )
        assert service.reports(collection) == 0
        for sender in ({}, {"origin": own}, {"origin": SITE}):
            assert (
                await service.post(collection, report_of(collection), **sender)
            ).status == 204, sender
        assert service.reports(collection) == 3

    run(check)


def test_many_collections_are_listed_while_reports_are_answered(service: Service) -> None:
    """The list is built in a thread and does not block the loop for reports."""
    collection = service.opened(3)
    count = 400
    terms = json.loads(collection.served)
    for part in range(1, count + 1):
        other = Collection(
            canonical({**terms, "round": 2, "split": [part, count], "id": f"{part:032x}"})
        )
        service.store.add(other, collection.terms.hops[0].key)
    pauses: list[float] = []

    async def beating() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            pauses.append(time.monotonic() - before)

    async def check() -> list[Any]:
        assert (await service.post(collection, report_of(collection))).status == 204
        heart = asyncio.ensure_future(beating())
        listed = asyncio.ensure_future(service.control("GET", "collections"))
        post_report = [
            (await service.post(collection, report_of(collection))).status for _ in range(3)
        ]
        answer = await listed
        await asyncio.sleep(0.01)  # (one more beat, if there was none meanwhile)
        heart.cancel()
        assert post_report == [204] * 3
        return list(answer.json["collections"])

    statuses = run(check)
    assert len(statuses) == count + 1
    assert (
        statuses[0]
        == run(lambda: service.control("GET", f"collections/{statuses[0]['digest']}")).json
    )
    assert statuses[0]["task"] == collection.task.digest
    assert max(pauses) < 0.2


def test_there_is_no_join_page_with_a_promise_that_is_not_true(service: Service) -> None:
    collection = service.opened(1, users=1_000_000)  # more than its modulus has room for
    for _ in range(2):
        page = run(lambda: service.ask("GET", f"/join/{collection.digest}"))
        assert page.status == 404
        assert page.json["error"].startswith(
            "this collection has no page to take part: the guarantee of this task cannot be "
            "certified: 1,000,000 reports are more than"
        )
    assert not service.said


def test_the_join_page_is_served_and_may_not_be_framed(service: Service) -> None:
    collection = service.opened(
        task=planned("sum in shares").task
    )  # (whose promise is true: a page says no other)
    page = run(lambda: service.ask("GET", f"/join/{collection.digest}"))
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert collection.digest in page.body.decode()
    assert page.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert page.headers["cache-control"] == "no-store"
    assert (
        run(lambda: service.ask("GET", "/join/client.js"))
        .headers["content-type"]
        .startswith("text/javascript")
    )
    assert run(lambda: service.ask("GET", f"/join/{'0' * 64}")).status == 404
