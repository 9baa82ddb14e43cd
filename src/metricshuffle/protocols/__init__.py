"""How a question is answered: values -messages-> Tally -publish-> Shuffled -estimate-> Estimate."""

from metricshuffle.protocols.answers import NoisyAnswers
from metricshuffle.protocols.base import Account, AnyProtocol, Layout, Protocol, Reports
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Batch, Shuffled, Tally
from metricshuffle.protocols.vectors import NoisyVectors

__all__ = [
    "Account",
    "AnyProtocol",
    "Batch",
    "Frequencies",
    "Layout",
    "NoisyAnswers",
    "NoisyVectors",
    "Protocol",
    "Reports",
    "Shuffled",
    "Sums",
    "Tally",
]
