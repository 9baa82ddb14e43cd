"""A task is not believed: every lie about its noise or its promises is found by recomputing, whoever signed it anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from tests.wire.kinds import KINDS, load_task, signed, stored

from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.errors import MetricShuffleError, NotCertified, PlanError
from metricshuffle.models import content_digest
from metricshuffle.tasks import Task

Change = Callable[[Any], Any]
REFUSED = "claims more than is true|cannot be certified"


def half(number: float) -> float:
    return number / 2


def times(factor: float) -> Change:
    return lambda number: type(number)(number * factor)


def to(value: Any) -> Change:
    return lambda _: value


def changed(kind: str, *changes: tuple[str, Change]) -> str:
    """The text of a task in which the field at each path (`guarantee.epsilon`) was changed, with a digest that matches."""
    content = stored(kind)
    for path, change in changes:
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
        place: Any = content
        for step in steps:
            place = place[step]
        place[last] = change(place[last])
    return signed(content)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_planned_is_certified_again_from_its_file(kind: str) -> None:
    """A task verifies after it was written and read, and so does one that was signed anew without a change."""
    assert signed(stored(kind)) == load_task(kind).to_json()
    Task.from_json(load_task(kind).to_json()).verify()


NOISE: dict[str, tuple[str, str, Change]] = {
    "a larger rate": ("unary sum", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate of bounded noise": ("bounded sum", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate in shares": ("sum in shares", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate for an aggregator": ("aggregated sum", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate of one report": ("local sum", "protocol.randomizers.0.rate", times(1.001)),
    "a larger rate of a curator": ("curator's sum", "protocol.randomizers.0.rate", times(1.001)),
    "a smaller shape": ("unary sum", "protocol.randomizers.0.shape", to("1/31")),
    "a smaller shape in shares": ("sum in shares", "protocol.randomizers.0.shape", to("1/31")),
    "a smaller radius": ("unary sum", "protocol.randomizers.0.radius", times(0.5)),
    "a smaller radius of bounded noise": ("bounded sum", "protocol.randomizers.0.radius", times(0.5)),
    "a smaller flip": ("flipped bits", "protocol.randomizers.0.flip", lambda flip: flip - 2**-8),
    "fewer shares": ("sum in shares", "protocol.shares", lambda shares: shares - 2),
    "a larger modulus for the same shares": ("sum in shares", "protocol.modulus", times(2**20)),
    "a larger rate after rounding": ("mean of real numbers", "protocol.randomizers.0.rate", times(1.02)),
    "finer rounding": ("mean of real numbers", "protocol.randomizers.0.granularity", lambda grain: grain // 2),
    "a hat with a larger rate": ("witch hat", "protocol.randomizer.rate", times(1.05)),
    "more epsilon for a label": ("labels", "protocol.randomizer.epsilon", times(1.02)),
    "more epsilon for a bin": ("line", "protocol.randomizer.epsilon", times(1.02)),
    "more epsilon for a cell": ("map", "protocol.randomizer.epsilon", times(1.02)),
    "more epsilon for an item": ("users' items", "protocol.randomizer.epsilon", times(1.02)),
    "a smaller item rate": ("users' items", "protocol.item_rate", times(0.9)),
    "more samples": ("users' samples", "protocol.items", to(6)),
    "a smaller scale": ("users' histogram", "protocol.noise.scale", times(0.999)),
    "a smaller scale of a mean": ("users' mean", "protocol.noise.scale", times(0.999)),
    "a smaller scale of a curator": ("curator's histogram", "protocol.noise.scale", times(0.999)),
    "a larger rate of vectors": ("vectors of labels", "protocol.factor", times(1.001)),
    "a larger rate of a map": ("vectors of a map", "protocol.factor", times(1.001)),
    "a larger rate of users' vectors": ("users' vectors", "protocol.factor", times(1.001)),
    "a larger rate of a curator's vectors": ("curator's vectors", "protocol.factor", times(1.001)),
    "noise of more people than are honest": ("vectors of a line", "protocol.sharers", times(2)),
    "fewer shares of vectors": ("vectors of a line", "protocol.shares", lambda shares: shares - 2),
    "more coordinates in a message": ("vectors of a line", "protocol.together", lambda together: together + 20),
    "a larger modulus for the same vectors": ("vectors of a line", "protocol.modulus", times(2**20)),
    "a floor that hides less": ("vectors of labels", "protocol.floor.epsilon", times(1.02)),
    "other features": ("vectors of a line", "protocol.features.width", lambda width: width + 1),
    "fewer items in a vector": ("users' vectors", "protocol.most_items", lambda most: most + 20),
    "another step": ("unary sum", "protocol.step", to(2.0)),
    "another step of real numbers": ("mean of real numbers", "protocol.step", times(2.0)),
    "another span": ("unary sum", "protocol.randomizers.0.span", to(10)),
    "a wider domain": ("unary sum", "query.domain.high", to(40)),
    "another label": ("labels", "query.domain.labels", lambda labels: [*labels, "milk"]),
    "more items": ("users' items", "query.people.items", to(4)),
    "nobody to hide among": ("unary sum", "protocol.trusted", to("nobody")),
    "an unseen curator": ("labels", "protocol.trusted", to("curator")),
    "a shuffler that adds nothing": ("curator's sum", "protocol.trusted", to("nobody")),
    "fewer honest people": ("unary sum", "honest", to(20)),
    "fewer honest users": ("users' items", "honest", to(1500)),
    "one more round": ("local sum", "rounds", to(2)),
    "one more round of labels": ("labels", "rounds", to(2)),
}  # fmt: skip


@pytest.mark.parametrize("lie", NOISE)
def test_noise_that_hides_less_than_is_claimed(lie: str) -> None:
    """Parameters of the mechanism that were changed, with the claims left as they are."""
    kind, path, change = NOISE[lie]
    with pytest.raises(NotCertified, match=REFUSED):
        Task.from_json(changed(kind, (path, change))).verify()


CLAIMS: dict[str, tuple[tuple[str, ...], str, Change]] = {
    "a smaller epsilon": (KINDS, "guarantee.epsilon", times(0.9)),
    "a smaller delta": (("unary sum", "sum in shares", "flipped bits", "labels", "map", "witch hat"), "guarantee.delta", times(1e-6)),
    "no delta": (("unary sum", "bounded sum", "sum in shares", "flipped bits", "labels", "users' items"), "guarantee.delta", to(0.0)),
    "a larger distance": (("unary sum", "sum in shares", "local sum", "line", "map", "centroid", "users' mean"), "guarantee.distance",
                          times(1.25)),
    "people together": (("mean of real numbers", "labels", "map", "witch hat"), "guarantee.protects", to("people together")),
    "fewer honest reports": (("unary sum", "labels", "users' items"), "guarantee.trust.honest_reports", to(2)),
    "honest reports do not matter": (("unary sum", "labels"), "guarantee.trust.honest_reports", to(None)),
    "nobody is trusted": (("unary sum", "labels", "curator's sum"), "guarantee.trust.trusted", to("nobody")),
    "more rounds": (KINDS, "guarantee.rounds", to(3)),
    "in proportion": (("users' samples",), "guarantee.shape", to("linear")),
    "any number of items": (("users' items",), "guarantee.items", to("any")),
    "another unit": (("unary sum", "map"), "guarantee.unit", to("km")),
    "between something else": (("map", "mean of real numbers", "unary sum"), "guarantee.between", to("anything")),
    "words of its own": (KINDS, "guarantee.bound", to("exact). Nothing can ever be learnt (bound: exact")),
    "a smaller epsilon if it colludes": (tuple(kind for kind in KINDS if not kind.startswith("curator")), "if_shuffler_colludes.epsilon",
                                         times(0.98)),
    "an epsilon of what a curator sees": (("curator's sum", "curator's histogram"), "if_shuffler_colludes.epsilon", to(10.0)),
    "a smaller delta if it colludes": (("bounded sum", "users' items", "users' samples"), "if_shuffler_colludes.delta", half),
    "a larger distance if it colludes": (KINDS, "if_shuffler_colludes.distance", times(1.1)),
    "people together if it colludes": (("unary sum", "labels"), "if_shuffler_colludes.protects", to("people together")),
    "in proportion if it colludes": (("unary sum", "labels"), "if_shuffler_colludes.shape", to("linear")),
    "other words if it colludes": (("unary sum", "map"), "if_shuffler_colludes.bound", to("nothing to see here")),
    "more rounds if it colludes": (("unary sum", "labels", "users' items"), "if_shuffler_colludes.rounds", to(2)),
}  # fmt: skip


@pytest.mark.parametrize(("lie", "kind"), [(lie, kind) for lie, (kinds, _, _) in CLAIMS.items() for kind in kinds])
def test_claims_that_say_more_than_is_true(lie: str, kind: str) -> None:
    """Every field of both guarantees, changed in the direction that promises more, or something else."""
    _, path, change = CLAIMS[lie]
    with pytest.raises(NotCertified, match=REFUSED):
        Task.from_json(changed(kind, (path, change))).verify()


def test_the_argument_is_looked_for_once_and_only_for_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which bound decides takes as long as all the rest of a verification."""
    looks: list[float] = []
    decisive = BestBoundProfile.decisive

    def counted(self: BestBoundProfile, epsilon: float, *rest: Any) -> str:
        looks.append(epsilon)
        return decisive(self, epsilon, *rest)

    monkeypatch.setattr(BestBoundProfile, "decisive", counted)
    task, forged = Task.from_json(load_task("labels").to_json()), Task.from_json(changed("labels", ("guarantee.epsilon", times(0.9))))
    looks.clear()
    task.verify()
    assert len(looks) == 1
    with pytest.raises(NotCertified, match=REFUSED):
        forged.verify()
    assert len(looks) == 1


