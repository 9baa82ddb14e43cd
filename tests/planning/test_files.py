"""Files that appear whole or not at all, and are refused when they are cut or belong elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metricshuffle.errors import InputError, PlanError
from metricshuffle.planning import Plan, Target, plan
from metricshuffle.wire.reports import read_reports, read_shuffled, record_layout, whole_file, write_reports, write_shuffled
from metricshuffle.protocols import Centroid, Mean, Shuffled
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Grid, Integers

TARGET = Target(1.0, 1e-4, 3)
PLANS: dict[str, Plan] = {}


def plan_for(kind: str) -> Plan:
    if kind not in PLANS:
        choices: dict[str, Any] = {
            "unary": {"encoding": "unary", "protocols": ["polya-shuffle"]},
            "shares": {"encoding": "modular", "protocols": ["polya-shuffle"]},
            "aggregator": {"encoding": "modular", "protocols": ["polya-shuffle"], "transport": "aggregator"},
        }[kind]
        query = Centroid(Grid(9, 9)) if kind == "shares" else Mean(Integers(0, 9))
        PLANS[kind] = plan(query, TARGET, 20, **choices)
    return PLANS[kind]


def values_for(one: Plan, people: int = 20) -> Any:
    return np.stack([np.arange(people) % 9] * 2, axis=1) if one.query.axes == 2 else np.arange(people) % 10


@pytest.mark.parametrize("kind", ["unary", "shares", "aggregator"])
def test_the_whole_chain_through_files(kind: str, tmp_path: Path) -> None:
    one = plan_for(kind)
    one.save(str(tmp_path / "plan.json"))
    one = Plan.load(str(tmp_path / "plan.json"))
    reports = one.randomize(values_for(one), Randomness.seeded(3))
    batches = [type(reports)(one.digest, part, False) for part in np.array_split(reports.records, 3)]
    assert write_reports(one, tmp_path / "reports", iter(batches)) == 20
    back = list(read_reports(one, tmp_path / "reports"))
    assert np.array_equal(np.concatenate([batch.records for batch in back]), reports.records)
    assert not any(batch.unsafe_seeded for batch in back)
    shuffled = one.shuffle(back, Randomness.system())
    write_shuffled(tmp_path / "shuffled", shuffled)
    again = read_shuffled(one, tmp_path / "shuffled")
    assert again.reports == 20
    assert one.estimate(again).value == one.estimate(shuffled).value
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "reports", "shuffled"]


def test_seeded_reports_stay_marked(tmp_path: Path) -> None:
    one = plan_for("unary")
    write_reports(one, tmp_path / "reports", iter([one.randomize(values_for(one), Randomness.seeded(3))]))
    assert all(batch.unsafe_seeded for batch in read_reports(one, tmp_path / "reports"))
    write_shuffled(tmp_path / "shuffled", one.shuffle(read_reports(one, tmp_path / "reports")))
    assert read_shuffled(one, tmp_path / "shuffled").unsafe_seeded


@pytest.mark.parametrize("kind", ["unary", "shares"])
def test_cut_files_are_refused_wherever_they_are_cut(kind: str, tmp_path: Path) -> None:
    one = plan_for(kind)
    write_reports(one, tmp_path / "reports", iter([one.randomize(values_for(one), Randomness.seeded(3))]))
    whole = (tmp_path / "reports").read_bytes()
    layout, width = record_layout(one)
    size = layout.itemsize * width
    body = whole.index(b"\n") + 1
    for kept in [*range(body, len(whole), 7), len(whole) - 1, len(whole) - size, len(whole) - 2 * size, body - 5, 0]:
        (tmp_path / "cut").write_bytes(whole[:kept])
        with pytest.raises(PlanError):
            list(read_reports(one, tmp_path / "cut"))
    (tmp_path / "cut").write_bytes(whole + b"\0")
    with pytest.raises(PlanError, match="cut short or damaged"):
        list(read_reports(one, tmp_path / "cut"))
    write_shuffled(tmp_path / "shuffled", one.shuffle(read_reports(one, tmp_path / "reports")))
    whole = (tmp_path / "shuffled").read_bytes()
    for kept in {0, 10, len(whole) // 2, len(whole) - 8} if kind == "shares" else {0, 10, len(whole) - 3}:
        (tmp_path / "cut").write_bytes(whole[:kept])
        with pytest.raises(PlanError):
            read_shuffled(one, tmp_path / "cut")


def test_files_of_other_plans_and_other_things(tmp_path: Path) -> None:
    one, other = plan_for("unary"), plan_for("shares")
    write_reports(one, tmp_path / "reports", iter([one.randomize(values_for(one), Randomness.seeded(3))]))
    with pytest.raises(PlanError, match="another plan"):
        list(read_reports(other, tmp_path / "reports"))
    with pytest.raises(PlanError, match="another plan"):
        write_reports(other, tmp_path / "never", iter(read_reports(one, tmp_path / "reports")))
    assert not (tmp_path / "never").exists()
    with pytest.raises(PlanError, match="not a shuffled file"):
        read_shuffled(one, tmp_path / "reports")
    with pytest.raises(InputError, match="cannot read"):
        list(read_reports(one, tmp_path / "nothing"))
    with pytest.raises(InputError, match="cannot read"):
        read_shuffled(one, tmp_path / "nothing")
    with pytest.raises(InputError, match="nothing to report"):
        write_reports(one, tmp_path / "empty", iter([]))
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(
    "damage",
    [{"axes": [10**30]}, {"axes": [-1]}, {"axes": [True]}, {"axes": ["many"]}, {"axes": [{"residues": -1}]}, {"axes": [{}]}, {"axes": 3},
     {"axes": []}, {"axes": [1, 2]}, {"reports": 10**40}, {"reports": -1}, {"reports": 20.0}, {"reports": None}, {"unsafe_seeded": "no"}],
)  # fmt: skip
def test_damaged_counts_are_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    one = plan_for("unary")
    header = {"format": "metricshuffle-shuffled/1", "plan": one.digest, "reports": 20, "unsafe_seeded": False, "axes": [100]}
    (tmp_path / "file").write_text(json.dumps(header) + "\n")
    read_shuffled(one, tmp_path / "file")
    (tmp_path / "file").write_text(json.dumps(header | damage) + "\n")
    with pytest.raises(PlanError):
        one.estimate(read_shuffled(one, tmp_path / "file"))


def test_contents_of_another_transport_are_refused() -> None:
    shares, summed = plan_for("shares"), plan_for("aggregator")
    some = np.zeros(5, dtype=np.uint64)
    for one, content in ((shares, (3, 4)), (shares, (some, some)), (summed, (some,)), (plan_for("unary"), (some,))):
        with pytest.raises(PlanError):
            one.estimate(Shuffled(one.digest, 20, content))


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")

    def interrupted() -> None:
        with whole_file(tmp_path / "old") as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "old").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    with pytest.raises(InputError, match="cannot write"), whole_file(tmp_path / "nowhere" / "file"):
        pass
