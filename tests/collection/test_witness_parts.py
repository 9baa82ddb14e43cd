"""Parts of a witness: the collection's fields, its memory, rejections, and checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.collection.conftest import Clock
from tests.collection.hop_before import Answer, handed_over, hop_before
from tests.collection.rounds import HONEST, new_round, opened_round, put
from tests.collection.stand_in import StandIn, standing_in
from tests.collection.store_contents import Refused, asked
from tests.collection.test_analyst import reported, small_task

from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.client.join_page import join_page
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.signatures import Claim, SigningKey, is_signed
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.terms import Collection, Hop, HopWitness
from metricshuffle.collection.witness import AT_ONCE, Countersigner, Denied, NotCountersigned
from metricshuffle.errors import InputError, PlanError
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.tasks.release import Release

START = 2_000_000_000.0
URL = "http://127.0.0.1:1"
ELSEWHERE = "http://127.0.0.1:2"
WITNESS = SigningKey(bytes(range(32)))
ASKER = SigningKey(bytes(range(1, 33)))
NAMED = HopWitness(url=ELSEWHERE, key=WITNESS.public, asker=ASKER.public)


def hop_with(keys: CollectionKeys, witness: HopWitness | None, url: str = URL) -> Hop:
    return Hop(**keys.party.model_dump() | {"url": url, "witness": witness})


# What a collection says


def test_a_collection_without_a_witness_is_written_as_before() -> None:
    party = CollectionKeys(bytes(64)).party
    plain = new_round([(party, URL)]).collection
    named = new_round([(hop_with(CollectionKeys(bytes(64)), NAMED), URL)]).collection
    assert set(json.loads(plain.served)["hops"][0]) == {"key", "release", "name", "url"}
    assert plain.terms.hops[0].witness is None
    assert json.loads(named.served)["hops"][0]["witness"] == {
        "url": ELSEWHERE,
        "key": WITNESS.public,
        "asker": ASKER.public,
    }
    assert Collection.read(named.served).terms.hops[0].witness == NAMED


def test_nobody_is_the_own_witness() -> None:
    for wrong in (
        NAMED.model_copy(update={"url": URL}),
        NAMED.model_copy(update={"asker": WITNESS.public}),
    ):
        with pytest.raises(InputError, match="must be another shuffler"):
            hop_with(CollectionKeys(bytes(64)), wrong)


@pytest.fixture
def shuffler(store: Store, tmp_path: Path) -> Shuffler:
    return Shuffler(store, KeyFolder.at(tmp_path / "keys"))


def test_a_shuffler_opens_what_names_its_own_witness(store: Store, tmp_path: Path) -> None:
    keys = KeyFolder.at(tmp_path / "keys")
    own = NAMED.model_copy(update={"asker": keys.signing.public})
    other = own.model_copy(update={"url": "http://127.0.0.1:3"})

    def is_opened(shuffler: Shuffler, witness: HopWitness | None, number: int) -> bool:
        made = new_round([(hop_with(keys.new(), witness), URL)], split=(number, 9))
        return shuffler.open(made.collection.served)

    without = Shuffler(store, keys)
    with_witness = Shuffler(store, keys, witness=ELSEWHERE)
    assert is_opened(without, None, 1)
    assert is_opened(with_witness, own, 2)
    for shuffler, named in (
        (without, own),
        (with_witness, None),
        (with_witness, other),
        (with_witness, NAMED),
    ):
        with pytest.raises(PlanError, match="this shuffler was started with"):
            is_opened(shuffler, named, 3)


def test_the_page_names_the_witness_and_shows_notes_about_the_clock() -> None:
    collection = new_round([(hop_with(CollectionKeys(bytes(64)), NAMED), URL)]).collection
    page = join_page(collection, URL, clock=["The operator confirmed the clock <b>.", "And again."])
    assert f"<dt>Countersigned by</dt><dd>{ELSEWHERE}, which lets {URL} hand over" in page
    assert WITNESS.public in page
    assert (
        '<p id="clock" class="notice">About the clock of the shuffler: The operator '
        "confirmed the clock &lt;b&gt;. And again.</p>" in page
    )
    assert '<p id="clock" class="notice" hidden></p>' in join_page(collection, URL)
    assert "Countersigned by" not in join_page(
        new_round([(CollectionKeys(bytes(64)).party, URL)]).collection, URL
    )


# What is remembered


def test_the_first_output_is_kept_and_nothing_replaces_it(
    store: Store, store_url: str, clock: Clock
) -> None:
    assert store.first_output("c" * 64, "k" * 64) is None
    assert store.first_output("c" * 64, "k" * 64, "1" * 64) == "1" * 64
    again = connect_store(store_url, clock)
    for known in (store, again):
        assert (
            known.first_output("c" * 64, "k" * 64, "2" * 64)
            == known.first_output("c" * 64, "k" * 64)
            == "1" * 64
        )
    again.close()
    assert store.first_output("c" * 64, "l" * 64, "2" * 64) == "2" * 64  # another shuffler's
    for statement in ("UPDATE witnessed SET output = 'x'", "DELETE FROM witnessed"):
        with pytest.raises(Refused, match="what was countersigned stays"):
            asked(store_url, statement)


def test_of_several_at_once_one_is_first(store: Store) -> None:
    for number in range(10):
        with ThreadPoolExecutor(8) as threads:
            answers = set(
                threads.map(
                    lambda output, of=f"{number:064d}": store.first_output(
                        of, "k" * 64, f"{output:064d}"
                    ),
                    range(8),
                )
            )
        assert len(answers) == 1
        assert answers == {store.first_output(f"{number:064d}", "k" * 64)}


def test_a_countersignature_cannot_be_changed_later(
    shuffler: Shuffler, store_url: str, clock: Clock
) -> None:
    clock.stop(START)
    made = opened_round(shuffler, now=START)
    put(shuffler, made, [made.report() for _ in range(HONEST)])
    clock.ahead = 60
    assert shuffler.advance(made.digest) == "released"
    with pytest.raises(Refused, match="a countersignature cannot be changed"):
        asked(store_url, "UPDATE collection SET countersignature = 'x'")


def test_new_collections_of_one_asker_are_bounded_and_old_ones_are_not(store: Store) -> None:
    other = SigningKey(bytes(range(2, 34)))
    countersigner = Countersigner(store, WITNESS, [ASKER.public, other.public])

    def answer(number: int, key: SigningKey = ASKER) -> str:
        claim = Claim(f"{number:064d}", key.public, "a" * 64)
        words = {"collection": claim.collection, "asker": claim.asker, "output": claim.output}
        return countersigner.countersignature(
            {**words, "signature": key.signed(claim.request(WITNESS.public))}
        )

    done = 0

    def ask_for_many() -> None:
        nonlocal done
        for number in range(3 * AT_ONCE):
            answer(number)
            done += 1

    with pytest.raises(Denied, match="too many collections at once") as denied:
        ask_for_many()
    assert (denied.value.status, denied.value.headers) == (429, {"Retry-After": "5"})
    assert done >= AT_ONCE
    for _ in range(2):  # what is known costs nothing, and nobody takes the room of another one
        assert is_signed(
            WITNESS.public, Claim(f"{0:064d}", ASKER.public, "a" * 64).countersigned, answer(0)
        )
    answer(done, other)


# Nobody waits for ever


def test_without_a_witness_in_the_end_it_is_given_up(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    keys = KeyFolder.at(tmp_path / "keys")
    shuffler = Shuffler(store, keys, witness=URL)  # (nobody listens there)
    clock.stop(START)
    secrets = keys.new()
    named = NAMED.model_copy(update={"url": URL, "asker": keys.signing.public})
    made = new_round([(hop_with(secrets, named, ELSEWHERE), ELSEWHERE)], now=START, retention=3600)
    assert shuffler.open(made.collection.served)
    put(shuffler, made, [made.report() for _ in range(HONEST)])
    for ahead in (60, 61, 60 + 3599):
        clock.ahead = ahead
        with pytest.raises(
            NotCountersigned,
            match=r"does not answer .* If nothing changes, it is aborted at 2033-05-18T04:34:20Z\.",
        ):
            shuffler.advance(made.digest)
        status = shuffler.status(made.digest)
        assert status is not None
        assert (status.state, status.output) == ("sealed", "")
    clock.ahead = 60 + 3600
    assert shuffler.advance(made.digest) == "aborted"
    status = shuffler.status(made.digest)
    assert status is not None
    assert status.reason == "its witness did not countersign its output in time"
    assert not list((keys.path / "output").glob("*.boxes"))
    assert not keys.has(secrets.party.key)


# Who checks it


@pytest.mark.parametrize("signature", ["", "00" * 64, "another set", "right"])
def test_a_later_hop_takes_what_was_countersigned_only(
    signature: str, tmp_path: Path, clock: Clock
) -> None:
    clock.stop(START)
    store = connect_store(f"sqlite:///{tmp_path / 'second.db'}", clock)
    with hop_before() as hop:
        second = Shuffler(store, KeyFolder.at(tmp_path / "second"), after=hop.url)
        first = CollectionKeys(bytes(range(64)))
        own = second.keys.new()
        made = new_round([(hop_with(first, NAMED, hop.url), hop.url), (own.party, URL)], now=START)
        assert second.open(made.collection.served)
        boxes = sorted(made.boxes([made.report() for _ in range(HONEST)], first.private))
        answer = handed_over(boxes, HONEST)
        output = "0" * 64 if signature == "another set" else answer.headers["ETag"].strip('"')
        signed = WITNESS.signed(Claim(made.digest, ASKER.public, output).countersigned)
        told = signed if signature in ("right", "another set") else signature
        hop.get = lambda: Answer(
            200, answer.body, {**answer.headers, **({"X-Countersignature": told} if told else {})}
        )
        clock.ahead = 60
        assert second.advance(made.digest) == ("released" if signature == "right" else "aborted")
        status = second.status(made.digest)
        assert status is not None
        assert ("its witness did not countersign" in status.reason) == (signature != "right")
    store.close()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with standing_in() as shuffler:
        yield shuffler


@pytest.fixture
def collected(stand_in: StandIn, tmp_path: Path) -> Callable[[str], Release]:
    """Result of `collect` with a witness whose countersignature the test sets."""

    def collect(signature: str) -> Release:
        key = AnalystKey.new()
        keys = CollectionKeys(bytes(range(64)))
        collection = stand_in.opened(small_task(), key, hops=[hop_with(keys, NAMED, stand_in.url)])
        stand_in.hops[collection.digest] = collection, keys
        reported(stand_in, collection, (3,) * 30)
        output = stand_in.outputs[collection.digest]
        right = WITNESS.signed(Claim(collection.digest, ASKER.public, output.etag).countersigned)
        output.countersignature = right if signature == "right" else signature
        return Analyst(key).collect(collection, tmp_path / "release.json")

    return collect


def test_collect_refuses_what_was_not_countersigned(
    collected: Callable[[str], Release], tmp_path: Path
) -> None:
    for wrong in ("", "00" * 64, "zz"):
        with pytest.raises(PlanError, match="did not countersign"):
            collected(wrong)
    assert not list(tmp_path.iterdir())


def test_a_release_names_the_witness_and_the_notes_about_clocks(
    collected: Callable[[str], Release], stand_in: StandIn, tmp_path: Path
) -> None:
    notes = [
        "The operator confirmed the clock, which had jumped.",
        "x\x1b[31m" + "y" * 1000,
        *(f"note {number}" for number in range(20)),
    ]
    stand_in.state = json.dumps({"state": "released", "clock": notes}).encode()
    release = collected("right")
    assert release.collected is not None
    assert (release.collected.witness, len(release.collected.countersignature)) == (ELSEWHERE, 128)
    said = str(release)
    assert (
        f"The witness {ELSEWHERE} countersigned these messages; of one collection it "
        "countersigns no other." in said
    )
    assert f"A note about the shuffler {stand_in.url}: {notes[0]}" in said
    assert "\x1b" not in said
    assert (len(release.collected.clock), release.collected.clock[-1]) == (
        11,
        f"{stand_in.url}: 12 more notes.",
    )
    assert str(Release.load(tmp_path / "release.json")) == said
    page = report(ReportSubject.of(release, None))
    assert f"A note about the shuffler {stand_in.url}: {notes[0]}" in page
    assert f"The witness {ELSEWHERE} countersigned these messages" in page


def test_a_release_says_that_a_clock_could_not_be_asked_for(
    collected: Callable[[str], Release], stand_in: StandIn
) -> None:
    stand_in.state = b"no JSON"
    assert (
        f"A note about the shuffler {stand_in.url}: it could not be asked whether its "
        "operator changed it." in str(collected("right"))
    )


def test_a_release_without_any_of_it_is_written_as_before(
    stand_in: StandIn, tmp_path: Path
) -> None:
    key = AnalystKey.new()
    collection = stand_in.opened(small_task(), key)
    reported(stand_in, collection, (3,) * 30)
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    written = json.loads((tmp_path / "release.json").read_text())["collected"]
    assert not {"witness", "countersignature", "clock"} & set(written)
    assert "clock" not in str(release)
