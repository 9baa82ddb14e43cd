"""Turn a target into a plan: compare candidates and build the task of the chosen one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Unpack

from pydantic import model_validator

from metricshuffle.data.query_values import parts_of
from metricshuffle.data.value_reading import Reading, ReadingArguments
from metricshuffle.display import Plottable
from metricshuffle.errors import InputError, PlanError, argument
from metricshuffle.files import read_text, write_text
from metricshuffle.models import FrozenModel, Real, StoredModel, content_digest, parse_json
from metricshuffle.planning.candidate import (
    Candidate,
    allowed_candidates,
    enforce_known_order,
    most_exact,
)
from metricshuffle.planning.candidates import SkippedCandidate, calibrate_offers
from metricshuffle.planning.costs.release_ledger import EVERYBODY, Budget
from metricshuffle.planning.error_simulation import other_errors
from metricshuffle.planning.floor_price import FloorPrice, decide_floor
from metricshuffle.planning.one_party_release import run_all_roles
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.planning.setting import (
    MAX_DUMMIES,
    Draws,
    EncodingChoice,
    FloorRule,
    KindsOfPeople,
    Padding,
    Setting,
    ShareTransport,
)
from metricshuffle.planning.unmet_limits import first_reasons, nearest_limits
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.privacy.target import Honest, Target
from metricshuffle.protocols.damage import Liars, Limit
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.protocol import Protocol, Reports
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.queries.query import Query
from metricshuffle.queries.result_table import Library, frame
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.shuffle import Ledger
from metricshuffle.tasks.task import Task

PLAN_FORMAT = "metricshuffle-plan/2"


class NotOffered(FrozenModel):
    """A protocol that does not apply, and the reason."""

    protocol: str
    encoding: str | None
    reason: str

    @classmethod
    def of(cls, skipped: SkippedCandidate) -> NotOffered:
        """Convert for a plan file, in which reasons name arguments as Python does."""
        reason = str(InputError(skipped.reason))
        return cls(protocol=skipped.protocol, encoding=skipped.encoding, reason=reason)


class Plan(Plottable, StoredModel):
    """A choice of protocol: all candidates that were compared, and the task for the three roles."""

    stored_as: ClassVar[str] = "a plan"
    format: Literal["metricshuffle-plan/2"] = "metricshuffle-plan/2"
    target: Target
    granularity: Real = 1.0
    samples: int | None = None
    spread: KindsOfPeople = "any"
    floor: FloorRule = "always"
    floor_price: FloorPrice | None = None
    """Errors with and without a floor; None if there was nothing to decide between."""
    trusted: Who
    chosen: int
    candidates: tuple[Candidate, ...]
    not_offered: tuple[NotOffered, ...] = ()
    task: Task

    @model_validator(mode="after")
    def _chosen_exists(self) -> Self:
        if not 0 <= self.chosen < len(self.candidates):
            raise ValueError(f"chosen must be the index of a candidate, got {self.chosen}")
        if (self.choice.guarantee, self.choice.fallback, self.choice.damage) != (
            self.task.guarantee,
            self.task.if_shuffler_colludes,
            self.task.damage,
        ):
            raise ValueError(
                "the guarantees or the damage of the chosen candidate differ from those of the "
                "task: the file was edited; make the plan again"
            )
        return self

    @property
    def choice(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]

    @property
    def protocol(self) -> Protocol:
        """The protocol of the chosen candidate."""
        return self.task.protocol

    @property
    def query(self) -> Query:
        return self.task.query

    @property
    def title(self) -> str | None:
        return self.task.title

    @property
    def question(self) -> str | None:
        """The question as people are asked it, in the planner's words."""
        return self.task.question

    @property
    def users(self) -> int:
        return self.task.users

    @property
    def honest(self) -> int:
        return self.task.honest

    @property
    def rounds(self) -> int:
        return self.task.rounds

    @property
    def digest(self) -> str:
        """Digest of the task, to which reports and tallies are bound."""
        return self.task.digest

    @property
    def minimum(self) -> int:
        """The smallest batch that the guarantee covers."""
        return self.task.minimum

    @property
    def guarantee(self) -> Guarantee:
        return self.task.guarantee

    @property
    def if_shuffler_colludes(self) -> Guarantee:
        return self.task.if_shuffler_colludes

    # Roles, delegated to the task

    def randomize(
        self,
        values: Any,
        randomness: Randomness | None = None,
        *,
        round: int = 1,
        **reading: Unpack[ReadingArguments],
    ) -> Reports:
        """Clients: make one report per person. Arguments as in `Task.randomize`."""
        return self.task.randomize(values, randomness, round=round, **reading)

    def shuffle(
        self,
        reports: Reports | Iterable[Reports],
        randomness: Randomness | None = None,
        *,
        ledger: Ledger | None = None,
    ) -> Shuffled:
        """Shuffler or aggregator: mix reports into what the analyst may see.

        Rejects a batch below the minimum and reports that occur twice.
        """
        return self.task.shuffle(reports, randomness, ledger=ledger)

    def estimate(
        self,
        shuffled: Shuffled,
        *,
        raw_values_seen: bool = False,
        budget: Budget | None = None,
        people: str = EVERYBODY,
        reading: Reading | None = None,
    ) -> Release:
        """Analyst: estimate the answer with its interval and both guarantees.

        A `budget` records the release, and rejects one that was not planned or overlaps another.
        """
        expected = (
            self.choice.expected_error
            if isinstance(shuffled, Shuffled) and shuffled.people == self.users
            else None
        )
        release = self.task.estimate(
            shuffled, raw_values_seen=raw_values_seen, expected_error=expected, reading=reading
        )
        if budget is not None:
            budget.note(release, people)
        return release

    def release_tally(
        self,
        tally: Tally,
        randomness: Randomness | None = None,
        *,
        reading: Reading | None = None,
        publisher_noise: bool = False,
    ) -> Release:
        """Publish and estimate a tally that was made where raw values were seen."""
        shuffled = self.task.publish_seen(tally, randomness, publisher_noise=publisher_noise)
        return self.estimate(shuffled, raw_values_seen=True, reading=reading)

    def run(
        self,
        values: Any,
        randomness: Randomness | None = None,
        *,
        round: int | None = None,
        budget: Budget | None = None,
        people: str = EVERYBODY,
        publisher_noise: bool = False,
        **reading: Unpack[ReadingArguments],
    ) -> Release:
        """Run all roles on one machine; the release says that raw values were seen there.

        With a `budget` it is the next round and is recorded there, otherwise the first. Values and
        their arguments are those of `randomize`. `publisher_noise`: see `with_publisher_noise`.
        """
        summary = Reading.of(reading)
        parts = parts_of(self.query, values, **reading)

        def tally_values(number: int) -> Tally:
            return self.task.counted(parts, randomness, clamp=summary.clamp, round=number)

        return run_all_roles(
            self,
            tally_values,
            randomness,
            reading=summary,
            round=round,
            budget=budget,
            people=people,
            publisher_noise=publisher_noise,
        )

    def with_publisher_noise(
        self, shuffled: Shuffled, randomness: Randomness | None = None
    ) -> Shuffled:
        """Publisher: add dummies that the shuffler does not know; see `Task`."""
        return self.task.with_publisher_noise(shuffled, randomness)

    def check_batch(self, people: int) -> None:
        """Raise unless the guarantee and the protocol cover a batch of this many people."""
        self.task.check_batch(people)

    # Files

    def to_json(self) -> str:
        """Return the request, all candidates and the task as JSON.

        Mechanisms of candidates are left out, except that of a chosen sum; the task has the chosen
        one.
        """
        return json.dumps(self._document(), indent=2)

    def _document(self) -> dict[str, Any]:
        kept_index = self.chosen if isinstance(self.protocol, Sums) else None
        left_out = {
            index: {"mechanism"} for index in range(len(self.candidates)) if index != kept_index
        }  # some have a million numbers
        # The JSON round trip turns infinities (no bound) into null.
        stored = json.loads(self.model_dump_json(exclude={"candidates": left_out, "task": True}))
        task = json.loads(self.task.to_json())
        document = {
            "format": PLAN_FORMAT,
            "query": task["query"],
            "target": stored["target"],
            "users": self.users,
            "honest": self.honest,
            "rounds": self.rounds,
            **{name: stored[name] for name in ("granularity", "samples")},
            **({} if self.spread == "any" else {"spread": self.spread}),
            **({} if self.floor == "always" else {"floor": self.floor}),
            **({} if self.floor_price is None else {"floor_price": stored["floor_price"]}),
            **{name: stored[name] for name in ("trusted", "chosen", "candidates", "not_offered")},
            "digest": self.digest,
            "task": task,
        }
        return {**document, "checksum": content_digest(document)}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`; raises for a damaged or edited text."""
        data = parse_json(text, cls.stored_as)
        file_format = data.get("format") if isinstance(data, dict) else None
        if file_format != PLAN_FORMAT:
            name = str(file_format)
            old = name.startswith("metricshuffle-") and name.endswith("-plan/1")
            hint = "; it was made by an earlier version, so plan again" if old else ""
            mismatch = (
                "not a plan" if name.startswith("metricshuffle-") else "neither a plan nor a task"
            )
            raise PlanError(
                f"this is {mismatch}: its format is {file_format!r}, not {PLAN_FORMAT!r}{hint}."
            )
        content = {name: value for name, value in data.items() if name != "checksum"}
        if data.get("checksum") != content_digest(content):
            raise PlanError(
                "its checksum does not match its content: the file was edited or damaged; "
                "make the plan again."
            )
        fields = {name: value for name, value in content.items() if name in cls.model_fields}
        plan = super().from_json(json.dumps(fields))
        choice = plan.choice.model_copy(update={"mechanism": plan.task.protocol})
        candidates = tuple(
            choice if index == plan.chosen else candidate
            for index, candidate in enumerate(plan.candidates)
        )
        return plan.model_copy(update={"candidates": candidates})

    def save(self, path: str | Path, task: str | Path | None = None) -> None:
        """Write the plan to a file, and its task to another one if it is named."""
        write_text(path, self.to_json() + "\n")
        if task is not None:
            self.task.save(task)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a file and verify its task; `from_json` does not verify it."""
        plan = cls.from_json(read_text(path))
        plan.task.verify_once()
        return plan

    def to_frame(self, library: Library | None = None) -> Any:
        """Return the candidates as a frame, one row each, in the order of the table.

        `library` is "pandas", "polars" or "pyarrow"; by default whichever is installed.
        """
        names = (
            "protocol",
            "encoding",
            "shape",
            "trusted",
            "expected_error",
            "standard_error",
            "local_epsilon",
            "bits_per_user",
            "messages_per_user",
            "dummies",
            "sealing_seconds",
            "baseline",
        )
        columns: dict[str, list[Any]] = {
            name: [getattr(offer, name) for offer in self.candidates] for name in names
        }
        damages = [offer.damage for offer in self.candidates]
        columns["damage"] = [None if damage is None else damage.one for damage in damages]
        columns["damage_certified"] = [
            damage is not None and damage.certified for damage in damages
        ]
        promises = [offer.guarantee for offer in self.candidates]
        columns |= {
            name: [getattr(promise, name) for promise in promises]
            for name in ("epsilon", "delta", "distance")
        }
        return frame(
            {"chosen": [index == self.chosen for index in range(len(self.candidates))], **columns},
            library,
        )

    def __repr__(self) -> str:
        return (
            f"Plan({self.query.title}, {self.target}, {self.users:,} users, "
            f"{self.honest:,} honest: {self.choice.protocol} "
            f"of {len(self.candidates)} candidate{'s' * (len(self.candidates) != 1)})"
        )

    def __str__(self) -> str:
        from metricshuffle.planning.plan_text import plan_text

        return plan_text(self)


def plan(
    query: Query,
    target: Target,
    users: int,
    honest: Honest = None,
    *,
    rounds: int = 1,
    trusted: Who = "shuffler",
    encoding: EncodingChoice = "auto",
    padding: Padding = "clamp",
    granularity: float | None = None,
    draw: Draws | None = None,
    without_replacement: bool = False,
    transport: ShareTransport = "shuffler",
    max_local_epsilon: float | None = None,
    max_bits: int | None = None,
    max_dummies: int = MAX_DUMMIES,
    max_damage: Limit | None = None,
    liars: Liars | None = None,
    floor: FloorRule | bool = "always",
    most_items: int | None = None,
    spread: KindsOfPeople = "any",
    protocols: Sequence[str] | None = None,
    randomizer: Randomizer | None = None,
    title: str | None = None,
    question: str | None = None,
    progress: Callable[[str], None] | None = None,
    samples: int | None = None,
) -> Plan:
    """Calibrate every protocol that fits the query and choose the least expected error.

    Args:
        query: The question and its possible values.
        target: Requested epsilon, delta and distance.
        users: Number of people.
        honest: Reports that can be counted on, a count or a fraction.
        rounds: Number of releases about the same people, all covered by the guarantee together.
        trusted: Whom a protocol may rely on: "nobody", "shuffler", "aggregator" or "curator".
        encoding: Sums, means and centroids: "unary" or "modular".
        padding: Sums, means and centroids: "clamp" or "bounded".
        granularity: Sums, means and centroids: values are first rounded at random to multiples of
            it; real numbers need it.
        draw: Users' items: number of items that each user draws at random for item-wise reports, or
            "auto" if the planner chooses it.
        without_replacement: Users' items: draw each item at most once; only where all users hold
            the same public number of items.
        transport: Sums, means and centroids: who receives modular shares, "shuffler" or
            "aggregator".
        max_local_epsilon: Largest epsilon of one report.
        max_bits: Most bits that one person sends.
        max_dummies: Most dummies that a shuffler adds in a round.
        max_damage: Largest change of the answer by participants who lie, in units of its error (of
            shares: a fraction or "1%"); protocols without a certified limit are left out.
        liars: How many lie together, a count or a percentage ("1%"); one if left out.
        floor: Histograms and users' items: whether noisy vectors randomize values locally first:
            "always" (or True), "never" (or False), or "auto", where that makes errors at most 1.5
            times larger. Without a floor a colluding shuffler can read the values.
        most_items: Without effect.
        spread: Histograms and users' items: how people are spread ("smooth": evenly or in clusters,
            "spiky": at few points), for the choice of features and for the errors.
        protocols: Names of the only protocols to calibrate.
        randomizer: Histograms: a randomizer of your own (or from `solve`), accounted for unchanged,
            in place of all protocols.
        title: Title shown on everything made from the plan.
        question: Question that people are asked.
        progress: Called with what is being calibrated.
        samples: Old name of `draw`.
    """
    choices = {name: value for name, value in locals().items() if name != "progress"}
    return planned(PlanRequest(**choices).setting, progress)


def planned(setting: Setting, progress: Callable[[str], None] | None = None) -> Plan:
    """Return the plan for a checked setting."""
    candidates: list[Candidate] = []
    skipped: list[SkippedCandidate] = []
    for outcome in calibrate_offers(setting, progress):
        if isinstance(outcome, SkippedCandidate):
            skipped += [outcome] if outcome not in skipped else []
        else:
            candidates.append(outcome)
    candidates, floor_price = decide_floor(setting, enforce_known_order(candidates, setting.spread))
    candidates.sort(key=lambda offer: (offer.baseline, offer.expected_error))
    chosen = choose(setting, candidates, skipped)
    choice = candidates[chosen]
    if choice.mechanism is None:
        raise PlanError("the chosen candidate has no mechanism; please report this as a bug.")
    if isinstance(setting.query, UserQuery):
        others = other_errors(setting.query, choice.mechanism, setting.users, setting.drawn_number)
        choice = candidates[chosen] = choice.model_copy(update={"other_errors": others})
    task = Task(
        title=setting.title,
        question=setting.question,
        query=setting.query,
        protocol=choice.mechanism,
        users=setting.users,
        honest=setting.honest,
        rounds=setting.rounds,
        guarantee=choice.guarantee,
        if_shuffler_colludes=choice.fallback,
        damage=choice.damage,
    )
    return Plan(
        target=setting.target,
        granularity=setting.granularity,
        samples=_drawn_number(setting, task.protocol),
        spread=setting.spread,
        floor=setting.floor,
        floor_price=floor_price,
        trusted=setting.trusted,
        chosen=chosen,
        candidates=tuple(candidates),
        not_offered=tuple(map(NotOffered.of, skipped)),
        task=task,
    )


def _drawn_number(setting: Setting, protocol: Protocol) -> int | None:
    """Number of items that each user draws: the one given, or the one that the planner chose."""
    if setting.draw == "auto" and isinstance(protocol, Frequencies) and protocol.drawn:
        return protocol.items
    return setting.drawn_number


def choose(setting: Setting, candidates: list[Candidate], skipped: list[SkippedCandidate]) -> int:
    """Index of the most exact candidate among those allowed; raises if there is none."""
    usable = allowed_candidates(setting, candidates)
    if not usable:
        reasons = first_reasons(skipped)
        limits = {
            name: getattr(setting, name) for name in ("max_local_epsilon", "max_bits", "max_damage")
        }
        if setting.liars > 1:
            limits["liars"] = setting.liars
        caps = [argument(name, value) for name, value in limits.items() if value is not None]
        why = f"under {' and '.join(caps)}" if caps else "here"
        raise InputError(
            f"no protocol keeps this target {why}. "
            f"{nearest_limits(setting, candidates)}{f'{reasons}.' if reasons else ''}".strip()
        )
    best = most_exact([offer for _, offer in usable])
    return next(index for index, offer in usable if offer is best)
