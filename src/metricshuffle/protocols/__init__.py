"""How a question is answered: values -messages-> Tally -publish-> Shuffled -estimate-> Estimate."""

from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Account, AnyProtocol, Layout, Protocol, Reports
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
    "Reports",
    "Shuffled",
    "Sums",
    "Tally",
]
