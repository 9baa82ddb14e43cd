"""Target -> Plan. The saved plan IS the task: client, shuffler and analyst read the same file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, get_args, overload

from metricshuffle.declared import Declared, Real
from metricshuffle.errors import BatchTooSmall, InputError, PlanError
from metricshuffle.planning.candidate import TRUST_ORDER, Candidate
from metricshuffle.planning.candidates import all_candidates
from metricshuffle.planning.release import Release
from metricshuffle.planning.saved import ChosenPlan
from metricshuffle.planning.setting import EncodingChoice, Setting, ShareTransport, Trusted
from metricshuffle.planning.user_plan import UserPlan, plan_users
from metricshuffle.privacy.guarantee import plain
from metricshuffle.privacy.target import Target, checked_users, honest_count
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.protocols.queries import AnyQuery, Query
from metricshuffle.protocols.sums import ProtocolName
from metricshuffle.protocols.user_queries import UserQuery
from metricshuffle.randomness import Randomness

PLAN_FORMAT = "metricshuffle-plan/1"
# Candidates whose expected errors differ by less than this are equal; less trust wins, then fewer bits.
EQUAL_ERRORS = 1e-3


class NotOffered(Declared):
    """A protocol that does not apply here, and why."""

    protocol: str
    encoding: str
    reason: str


class Plan(ChosenPlan[Candidate]):
    """A calibrated choice of protocol, with everything the three roles need."""

    known_as: ClassVar[str] = PLAN_FORMAT
    format: Literal["metricshuffle-plan/1"] = "metricshuffle-plan/1"
    query: AnyQuery
    target: Target
    users: int
    honest: int
    rounds: int = 1
    granularity: Real = 1.0
    trusted: Trusted
    not_offered: tuple[NotOffered, ...] = ()

    @property
    def minimum(self) -> int:
        """The smallest batch the guarantee covers."""
        return self.honest if self.choice.trusted in ("shuffler", "aggregator") else 1

    def randomize(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> Reports:
        """Clients: one report per value. Values outside the domain are refused unless `clamp`."""
        source = Randomness.system() if randomness is None else randomness
        steps = self.query.steps(values, self.granularity, clamp=clamp)
        return Reports(self.digest, self.choice.mechanism.records(steps, source), source.unsafe_seeded)

    def shuffle(self, reports: Reports | Iterable[Reports], randomness: Randomness | None = None) -> Shuffled:
        """Shuffler (aggregator, curator): what the analyst may see; refuses a batch below the plan's minimum.

        Reports may come in parts; counts and sums are added up as they come, so memory stays bounded for those.
        """
        if not isinstance(reports, Reports | Iterable):
            raise InputError(f"shuffle needs Reports, got {type(reports).__name__}.")
        source = Randomness.system() if randomness is None else randomness
        shuffled = self.choice.mechanism.shuffled(self.digest, [reports] if isinstance(reports, Reports) else reports, source)
        self.check_batch(shuffled.reports)
        return shuffled

    def check_batch(self, reports: int) -> None:
        """Raise unless the guarantee and the encoding cover a batch of that size."""
        if reports < self.minimum:
            raise BatchTooSmall(
                f"the batch has {reports:,} reports, but the guarantee counts on at least {self.minimum:,} honest ones; "
                f"wait for more reports, or plan again counting on {reports:,} honest ones and let people randomize again."
            )
        if reports > self.users and self.choice.mechanism.modulus is not None:
            raise PlanError(f"the batch has {reports:,} reports, but this plan's modulus has room for {self.users:,}; plan again.")

    def estimate(self, shuffled: Shuffled, *, raw_values_seen: bool = False) -> Release:
        """Analyst: the answer with its interval and both guarantees."""
        if not isinstance(shuffled, Shuffled):
            raise InputError(f"estimate needs what shuffle() returned, got {type(shuffled).__name__}; reports must be shuffled first.")
        if shuffled.plan != self.digest:
            raise PlanError("this batch was shuffled for another plan (the digests differ).")
        self.check_batch(shuffled.reports)
        return Release.of(self.query, self.granularity, self.choice, shuffled, raw_values_seen=raw_values_seen)

    def run(self, values: Any, randomness: Randomness | None = None, *, clamp: bool = False) -> Release:
        """All three roles on one machine; the release says that raw values were seen there."""
        reports = self.randomize(values, randomness, clamp=clamp)
        return self.estimate(self.shuffle(reports, randomness), raw_values_seen=True)

    def __str__(self) -> str:
        from metricshuffle.planning.explain import plan_text

        return plan_text(self)


@overload
def plan(
    query: Query, target: Target, users: int, honest: int | float | str | None = None, *, rounds: int = 1,
    encoding: EncodingChoice = "auto", padding: Literal["clamp", "bounded"] = "clamp", granularity: float = 1.0,
    transport: ShareTransport = "shuffler", trusted: Trusted = "shuffler", max_local_epsilon: float | None = None,
    max_bits: int | None = None, protocols: Sequence[str] | None = None, progress: Callable[[str], None] | None = None,
) -> Plan: ...  # fmt: skip
@overload
def plan(
    query: UserQuery, target: Target, users: int, honest: int | float | str | None = None, *,
    trusted: Literal["nobody", "shuffler", "curator"] = "shuffler", samples: int | None = None, methods: Sequence[str] | None = None,
) -> UserPlan: ...  # fmt: skip
def plan(query: Any, target: Target, users: int, honest: int | float | str | None = None, **choices: Any) -> Plan | UserPlan:
    """Calibrate every applicable protocol (or only `protocols`); choose the least expected error for the trust that is allowed.

    Queries about users who hold many items each have ways of their own, see `plan_users`.
    """
    if isinstance(query, UserQuery):
        return plan_users(query, target, users, honest, **choices)
    progress, protocols = choices.pop("progress", None), choices.pop("protocols", None)
    defaults: dict[str, Any] = {
        "rounds": 1, "encoding": "auto", "padding": "clamp", "granularity": 1.0, "transport": "shuffler", "trusted": "shuffler",
        "max_local_epsilon": None, "max_bits": None,
    }  # fmt: skip
    unknown = sorted(set(choices) - set(defaults))
    if unknown:
        raise TypeError(f"plan() got an unexpected keyword argument {unknown[0]!r}")
    checked = checked_setting(query, target, users, honest, protocols=None if protocols is None else tuple(protocols), **defaults | choices)
    return planned(checked, progress)


def planned(setting: Setting, progress: Callable[[str], None] | None = None) -> Plan:
    """The plan for a checked setting."""
    found: list[Candidate] = []
    missing: list[NotOffered] = []
    for outcome in all_candidates(setting, progress):
        if isinstance(outcome, Candidate):
            found.append(outcome)
        else:
            missing.append(NotOffered(protocol=outcome[0], encoding=outcome[1], reason=outcome[2]))
    found.sort(key=lambda one: (one.baseline, one.expected_error))
    chosen = choose(setting, found, missing)
    return Plan(
        query=setting.query, target=setting.target, users=setting.users, honest=setting.honest, rounds=setting.rounds,
        granularity=setting.granularity, trusted=setting.trusted, chosen=chosen, candidates=tuple(found), not_offered=tuple(missing),
    )  # fmt: skip


def checked_setting(query: Query, target: Target, users: int, honest: int | float | str | None, **choices: Any) -> Setting:
    """A setting whose parts fit together, or a sentence."""
    users = checked_users(users)
    if not isinstance(query, Query):
        hint = "; use plan_histogram" if type(query).__name__ == "Histogram" else ""
        raise InputError(f"query must be a Sum, Mean or Centroid, got {type(query).__name__}{hint}.")
    diameter = query.diameter
    if target.distance > diameter * (1.0 + 1e-12):
        raise InputError(
            f"distance {plain(target.distance)} is beyond the diameter of {query.domain}, {plain(diameter)}; "
            f"no two values are that far apart, so use at most {plain(diameter)}."
        )
    rounds = choices.get("rounds", 1)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InputError(f"rounds must be a whole number >= 1, got {rounds!r}.")
    setting = Setting(query, target, users, honest_count(honest, users), **choices)
    if setting.promise.distance < 1.0 - 1e-12:
        raise InputError(
            f"distance {plain(target.distance)} is less than one step ({f'{plain(setting.step)} {query.unit}'.strip()}); "
            f"values closer than a step are the same value, so nothing would be promised."
        )
    unknown = set(setting.protocols or ()) - set(get_args(ProtocolName))
    if unknown:
        raise InputError(f"there is no protocol {sorted(unknown)[0]!r}; choose among {', '.join(get_args(ProtocolName))}.")
    if setting.max_bits is not None and setting.max_bits < 1:
        raise InputError(f"max_bits must be >= 1, got {setting.max_bits}.")
    if setting.max_local_epsilon is not None and not setting.max_local_epsilon > 0:
        raise InputError(f"max_local_epsilon must be > 0, got {setting.max_local_epsilon}.")
    return setting


def allowed(setting: Setting, found: list[Candidate]) -> list[tuple[int, Candidate]]:
    """The candidates that may be chosen, with their indices: no more trust, bits or local epsilon than allowed."""
    return [
        (index, one) for index, one in enumerate(found)
        if not one.baseline
        and (setting.max_local_epsilon is None or one.local_epsilon <= setting.max_local_epsilon)
        and (setting.max_bits is None or one.bits_per_user <= setting.max_bits)
    ]  # fmt: skip


def choose(setting: Setting, found: list[Candidate], missing: list[NotOffered]) -> int:
    """Index of the candidate with the least expected error among those allowed (among equals least trust, then fewest bits)."""
    usable = allowed(setting, found)
    if not usable:
        reasons = "; ".join(f"{one.protocol} ({one.encoding}): {one.reason}" for one in missing[:3])
        caps = [f"max_local_epsilon = {setting.max_local_epsilon:g}"] if setting.max_local_epsilon is not None else []
        caps += [f"max_bits = {setting.max_bits}"] if setting.max_bits is not None else []
        why = f"under {' and '.join(caps)}" if caps else "here"
        raise InputError(f"no protocol keeps this target {why}. {reasons}".strip())
    least = min(one.expected_error for _, one in usable)
    near = [(index, one) for index, one in usable if one.expected_error <= least * (1.0 + EQUAL_ERRORS)]
    index, best = min(near, key=lambda pair: (TRUST_ORDER[pair[1].trusted], pair[1].bits_per_user, pair[1].expected_error))
    unlimited = setting.max_local_epsilon is None and setting.max_bits is None and setting.protocols is None
    # With delta = 0 the pure protocols are all there is: that is an answer and not a lack of people.
    if setting.trusted != "nobody" and best.protocol == "geometric-local" and unlimited and setting.target.delta > 0.0:
        raise InputError(_too_few(setting, best))
    return index


def _too_few(setting: Setting, local: Candidate) -> str:
    """Nobody to hide among: say so, and what more people would do."""
    unit = f" {setting.query.unit}" if setting.query.unit else ""
    forecasts = []
    for users in (10, 100, 1000):
        if users > setting.honest:
            scale = setting.query.error_scale(users, setting.granularity)
            # Polya shares add up to the noise of a single local report.
            together, alone = (plain(local.mechanism.mean_error(reports) * scale) for reports in (1, users))
            forecasts.append(f"{users:,} users: {together}{unit} shuffled against {alone}{unit} alone")
    return (
        f"{setting.honest:,} honest {'user is' if setting.honest == 1 else 'users are'} too few for any amplification: no shuffled "
        f"protocol is more accurate than geometric-local (expected error {plain(local.expected_error)}{unit}). "
        f"With more people: {'; '.join(forecasts)}. Collect from more people, or plan with trusted='nobody'."
    )
