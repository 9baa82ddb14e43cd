"""Protocols: how values become messages, messages a tally, and a tally a release and an estimate.

Clients turn values into messages (`Protocol.messages`), the trusted party adds them up to a `Tally`
and releases a `Shuffled` (`Protocol.published`), and the analyst computes an `Estimate` from it
(`Protocol.estimate`).
"""

from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Account, AnyProtocol, Layout, Protocol, Reports
from metricshuffle.protocols.record_reports import RecordReports
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Batch, Shuffled, Tally

__all__ = [
    "Account",
    "AnyProtocol",
    "Batch",
    "Frequencies",
    "Layout",
    "NoisyAnswers",
    "NoisyVectors",
    "Protocol",
    "RecordReports",
    "Reports",
    "Shuffled",
    "ShufflerNoise",
    "Sums",
    "Tally",
]