def test_all_rounds_belong_to_the_promise() -> None:
    """One round of noise does not keep the promise of two, though all places say two; two of noise keep it of one."""
    fewer = [(path, to(1)) for path in ("rounds", "guarantee.rounds", "if_shuffler_colludes.rounds")]
    Task.from_json(changed("two rounds", *fewer, ("if_shuffler_colludes.bound", to("exact")))).verify()
    more = [(path, to(2)) for path in ("rounds", "guarantee.rounds", "if_shuffler_colludes.rounds")]
    with pytest.raises(NotCertified, match=REFUSED):
        Task.from_json(changed("local sum", *more)).verify()


def test_fewer_honest_people_in_all_places_at_once() -> None:
    """Noise for thirty honest people does not keep the promise of twenty, though the claim says twenty."""
    with pytest.raises(NotCertified, match="is not what its noise gives; do not take part"):
        Task.from_json(changed("unary sum", ("honest", to(20)), ("guarantee.trust.honest_reports", to(20)))).verify()


@pytest.mark.parametrize(
    ("kind", "path", "change"),
    [
        ("unary sum", "guarantee.epsilon", times(1.1)),
        ("labels", "guarantee.delta", times(10.0)),
        ("unary sum", "guarantee.protects", to("one person")),
        ("unary sum", "if_shuffler_colludes.epsilon", times(1.1)),
        ("labels", "if_shuffler_colludes.epsilon", to(None)),
        ("unary sum", "if_shuffler_colludes.distance", times(0.6)),
        ("unary sum", "users", to(50)),
    ],
)
def test_a_task_may_promise_less_than_it_keeps(kind: str, path: str, change: Change) -> None:
    """Weaker claims are true: what is false would raise."""
    weaker = Task.from_json(changed(kind, (path, change)))
    weaker.verify()
    assert weaker.digest != load_task(kind).digest


