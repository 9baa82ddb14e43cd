"""Fixtures of commands, shared with the tests of metricshuffle."""

from tests.cli.conftest import terminal as terminal
from tests.cli.conftest import values as values
from tests.cli.conftest import visits as visits
