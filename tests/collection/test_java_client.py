"""Java client: same draws as Python's, boxes that Python opens, one report in all cases."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from tests.collection.client_tasks import HONEST, channel, collection_of, tasks
from tests.collection.client_vectors import FILE as VECTORS
from tests.collection.client_vectors import Replayed, mixed_messages, no_word_wasted, person
from tests.collection.java import CLIENT, COMPILE, JVM, BuiltClient, java
from tests.collection.javascript import run
from tests.collection.running import Running, new_tickets, running
from tests.collection.test_whole_rounds import collected

from metricshuffle.collection import recipes
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.recipes import recipe_of
from metricshuffle.collection.sealed_boxes import BoxFormat, PrivateKey
from metricshuffle.collection.terms import Collection, instant
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate, sample_polya
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.message_format import MessageFormat
from metricshuffle.tasks.task import Task

pytestmark = pytest.mark.thorough
__all__ = ["java"]

MANY = 5000
SMALLEST_PROBABILITY = 1e-9
"""A correct sampler fails a test of its law this often."""


# Draws


def test_the_same_words_make_the_same_messages(java: BuiltClient, tmp_path: Path) -> None:
    (compared,) = java.ask(tmp_path, {"make": "vectors", "file": str(VECTORS)})
    assert compared["different"] == []
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    reports = {f"report: {name}": len(each["cases"]) for name, each in vectors["reports"].items()}
    assert len(reports) > 25
    assert compared["counts"].items() >= reports.items()
    for name in ("rows", "k-ary", "rank", "place row", "place column"):
        assert compared["counts"][name] > 90, name
    assert compared["counts"].keys() >= {"residues", "below", "laplace", "noise", "shares"}


def test_thousands_of_draws_are_those_of_python(java: BuiltClient, tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = []
    expected: list[Any] = []

    def add(source: Replayed, answer: list[Any], **request: Any) -> None:
        file = tmp_path / f"words {len(requests)}"
        file.write_bytes(bytes.fromhex(source.used))
        requests.append({"words": str(file), **request})
        expected.append(answer)

    for shape, rate in ((Fraction(1, HONEST), 0.05), (Fraction(1, 2), 2.0)):
        source = Replayed(Randomness.seeded(f"java {rate}").words(40 * MANY))
        with no_word_wasted():
            drawn = sample_polya(shape, rational_rate(rate), MANY, source)
        law = recipes._noise(shape, rational_rate(rate), MANY)
        add(source, [str(int(value)) for value in drawn], make="noise", noise=law, columns=MANY)
    codes = Randomness.seeded("java codes").uniform_residues(MANY, 9).astype(np.int64)
    laws: list[Any] = [
        channel(9, 12),
        KaryRandomizedResponse(9, 1.5),
        KaryRandomizedResponse(9, 0.001),
        BoundedGeometric(8, 0.3),
    ]
    for law in laws:
        source = Replayed(Randomness.seeded(f"java {law.kind}").words(40 * MANY))
        with no_word_wasted():
            reports = law.reports(codes, source)
        randomizer = recipes._randomizer(law)
        add(
            source, reports.tolist(), make="randomized", randomizer=randomizer, codes=codes.tolist()
        )
    assert java.ask(tmp_path, *requests) == expected


def chi_square_probability(seen: Counter[int], law: dict[int, float]) -> float:
    """Probability of counts that differ more; rare values count as one, with all others."""
    people = seen.total()
    common = {value for value, chance in law.items() if chance * people >= 10.0}
    differences = [(seen[value], law[value] * people) for value in common]
    rest = people - math.fsum(expected for _, expected in differences)
    others = people - sum(count for count, _ in differences)
    if rest >= 10.0:
        differences.append((others, rest))
    elif others > 50:  # far more than chance, and the approximation does not hold for so few
        return 0.0
    assert len(differences) > 2
    statistic = math.fsum((count - expected) ** 2 / expected for count, expected in differences)
    return float(chi2.sf(statistic, len(differences) - 1))


def numbers_of(task: Task, report: list[str]) -> list[tuple[int, list[int]]]:
    """Group and numbers of every message."""
    layout = recipe_of(task)["payload"]
    size = layout["number"]
    start = layout["pile"]
    messages = [bytes.fromhex(payload) for payload in report]
    return [
        (
            int.from_bytes(message[:start], "little"),
            [
                int.from_bytes(message[place : place + size], "little")
                for place in range(start, len(message), size)
            ],
        )
        for message in messages
    ]


def sum_of_shares(task: Task, report: list[str], modulus: int, place: int = 0) -> int:
    """Sum of the shares of the first group at one place, between -modulus/2 and modulus/2."""
    parts = numbers_of(task, report)
    total = sum(numbers[place] for group, numbers in parts if group == 0) % modulus
    return total if total < modulus / 2 else total - modulus


def polya_law(shape: Fraction, rate: float, shift: int = 0) -> dict[int, float]:
    mass = Polya(shape, rate).law(-40.0).mass
    return {
        shift + sign * size: float(chance)
        for size, chance in enumerate(mass)
        for sign in ((1, -1) if size else (1,))
    }


def sums_case() -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    task = tasks()["whole numbers"]
    modulus = task.protocol.modulus or 0
    law = polya_law(Fraction(1, HONEST), float(rational_rate(0.05)), 500)
    return task, 480, lambda report: sum_of_shares(task, report, modulus), law


def own_noise_case() -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    task = tasks()["noise of one's own"]
    modulus = task.protocol.modulus or 0
    ratio = math.exp(-float(rational_rate(0.05)))
    law = {300 + z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-2000, 2001)}
    return task, 300, lambda report: sum_of_shares(task, report, modulus), law


def frequencies_case(
    name: str, value: Any, law: dict[int, float]
) -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    task = tasks()[name]
    return task, value, lambda report: numbers_of(task, report)[0][1][0], law


def kary_case() -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    law = KaryRandomizedResponse(4, 3.0)
    chances = {code: (law.keep if code == 2 else law.other) / TOTAL_WEIGHT for code in range(4)}
    return frequencies_case("k-ary", "cheese", chances)


def rows_case() -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    row = channel(4, 7).weights[1].tolist()
    return frequencies_case(
        "rows", "<b>bread</b>", {c: w / TOTAL_WEIGHT for c, w in enumerate(row)}
    )


def geometric_case() -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    protocol = tasks()["line"].protocol
    assert isinstance(protocol, Frequencies)
    randomizer = protocol.randomizer
    assert isinstance(randomizer, BoundedGeometric)
    ratio = math.exp(-float(randomizer.exact_rate))
    ends = {0: ratio**3 / (1 + ratio), 50: ratio**47 / (1 + ratio)}
    inner = {y: (1 - ratio) / (1 + ratio) * ratio ** abs(y - 3) for y in range(1, 50)}
    return frequencies_case("line", 3, ends | inner)


def vectors_case() -> tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]:
    """Coordinate of the value: 1 unless the floor changed the label, and noise."""
    task = tasks()["labels as vectors"]
    protocol = task.protocol
    assert isinstance(protocol, NoisyVectors)
    floor = protocol.floor
    assert isinstance(floor, KaryRandomizedResponse)
    rate = recipe_of(task)["noise"][0]["rate"]
    noise = polya_law(Fraction(1, protocol.sharers), int(rate[0]) / int(rate[1]))
    keep = floor.keep / TOTAL_WEIGHT
    law = {
        value: keep * noise.get(value - 1, 0.0) + (1 - keep) * noise.get(value, 0.0)
        for value in range(min(noise), max(noise) + 2)
    }
    return task, "<b>bread</b>", lambda report: sum_of_shares(task, report, 2**14, 1), law


@pytest.mark.parametrize(
    "case",
    [sums_case, own_noise_case, kary_case, rows_case, geometric_case, vectors_case],
    ids=["sums", "noise of one's own", "k-ary", "rows", "geometric", "noisy vectors"],
)
def test_draws_have_the_exact_law(
    java: BuiltClient,
    tmp_path: Path,
    case: Callable[[], tuple[Task, Any, Callable[[list[str]], int], dict[int, float]]],
) -> None:
    """System randomness, compared with the law of the guarantee by a chi-square test."""
    task, value, read, law = case()
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-9)
    (reports,) = java.ask(
        tmp_path, {"make": "reports", "recipe": recipe_of(task), "values": [value] * MANY}
    )
    seen = Counter(map(read, reports))
    assert chi_square_probability(seen, law) > SMALLEST_PROBABILITY
    mean = math.fsum(number * chance for number, chance in law.items())
    variance = math.fsum((number - mean) ** 2 * chance for number, chance in law.items())
    half = max(1, round(math.sqrt(variance) / 2))
    shifted = {number + half: chance for number, chance in law.items()}
    assert chi_square_probability(seen, shifted) < SMALLEST_PROBABILITY  # (the test can fail)


@pytest.mark.parametrize("name", tasks())
def test_reports_of_every_form_are_counted_by_python(
    java: BuiltClient, tmp_path: Path, name: str
) -> None:
    task = tasks()[name]
    values = Randomness.seeded(f"people {name}")
    people = [person(task.query, values) for _ in range(60)]
    (reports,) = java.ask(
        tmp_path, {"make": "reports", "recipe": recipe_of(task), "values": people}
    )
    payloads = np.array(
        [[list(bytes.fromhex(payload)) for payload in report] for report in reports],
        dtype=np.uint8,
    )
    tally = task.tally()
    form = MessageFormat.of(task.protocol)
    tally.add(form.join_messages(mixed_messages(form, payloads), len(people)))
    assert task.estimate(task.publish(tally)).reports == 60


# Boxes


@pytest.mark.parametrize(("hops", "messages", "ticket"), [(1, 10, 0), (1, 1, 16), (3, 2, 16)])
def test_reports_are_opened_by_python(
    java: BuiltClient, tmp_path: Path, hops: int, messages: int, ticket: int
) -> None:
    form = BoxFormat(secrets.token_bytes(32), 9, messages, ticket, hops)
    keys = [PrivateKey.new() for _ in range(hops + 1)]
    reports = [[secrets.token_bytes(9) for _ in range(messages)] for _ in range(30)]
    right = secrets.token_bytes(ticket)
    (sealed,) = java.ask(
        tmp_path,
        {
            "make": "sealed",
            "digest": form.digest.hex(),
            "keys": [key.public.data.hex() for key in keys],
            "reports": [[payload.hex() for payload in payloads] for payloads in reports],
            "ticket": right.hex(),
        },
    )
    encapsulated = set()
    for payloads, text in zip(reports, sealed, strict=True):
        assert len(text) == 2 * form.report_size
        opened, boxes = form.open_report(bytes.fromhex(text), keys[-1])
        encapsulated |= {text[:64], *(box[:32].hex() for box in boxes)}
        for layer in range(hops - 1, 0, -1):
            boxes = [form.open_box(box, keys[layer], layer) for box in boxes]
        assert (opened, [form.open_box(box, keys[0]) for box in boxes]) == (right, payloads)
    assert len(encapsulated) == 30 * (messages + 1)


def test_boxes_are_bound_to_their_piles(java: BuiltClient, tmp_path: Path) -> None:
    form = BoxFormat(secrets.token_bytes(32), 2, 6, 0, 2, piles=3)
    analyst, last, first = (PrivateKey.new() for _ in range(3))
    payloads = [secrets.token_bytes(2) for _ in range(6)]
    request = {
        "make": "sealed",
        "digest": form.digest.hex(),
        "keys": [key.public.data.hex() for key in (analyst, last, first)],
        "reports": [[payload.hex() for payload in payloads]],
        "ticket": "",
        "piles": 3,
    }
    [[report]] = java.ask(tmp_path, request)
    assert len(report) == 2 * form.report_size
    for place, box in enumerate(form.open_report(bytes.fromhex(report), first)[1]):
        inside = form.open_box(box, last, 1, place // 2)
        assert form.open_box(inside, analyst, 0, place // 2) == payloads[place]


def test_the_first_message_of_rfc_9180(java: BuiltClient, tmp_path: Path) -> None:
    """Appendix A.1.1: base mode, X25519, HKDF-SHA256, AES-128-GCM, sequence number 0."""
    public = "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    (box,) = java.ask(
        tmp_path,
        {
            "make": "box",
            "private": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
            "public": public,
            "key": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
            "info": "4f6465206f6e2061204772656369616e2055726e",
            "associated": "436f756e742d30",
            "plain": "4265617574792069732074727574682c20747275746820626561757479",
        },
    )
    ciphertext = (
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )
    assert box == public + ciphertext


# Collections


def test_collections_of_python_are_read(java: BuiltClient, tmp_path: Path) -> None:
    collections = [collection_of(task) for task in tasks().values()]
    answers = java.ask(
        tmp_path,
        *(
            {"make": "collection", "served": collection.served.hex(), "digest": collection.digest}
            for collection in collections
        ),
    )
    assert answers == [
        [
            collection.task.digest,
            1,
            f"{collection.url}/reports",
            collection.sealing.report_size,
            None,
        ]
        for collection in collections
    ]


def test_other_bytes_and_invalid_collections_are_refused(java: BuiltClient, tmp_path: Path) -> None:
    served = collection_of(tasks()["whole numbers"]).served
    terms = json.loads(served)
    analyst = terms["analyst"]
    hop = terms["hops"][0]

    def changed(**change: Any) -> bytes:
        return json.dumps({**terms, **change}).encode()

    twice = served[:-1] + b',"round":1}'
    cases = [
        (served[:-1] + b" }", hashlib.sha256(served).hexdigest(), "digests differ"),
        *(
            (content, hashlib.sha256(content).hexdigest(), sentence)
            for content, sentence in [
                (b"{", "cannot be read"),
                (b"[" * 10_000, "cannot be read"),
                (served + b"\xff", "cannot be read"),
                (twice, "cannot be read"),
                (changed(task="no task"), "cannot be read"),
                (changed(format="metricshuffle-collection/2"), "another kind"),
                (changed(suite="none"), "another kind"),
                (changed(messages=9), "does not fit"),
                (changed(payload=10), "does not fit"),
                (changed(ticket=8), "is invalid"),
                (changed(ticket=16), "is invalid"),
                (changed(round=1.5), "is invalid"),
                (changed(minimum=2**60), "is invalid"),
                (changed(minimum=terms["maximum"] + 1), "is invalid"),
                (changed(opens=terms["closes"]), "is invalid"),
                (changed(extends=terms["opens"]), "is invalid"),
                (changed(hops=[]), "is invalid"),
                (changed(hops=[hop] * 2), "is invalid"),
                (changed(analyst={**analyst, "key": hop["key"]}), "is invalid"),
                (changed(hops=[{**hop, "url": "file:///etc"}]), "is invalid"),
                (changed(hops=[{**hop, "url": "http://a b"}]), "is invalid"),
                (changed(analyst={**analyst, "key": "00" * 32}), "cannot seal"),
                (changed(analyst={**analyst, "key": "01" + "00" * 31}), "cannot seal"),
                (changed(analyst={**analyst, "key": "ab" * 31}), "cannot seal"),
                (changed(analyst={**analyst, "key": "xy" * 32}), "is invalid"),
            ]
        ),
    ]
    answers = java.ask(
        tmp_path,
        *(
            {"make": "collection", "served": content.hex(), "digest": digest}
            for content, digest, _ in cases
        ),
    )
    for (content, _, sentence), answer in zip(cases, answers, strict=True):
        assert isinstance(answer, str), content[:60]
        assert sentence in answer, (content[:60], answer)


# Outbox and sending


def test_its_own_checks(java: BuiltClient, tmp_path: Path) -> None:
    """Retries, refusals, declining, outbox and kills, against a server that misbehaves."""
    lines = run(*java.command("ClientChecks"), str(VECTORS), str(tmp_path), cwd=java.folder)
    assert len(re.findall(r"^ok ", lines, re.MULTILINE)) > 20, lines


def test_the_budget_of_its_outbox(java: BuiltClient, tmp_path: Path) -> None:
    """Sums by unit, and a budget that is stored with the report or not at all."""
    lines = run(*java.command("BudgetChecks"), str(VECTORS), str(tmp_path), cwd=java.folder)
    assert lines.splitlines() == ["ok sums", "ok kills", "ok limits"]
    shown = run(
        *JVM, "-jar", str(java.jar), "--budget", "--outbox", str(tmp_path / "sums"), cwd=tmp_path
    )
    assert "up to 3 h:" in shown
    assert "  epsilon 6.2, even if every shuffler or adder colludes with the analysts;" in shown


def test_its_budget_states_the_guarantees_of_the_task(java: BuiltClient, tmp_path: Path) -> None:
    """As Python wrote them into the task; epsilon of one report of one task is that of the task."""
    task = tasks()["whole numbers"]
    collection = collection_of(task)
    stated = (task.if_shuffler_colludes, task.guarantee)
    (read,) = java.ask(
        tmp_path,
        {"make": "spent", "served": collection.served.hex(), "digest": collection.digest},
    )
    assert (read["task"], read["round"], read["rounds"]) == (task.digest, 1, task.rounds)
    assert read["unit"] == (task.guarantee.unit or "")
    for name, guarantee in zip(("local", "shuffled"), stated, strict=True):
        assert guarantee is not None
        assert read[name] == {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "distance": guarantee.distance,
            "shape": guarantee.shape,
        }


# With a shuffler


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as started:
        yield started


def take_part(
    java: BuiltClient, folder: Path, *words: str, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the jar as a person does."""
    return subprocess.run(
        [*JVM, "-jar", str(java.jar), *words],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )


