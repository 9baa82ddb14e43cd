"""JavaScript client: same draws as Python's, compatible boxes, one report in all cases."""

from __future__ import annotations

import gzip
import json
import math
import re
import secrets
import subprocess
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.collection.client_tasks import HONEST, channel, tasks
from tests.collection.client_vectors import Replayed, mixed_messages, no_word_wasted, person
from tests.collection.javascript import CLIENT, asked, chromium, javascript, run
from tests.collection.running import new_tickets, running

from metricshuffle.collection import recipes
from metricshuffle.collection.client.join_page import CLIENT_WITH_TOKENS, SCRIPTS, client_bundle
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.sealed_boxes import BoxFormat, PrivateKey
from metricshuffle.encodings.modular_shares import Modular
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate, sample_polya
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Places
from metricshuffle.tasks.message_format import MessageFormat

pytestmark = pytest.mark.thorough
__all__ = ["chromium", "javascript"]

MANY = 20_000
LARGEST_SCRIPT = 16_000
LARGEST_SCRIPT_WITH_TOKENS = 18_500


def source(name: str, words: int = 10 * MANY) -> Replayed:
    return Replayed(Randomness.seeded(name).words(words))


def kept(used: Replayed, file: Path) -> str:
    file.write_bytes(bytes.fromhex(used.used))
    return str(file)


# Draws


def test_its_own_tests(javascript: Path) -> None:
    """Vectors, outbox, retries, kills: with Node's own test runner."""
    told = run("npm", "test", cwd=javascript)
    assert re.search(r"# pass (\d+)", told), told
    assert "# fail 0" in told


def test_tens_of_thousands_of_draws_are_those_of_python(javascript: Path, tmp_path: Path) -> None:
    requests = []
    expected = []
    for number, (shape, rate) in enumerate(
        ((Fraction(1, HONEST), 0.05), (Fraction(1, 100_000), 1e-4), (Fraction(1, 2), 2.0))
    ):
        stream = source(f"many {rate}", 40 * MANY)
        with no_word_wasted():
            drawn = sample_polya(shape, rational_rate(rate), MANY, stream)
        noise = recipes._noise(shape, rational_rate(rate), MANY)
        requests.append(
            {
                "make": "noise",
                "noise": noise,
                "columns": MANY,
                "words": kept(stream, tmp_path / f"noise {number}"),
            }
        )
        expected.append([str(int(value)) for value in drawn])
    laws: list[Any] = [
        channel(9, 12),
        KaryRandomizedResponse(9, 1.5),
        KaryRandomizedResponse(9, 0.001),
        BoundedGeometric(8, 0.3),
    ]
    codes = (Randomness.seeded("codes").uniform_residues(MANY, 9)).astype(np.int64)
    for number, law in enumerate(laws):
        stream = source(f"law {number}", 40 * MANY)
        with no_word_wasted():
            drawn = law.reports(codes, stream)
        words = kept(stream, tmp_path / f"law {number}")
        requests.append(
            {
                "make": "randomized",
                "randomizer": recipes._randomizer(law),
                "codes": codes.tolist(),
                "words": words,
            }
        )
        expected.append(drawn.tolist())
    assert asked(javascript, tmp_path, *requests) == expected


def test_shares_are_those_of_python(javascript: Path, tmp_path: Path) -> None:
    requests = []
    expected = []
    for modulus, messages in ((302_041, 11), (2**62 - 57, 4)):
        stream = source(f"shares {modulus}")
        values = [int(value) for value in Randomness.seeded("values").uniform_residues(400, 10**6)]
        rows = [
            Modular(modulus, messages, "shuffler").shares(np.array([value]), stream)[0].tolist()
            for value in values
        ]
        words = kept(stream, tmp_path / f"shares {modulus}")
        requests.append(
            {
                "make": "shares",
                "values": [str(value) for value in values],
                "modulus": str(modulus),
                "messages": messages,
                "words": words,
            }
        )
        expected.append([[str(share) for share in row] for row in rows])
    assert asked(javascript, tmp_path, *requests) == expected