@pytest.mark.parametrize(
    "words", ["kcal.\nVerified: nothing can be learnt", "kcal\x1b[8m", "kcal, and nothing else will ever be known " * 2]
)
def test_words_that_would_pass_for_a_promise(words: str) -> None:
    """Units, labels and names stand in what verify prints: line ends, control characters and whole sentences are refused."""
    everywhere = ("query.domain.unit", "guarantee.unit", "if_shuffler_colludes.unit")
    for text in (
        changed("unary sum", *((path, to(words)) for path in everywhere)),
        changed("unary sum", ("protocol.name", to(words))),
    ):
        with pytest.raises(NotCertified, match="could pass for something else where they are printed"):
            Task.from_json(text).verify()
    if "\n" in words:
        with pytest.raises(NotCertified, match="could pass for something else where they are printed"):
            Task.from_json(changed("labels", ("query.domain.labels.0", to(words)))).verify()


@pytest.mark.parametrize("path", ["users", "honest", "query.domain.high", "guarantee.epsilon", "guarantee.sentence", "digest"])
def test_an_edited_task_has_another_digest(path: str) -> None:
    """Without signing it anew, a task that was edited anywhere is refused as such; the sentence for readers is part of it."""
    content = stored("unary sum")
    *steps, last = path.split(".")
    place = content
    for step in steps:
        place = place[step]
    place[last] = place[last] + 1 if not isinstance(place[last], str) else place[last].replace("e", "f", 1)
    with pytest.raises(PlanError, match="digest does not match its content: the file was edited or damaged; ask for it again"):
        Task.from_json(json.dumps(content))


