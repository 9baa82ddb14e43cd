"""Shuffled events in the accountants of dp-accounting."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from scipy.special import ndtr
from tests.interop.settings import Drawn, settings

import metricshuffle as ms
from metricshuffle import interop
from metricshuffle.accounting.composition.composed_profile import (
    MAX_ROUNDS,
    ComposedProfile,
    TabulatedProfile,
)
from metricshuffle.interop import ShuffledDpEvent, ShuffledPLDAccountant, ShuffledRdpAccountant
from metricshuffle.interop.shuffled_rounds import joint_profile, round_profile
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    KaryRandomizedResponse,
)
from metricshuffle.randomizers.channel import ChannelPair

DELTA = 1e-6
BINARY = BinaryRandomizedResponse(1.0)
EIGHT = KaryRandomizedResponse(8, 1.0)
REPLACE = NeighboringRelation.REPLACE_ONE
SAMPLED = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(2.0))
COMPOSED = 1e-6
"""How far our own composition may lie above the truth, by the points at which it is sampled: the
accountants of dp-accounting are finer, and may lie below it by that much."""
DRAWN_ROWS = dp_event.SampledWithoutReplacementDpEvent(1000, 10, dp_event.GaussianDpEvent(2.0))
Accountant = ShuffledPLDAccountant | ShuffledRdpAccountant


@dataclass(frozen=True)
class GaussianProfile(PrivacyProfile):
    """Exact profile of a Gaussian mechanism (Balle, Wang 2018)."""

    ratio: float
    """Sensitivity over standard deviation."""

    def delta(self, epsilon: float, distance: float) -> float:
        half = self.ratio / 2.0
        shift = epsilon / self.ratio
        return float(
            min(1.0, max(0.0, ndtr(half - shift) - math.exp(epsilon) * ndtr(-half - shift)) + 1e-17)
        )


@dataclass(frozen=True)
class PeerProfile(PrivacyProfile):
    """Profile that an accountant of dp-accounting has computed."""

    delta_at: Callable[[float], float]

    def delta(self, epsilon: float, distance: float) -> float:
        return min(1.0, self.delta_at(epsilon))


def quick(interval: float = 1e-4) -> list[Accountant]:
    return [
        ShuffledPLDAccountant(value_discretization_interval=interval),
        ShuffledRdpAccountant(),
    ]


def test_a_hundred_people() -> None:
    """Both accountants reproduce our epsilon from above; delta too."""
    ours = ms.amplify(BINARY, 100)
    epsilon = ours.epsilon(DELTA).upper
    for accountant in quick(epsilon / 100):
        accountant.compose(ShuffledDpEvent(BINARY, 100))
        assert epsilon <= accountant.get_epsilon(DELTA) <= 1.01 * epsilon
        delta = ours.delta(epsilon).upper
        assert delta <= accountant.get_delta(epsilon) <= 1.01 * delta


def test_shuffled_events_alone_need_no_fine_grid() -> None:
    """An interval wider than epsilon: one round and three are those of our composition."""
    ours = ms.amplify(BINARY, 100).epsilon(DELTA).upper
    accountant = ShuffledPLDAccountant(value_discretization_interval=2.0 * ours)
    accountant.compose(ShuffledDpEvent(BINARY, 100))
    assert ours <= accountant.get_epsilon(DELTA) <= 1.01 * ours
    accountant.compose(ShuffledDpEvent(BINARY, 100), 2).compose(dp_event.NoOpDpEvent())
    three = joint_profile([(round_profile(BINARY, 100), 3)]).epsilon(DELTA, 1.0)
    assert three <= accountant.get_epsilon(DELTA) <= 1.01 * three
    accountant.compose(dp_event.GaussianDpEvent(5.0))
    assert accountant.get_epsilon(DELTA) > three


def test_more_rounds_than_our_composition_takes() -> None:
    """A hundred thousand and one: only the accounts of dp-accounting are left."""
    accountant = ShuffledRdpAccountant([2.0, 8.0]).compose(ShuffledDpEvent(BINARY, 100), MAX_ROUNDS)
    accountant.compose(ShuffledDpEvent(BINARY, 100))
    divergences = accountant.get_epsilon_and_optimal_order(DELTA)[0]
    assert accountant.get_epsilon(DELTA) == divergences


@pytest.mark.thorough
@pytest.mark.parametrize("users", [10**3, 10**6, 10**9])
def test_epsilon_within_a_hundredth_alone(users: int) -> None:
    epsilon = ms.amplify(EIGHT, users).epsilon(DELTA).upper
    for accountant in quick():
        accountant.compose(ShuffledDpEvent(EIGHT, users))
        assert epsilon <= accountant.get_epsilon(DELTA) <= 1.01 * epsilon


@pytest.mark.thorough
@pytest.mark.parametrize("users", [10**3, 10**6, 10**9])
def test_composed_with_a_gaussian_as_we_compose(users: int) -> None:
    """Loss distributions agree with our composition; divergences lose what they lose without us.

    Replacing a person moves a sum by twice what adding them does, so the ratio is 2 / 5. By
    divergences it moves it once, so their Gaussian has half the noise.
    """
    shuffled = ShuffledDpEvent(EIGHT, users)
    exact = GaussianProfile(2.0 / 5.0)
    ours = ComposedProfile(((round_profile(EIGHT, users), 1), (exact, 1))).epsilon(DELTA, 1.0)
    event = dp_event.ComposedDpEvent([shuffled, dp_event.GaussianDpEvent(5.0)])
    losses = ShuffledPLDAccountant().compose(event).get_epsilon(DELTA)
    assert (1.0 - COMPOSED) * ours <= losses <= 1.01 * ours
    assert losses >= PLDAccountant(REPLACE).compose(dp_event.GaussianDpEvent(5.0)).get_epsilon(
        DELTA
    )
    halved = dp_event.GaussianDpEvent(2.5)
    stock = RdpAccountant(neighboring_relation=REPLACE).compose(halved).get_epsilon(DELTA)
    own_loss = stock / exact.epsilon(DELTA, 1.0)
    event = dp_event.ComposedDpEvent([shuffled, halved])
    divergences = ShuffledRdpAccountant().compose(event).get_epsilon(DELTA)
    assert own_loss < 1.08
    assert (1.0 - COMPOSED) * ours <= divergences <= 1.01 * own_loss * ours


@pytest.mark.thorough
def test_composed_with_a_sampled_event_as_we_compose() -> None:
    """Their profile of the sampled event and ours of the shuffled one, composed by us."""
    sampled = PLDAccountant(REPLACE).compose(SAMPLED, 20)
    profile = TabulatedProfile(PeerProfile(lambda epsilon: float(sampled.get_delta(epsilon))))
    ours = ComposedProfile(((round_profile(EIGHT, 1000), 1), (profile, 1))).epsilon(DELTA, 1.0)
    accountant = ShuffledPLDAccountant().compose(ShuffledDpEvent(EIGHT, 1000)).compose(SAMPLED, 20)
    # The table lies above the curve, by less than a thousandth.
    assert (1.0 - 1e-3) * ours <= accountant.get_epsilon(DELTA) <= 1.01 * ours


@pytest.mark.thorough
@pytest.mark.parametrize("users", [10**3, 10**6, 10**9])
@pytest.mark.parametrize(
    ("accountant", "peer", "other"),
    [
        (ShuffledPLDAccountant, PLDAccountant, SAMPLED),
        (ShuffledRdpAccountant, RdpAccountant, DRAWN_ROWS),
        (ShuffledRdpAccountant, RdpAccountant, dp_event.GaussianDpEvent(5.0)),
    ],
)
def test_composed_with_other_events(
    accountant: Callable[..., Accountant],
    peer: Callable[..., PLDAccountant],
    other: dp_event.DpEvent,
    users: int,
) -> None:
    """More than each alone, at most their sum; within 1 % of the other where ours is small."""
    alone = peer(neighboring_relation=REPLACE).compose(other).get_epsilon(DELTA)
    epsilon = ms.amplify(EIGHT, users).epsilon(DELTA).upper
    event = dp_event.ComposedDpEvent([ShuffledDpEvent(EIGHT, users), other])
    together = accountant().compose(event).get_epsilon(DELTA)
    assert max(alone, epsilon) <= together <= 1.001 * (alone + epsilon)
    if users >= 10**6:
        assert together <= 1.01 * alone


@pytest.mark.thorough
def test_many_rounds_are_no_more_than_ours_and_a_hundredth() -> None:
    """A hundred rounds, counted in three ways, against the composition of this package."""
    ours = ms.amplify(EIGHT, 10_000, rounds=100).epsilon(DELTA).upper
    event = ShuffledDpEvent(EIGHT, 10_000)
    for composed, count in (
        (event, 100),
        (dp_event.SelfComposedDpEvent(event, 50), 2),
        (dp_event.ComposedDpEvent([event, dp_event.SelfComposedDpEvent(event, 99)]), 1),
    ):
        for accountant in quick():
            epsilon = accountant.compose(composed, count).get_epsilon(DELTA)
            assert epsilon == pytest.approx(ours, rel=0.01)


def test_renyi_divergences_are_those_of_the_profile() -> None:
    """`rdp` grows by the divergence of the profile, so every reader of it has an upper bound."""
    orders = [1.5, 4.0, 32.0]
    accountant = ShuffledRdpAccountant(orders).compose(ShuffledDpEvent(BINARY, 100), 3)
    profile = ms.amplify(BINARY, 100).upper
    for order, divergence in zip(orders, accountant.rdp, strict=True):
        assert divergence >= 3 * profile.renyi(order, 1.0) * (1.0 - 1e-3)
        assert divergence <= 3 * profile.renyi(order, 1.0) * 1.05
    assert accountant.get_epsilon_and_optimal_order(DELTA)[0] >= accountant.get_epsilon(DELTA)


def test_an_event_inside_a_private_choice_is_counted_by_its_divergence() -> None:
    """Repeating until a stop reveals more than the event alone."""
    event = ShuffledDpEvent(BINARY, 100)
    chosen = dp_event.RepeatAndSelectDpEvent(event, mean=2.0, shape=1.0)
    alone = ShuffledRdpAccountant().compose(event).get_epsilon(DELTA)
    assert ShuffledRdpAccountant().compose(chosen).get_epsilon(DELTA) > alone


@pytest.mark.thorough
def test_a_metric_randomizer_has_a_distance() -> None:
    randomizer = BoundedGeometric(3, 0.3)
    near = ShuffledRdpAccountant().compose(ShuffledDpEvent(randomizer, 100, 2.0))
    far = ShuffledRdpAccountant().compose(ShuffledDpEvent(randomizer, 100))
    ours = ms.amplify(randomizer, 100)
    assert near.get_epsilon(DELTA) == ours.epsilon(DELTA, 2.0).upper
    assert far.get_epsilon(DELTA) == ours.epsilon(DELTA).upper


def test_other_relations_and_unknown_events_are_refused() -> None:
    for relation in (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_SPECIAL):
        for accountant in (
            ShuffledPLDAccountant(relation),
            ShuffledRdpAccountant(None, relation),
        ):
            assert not accountant.supports(ShuffledDpEvent(EIGHT, 1000))
            with pytest.raises(UnsupportedEventError, match="number of people is public"):
                accountant.compose(ShuffledDpEvent(EIGHT, 1000))
            assert accountant.get_epsilon(DELTA) == 0.0
    for fresh in quick():
        assert not fresh.supports(dp_event.UnsupportedDpEvent())
        fresh.compose(dp_event.NonPrivateDpEvent())
        assert fresh.get_epsilon(DELTA) == math.inf


@pytest.mark.thorough
def test_nothing_of_ours_is_imported_with_the_event() -> None:
    """The module could be contributed: it imports ours only while it composes, or for types."""
    path = Path(str(interop.__file__)).with_name("shuffled_events.py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            assert "metricshuffle" not in f"{getattr(node, 'module', '')} {names}"
    code = (
        "import sys, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('events', {str(path)!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['events'] = module\n"
        "spec.loader.exec_module(module)\n"
        "module.ShuffledPLDAccountant(), module.ShuffledDpEvent(None, 10)\n"
        "print([name for name in sys.modules if name.startswith('metricshuffle')])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed == "[]\n"


def check_never_smaller(drawn: Drawn, interval: float, *, twice: bool) -> None:
    """Both accountants: epsilon, delta, and epsilon of two rounds."""
    profile = ms.amplify(drawn.randomizer, drawn.users).upper
    epsilon = profile.epsilon(drawn.delta, drawn.reach)
    event = ShuffledDpEvent(drawn.randomizer, drawn.users, drawn.distance)
    for accountant in quick(max(epsilon / 50, interval)):
        accountant.compose(event)
        assert accountant.get_epsilon(drawn.delta) >= epsilon, drawn
        asked = epsilon / 2
        assert accountant.get_delta(asked) >= profile.delta(asked, drawn.reach), drawn
        if twice:
            accountant.compose(event)
            assert accountant.get_epsilon(drawn.delta) >= epsilon, drawn


@pytest.mark.thorough
def test_never_smaller_than_the_profile() -> None:
    for drawn in settings(50, 2):
        check_never_smaller(drawn, 1e-4, twice=False)


@pytest.mark.slow
def test_never_smaller_than_the_profile_in_a_thousand_settings() -> None:
    for drawn in settings(1000, 3):
        check_never_smaller(drawn, 1e-6, twice=drawn.users % 10 == 0)


def test_any_randomizer_of_a_local_epsilon_and_a_single_pair() -> None:
    """The generic account is an event too; one that leaves out pairs of inputs is refused."""
    generic = ms.GenericLDP(1.0)
    epsilon = ms.amplify(generic, 1000).epsilon(DELTA).upper
    for accountant in quick(epsilon / 100):
        accountant.compose(ShuffledDpEvent(generic, 1000), 2)
        assert epsilon < accountant.get_epsilon(DELTA) < 2.0 * epsilon
    pair = ChannelPair([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]], 0, 1)
    for event, words in (
        (ShuffledDpEvent(pair, 1000), "Use the Channel"),
        (ShuffledDpEvent(BINARY, 0), "users must be a whole number >= 1"),
        (ShuffledDpEvent(BINARY, 10, 2.0), "distance must lie in"),
        (ShuffledDpEvent("krr", 10), "needs a randomizer"),  # type: ignore[arg-type]
    ):
        for accountant in quick():
            assert not accountant.supports(event)
            with pytest.raises(UnsupportedEventError, match=words):
                accountant.compose(event)
            assert accountant.get_epsilon(DELTA) == 0.0
            assert accountant.ledger == dp_event.NoOpDpEvent()


def test_joint_profiles_are_at_least_their_parts() -> None:
    first = round_profile(BINARY, 100)
    second = round_profile(BinaryRandomizedResponse(0.5), 50, 1.0)
    joint = joint_profile([(first, 1), (second, 2), (first, 1)])
    assert isinstance(joint, ComposedProfile)
    assert joint.rounds == 4
    assert joint.epsilon(DELTA, 1.0) > max(first.epsilon(DELTA), second.epsilon(DELTA))
    assert joint_profile([(first, 1)]) is first