def test_the_noise_of_a_browser_has_the_law_that_is_promised(
    javascript: Path, tmp_path: Path
) -> None:
    """System randomness: noise shares and k-ary frequencies within six standard errors."""
    task = tasks()["whole numbers"]
    kary = tasks()["k-ary"]
    label = kary.query.values_in.labels[2]  # type: ignore[attr-defined]
    sums, reports = asked(
        javascript,
        tmp_path,
        {"make": "reports", "recipe": recipe_of(task), "values": [480] * 6000},
        {"make": "reports", "recipe": recipe_of(kary), "values": [label] * 6000},
    )
    modulus = task.protocol.modulus or 1
    totals = [
        sum(int.from_bytes(bytes.fromhex(payload)[1:], "little") for payload in payloads) % modulus
        for payloads in sums
    ]
    noise = np.array(
        [total - 500 if total < modulus // 2 else total - modulus - 500 for total in totals]
    )
    rate = float(rational_rate(0.05))
    shape = 1.0 / HONEST
    variance = shape / (2.0 * math.sinh(rate / 2.0) ** 2)
    fourth = variance * (1.0 + 6.0 / (4.0 * math.sinh(rate / 2.0) ** 2)) + 3.0 * variance**2
    assert abs(noise.mean()) < 6.0 * math.sqrt(variance / noise.size)
    assert abs(float((noise.astype(float) ** 2).mean()) - variance) < 6.0 * math.sqrt(
        fourth / noise.size
    )
    none = (-math.expm1(-rate)) ** (2.0 * shape)  # no jump at all, which is nearly all of P(0)
    assert abs((noise == 0).mean() - none) < 6.0 * math.sqrt(none / noise.size) + 0.01
    law = KaryRandomizedResponse(4, 3.0)
    counts = Counter(bytes.fromhex(payload)[1] for (payload,) in reports)
    for code in range(4):
        chance = (law.keep if code == 2 else law.other) / 2**63
        assert abs(counts[code] / 6000 - chance) < 6.0 * math.sqrt(
            chance * (1.0 - chance) / 6000
        ), code


def test_places_are_rounded_up_as_often_as_they_should_be(javascript: Path, tmp_path: Path) -> None:
    """Units of many reports of one place: one of two neighbours, right on average.

    Without the few that have noise.
    """
    task = tasks()["degrees"]
    places = task.query.values_in
    protocol = task.protocol
    assert isinstance(places, Places)
    assert isinstance(protocol, Sums)
    (reports,) = asked(
        javascript,
        tmp_path,
        {"make": "reports", "recipe": recipe_of(task), "values": [[46.951234, 7.435678]] * 6000},
    )
    numbers = places.numbers(places.validated([(46.951234, 7.435678)]))[0]
    for axis, randomizer in enumerate(protocol.randomizers):
        parts = [[bytes.fromhex(payload) for payload in payloads] for payloads in reports]
        units = [
            sum(int.from_bytes(part[1:], "little") for part in mine if part[0] == axis)
            % (protocol.modulus or 1)
            for mine in parts
        ]
        below, over = divmod(int(numbers[axis]), randomizer.granularity)
        seen = Counter(units)
        near = seen[below] + seen[below + 1]
        chance = over / randomizer.granularity
        assert near > 0.75 * 6000
        none, one = Polya(Fraction(1, HONEST), randomizer.rate).law(-40.0).mass[:2]  # type: ignore[union-attr]
        upper = (chance * none + (1.0 - chance) * one) / (
            none + one
        )  # (noise of one unit moves a few to the other side)
        assert abs(seen[below + 1] / near - upper) < 6.0 * math.sqrt(upper * (1.0 - upper) / near)


# Boxes


@pytest.mark.parametrize(("hops", "messages"), [(1, 10), (3, 2)])
def test_two_hundred_reports_open_each_way(
    javascript: Path, tmp_path: Path, hops: int, messages: int
) -> None:
    digest = secrets.token_bytes(32)
    form = BoxFormat(digest, 9, messages, 16, hops)
    keys = [PrivateKey.new() for _ in range(hops + 1)]
    public = [key.public for key in keys]
    reports = [[secrets.token_bytes(9) for _ in range(messages)] for _ in range(200)]
    ticket = secrets.token_bytes(16)
    pairs = [[key.data.hex(), key.public.data.hex()] for key in keys]
    terms = {"hops": [{}] * hops, "payload": 9, "ticket": 16}
    sealed = [form.report(payloads, public, ticket).hex() for payloads in reports]
    texts = [[payload.hex() for payload in payloads] for payloads in reports]
    theirs, ours = asked(
        javascript,
        tmp_path,
        {
            "make": "sealed",
            "digest": digest.hex(),
            "keys": [key.data.hex() for key in public],
            "reports": texts,
            "ticket": ticket.hex(),
        },
        {
            "make": "opened",
            "digest": digest.hex(),
            "keys": pairs,
            "terms": terms,
            "reports": sealed,
        },
    )
    for payloads, text in zip(reports, theirs, strict=True):
        handed, boxes = form.open_report(bytes.fromhex(text), keys[-1])
        for layer in range(hops - 1, 0, -1):
            boxes = [form.open_box(box, keys[layer], layer) for box in boxes]
        assert (handed, [form.open_box(box, keys[0]) for box in boxes]) == (ticket, payloads)
    assert ours == [{"ticket": ticket.hex(), "payloads": payloads} for payloads in texts]
    fresh = [bytes.fromhex(text)[:32] for text in theirs]
    assert len(set(fresh)) == 200


def test_boxes_are_bound_to_their_piles(javascript: Path, tmp_path: Path) -> None:
    form = BoxFormat(secrets.token_bytes(32), 2, 6, 16, 2, piles=3)
    analyst, last, first = (PrivateKey.new() for _ in range(3))
    payloads = [secrets.token_bytes(2) for _ in range(6)]
    request = {
        "make": "sealed",
        "digest": form.digest.hex(),
        "keys": [key.public.data.hex() for key in (analyst, last, first)],
        "reports": [[payload.hex() for payload in payloads]],
        "ticket": "ab" * 16,
        "piles": 3,
    }
    [[report]] = asked(javascript, tmp_path, request)
    assert len(report) == 2 * form.report_size
    _, boxes = form.open_report(bytes.fromhex(report), first)
    for place, box in enumerate(boxes):
        inside = form.open_box(box, last, 1, place // 2)
        assert form.open_box(inside, analyst, 0, place // 2) == payloads[place]


def test_boxes_of_a_browser_look_like_dummies(javascript: Path, tmp_path: Path) -> None:
    """One length, and bits of one law at every place of a box: chi-square of two samples."""
    reports, piles = 400, 6
    form = BoxFormat(secrets.token_bytes(32), 1, piles, 0, 1, piles=piles)
    analyst, hop = PrivateKey.new(), PrivateKey.new()
    payload = b"\1"
    [sealed] = asked(
        javascript,
        tmp_path,
        {
            "make": "sealed",
            "digest": form.digest.hex(),
            "keys": [analyst.public.data.hex(), hop.public.data.hex()],
            "reports": [[payload.hex()] * piles] * reports,
            "ticket": "",
            "piles": piles,
        },
    )
    opened = [form.open_report(bytes.fromhex(report), hop)[1] for report in sealed]
    people = [box for boxes in opened for box in boxes]
    dummies = [
        form.box(payload, pile, [analyst.public]) for _ in range(reports) for pile in range(piles)
    ]
    assert {len(box) for box in people} == {len(box) for box in dummies} == {form.box_size(0)}
    ones = [
        np.unpackbits(np.frombuffer(b"".join(boxes), np.uint8).reshape(len(boxes), -1), axis=1).sum(
            axis=0, dtype=np.int64
        )
        for boxes in (people, dummies)
    ]
    total = ones[0] + ones[1]
    varying = (total > 0) & (total < 2 * len(people))  # the highest bit of a key is always 0
    assert np.array_equal(ones[0] > 0, ones[1] > 0)
    spread = total * (1.0 - total / (2.0 * len(people)))
    squares = (ones[0] - ones[1])[varying] ** 2 / spread[varying]
    freedom = int(varying.sum())
    assert freedom >= 8 * form.box_size(0) - 8
    assert abs(float(squares.sum()) - freedom) < 6.0 * math.sqrt(2.0 * freedom)
    for size in (1, 32):  # the first bytes, by which outputs are sorted
        counts = [
            np.bincount([box[0] % (8 * size) for box in boxes]) for boxes in (people, dummies)
        ]
        cells = (counts[0] - counts[1]) ** 2 / np.maximum(counts[0] + counts[1], 1)
        assert float(cells.sum()) < 8 * size + 6.0 * math.sqrt(16.0 * size)


def test_lengths_are_those_of_python(javascript: Path, tmp_path: Path) -> None:
    digest = secrets.token_bytes(32)
    keys = [PrivateKey.new().public.data.hex() for _ in range(2)]
    cases = [(messages, ticket) for messages in (1, 5, 10, 20, 200) for ticket in (0, 16)]
    answers = asked(
        javascript,
        tmp_path,
        *(
            {
                "make": "sealed",
                "digest": digest.hex(),
                "keys": keys,
                "reports": [["00" * 9] * messages],
                "ticket": "ab" * ticket,
            }
            for messages, ticket in cases
        ),
    )
    assert [len(bytes.fromhex(answer[0])) for answer in answers] == [
        BoxFormat(digest, 9, *case).report_size for case in cases
    ]


@pytest.mark.parametrize("name", tasks())
def test_reports_of_every_form_are_counted_by_python(
    javascript: Path, tmp_path: Path, name: str
) -> None:
    """Mixed messages of 60 people make a tally with an accurate estimate."""
    task = tasks()[name]
    values = Randomness.seeded(f"people {name}")
    people = [person(task.query, values) for _ in range(60)]
    (reports,) = asked(
        javascript, tmp_path, {"make": "reports", "recipe": recipe_of(task), "values": people}
    )
    form = MessageFormat.of(task.protocol)
    payloads = np.array(
        [[list(bytes.fromhex(payload)) for payload in report] for report in reports],
        dtype=np.uint8,
    )
    tally = task.tally()
    tally.add(form.join_messages(mixed_messages(form, payloads), len(people)))
    release = task.estimate(task.publish(tally))
    assert release.reports == 60


# In a browser


def test_the_vectors_in_chromium(javascript: Path, chromium: Any, tmp_path: Path) -> None:
    code = "import { differences } from './compared.mjs'; globalThis.differences = differences;"
    entry = javascript / "test" / "in_browser.mjs"
    entry.write_text(code)
    bundle = tmp_path / "compared.js"
    run(
        "npx",
        "esbuild",
        str(entry),
        "--bundle",
        "--format=iife",
        f"--outfile={bundle}",
        "--log-level=error",
        cwd=javascript,
    )
    page = chromium.new_page()
    page.add_script_tag(content=bundle.read_text())
    vectors = json.loads((CLIENT / "test" / "vectors.json").read_text())
    told = page.evaluate("vectors => differences(vectors)", vectors)
    page.close()
    assert told["different"] == []
    assert sum(told["counts"].values()) > 800


# What is shipped


def test_the_script_is_the_one_that_is_built_and_is_small(javascript: Path, tmp_path: Path) -> None:
    run("node", "build.mjs", str(tmp_path / "client.js"), cwd=javascript)
    for name in SCRIPTS:
        assert (tmp_path / Path(name).name).read_bytes() == client_bundle(name), (
            "build it again: cd clients/js && npm ci && npm run bundle"
        )
    assert len(gzip.compress(client_bundle(), 9)) <= LARGEST_SCRIPT
    assert len(gzip.compress(client_bundle(CLIENT_WITH_TOKENS), 9)) <= LARGEST_SCRIPT_WITH_TOKENS


def test_versions_are_exact_and_the_lock_names_no_registry() -> None:
    package, lock = (
        json.loads((CLIENT / name).read_text()) for name in ("package.json", "package-lock.json")
    )
    assert list(package["dependencies"]) == ["@hpke/core"]
    assert all(
        re.fullmatch(r"\d+\.\d+\.\d+", version)
        for part in ("dependencies", "devDependencies")
        for version in package[part].values()
    )
    assert "resolved" not in json.dumps(lock)
    assert "http" not in json.dumps(lock)
    assert all("integrity" in entry for name, entry in lock["packages"].items() if name)
    notice = (Path(recipes.__file__).parents[1] / "report" / "static" / "NOTICE.txt").read_text()
    for name in ("@hpke/core", "@hpke/common"):
        assert f"{name} {lock['packages'][f'node_modules/{name}']['version']}" in notice
    assert "Permission is hereby granted" in notice


# With a shuffler


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as started:
        yield started


def example(folder: Path, javascript: Path) -> Path:
    """The code of the README, in a folder that has the package installed."""
    code, *_ = re.findall(r"```js\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 10
    (folder / "node_modules").mkdir(parents=True)
    (folder / "node_modules" / "metricshuffle-client").symlink_to(javascript)
    (folder / "example.mjs").write_text(code)
    return folder


def test_the_example_of_the_readme_stores_one_report(
    javascript: Path, shuffler: Any, tmp_path: Path
) -> None:
    collection = shuffler.opened()
    folder = example(tmp_path / "example", javascript)
    told = run("node", "--no-warnings", "example.mjs", shuffler.url, collection.digest, cwd=folder)
    assert told.splitlines()[-1] == "The report is stored."
    again = ["node", "--no-warnings", "example.mjs", shuffler.url, collection.digest]
    done = subprocess.run(again, cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[-1][:21]) == (2, "Nothing was sent now:"), (
        done.stderr
    )
    assert shuffler.operator.status(collection.digest)["reports"] == 1
    assert len([file for file in (folder / "outbox").iterdir() if file.stat().st_size]) == 1


def test_tickets_that_are_unknown_or_spent_are_told_and_can_be_changed(
    javascript: Path, shuffler: Any, tmp_path: Path
) -> None:
    tickets = new_tickets(4)
    collection = shuffler.opened(tickets=tickets, round=2)
    code = """
    import { Client, NotSent } from 'metricshuffle-client';
    import { FolderOutbox } from 'metricshuffle-client/node';
    const [address, digest, spare, ...tickets] = process.argv.slice(2);
    const told = [];
    for (const [user, ticket] of tickets.entries()) {
      const client = await Client.join(address, digest, { outbox: new FolderOutbox('outbox'), user: String(user) });
      try {
        await client.submit(user, ticket);
        told.push(204);
      } catch (wrong) {
        if (!(wrong instanceof NotSent)) throw wrong;
        told.push(wrong.status);
        if (wrong.status !== 403) continue;
        await client.changeTicket(spare);
        await client.send();
        told.push(204);
      }
    }
    console.log(JSON.stringify(told));
    """  # noqa: E501
    folder = example(tmp_path / "tickets", javascript)
    (folder / "tickets.mjs").write_text(code)
    given = [tickets[2].hex(), tickets[0].hex(), tickets[0].hex(), tickets[1].hex(), "00" * 16]
    told = run(
        "node", "--no-warnings", "tickets.mjs", shuffler.url, collection.digest, *given, cwd=folder
    )
    assert json.loads(told) == [204, 409, 204, 403, 204]
    assert shuffler.operator.status(collection.digest)["reports"] == 3
