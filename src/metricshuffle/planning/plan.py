"""Target -> Plan: candidates side by side, and the task of the chosen one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from metricshuffle.declared import Declared, Real, Stored, content_digest, parsed
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import read_text, write_text
from metricshuffle.numerics.rounding import plain
from metricshuffle.planning.candidate import TRUST_ORDER, Candidate
from metricshuffle.planning.first_version import first_version
from metricshuffle.planning.offers import NotMade, made
from metricshuffle.planning.setting import EncodingChoice, Padding, Setting, ShareTransport, checked_setting
from metricshuffle.privacy.guarantee import Guarantee, Who
from metricshuffle.privacy.target import Honest, Target
from metricshuffle.protocols.base import Protocol, Reports
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.queries.base import Query
from metricshuffle.queries.sums import SummedQuery
from metricshuffle.randomness import Randomness
from metricshuffle.wire.release import Release
from metricshuffle.wire.shuffle import Ledger
from metricshuffle.wire.task import Task

PLAN_FORMAT = "metricshuffle-plan/2"
# Candidates whose expected errors differ by less than this are equal; less trust wins, then fewer bits.
EQUAL_ERRORS = 1e-3


class NotOffered(Declared):
    """A protocol that does not apply here, and why."""

    protocol: str
    encoding: str | None
    reason: str


class Plan(Stored):
    """A calibrated choice of protocol: every candidate that was compared, and the task that the three roles need."""

    stored_as: ClassVar[str] = "a plan"
    format: Literal["metricshuffle-plan/2"] = "metricshuffle-plan/2"
    target: Target
    granularity: Real = 1.0
    samples: int | None = None
    trusted: Who
    chosen: int
    candidates: tuple[Candidate, ...]
    not_offered: tuple[NotOffered, ...] = ()
    task: Task

    @model_validator(mode="after")
    def _chosen_exists(self) -> Self:
        if not 0 <= self.chosen < len(self.candidates):
            raise ValueError(f"chosen must be the index of a candidate, got {self.chosen}")
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
        """That of the task: what reports and tallies are bound to."""
        return self.task.digest

    @property
    def minimum(self) -> int:
        """The smallest batch the guarantee covers."""
        return self.task.minimum

    @property
    def guarantee(self) -> Guarantee:
        return self.task.guarantee

    @property
    def if_shuffler_colludes(self) -> Guarantee:
        return self.task.if_shuffler_colludes

    # The roles, as the task has them

    def randomize(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False, round: int = 1) -> Reports:
        """Clients: one report a person. Values outside the domain are refused unless `clamp`."""
        return self.task.randomize(values, randomness, clamp=clamp, round=round)

    def shuffle(
        self, reports: Reports | Iterable[Reports], randomness: Randomness | None = None, *, ledger: Ledger | None = None
    ) -> Shuffled:
        """Shuffler (aggregator): what the analyst may see; refuses a batch below the minimum, and reports that come twice."""
        return self.task.shuffle(reports, randomness, ledger=ledger)

    def estimate(self, shuffled: Shuffled, *, raw_values_seen: bool = False) -> Release:
        """Analyst: the answer with its interval and both guarantees."""
        expected = self.choice.expected_error if isinstance(shuffled, Shuffled) and shuffled.people == self.users else None
        return self.task.estimate(shuffled, raw_values_seen=raw_values_seen, expected_error=expected)

    def run(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False, round: int = 1) -> Release:
        """All roles on one machine; the release says that raw values were seen there."""
        tally = self.task.counted([values], randomness, clamp=clamp, round=round)
        return self.estimate(self.task.publish(tally, randomness), raw_values_seen=True)

    def check_batch(self, people: int) -> None:
        """Raise unless the guarantee and the protocol cover a batch of so many people."""
        self.task.check_batch(people)

    # Files

    def to_json(self) -> str:
        """What was asked, all candidates, and the task; only the chosen candidate keeps its mechanism."""
        return json.dumps(self._document(), indent=2)

    def _document(self) -> dict[str, Any]:
        stored = json.loads(self.model_dump_json())  # null where there is no bound; model_dump would leave an infinity
        for index, candidate in enumerate(stored["candidates"]):
            if index != self.chosen or not isinstance(self.protocol, Sums):
                del candidate["mechanism"]
        task = json.loads(self.task.to_json())
        document = {
            "format": PLAN_FORMAT,
            "query": task["query"],
            "target": stored["target"],
            "users": self.users,
            "honest": self.honest,
            "rounds": self.rounds,
            **{name: stored[name] for name in ("granularity", "samples", "trusted", "chosen", "candidates", "not_offered")},
            "digest": self.digest,
            "task": task,
        }
        return {**document, "checksum": content_digest(document)}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`; a damaged or edited text is refused in words. Version 1 of sums is read too."""
        data = parsed(text, cls.stored_as)
        named = data.get("format") if isinstance(data, dict) else None
        if named == "metricshuffle-plan/1":
            return cls(**first_version(data))
        if named != PLAN_FORMAT:
            old = str(named).startswith("metricshuffle-") and str(named).endswith("-plan/1")
            hint = "; it was made by an earlier version, so plan again" if old else ""
            nothing = "not a plan" if str(named).startswith("metricshuffle-") else "neither a plan nor a task"
            raise PlanError(f"this is {nothing}: its format is {named!r}, not {PLAN_FORMAT!r}{hint}.")
        content = {name: value for name, value in data.items() if name != "checksum"}
        if data.get("checksum") != content_digest(content):
            raise PlanError("its checksum does not match its content: the file was edited or damaged; make the plan again.")
        fields = {name: value for name, value in content.items() if name in cls.model_fields}
        plan = super().from_json(json.dumps(fields))
        choice = plan.choice.model_copy(update={"mechanism": plan.task.protocol})
        kept = tuple(choice if index == plan.chosen else other for index, other in enumerate(plan.candidates))
        return plan.model_copy(update={"candidates": kept})

    def save(self, path: str, task: str | None = None) -> None:
        """Write the plan, and the task that travels to another file if one is named."""
        write_text(path, self.to_json() + "\n")
        if task is not None:
            self.task.save(task)

    @classmethod
    def load(cls, path: str) -> Self:
        return cls.from_json(read_text(path))

    def __repr__(self) -> str:
        return (
            f"Plan({self.query}, {self.target}, {self.users:,} users, {self.honest:,} honest:\n"
            f"     {self.choice.protocol} of {len(self.candidates)} candidates, {self.query.measure} {plain(self.choice.expected_error)})"
        )

    def __str__(self) -> str:
        from metricshuffle.planning.explain import plan_text

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
    samples: int | None = None,
    transport: ShareTransport = "shuffler",
    max_local_epsilon: float | None = None,
    max_bits: int | None = None,
    protocols: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Calibrate every protocol that fits the query (or only `protocols`); choose the least expected error for the trust that is allowed.

    `honest`: how many reports can be counted on, a count or a fraction; `rounds`: how often the same people are asked, all covered
    together; `trusted`: whom a protocol may rely on, "nobody", "shuffler", "aggregator" or "curator"; `max_local_epsilon` and
    `max_bits` cap what one report gives away and how much a person sends. Sums, means and centroids: `encoding` ("unary",
    "modular"), `padding` ("clamp", "bounded"), `granularity` (values are rounded at random to it first; real numbers need it),
    `transport` of modular shares ("shuffler", "aggregator"). Users' items: `samples`, how many of hers everybody draws, where
    users hold different numbers of items. `progress` is called with what is being calibrated.
    """
    setting = checked_setting(
        query,
        target,
        users,
        honest,
        rounds=rounds,
        trusted=trusted,
        encoding=encoding,
        padding=padding,
        granularity=granularity,
        samples=samples,
        transport=transport,
        max_local_epsilon=max_local_epsilon,
        max_bits=max_bits,
        protocols=protocols,
    )
    return planned(setting, progress)


def planned(setting: Setting, progress: Callable[[str], None] | None = None) -> Plan:
    """The plan for a checked setting."""
    candidates: list[Candidate] = []
    missing: list[NotOffered] = []
    for outcome in made(setting, progress):
        if isinstance(outcome, NotMade):
            row = NotOffered(protocol=outcome.protocol, encoding=outcome.encoding, reason=outcome.reason)
            missing += [row] if row not in missing else []
        else:
            candidates.append(outcome)
    candidates.sort(key=lambda offer: (offer.baseline, offer.expected_error))
    chosen = choose(setting, candidates, missing)
    choice = candidates[chosen]
    if choice.mechanism is None:
        raise PlanError("the chosen candidate has no mechanism; please report this as a bug.")
    task = Task(
        query=setting.query,
        protocol=choice.mechanism,
        users=setting.users,
        honest=setting.honest,
        rounds=setting.rounds,
        guarantee=choice.guarantee,
        if_shuffler_colludes=choice.fallback,
    )
    return Plan(
        target=setting.target,
        granularity=setting.granularity,
        samples=setting.samples,
        trusted=setting.trusted,
        chosen=chosen,
        candidates=tuple(candidates),
        not_offered=tuple(missing),
        task=task,
    )


def allowed(setting: Setting, candidates: list[Candidate]) -> list[tuple[int, Candidate]]:
    """The candidates that may be chosen, with their indices: no more trust, bits or local epsilon than allowed."""
    cap, bits = setting.max_local_epsilon, setting.max_bits
    return [
        (index, offer)
        for index, offer in enumerate(candidates)
        if not offer.baseline and (cap is None or offer.local_epsilon <= cap) and (bits is None or offer.bits_per_user <= bits)
    ]


def choose(setting: Setting, candidates: list[Candidate], missing: list[NotOffered]) -> int:
    """Index of the candidate with the least expected error among those allowed (among equals least trust, then fewest bits)."""
    usable = allowed(setting, candidates)
    if not usable:
        reasons = _reasons(missing)
        caps = [f"max_local_epsilon = {setting.max_local_epsilon:g}"] if setting.max_local_epsilon is not None else []
        caps += [f"max_bits = {setting.max_bits}"] if setting.max_bits is not None else []
        why = f"under {' and '.join(caps)}" if caps else "here"
        raise InputError(f"no protocol keeps this target {why}. {f'{reasons}.' if reasons else ''}".strip())
    least = min(offer.expected_error for _, offer in usable)
    near = [(index, offer) for index, offer in usable if offer.expected_error <= least * (1.0 + EQUAL_ERRORS)]
    index, best = min(near, key=lambda pair: (TRUST_ORDER[pair[1].trusted], pair[1].bits_per_user, pair[1].expected_error))
    unlimited = setting.max_local_epsilon is None and setting.max_bits is None and setting.protocols is None
    # With delta = 0 the pure protocols are all there is: that is an answer and not a lack of people.
    if setting.trusted != "nobody" and best.protocol == "geometric-local" and unlimited and setting.target.delta > 0.0:
        shuffled = any(offer.trusted in ("shuffler", "aggregator") for _, offer in usable)
        raise InputError(_too_few(setting, best, "" if shuffled else _reasons(missing)))
    return index


def _reasons(missing: list[NotOffered]) -> str:
    """Why the first few of the protocols that do not apply do not."""
    return "; ".join(f"{row.protocol}{f' ({row.encoding})' if row.encoding else ''}: {row.reason.rstrip('.')}" for row in missing[:3])


def _too_few(setting: Setting, local: Candidate, not_offered: str) -> str:
    """Nobody to hide among: say so, and what more people would do; or that no shuffled protocol could be offered, and why."""
    query, protocol = setting.query, local.mechanism
    unit, forecasts = f" {query.unit}" if query.unit else "", []
    for users in (10, 100, 1000):
        if users > setting.honest and isinstance(protocol, Sums) and isinstance(query, SummedQuery):
            scale = query.error_scale(users, protocol.step)
            # Polya shares add up to the noise of a single local report.
            together, alone = (plain(protocol.mean_error(reports) * scale) for reports in (1, users))
            forecasts.append(f"{users:,} users: {together}{unit} shuffled against {alone}{unit} alone")
    people = f"{setting.honest:,} honest {'user' if setting.honest == 1 else 'users'}"
    alone = f"geometric-local (expected error {plain(local.expected_error)}{unit})"
    if not_offered:
        lead = f"no shuffled protocol keeps this target with {people}, which leaves {alone}. {not_offered}."
    else:
        are = "is" if setting.honest == 1 else "are"
        lead = f"{people} {are} too few for any amplification: no shuffled protocol is more accurate than {alone}."
    more = f" With more people: {'; '.join(forecasts)}." if forecasts else ""
    return f"{lead}{more} Collect from more people, or plan with trusted='nobody'."
