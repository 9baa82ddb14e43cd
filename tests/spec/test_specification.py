"""The specification: its numbers, its vectors, and implementations that follow it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.collection.issuers import issuer_terms, new_token
from tests.collection.java import JVM, BuiltClient, java  # noqa: F401 - a fixture
from tests.collection.javascript import javascript, run  # noqa: F401 - a fixture
from tests.collection.running import Running, load_task, new_tickets, running
from tests.spec.standalone_reader import differences
from tools.specification_vectors import texts

from metricshuffle.cli.command_group import app
from metricshuffle.collection.conformance.client_checks import check_client
from metricshuffle.collection.conformance.misbehaving_shuffler import misbehaving_shuffler
from metricshuffle.collection.conformance.requirements import (
    REQUIREMENTS,
    ConformanceLine,
    NotChecked,
    expect,
    lines_of,
)
from metricshuffle.collection.conformance.server_checks import check_server
from metricshuffle.collection.conformance.vector_checks import check_vectors
from metricshuffle.errors import InputError

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "docs" / "spec"
VECTORS = SPEC / "vectors"
PAGES = ("boxes.md", "collections.md", "calls.md", "clients.md", "tokens.md", "oblivious.md")


def results(lines: Iterable[ConformanceLine]) -> dict[str, str]:
    return {line.requirement.number: line.result for line in lines}


def vectors_of(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return read


def failed(lines: Iterable[ConformanceLine]) -> list[str]:
    return [
        f"{line.requirement.number}: {line.detail}" for line in lines if line.result == "failed"
    ]


# Numbers


def paragraphs(page: str) -> list[str]:
    text = re.sub(r"(?s)```.*?```", "", (SPEC / page).read_text(encoding="utf-8"))
    return [" ".join(part.split()) for part in text.split("\n\n")]


def test_every_must_has_a_number_and_the_sentence_of_the_program() -> None:
    numbered = {}
    for page in PAGES:
        for part in paragraphs(page):
            match = re.fullmatch(r"\*\*([A-Z][0-9]+)\.\*\* (.*)", part)
            if match:
                assert match[1] not in numbered
                numbered[match[1]] = match[2]
            else:
                assert "MUST" not in part, f"{page}: a MUST without a number: {part}"
    assert numbered == {number: each.text for number, each in REQUIREMENTS.items()}
    assert all("MUST" in text for text in numbered.values())


def test_what_cannot_be_checked_from_outside_is_listed() -> None:
    unchecked = [number for number, each in REQUIREMENTS.items() if not each.modes]
    assert unchecked == ["K5", "K6", "R5", "R6", "R8", "L9", "L10"]
    assert "(R5, R6, R8)" in (SPEC / "index.md").read_text()
    assert "(K5, K6)" in (SPEC / "index.md").read_text()


def test_a_line_is_ok_only_if_every_check_that_ran_passed() -> None:
    def skip() -> None:
        raise NotChecked("something is missing.")

    def passing() -> None:
        expect(True, "")

    def failing() -> None:
        expect(False, "observed.")

    checks = [("B1", passing), ("B1", failing), ("B2", skip), ("B2", passing), ("B3", skip)]
    lines = {line.requirement.number: line for line in lines_of("vectors", checks)}
    assert (lines["B1"].result, lines["B1"].detail) == ("failed", "observed.")
    assert lines["B2"].result == "ok"
    assert (lines["B3"].result, lines["B3"].detail) == ("not run", "something is missing.")
    assert lines["B4"].result == "not run"
    assert "H1" not in lines


# Vectors


def test_the_vectors_are_those_that_the_tool_makes() -> None:
    assert {path.name for path in VECTORS.iterdir()} == set(texts())
    for name, text in texts().items():
        assert (VECTORS / name).read_text(encoding="utf-8") == text


def test_the_package_follows_the_vectors() -> None:
    assert set(results(check_vectors(VECTORS)).values()) == {"ok"}


def test_a_reader_that_knows_the_specification_only_follows_the_vectors() -> None:
    count, different = differences(VECTORS)
    assert (different, count > 60) == ([], True)
    tree = ast.parse((ROOT / "tests" / "spec" / "standalone_reader.py").read_text())
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    own = {name for name in imported if re.match("metricshuffle|tests|tools", name)}
    assert own == set()


def _flip(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def _damage(folder: Path, name: str, change: Callable[[Any], None]) -> Path:
    folder.mkdir()
    for path in VECTORS.iterdir():
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.stem == name:
            change(content)
        (folder / path.name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def _swap_first_two(items: list[Any]) -> None:
    items[0], items[1] = items[1], items[0]


DAMAGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "B1": ("boxes", lambda all_: all_["cases"][0].update(report=_flip(all_["cases"][0]["report"]))),
    "B2": ("boxes", lambda all_: all_["cases"][0]["layers"][0].update(info="00")),
    "B5": ("boxes", lambda all_: all_["cases"][1].update(ticket="00" * 16)),
    "B8": (
        "boxes",
        lambda all_: all_["cases"][0]["refused"][0].update(report=all_["cases"][0]["report"]),
    ),
    "B9": ("boxes", lambda all_: all_["cases"][3]["layers"][1].update(info="00")),
    "P1": ("payloads", lambda all_: all_["cases"][0]["numbers"].reverse()),
    "P2": ("payloads", lambda all_: _swap_first_two(all_["cases"][1]["payloads"])),
    "P3": ("payloads", lambda all_: _swap_first_two(all_["cases"][4]["payloads"])),
    "C1": ("collections", lambda all_: all_["valid"][0].update(digest="0" * 64)),
    "C5": (
        "collections",
        lambda all_: all_["refused"][-2].update(
            served=all_["valid"][0]["served"], digest=all_["valid"][0]["digest"]
        ),
    ),
    "C7": (
        "collections",
        lambda all_: all_["refused"][0].update(
            served=all_["valid"][2]["served"], digest=all_["valid"][2]["digest"]
        ),
    ),
    "C8": (
        "collections",
        lambda all_: next(case for case in all_["refused"] if case["requirement"] == "C8").update(
            served=all_["valid"][3]["served"], digest=all_["valid"][3]["digest"]
        ),
    ),
    "K1": ("tokens", lambda all_: all_["cases"][1].update(url="http://127.0.0.1:8082/t")),
    "K2": (
        "tokens",
        lambda all_: all_["cases"][0]["refused"][2].update(token=all_["cases"][0]["token"]),
    ),
    "K3": ("tokens", lambda all_: all_["cases"][0].update(salt="00" * 48)),
    "K4": (
        "tokens",
        lambda all_: all_["cases"][0].update(wrong_response=all_["cases"][0]["response"]),
    ),
    "R1": ("outputs", lambda all_: all_["outputs"][0].update(output="")),
    "R2": ("outputs", lambda all_: all_["outputs"][1].update(left_out=1)),
    "R3": ("outputs", lambda all_: all_["tokens"][0].update(token="0" * 64)),
    "R4": ("outputs", lambda all_: all_["countersignatures"][0].update(countersignature="00")),
    "R7": ("outputs", lambda all_: _swap_first_two(all_["piles"][1]["dummies"])),
    "O1": (
        "oblivious",
        lambda all_: all_["refused"][0].update(configuration=all_["capsules"][1]["configuration"]),
    ),
    "O2": ("oblivious", lambda all_: all_["capsules"][0].update(secret="00" * 16)),
    "O4": ("oblivious", lambda all_: all_["messages"][0].update(content="00")),
    "O5": (
        "oblivious",
        lambda all_: all_["forged"][0].update(answer=all_["capsules"][1]["answer"]),
    ),
}


@pytest.mark.parametrize("number", DAMAGES)
def test_damaged_vectors_fail_in_both_readers(number: str, tmp_path: Path) -> None:
    name, change = DAMAGES[number]
    if number == "P1":  # reversed numbers of one group would be the same payloads

        def change(all_: Any) -> None:
            all_["cases"][0]["numbers"][0] = "5"

    folder = _damage(tmp_path / "vectors", name, change)
    assert results(check_vectors(folder))[number] == "failed"
    try:
        _, different = differences(folder)
    except Exception as refusal:  # the reader stops at the first damage of a valid vector
        different = [repr(refusal)]
    assert different


def test_the_command_prints_a_line_for_each_number(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    shown = CliRunner().invoke(app, ["conform", "vectors", str(VECTORS)])
    numbers = [line.split()[0] for line in shown.output.splitlines()]
    expected = [number for number, each in REQUIREMENTS.items() if "vectors" in each.modes]
    assert (shown.exit_code, numbers) == (0, expected)
    name, change = DAMAGES["R3"]
    folder = _damage(tmp_path / "vectors", name, change)
    shown = CliRunner().invoke(app, ["conform", "vectors", str(folder), "--json"])
    assert shown.exit_code == 1
    [line] = [line for line in json.loads(shown.output)["lines"] if line["result"] == "failed"]
    assert line["requirement"]["number"] == "R3"


def test_a_folder_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="docs/spec/vectors"):
        check_vectors(tmp_path)


# Servers


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterable[Running]:
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as made:
        yield made


@pytest.mark.thorough
def test_this_shuffler_conforms(shuffler: Running) -> None:
    """Open with tickets and without, closed, and not open yet; together every number is checked."""
    tickets = new_tickets(30)
    ticketed = shuffler.opened(load_task(3), tickets=tickets)
    closed = shuffler.opened(load_task(2))
    shuffler.operator.abort(closed.digest, "enough")
    early = shuffler.opened(load_task(4), opens="2080-01-01T00:00:00Z", lasts=3_000_000_000)
    plain = shuffler.opened(load_task(5), oblivious=True)
    by_tokens = shuffler.opened(load_task(7), **issuer_terms())
    tokens = [new_token(by_tokens) for _ in range(2)]
    runs = [
        list(check_server(ticketed.url, ticketed, is_sending=True, tickets=tickets[:2])),
        list(check_server(closed.url, closed)),
        list(check_server(early.url, early)),
        list(check_server(plain.url, plain, is_sending=True)),
        list(check_server(by_tokens.url, by_tokens, is_sending=True, tickets=tokens)),
    ]
    assert [failed(lines) for lines in runs] == [[]] * 5
    checked = {number for lines in runs for number, each in results(lines).items() if each == "ok"}
    expected = {number for number, each in REQUIREMENTS.items() if "server" in each.modes}
    assert expected - checked <= {"H12"}
    assert shuffler.operator.status(plain.digest)["reports"] == 3  # one of them in a capsule
    assert shuffler.operator.status(ticketed.digest)["reports"] == 2
    quiet = list(check_server(plain.url, plain))
    assert (results(quiet)["H9"], results(quiet)["H5"]) == ("not run", "ok")
    assert shuffler.operator.status(plain.digest)["reports"] == 3  # one of them in a capsule


@pytest.mark.thorough
def test_a_server_that_takes_everything_does_not_conform(shuffler: Running) -> None:
    collection = shuffler.opened(load_task(6))
    with misbehaving_shuffler() as bad:
        bad.served = collection.served
        url = f"{bad.url}/v1/collections/{collection.digest}"
        lines = list(check_server(url, collection, is_sending=True))
    assert {"H2", "H4", "H5", "H6", "H7", "H8", "H11", "R3"} <= {
        number for number, each in results(lines).items() if each == "failed"
    }


# Clients


@pytest.mark.thorough
def test_the_python_client_conforms() -> None:
    words = [sys.executable, "-m", "metricshuffle", "submit", "{address}", "--digest", "{digest}"]
    more = ["--outbox", "{outbox}", "--value", "{value}", "--patience", "30"]
    lines = list(check_client([*words, *more]))
    assert failed(lines) == []
    assert set(results(lines).values()) == {"ok"}


@pytest.mark.thorough
def test_the_javascript_client_conforms(javascript: Path) -> None:  # noqa: F811
    script = str(javascript / "test" / "take_part.mjs")
    lines = list(check_client(["node", script, "{address}", "{digest}", "{outbox}", "{value}"]))
    assert failed(lines) == []
    assert set(results(lines).values()) == {"ok"}


@pytest.mark.thorough
def test_the_javascript_client_follows_the_vectors(
    javascript: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPEC_VECTORS", str(VECTORS))
    published = ROOT / "tests" / "collection" / "rfc_token_vectors.json"
    monkeypatch.setenv("TOKEN_VECTORS", str(published))
    words = [f"test/{name}.test.mjs" for name in ("spec", "tokens", "oblivious")]
    shown = run("node", "--test", *words, cwd=javascript)
    assert "# pass 17" in shown
    assert "# skipped 0" in shown


@pytest.mark.thorough
def test_the_java_client_conforms(java: BuiltClient) -> None:  # noqa: F811
    options = ["--patience", "20", "--digest", "{digest}", "--outbox", "{outbox}"]
    command = [*JVM, "-jar", str(java.jar), *options, "{address}", "{value}"]
    lines = list(check_client(command))
    assert failed(lines) == []
    assert set(results(lines).values()) == {"ok"}


@pytest.mark.thorough
def test_the_java_client_follows_the_vectors(java: BuiltClient, tmp_path: Path) -> None:  # noqa: F811
    """Boxes with the ephemeral keys of the vectors byte for byte, payloads, and collections."""
    requests: list[dict[str, Any]] = []
    expected: list[Any] = []
    for case in vectors_of("boxes")["cases"]:
        payloads = iter(case["payloads"])
        each = case["messages"] // case.get("piles", case["messages"])
        for count, box in enumerate(case["sealed"]):
            layer = case["layers"][box["layer"]]
            info = layer["info"]
            if case.get("piles") and box["layer"] < case["hops"]:
                pile = count // case["hops"] // each
                info = info[:-8] + pile.to_bytes(4, "little").hex()
            if box["layer"] == 0:
                plain = next(payloads)
            elif box["layer"] == len(case["layers"]) - 1:
                plain = case["ticket"] + "".join(case["boxes"])
            else:
                plain = expected[-1]
            keys = {"key": layer["public"], "private": box["ephemeral"], "public": box["box"][:64]}
            requests.append({"make": "box", "plain": plain, "info": info, "associated": "", **keys})
            expected.append(box["box"])
    for case in vectors_of("payloads")["cases"]:
        requests.append({"make": "payloads", "recipe": case["recipe"], "numbers": case["numbers"]})
        expected.append(case["payloads"])
    served = [*vectors_of("collections")["valid"], *vectors_of("collections")["refused"]]
    for case in served:
        content = case["served"].encode().hex()
        requests.append({"make": "collection", "served": content, "digest": case["digest"]})
    answers = java.ask(tmp_path, *requests)
    assert answers[: len(expected)] == expected
    for case, answer in zip(served, answers[len(expected) :], strict=True):
        if "requirement" in case or '"issuer"' in case["served"]:  # it asks no issuer for tokens
            assert isinstance(answer, str), case["name"]
        else:
            assert answer[3] == case["report_size"]
    assert len(expected) > 15


CARELESS = """
import secrets, sys, urllib.request
address, digest, outbox, value = sys.argv[1:]
served = urllib.request.urlopen(f"{address}/v1/collections/{digest}").read()
for _ in range(3):
    body = secrets.token_bytes(500)
    try:
        urllib.request.urlopen(f"{address}/v1/collections/{digest}/reports", data=body)
    except OSError:
        pass
"""


@pytest.mark.thorough
def test_a_careless_client_does_not_conform(tmp_path: Path) -> None:
    """It pins nothing, randomizes again, waits for nothing, and always says that it is stored."""
    script = tmp_path / "careless.py"
    script.write_text(CARELESS)
    words = [sys.executable, str(script), "{address}", "{digest}", "{outbox}", "{value}"]
    lines = list(check_client(words))
    met = {number for number, each in results(lines).items() if each == "ok"}
    assert met <= {"L7"}  # urllib follows no redirect of a POST


def test_a_command_without_its_places_is_refused() -> None:
    with pytest.raises(InputError, match=re.escape("{digest}, {outbox}, {value} is missing")):
        check_client(["submit", "{address}"])
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "spec" / "standalone_reader.py"), str(VECTORS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "failed: none" in done.stdout) == (0, True)