WHOLE_ROUNDS: dict[str, tuple[list[Any], Callable[[Any], bool]]] = {
    "whole numbers": (
        [25 * person - 20 for person in range(HONEST)],
        lambda mean: abs(mean - 467.5) < 20.0,
    ),
    "places": (
        [[person % 4, person % 3] for person in range(HONEST)],
        lambda place: abs(place[0] - 46.9066) < 0.009 and abs(place[1] - 7.3632) < 0.013,
    ),
    "labels as vectors": (
        ["cheese"] * (HONEST - 10) + ["Äpfel & Birnen"] * 10,
        lambda table: [row["label"] for row in table][2] == "cheese",
    ),
}
"""Values of forty people, and whether the answer is near the truth, by two cells for places.

Noise that misses by more has a probability below 1e-9. So few shares of labels are hardly known.
"""


def test_whole_rounds_with_a_shuffler(java: BuiltClient, shuffler: Running, tmp_path: Path) -> None:
    """Python opens collections, people of Java report, and the analyst estimates the answers."""
    key = AnalystKey.new()
    collections: dict[str, Collection] = {}
    for name, (values, _) in WHOLE_ROUNDS.items():
        extends = instant(time.time() + 100)
        collection = shuffler.opened(tasks()[name], lasts=12, analyst=key, extends=extends)
        collections[name] = collection
        (sentences,) = java.ask(
            tmp_path,
            {
                "make": "submitted",
                "address": shuffler.url,
                "digest": collection.digest,
                "outbox": str(tmp_path / "outbox"),
                "values": values,
            },
        )
        assert sentences == ["The report is stored."] * HONEST
    for name, (_, is_near) in WHOLE_ROUNDS.items():
        release = collected(key, collections[name], tmp_path / f"{name}.release")
        assert release.reports == HONEST
        assert is_near(release.value), (name, release.value)