def test_a_changed_copy_is_compared_with_its_digest_again() -> None:
    """That a task was compared before says nothing about its copies, nor about what takes its place in memory."""
    for _ in range(20):
        task = Task.from_json(load_task("unary sum").to_json())
        assert Task.model_validate(task) is task
        other = task.model_copy(update={"users": task.users + 1})
        del task
        for copied in (other, other.model_copy()):
            with pytest.raises(ValidationError, match="digest does not match its content"):
                Task.model_validate(copied)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "nests too deeply"),
        ('{"users": ' + "9" * 5000 + "}", "thousands of digits"),
        ("null", "its format is None"),
        ('{"format": "metricshuffle-plan/2"}', "not 'metricshuffle-task/1'"),
        ('{"format": "metricshuffle-task/1"}', "has no digest"),
    ],
)
def test_what_is_no_task(text: str, told: str) -> None:
    """Anything else is told apart in words, what nests without end included."""
    with pytest.raises(PlanError, match=told):
        Task.from_json(text)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["unary sum", "mean of real numbers", "labels", "map", "users' mean", "curator's histogram"])
def test_whatever_stands_in_a_field_is_refused_in_words(kind: str) -> None:
    """Every field in turn holds something strange, with a digest that matches: reading or verifying ends in a sentence, or is true."""
    strange: tuple[Any, ...] = (None, "", "1/0", -1, 0, 0.5, 1e308, float("nan"), float("inf"), [], {"kind": []}, True, 2**70, 1e-320)
    refused = 0
    for path in paths_in(stored(kind)):
        for value in strange:
            content = stored(kind)
            place: Any = content
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            content.pop("digest", None)
            try:
                Task.from_json(json.dumps({**content, "digest": content_digest(content)})).verify()
            except MetricShuffleError as wrong:
                refused += len(str(wrong)) > 20
    assert refused > 200


def paths_in(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every field of a JSON document; of a list the first element."""
    steps: list[Any] = (
        list(content) if isinstance(content, dict) else list(range(min(1, len(content)))) if isinstance(content, list) else []
    )
    return [field for step in steps if step != "digest" for field in ((*path, step), *paths_in(content[step], (*path, step)))]
