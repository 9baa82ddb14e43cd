"""Commands of the demonstration issuer, and of a collection whose people it admits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.collection.postgres_pair import free_port
from tests.collection.running import Running, running
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection


def invoke(*words: object, code: int = 0) -> str:
    shown = CliRunner().invoke(app, [str(word) for word in words])
    assert shown.exit_code == code, shown.output
    return shown.output


@contextmanager
def issuer_process(folder: Path, port: int) -> Iterator[None]:
    words = ["issuer", "serve", str(folder), "--listen", f"127.0.0.1:{port}", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "metricshuffle", *words], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        listening = json.loads(process.stdout.readline())["listening"]
        assert listening == f"http://127.0.0.1:{port}"
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_new_issuer_has_a_public_file_and_tickets(tmp_path: Path) -> None:
    url = "https://issuer.example/token-request"
    options = ["--url", url, "--tickets", "5", "--tickets-file", tmp_path / "tickets"]
    assert "demonstrations only" in invoke("issuer", "new", tmp_path / "a", *options)
    public = json.loads((tmp_path / "a" / "issuer.json").read_text())
    assert (public["url"], public["name"]) == (url, "demonstration issuer")
    assert len(set((tmp_path / "tickets").read_text().split())) == 5
    assert "never replaced" in invoke("issuer", "new", tmp_path / "b", *options, code=2)
    options[-1] = tmp_path / "more"
    assert "a key of its own" in invoke("issuer", "new", tmp_path / "a", *options, code=2)
    assert not (tmp_path / "more").exists()
    assert "without a slash" in invoke(
        "issuer", "new", tmp_path / "c", "--url", "issuer", *options[2:], code=2
    )


def test_an_issuer_belongs_to_admission_by_tokens(tmp_path: Path) -> None:
    common = ["collection", "open", "plan.json", "--server", "http://127.0.0.1:1", "--analyst", "a"]
    common += ["--closes", "1h", "--colluders", "0", "--output", str(tmp_path / "c.json")]
    load_task("sum in shares").save(tmp_path / "plan.json")
    common[2] = str(tmp_path / "plan.json")
    for more in (["--admission", "tokens"], ["--issuer", str(tmp_path / "issuer.json")]):
        assert "belong together" in invoke(*common, *more, code=2)


def open_by_tokens(shuffler: Running, folder: Path, port: int) -> list[str]:
    """Open a collection by the commands; return its tickets."""
    url = f"http://127.0.0.1:{port}/token-request"
    options = ["--url", url, "--tickets", 6, "--tickets-file", folder / "tickets"]
    invoke("issuer", "new", folder / "issuer", *options)
    load_task("sum in shares").save(folder / "plan.json")
    options = ["--server", shuffler.url, "--keys", shuffler.keys, "--closes", "1h"]
    options += ["--analyst", AnalystKey.new().public, "--colluders", 0, "--delay", "1s"]
    options += ["--output", folder / "collection.json", "--admission", "tokens"]
    shown = invoke(
        *("collection", "open", folder / "plan.json", *options),
        *("--issuer", folder / "issuer" / "issuer.json"),
    )
    assert "learns who takes part" in shown
    return (folder / "tickets").read_text().split()


@pytest.mark.thorough
def test_people_take_part_with_tokens(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "s", f"sqlite:///{tmp_path}/x.db") as shuffler:
        tickets = open_by_tokens(shuffler, tmp_path, port)
        collection = Collection.load(tmp_path / "collection.json")
        submit = ["submit", tmp_path / "collection.json", "--believe"]
        assert "cannot be reached" in invoke(
            *submit, "--value", 7, "--ticket", tickets[0], "--patience", 0, code=2
        )
        with issuer_process(tmp_path / "issuer", port):
            assert "learns that you take part" in invoke(
                *submit, "--value", 7, "--ticket", tickets[0]
            )
            ask = ["--ask-token", "--user", "bo", "--ticket", tickets[1]]
            assert "Your token is in" in invoke(*submit, *ask)
            assert "does not know this ticket" in invoke(
                *submit, "--value", 7, "--user", "eve", "--ticket", "ab" * 16, code=2
            )
        assert "is stored" in invoke(*submit, "--value", 3, "--user", "bo")
        (tmp_path / "values.csv").write_text("v\n1\n2\n")
        (tmp_path / "more").write_text("\n".join(tickets[2:]))
        with issuer_process(tmp_path / "issuer", port):
            many = [tmp_path / "values.csv", "--column", "v", "--ticket-file", tmp_path / "more"]
            assert "2 of 2 reports are stored" in invoke(*submit, *many)
        assert shuffler.operator.status(collection.digest)["reports"] == 4