def test_the_command_of_the_readme_stores_one_report(
    java: BuiltClient, shuffler: Running, tmp_path: Path
) -> None:
    (command,) = re.findall(r"^java -jar .*$", (CLIENT / "README.md").read_text(), re.MULTILINE)
    assert command == "java -jar metricshuffle-client.jar collection.json 14"
    task = tasks()["whole numbers"].reworded("Weights", "How much?")
    collection = shuffler.opened(task)
    collection.save(tmp_path / "collection.json")
    done = take_part(java, tmp_path, "collection.json", "14")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "The report is stored."
    assert "How much?" in done.stdout
    assert collection.digest in done.stdout
    again = take_part(java, tmp_path, "collection.json", "-", typed="15\n")
    assert (again.returncode, again.stderr[:21]) == (2, "Nothing was sent now:")
    declined = take_part(java, tmp_path, "--decline", "collection.json")
    assert (declined.returncode, declined.stderr) == (2, "The report was sent already.\n")
    other = ("--user", "somebody else")
    refused = take_part(java, tmp_path, *other, "--digest", "ab" * 32, "collection.json", "14")
    assert refused.returncode == 2
    assert "digests differ" in refused.stderr
    outside = take_part(java, tmp_path, *other, "collection.json", "981")
    assert (outside.returncode, outside.stderr) == (2, "Enter a number from -20 to 980 g.\n")
    declined = take_part(java, tmp_path, *other, "--decline", "collection.json")
    assert (declined.returncode, declined.stdout[:17]) == (0, "Nothing was sent,")
    assert shuffler.operator.status(collection.digest)["reports"] == 1
    files = {file.name for file in (tmp_path / "outbox").iterdir()}
    assert len(files) == 3  # two entries and the lock
    assert (tmp_path / "outbox").stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o77 == 0 for file in (tmp_path / "outbox").glob("*.json"))


