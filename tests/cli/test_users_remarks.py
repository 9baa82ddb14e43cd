"""`metricshuffle users run`: places and their unit, and what it says about ways and options that were not used."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from metricshuffle.cli.users_run import _remarks
from metricshuffle.planning.user_plan import plan_users
from metricshuffle.planning.user_release import UserRelease
from metricshuffle.privacy.target import Target
from metricshuffle.queries.user_items import UserHistogram
from metricshuffle.spaces import Integers, Space, users_of

RUN = "users run visits.csv --user-column who --epsilon 1 --distance 1"
MAP = "--column lat --column lon --levels 2 --box 41.9 -72.1 42.1 -71.9"


@pytest.mark.parametrize("clamp", ["", " --clamp"])
@pytest.mark.parametrize(("place", "told"), [("95,-72", "95 is no latitude"), ("42,-190", "-190 is no longitude")])
def test_degrees_that_are_nowhere(terminal: Terminal, place: str, told: str, clamp: str) -> None:
    pytest.importorskip("pyproj")
    (terminal.folder / "odd.csv").write_text(f"who,lat,lon\na,42,-72\nb,{place}\n")
    sentence = terminal.refused(*f"users run odd.csv --user-column who {MAP} --epsilon 1 --distance 1{clamp}".split())
    assert "line 3" in sentence
    assert told in sentence
    assert "pass --clamp" not in sentence


def test_places_are_in_km_unless_told_otherwise(terminal: Terminal, visits: Path) -> None:
    pytest.importorskip("pyproj")
    line = f"users run {visits.name} --user-column who {MAP} --epsilon 1 --json --distance"
    left_out, metres = (UserRelease.from_json(terminal.typed(f"{line} {far}").stdout) for far in ("2", "2000 --unit m"))
    assert (left_out.query.unit, metres.query.unit) == ("km", "m")
    assert left_out.query.diameter == pytest.approx(metres.query.diameter / 1000.0)
    for command in ("compare", "run"):
        assert "km if left out" in " ".join(terminal.typed(f"users {command} --help").stdout.replace("│", " ").split())


NOBODY = "Nobody has to be trusted for this: item-wise is not offered: "


@pytest.mark.parametrize(
    ("more", "told", "untold"),
    [
        ("", (NOBODY + "shuffling hides with a delta",), ("--samples",)),
        ("--trusted nobody", (), (NOBODY, "--samples")),
        ("--trusted curator", (), (NOBODY, "--samples")),
        ("--delta 1e-6", (NOBODY + "it needs a number of items", "--items", "--samples"), ("was not used",)),
        ("--delta 1e-6 --samples 3", (NOBODY + "drawing samples", "--flat", "--samples 3 was not used: tree-laplace"), ()),
        ("--query mean --samples 3", ("--samples 3 was not used: laplace",), (NOBODY,)),
    ],
)
def test_what_was_allowed_and_not_needed_is_told(
    terminal: Terminal, visits: Path, more: str, told: tuple[str, ...], untold: tuple[str, ...]
) -> None:
    line = f"{RUN} --column n --low 0 --high 20 {more}"
    result = terminal.typed(line)
    assert result.exit_code == 0, result.output
    after = result.stdout.partition("Replacing all of one user's items")[2]
    assert all(words in after for words in told)
    assert not any(words in result.output for words in untold)
    as_json = terminal.typed(f"{line} --json")
    UserRelease.from_json(as_json.stdout)
    assert all(words in as_json.stderr for words in told)


def test_samples_that_are_drawn_need_no_remark() -> None:
    asked, target = UserHistogram(users_of(Space(Integers(0, 3)), None)), Target(1.0, 1e-6, 1, "flat")
    drawn, unused = (plan_users(asked, target, 60, samples=4, methods=[name]) for name in ("item-wise", "tree-laplace"))
    assert _remarks(drawn) == []
    assert len(_remarks(unused)) == 1
