"""Registry of the statement each formula implements: `@theorem("Balle20", "Theorem 1")`.

`docs/theorems.md` is generated from it, so a formula without a source, or a source without a
formula, is visible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

PAPERS: dict[str, str] = {
    "Acharya19": "J. Acharya, Z. Sun, H. Zhang. Hadamard Response: Estimating Distributions "
    "Privately, "
    "Efficiently, "
    "and with Little Communication. AISTATS 2019.",
    "Andres13": "M. Andres, N. Bordenabe, K. Chatzikokolakis, C. Palamidessi. "
    "Geo-Indistinguishability: Differential Privacy for "
    "Location-Based Systems. CCS 2013.",
    "Athanasiou25": (
        "A. Athanasiou, K. Chatzikokolakis, C. Palamidessi. Enhancing Metric Privacy With a "
        "Shuffler. PoPETs 2025."
    ),
    "Balcer20": (
        "V. Balcer, A. Cheu. Separating Local and Shuffled Differential Privacy via "
        "Histograms. ITC 2020."
    ),
    "Balle20": (
        "B. Balle, J. Bell, A. Gascon, K. Nissim. Private Summation in the Multi-Message "
        "Shuffle Model. CCS 2020."
    ),
    "Canonne20": (
        "C. Canonne, G. Kamath, T. Steinke. The Discrete Gaussian for Differential Privacy. "
        "NeurIPS 2020."
    ),
    "Chatzikokolakis13": "K. Chatzikokolakis, M. Andres, N. Bordenabe, C. Palamidessi. "
    "Broadening the Scope of Differential Privacy Using Metrics. PETS 2013.",
    "Cheu22": (
        "A. Cheu, M. Zhilyaev. Differentially Private Histograms in the Shuffle Model from "
        "Fake Users. IEEE S&P 2022."
    ),
    "Clopper34": "C. Clopper, E. Pearson. The Use of Confidence or Fiducial Limits Illustrated in "
    "the "
    "Case of the Binomial. "
    "Biometrika 1934.",
    "Doroshenko22": "V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi. "
    "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions. PoPETs 2022.",
    "Duchi18": (
        "J. Duchi, M. Jordan, M. Wainwright. Minimax Optimal Procedures for Locally Private "
        "Estimation. JASA 2018."
    ),
    "Erlingsson14": (
        "U. Erlingsson, V. Pihur, A. Korolova. RAPPOR: Randomized Aggregatable "
        "Privacy-Preserving Ordinal Response. CCS 2014."
    ),
    "Ghazi20": (
        "B. Ghazi, R. Kumar, P. Manurangsi, R. Pagh. Private Counting from Anonymous Messages: "
        "Near-Optimal Accuracy with Vanishing Communication Overhead. ICML 2020."
    ),
    "Ghosh12": (
        "A. Ghosh, T. Roughgarden, M. Sundararajan. Universally Utility-Maximizing Privacy "
        "Mechanisms. SIAM J. Comput. 2012."
    ),
    "Goryczka17": (
        "S. Goryczka, L. Xiong. A Comprehensive Comparison of Multiparty Secure Additions with "
        "Differential Privacy. TDSC 2017."
    ),
    "Gu20": "X. Gu, M. Li, Y. Cheng, L. Xiong, Y. Cao. PCKV: Locally Differentially Private "
    "Correlated Key-Value Data Collection with "
    "Optimized Utility. USENIX Security 2020.",
    "Hardt10": "M. Hardt, K. Talwar. On the Geometry of Differential Privacy. STOC 2010.",
    "Imola24": "J. Imola, A. Roy Chowdhury, K. Chaudhuri. "
    "Metric Differential Privacy at the User-Level via the Earth Mover's Distance. 2024.",
    "Kairouz15": (
        "P. Kairouz, S. Oh, P. Viswanath. The Composition Theorem for Differential Privacy. "
        "ICML 2015."
    ),
    "Kairouz16": (
        "P. Kairouz, K. Bonawitz, D. Ramage. Discrete Distribution Estimation under Local "
        "Privacy. ICML 2016."
    ),
    "Luo22": (
        "Q. Luo, Y. Wang, K. Yi. Frequency Estimation in the Shuffle Model with Almost a "
        "Single Message. CCS 2022."
    ),
    "McSherry07": "F. McSherry, K. Talwar. Mechanism Design via Differential Privacy. FOCS 2007.",
    "Murakami25": (
        "T. Murakami, Y. Sei, R. Eriguchi. Augmented Shuffle Protocols for Accurate and Robust "
        "Frequency Estimation under Differential Privacy. arXiv:2504.07362, 2025."
    ),
    "Nguyen16": "T. Nguyen, X. Xiao, Y. Yang, S. Hui, H. Shin, J. Shin. Collecting and Analyzing "
    "Data "
    "from Smart Device Users with Local "
    "Differential Privacy. arXiv:1606.05053, 2016.",
    "Wang17": (
        "T. Wang, J. Blocki, N. Li, S. Jha. Locally Differentially Private Protocols for "
        "Frequency Estimation. USENIX Security 2017."
    ),
    "Wang18": "S. Wang, L. Huang, Y. Nie, P. Wang, H. Xu, W. Yang. "
    "PrivSet: Set-Valued Data Analyses with Locale Differential Privacy. INFOCOM 2018.",
    "Wang24": "S. Wang, Y. Peng, J. Li, Z. Wen, Z. Li, S. Yu, D. Wang, W. Yang. "
    "Privacy Amplification via Shuffling: Unified, Simplified, and Tightened. PVLDB 2024, "
    "arXiv:2304.05007.",
    "Warner65": (
        "S. Warner. Randomized Response: A Survey Technique for Eliminating Evasive Answer "
        "Bias. JASA 1965."
    ),
    "WitchHat": "A paper on metric differential privacy in the shuffle model (Corollaries 1 and 2, "
    "Algorithms 1 to 3, WitchHat), "
    "of which only the supplement was at hand.",
    "Ye18": "M. Ye, A. Barg. "
    "Optimal Schemes for Discrete Distribution Estimation under Locally Differential "
    "Privacy. IEEE Trans. Inf. Theory 2018.",
    "Ye19": (
        "Q. Ye, H. Hu, X. Meng, H. Zheng. PrivKV: Key-Value Data Collection with Local "
        "Differential Privacy. IEEE S&P 2019."
    ),
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
