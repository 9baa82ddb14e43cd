"""Tests of shuffled events in the style of dp-accounting, which could take them with the adapter.

They import dp-accounting, the adapter, and the account of any randomizer of a local epsilon.
"""

# ruff: noqa: PT009, PT027 - assertions of absltest, as in dp-accounting
from __future__ import annotations

import math

import pytest
from absl.testing import absltest, parameterized
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

from metricshuffle import GenericLDP
from metricshuffle.interop.shuffled_events import (
    ShuffledDpEvent,
    ShuffledPLDAccountant,
    ShuffledRdpAccountant,
)

pytestmark = pytest.mark.thorough
DELTA = 1e-6
ACCOUNTANTS = (ShuffledPLDAccountant, ShuffledRdpAccountant)
EVENT = ShuffledDpEvent(GenericLDP(1.0), 1000)
# Stronger clones (Feldman, McMillan, Talwar, SODA 2023) for 1,000 reports of local epsilon 1.
STRONGER_CLONES = 0.1486706


class ShuffledEventsTest(parameterized.TestCase):  # type: ignore[misc]
    """Both accountants, alone and in compositions."""

    @parameterized.parameters(*ACCOUNTANTS)  # type: ignore[untyped-decorator]
    def test_one_event(self, accountant: type[ShuffledRdpAccountant]) -> None:
        epsilon = accountant().compose(EVENT).get_epsilon(DELTA)
        self.assertGreaterEqual(epsilon, STRONGER_CLONES)
        self.assertLess(epsilon, 1.01 * STRONGER_CLONES)
        self.assertLess(epsilon, 1.0)

    @parameterized.parameters(*ACCOUNTANTS)  # type: ignore[untyped-decorator]
    def test_composition_is_between_the_parts_and_their_sum(
        self, accountant: type[ShuffledRdpAccountant]
    ) -> None:
        gaussian = dp_event.GaussianDpEvent(5.0)
        stock = {ShuffledPLDAccountant: PLDAccountant, ShuffledRdpAccountant: RdpAccountant}
        alone = stock[accountant](neighboring_relation=NeighboringRelation.REPLACE_ONE)
        largest = alone.compose(gaussian).get_epsilon(DELTA)
        own = accountant().compose(EVENT).get_epsilon(DELTA)
        both = dp_event.ComposedDpEvent([EVENT, gaussian])
        together = accountant().compose(both).get_epsilon(DELTA)
        self.assertGreaterEqual(together, max(largest, own))
        self.assertLessEqual(together, 1.001 * (largest + own))

    @parameterized.parameters(*ACCOUNTANTS)  # type: ignore[untyped-decorator]
    def test_self_composition_is_composition(self, accountant: type[ShuffledRdpAccountant]) -> None:
        twice = accountant().compose(dp_event.SelfComposedDpEvent(EVENT, 2)).get_epsilon(DELTA)
        counted = accountant().compose(EVENT, 2).get_epsilon(DELTA)
        self.assertAlmostEqual(twice, counted, places=9)
        self.assertGreater(twice, accountant().compose(EVENT).get_epsilon(DELTA))

    @parameterized.parameters(*ACCOUNTANTS)  # type: ignore[untyped-decorator]
    def test_other_relations_are_unsupported(self, accountant: type[ShuffledRdpAccountant]) -> None:
        other = accountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
        self.assertFalse(other.supports(EVENT))
        with self.assertRaises(UnsupportedEventError):
            other.compose(EVENT)

    @parameterized.parameters(*ACCOUNTANTS)  # type: ignore[untyped-decorator]
    def test_no_event_and_a_non_private_one(self, accountant: type[ShuffledRdpAccountant]) -> None:
        fresh = accountant()
        self.assertEqual(fresh.get_epsilon(DELTA), 0.0)
        fresh.compose(EVENT).compose(dp_event.NonPrivateDpEvent())
        self.assertEqual(fresh.get_epsilon(DELTA), math.inf)


if __name__ == "__main__":
    absltest.main()
