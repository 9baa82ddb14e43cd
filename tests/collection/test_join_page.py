"""Join page: its text, no external resources, and one report per person."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.collection.client_tasks import collection_of, frequencies, load_task, tasks
from tests.collection.issuers import ISSUER_URL, issuer_terms
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all
from typer.testing import CliRunner

from metricshuffle import Categories, Histogram
from metricshuffle.cli.command_group import app
from metricshuffle.collection.client.join_page import CLIENT_WITH_TOKENS, client_bundle, join_page
from metricshuffle.collection.terms import Collection
from metricshuffle.planning.consent import consent
from metricshuffle.randomizers import HadamardResponse, KaryRandomizedResponse

SHUFFLER = "http://127.0.0.1:1"
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
DATA = re.compile(r'<script type="application/json" id="collection">(.*?)</script>', re.DOTALL)


def page_of(name: str, base: str = SHUFFLER, **terms: Any) -> tuple[Collection, ParsedPage]:
    collection = collection_of(tasks()[name], **terms)
    return collection, ParsedPage(join_page(collection, base))


def policy_of(page: ParsedPage) -> dict[str, str]:
    policy = next(value for value in page.values if value.startswith("default-src"))
    return {rule.split(" ", 1)[0]: rule.split(" ", 1)[1] for rule in policy.split("; ")}


@pytest.mark.parametrize("base", [SHUFFLER, "https://survey.example"])
def test_a_page_with_tokens_may_ask_the_issuer(base: str) -> None:
    """It has the script with tokens, says who gives them, and may call no other address more."""
    collection, page = page_of("whole numbers", base, **issuer_terms())
    (script,) = SCRIPT.findall(page.html)
    assert client_bundle(CLIENT_WITH_TOKENS).decode().strip() in script
    assert f"{ISSUER_URL}, who learns who takes part" in page.text
    own = "'self'" if base == SHUFFLER else f"{collection.url}/reports {collection.url}/state"
    assert policy_of(page)["connect-src"] == f"{own} {ISSUER_URL}"


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@check_all("name", tasks())
def test_it_loads_nothing_and_its_policy_says_so(name: str) -> None:
    collection, page = page_of(name)
    assert {target for target in page.targets if not target.startswith("#")} == set()
    (script,), (style,) = (
        SCRIPT.findall(page.html),
        re.findall(r"<style>(.*?)</style>", page.html, re.DOTALL),
    )
    assert client_bundle().decode().strip() in script
    assert policy_of(page) == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "style-src": hashed(style),
        "script-src": hashed(script),
        "connect-src": "'self'",
    }
    assert " style=" not in page.html
    assert not re.search(r" on[a-z]+=", page.html.replace(script, ""))
    assert len(page.ids) == len(set(page.ids))
    (data,) = DATA.findall(page.html)
    assert json.loads(data).encode() == collection.served


def test_every_field_has_a_name() -> None:
    for name in tasks():
        _, page = page_of(name)
        fields = re.findall(r"<(?:input|select)[^>]*>", page.html)
        named = re.findall(r'<label for="([^"]+)"', page.html)
        for field in fields:
            identity = re.search(r'id="([^"]+)"', field)
            in_label = 'type="radio"' in field or 'type="checkbox"' in field
            assert in_label or (identity is not None and identity[1] in named), field
        assert fields


def test_it_says_what_is_asked_by_whom_until_when_and_what_is_promised() -> None:
    task = tasks()["whole numbers"]
    party = collection_of(task).terms
    hops = [party.hops[0].model_copy(update={"name": "Mixers Ltd"})]
    analyst = party.analyst.model_copy(update={"name": "The <institute>"})
    terms: dict[str, Any] = {
        "opens": "2030-01-01T00:00:00Z",
        "closes": "2030-01-31T12:00:00Z",
        "extends": "2030-02-01T12:00:00Z",
    }
    collection = Collection.new(
        task, hops=hops, analyst=analyst, round=1, colluders=2, retention=60, **terms
    )
    page = ParsedPage(join_page(collection, SHUFFLER, contact="Call us"))
    for words in (
        "Take part with one number",
        "The <institute>, who reads the result",
        f"Mixers Ltd, {SHUFFLER}, which cannot read reports",
        "until 2030-01-31 12:00:00 UTC",
        "until 2030-02-01 12:00:00 UTC",
        "at least 42 reports: 40 honest ones, which the promise counts on, and 2 more, "
        "because as many may not be; with fewer there is no",
        "With fewer than 42 reports there is no result",
        "A whole number from -20 to 980 g.",
        "if everyone keeps to the rules",
        "If the mixer cheats",
        "In exact words",
        "the shuffler itself",
        collection.digest,
        f"{collection.sealing.report_size:,} bytes, the same for everybody",
        "Call us.",
    ):
        assert words in page.text, words
    assert set(
        re.findall(r"fewer than (\d+) reports|at least (\d+) reports(?! come)", page.text)
    ) == {
        ("42", ""),
        ("", "42"),
    }
    for section in consent(task, contact="Call us", minimum=42).sections:
        for sentence in section.sentences:
            assert sentence in page.text, sentence


def test_hostile_words_stay_words() -> None:
    _, page = page_of("k-ary")
    assert "<b>bread" not in page.html.replace(DATA.findall(page.html)[0], "")
    assert "<b>bread</b>" in page.text
    labels = Categories(["</script><script>alert(1)</script>", "<!--", "b"])
    task = load_task(Histogram(labels), frequencies(KaryRandomizedResponse(3, 3.0)), 1.0)
    page = ParsedPage(join_page(collection_of(task), SHUFFLER))
    assert page.tags.count("script") == 2
    (data,) = DATA.findall(page.html)
    assert "<" not in data


def test_an_address_cannot_add_to_the_policy() -> None:
    terms = json.loads(collection_of(tasks()["k-ary"]).served)
    terms["hops"][0]["url"] = "https://a.example/;img-src,*"
    collection = Collection(json.dumps(terms).encode())
    rules = policy_of(ParsedPage(join_page(collection, "https://b.example")))
    addresses = rules["connect-src"].split(" ")
    assert len(addresses) == 2
    assert all(
        address.startswith("https://a.example/%3Bimg-src%2C*/v1/collections/")
        for address in addresses
    )
    assert "img-src" not in rules


def test_what_differs_is_said() -> None:
    _, page = page_of("whole numbers", apart=False, delay=90, admission="tickets", split=(2, 3))
    for words in (
        "Whoever mixes the reports also reads the result",
        "in the next 90 seconds",
        "Your ticket",
        "2 of 3",
    ):
        assert words in page.text, words
    _, plain = page_of("whole numbers")
    for words in ("also reads the result", "seconds", "ticket", "Part"):
        assert words not in plain.text.replace("Take part", ""), words


def test_at_another_site_it_may_send_reports_and_do_nothing_else() -> None:
    collection, page = page_of("places", "https://survey.example")
    assert policy_of(page)["connect-src"] == f"{collection.url}/reports {collection.url}/state"
    assert "from https://survey.example." in page.text
    assert "it may send to http://127.0.0.1:1 and to nobody else" in page.text
    assert "the shuffler itself" not in page.text


def test_what_a_browser_cannot_do_has_no_field() -> None:
    task = load_task(
        Histogram(Categories(["a", "b", "c", "d"])),
        frequencies(HadamardResponse(4, 2.0)),
        1.0,
        40.0,
    )
    collection = collection_of(task)
    page = ParsedPage(join_page(collection, SHUFFLER))
    assert "form" not in page.tags
    assert "HadamardResponse" in page.text
    assert f"metricshuffle submit {collection.url}" in page.text


# The command


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    collection_of(tasks()["places"]).save(tmp_path / "collection.json")
    return tmp_path / "collection.json"


def test_the_command_writes_the_page_and_tells_its_hash(saved: Path, tmp_path: Path) -> None:
    words = [
        "join-page",
        str(saved),
        "--output",
        str(tmp_path / "site"),
        "--origin",
        "https://survey.example/",
    ]
    told = CliRunner().invoke(app, [*words, "--json"])
    assert told.exit_code == 0, told.output
    answer = json.loads(told.stdout)
    page = (tmp_path / "site" / "index.html").read_bytes()
    assert answer["sha256"] == hashlib.sha256(page).hexdigest()
    assert answer["origin"] == "https://survey.example"
    assert (answer["collection"], answer["sends_to"]) == (Collection.load(saved).digest, SHUFFLER)
    shown = CliRunner().invoke(app, words).stdout
    assert answer["sha256"] in shown
    assert "--origin https://survey.example" in shown
    assert (tmp_path / "site" / "index.html").read_bytes() == page


def test_the_command_draws_a_background(saved: Path, tmp_path: Path) -> None:
    way = {"type": "LineString", "coordinates": [[7.36, 46.91], [7.50, 46.98]]}
    (tmp_path / "ways.geojson").write_text(json.dumps(way))
    words = [
        "join-page",
        str(saved),
        "--output",
        str(tmp_path / "site"),
        "--background",
        str(tmp_path / "ways.geojson"),
    ]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert re.search(
        r'<path class="ways" d="M[\d. ]+"/>', (tmp_path / "site" / "index.html").read_text()
    )


def test_the_command_names_towns_on_the_map(saved: Path, tmp_path: Path) -> None:
    words = ["join-page", str(saved), "--output", str(tmp_path / "site"), "--background", "places"]
    assert CliRunner().invoke(app, words).exit_code == 0
    page = (tmp_path / "site" / "index.html").read_text()
    assert re.search(
        r'<text class="town" x="[\d.]+" y="[\d.]+" font-size="[\d.]+">Bern</text>', page
    )
    assert "GeoNames (CC BY 4.0)" in page


def test_the_command_refuses_in_a_sentence_and_writes_nothing(tmp_path: Path) -> None:
    hadamard = load_task(
        Histogram(Categories(["a", "b", "c", "d"])),
        frequencies(HadamardResponse(4, 2.0)),
        1.0,
        40.0,
    )
    collection_of(hadamard).save(tmp_path / "hadamard.json")
    collection_of(tasks()["k-ary"]).save(tmp_path / "kary.json")
    lie = json.loads((tmp_path / "kary.json").read_text())
    lie["recipe"]["randomizer"]["keep"] = str(2**63 - 3)
    lie["recipe"]["randomizer"]["other"] = "1"
    (tmp_path / "lie.json").write_text(json.dumps(lie))
    for file, more, why in (
        ("hadamard.json", [], "cannot be joined from a browser"),
        ("lie.json", [], "recipe of this collection is not that of its task"),
        ("kary.json", ["--origin", "survey.example"], "--origin must be an address"),
        ("kary.json", ["--background", "x.geojson"], "--background is for maps"),
    ):
        told = CliRunner().invoke(
            app, ["join-page", str(tmp_path / file), "--output", str(tmp_path / "site"), *more]
        )
        assert told.exit_code == 2, told.output
        assert why in " ".join(told.output.split()), told.output
    assert not (tmp_path / "site").exists()