def test_the_program_of_the_readme_stores_one_report(
    java: BuiltClient, shuffler: Running, tmp_path: Path
) -> None:
    (code,) = re.findall(r"```java\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "Example.java").write_text(code)
    run(*COMPILE, "-cp", str(java.jar), "-d", ".", "Example.java", cwd=tmp_path)
    collection = shuffler.opened(round=3)
    classes = os.pathsep.join((".", str(java.jar)))
    command = [*JVM, "-cp", classes, "Example", shuffler.url, collection.digest]
    assert run(*command, cwd=tmp_path).splitlines()[-1] == "The report is stored."
    assert shuffler.operator.status(collection.digest)["reports"] == 1


def test_tickets(java: BuiltClient, shuffler: Running, tmp_path: Path) -> None:
    tickets = new_tickets(4)
    collection = shuffler.opened(tickets=tickets, round=2)
    address = f"{shuffler.url}/join/{collection.digest}"
    ticket = tmp_path / "ticket.txt"

    def report(user: str, digits: str) -> tuple[int, str]:
        ticket.write_text(f"{digits}\n")
        words = ("--ticket-file", "ticket.txt", "--user", user, address, "7")
        done = take_part(java, tmp_path, *words)
        return done.returncode, (done.stdout + done.stderr).splitlines()[-1]

    stored = (0, "The report is stored.")
    assert report("a", tickets[0].hex()) == stored
    assert report("b", "no ticket") == (2, "A ticket is 32 letters and digits, 0 to 9 and a to f.")
    code, sentence = report("b", tickets[0].hex())
    assert (code, sentence[:41]) == (2, "This ticket was used for another report b")
    code, sentence = report("c", "00" * 16)
    assert (code, sentence[:40]) == (2, "The shuffler does not know this ticket: ")
    before = (0, "The report that was made before is stored. The value given now was not used.")
    assert report("c", tickets[1].hex()) == before
    assert report("b", tickets[2].hex()) == before
    assert shuffler.operator.status(collection.digest)["reports"] == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Name a collection; see --help."),
        (["collection.json"], "Give a value behind the collection, or --decline before it"),
        (["--decline", "collection.json", "7"], "Give a value behind the collection, or"),
        (["--users", "me", "collection.json", "7"], "There is no option --users; see --help."),
        (["--patience", "-1", "collection.json", "7"], "--patience is a whole number of seconds."),
        (["https://shuffler.example", "7"], "Give the digest that was published"),
        (["missing.json", "7"], "missing.json (NoSuchFileException)"),
        (["--digest", "ab" * 32, "http://127.0.0.1:9", "7"], "cannot be reached now, so nothing"),
    ],
)
def test_commands_that_cannot_be_followed_say_why(
    java: BuiltClient, tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = take_part(java, tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert list(tmp_path.iterdir()) == []
