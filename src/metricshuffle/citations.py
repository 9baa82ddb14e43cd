"""Which statement each formula implements: `@theorem("Balle20", "Theorem 1")`.

The registry is what `docs/theorems.md` is generated from, so a formula without a
source, or a source without a formula, is visible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

PAPERS: dict[str, str] = {
    "Athanasiou25": "A. Athanasiou, K. Chatzikokolakis, C. Palamidessi. Enhancing Metric Privacy With a Shuffler. PoPETs 2025.",
    "Balle20": "B. Balle, J. Bell, A. Gascon, K. Nissim. Private Summation in the Multi-Message Shuffle Model. CCS 2020.",
    "Canonne20": "C. Canonne, G. Kamath, T. Steinke. The Discrete Gaussian for Differential Privacy. NeurIPS 2020.",
    "Chatzikokolakis13": "K. Chatzikokolakis, M. Andres, N. Bordenabe, C. Palamidessi. "
    "Broadening the Scope of Differential Privacy Using Metrics. PETS 2013.",
    "Doroshenko22": "V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi. "
    "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions. PoPETs 2022.",
    "Ghosh12": "A. Ghosh, T. Roughgarden, M. Sundararajan. Universally Utility-Maximizing Privacy Mechanisms. SIAM J. Comput. 2012.",
    "Goryczka17": "S. Goryczka, L. Xiong. A Comprehensive Comparison of Multiparty Secure Additions with Differential Privacy. TDSC 2017.",
    "metricshuffle": "Proved in the docstring of the function itself.",
}


@dataclass(frozen=True)
class Statement:
    """One registered formula."""

    function: str
    paper: str
    label: str
    text: str


STATEMENTS: dict[str, Statement] = {}

F = TypeVar("F", bound=Callable[..., object])


def theorem(paper: str, label: str) -> Callable[[F], F]:
    """Register the decorated function as the implementation of a statement."""
    if paper not in PAPERS:
        raise KeyError(f"{paper!r} is not in PAPERS; add the full reference there first.")

    def register(function: F) -> F:
        name = f"{function.__module__}.{function.__qualname__}"
        STATEMENTS[name] = Statement(name, paper, label, function.__doc__ or "")
        return function

    return register
