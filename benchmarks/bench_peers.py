"""Published bounds and other libraries in one run: epsilon of shuffled 1-private reports.

At delta 1e-6, with the time it takes. Run `python -m benchmarks peers`, or `python -m
benchmarks.bench_peers` for a table in Markdown. Two peers are run if METRICSHUFFLE_PEERS names a
folder with checkouts of them, ml-shuffling-amplification (Apple) and amplification-by-shuffling (B.
Balle); no part of them is stored here.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_sampling import opendp_discrete_laplace
from benchmarks.measuring import draws_per_second, measurement
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.amplification.amplify import amplify
from metricshuffle.noise.samplers import rational_rate, sample_discrete_laplace
from metricshuffle.randomizers import BinaryRandomizedResponse, KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness

LOCAL = 1.0
DELTA = 1e-6
USERS = (10**3, 10**4, 10**6, 10**8)
FOLDER = "METRICSHUFFLE_PEERS"
FOURIER_POINTS = 2**20
DEVIATIONS = 24.0
"""Width of the Fourier transform in standard deviations of the sum: twelve on each side."""
ABOUT = {"any": "any 1-private", "2-RR": "binary response", "8-RR": "8-ary response"}
RESPONSES = {"2-RR": 2, "8-RR": 8}
RANDOMIZERS: dict[str, Randomizer] = {
    "2-RR": BinaryRandomizedResponse(LOCAL),
    "8-RR": KaryRandomizedResponse(8, LOCAL),
}
APPLE = "Apple's code: clones (2021)"
BALLE = "Balle's code: Bennett"


@dataclass(frozen=True)
class Bound:
    """Method to compute epsilon from a number of users.

    `about`: any randomizer of that local epsilon, or k-ary randomized response (a word of ABOUT).
    """

    name: str
    about: str
    epsilon: Callable[[int], float]
    ours: bool = False


def smallest_epsilon(delta_at: Callable[[float], float]) -> float:
    """Smallest epsilon by bisection to seven digits; published formulas give a falling delta."""
    low = 0.0
    high = LOCAL
    while high - low > 1e-7 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if delta_at(middle) <= DELTA else (middle, high)
    return high


@dataclass(frozen=True)
class Amplified:
    """Parameters of a randomizer for the bounds of Balle, Bell, Gascon and Nissim.

    The Privacy Blanket of the Shuffle Model, CRYPTO 2019. The blanket has probability `gamma`; L =
    (K_a - e^eps K_b)/blanket, for a report of the blanket, has mean 1 - e^eps, is at most `most`,
    has a `spread` from least to largest, and a `variance`, each as a function of eps.
    """

    gamma: float
    most: Callable[[float], float]
    spread: Callable[[float], float]
    variance: Callable[[float], float]

    @classmethod
    def any_randomizer(cls, local: float) -> Amplified:
        """Any randomizer of that local epsilon (their Lemma 5.1 and what follows from it)."""
        p = math.exp(local)
        return cls(
            1.0 / p,
            lambda eps: p * (1.0 - math.exp(eps) / p**2),
            lambda eps: (math.exp(eps) + 1.0) * (p - 1.0 / p),
            lambda eps: p * (math.exp(2.0 * eps) + 1.0) - 2.0 / p * math.exp(eps) / p**2,
        )

    @classmethod
    def response(cls, local: float, options: int) -> Amplified:
        """Randomized response among some options: the blanket is uniform with probability gamma."""
        gamma = options / (math.exp(local) + options - 1.0)
        return cls(
            gamma,
            lambda eps: gamma * (1.0 - math.exp(eps)) + (1.0 - gamma) * options,
            lambda eps: (1.0 - gamma) * options * (math.exp(eps) + 1.0),
            lambda eps: (
                gamma * (2.0 - gamma) * (math.exp(eps) - 1.0) ** 2
                + options * (1.0 - gamma) ** 2 * (math.exp(2.0 * eps) + 1.0)
            ),
        )

    def epsilon(self, users: int, inequality: str) -> float:
        return smallest_epsilon(partial(self._delta, users, inequality))

    def _delta(self, users: int, inequality: str, eps: float) -> float:
        """delta <= E(L_1 + .. + L_m)_+ / (gamma n), m ~ Bin(n, gamma), by an inequality.

        Each inequality bounds the mean by factor * e^(-m rate). Hoeffding: b^2/(4a) e^(-2 m
        a^2/b^2); Bennett: b/log(1 + ab/c) e^(-m c/b^2 phi(ab/c)), phi(u) = (1+u) log(1+u) - u. The
        mean over m is the generating function of the binomial law.
        """
        a = math.expm1(eps)
        if inequality == "Hoeffding":
            b = self.spread(eps)
            factor = b**2 / (4.0 * a)
            rate = 2.0 * (a / b) ** 2
        else:
            b = self.most(eps)
            c = self.variance(eps)
            u = a * b / c
            factor = b / math.log1p(u)
            rate = c / b**2 * ((1.0 + u) * math.log1p(u) - u)
        return (
            factor
            / (self.gamma * users)
            * math.exp(users * math.log1p(self.gamma * math.expm1(-rate)))
        )


def stronger_clones(users: int) -> float:
    """Stronger clones bound by plain sums, not rounded up anywhere.

    V. Feldman, A. McMillan, K. Talwar, Stronger Privacy Amplification by Shuffling, SODA 2023. P =
    (A + B, C - A + 1 - B) against Q, where B and 1 - B are exchanged; C ~ Bin(n-1, 2/(p+1)), A ~
    Bin(C, 1/2), B ~ Bernoulli(p/(p+1)).
    """
    from scipy.stats import binom

    p = math.exp(LOCAL)
    centre = (users - 1) * 2.0 / (p + 1.0)
    width = 4.0 * math.sqrt(users) + 20.0  # eight standard deviations
    counts = np.arange(
        max(0, math.floor(centre - width)), min(users - 1, math.ceil(centre + width)) + 1
    )
    chances = binom.pmf(counts, users - 1, 2.0 / (p + 1.0))

    def delta(eps: float) -> float:
        e = math.exp(eps)
        first = np.ceil(
            (counts + 1) * (e * p - 1.0) / ((p - 1.0) * (e + 1.0))
        )  # the least A + B that favours P
        without = binom.sf(first - 1, counts, 0.5)
        with_one = binom.sf(first - 2, counts, 0.5)
        gain = ((p * with_one + without) - e * (p * without + with_one)) / (p + 1.0)
        return float(chances @ np.maximum(gain, 0.0))

    return smallest_epsilon(delta)


def optimal_decomposition(users: int, options: int = 2) -> float:
    """Best bound of all decompositions, for k-ary randomized response, not rounded up anywhere.

    P. Su, H. Cheng, P. Wang, Decomposition-Based Optimal Bounds for Privacy Amplification via
    Shuffling, 2025 (arXiv 2504.07414): among all ways to decompose a randomizer, the privacy
    blanket is the best, delta(eps) <= E(Z_1 + .. + Z_n)_+ / (gamma n), where Z is 0 with
    probability 1 - gamma and otherwise L = (K_a - e^eps K_b)/blanket for a report of the blanket.
    The law of the sum is a power of a Fourier transform. The step divides half the distance between
    the two largest values of |L| into equal parts, so that both are near points of the grid; what
    lies between two points is split so that its mean stays, which can only raise the positive part.
    """
    other = 1.0 / (math.exp(LOCAL) + options - 1.0)
    own = math.exp(LOCAL) * other
    gamma = options * other

    def delta(eps: float) -> float:
        growth = math.exp(eps)
        values = np.array([0.0, own - growth * other, other - growth * own, other * (1.0 - growth)])
        values *= options
        chances = np.array([1.0 - gamma, other, other, (options - 2.0) * other])
        mean = float(chances @ values)
        deviation = math.sqrt(users * float(chances @ (values - mean) ** 2))
        width = DEVIATIONS * deviation + 4.0 * float(np.abs(values).max())
        half = (values[1] - values[2]) / 2.0
        step = half / math.floor(half / (width / FOURIER_POINTS))
        law = np.zeros(FOURIER_POINTS)
        for value, chance in zip(values / step, chances, strict=True):
            below = math.floor(value)
            law[below % FOURIER_POINTS] += chance * (below + 1 - value)
            law[(below + 1) % FOURIER_POINTS] += chance * (value - below)
        total = np.fft.irfft(np.fft.rfft(law) ** users, FOURIER_POINTS)
        first = math.floor(users * mean / step) - FOURIER_POINTS // 2
        points = first + (np.arange(FOURIER_POINTS) - first) % FOURIER_POINTS
        positive = points > 0
        gain = float(total[positive] @ points[positive]) * float(step)
        return gain / (gamma * users)

    return smallest_epsilon(delta)


@contextmanager
def imported_from(folder: Path, name: str) -> Iterator[Any]:
    """Import a module of a checkout."""
    sys.path.insert(0, str(folder))
    try:
        yield import_module(name)
    finally:
        sys.path.remove(str(folder))


def peers() -> list[Bound]:
    """Peers whose checkouts exist."""
    named = os.environ.get(FOLDER)
    found = []
    if not named:
        return []
    apple = Path(named) / "ml-shuffling-amplification"
    balle = Path(named) / "amplification-by-shuffling"
    if apple.is_dir():
        with imported_from(apple, "computeamplification") as clones:

            def run(users: int) -> float:
                # As in their example: blocks of counts a third as long as sqrt(n); 15 halvings
                # instead of 10.
                blocks = max(1, round(math.sqrt(users) / 3))
                return float(clones.numericalanalysis(users, LOCAL, DELTA, 15, blocks, True))

            found.append(Bound(APPLE, "any", run))
    if balle.is_dir():
        with (
            imported_from(balle, "shuffleddp.mechanisms") as mechanisms,
            imported_from(balle, "shuffleddp.amplification_bounds") as code,
        ):
            for about, mechanism in (
                ("any", mechanisms.LDPMechanism(eps0=LOCAL)),
                *(
                    (about, mechanisms.RRMechanism(eps0=LOCAL, k=options))
                    for about, options in RESPONSES.items()
                ),
            ):
                bound = code.BennettExact(mechanism)
                found.append(
                    Bound(
                        BALLE,
                        about,
                        lambda users, bound=bound: bound.get_eps(LOCAL, users, DELTA),  # type: ignore[misc]
                    )
                )
    return found


def bounds() -> list[Bound]:
    """Every bound in the order of the table: published ones, peers that are there, and ours."""
    laws = [("any", Amplified.any_randomizer(LOCAL))]
    laws += [(about, Amplified.response(LOCAL, count)) for about, count in RESPONSES.items()]
    published = [
        Bound(
            f"Balle et al. 2019, {inequality}",
            about,
            lambda users, law=law, inequality=inequality: law.epsilon(users, inequality),  # type: ignore[misc]
        )
        for about, law in laws
        for inequality in ("Hoeffding", "Bennett")
    ]
    published.append(Bound("stronger clones (2023), plain sums", "any", stronger_clones))
    published += [
        Bound(
            "optimal decomposition (2025), by FFT",
            about,
            partial(optimal_decomposition, options=options),
        )
        for about, options in RESPONSES.items()
    ]
    ours = [
        Bound(
            "ours",
            "any",
            lambda users: epsilon_upper(ClonePair(LOCAL, LOCAL, LOCAL), users, DELTA),
            ours=True,
        )
    ]
    for about, randomizer in RANDOMIZERS.items():
        ours.append(
            Bound(
                "ours",
                about,
                lambda users, randomizer=randomizer: (
                    amplify(randomizer, users)  # type: ignore[misc]
                    .epsilon(DELTA)
                    .upper
                ),
                ours=True,
            )
        )
    order = [*published, *peers(), *ours]
    return [bound for about in ABOUT for bound in order if bound.about == about]


def timed(bound: Bound, users: int) -> tuple[float, float]:
    """Epsilon and processor seconds, the best of several runs; slow bounds are run once."""
    if bound.ours:  # it may compile when it is first called
        bound.epsilon(users)
    best = math.inf
    runs = 0
    while runs == 0 or (runs < 6 and best < 2.0):
        start = time.process_time()
        epsilon = bound.epsilon(users)
        best = min(best, time.process_time() - start)
        runs = runs + 1
    return epsilon, best


def samplers() -> list[tuple[str, float, float]]:
    """Name, draws per second here, and by OpenDP: in bulk, and one at a time."""
    import opendp.prelude as dp

    stream = Randomness.system()
    tenth = rational_rate(0.1)
    many = 2_000_000
    some = 100_000
    exact = draws_per_second(lambda: sample_discrete_laplace(tenth, many, stream), many)
    rows = [
        (
            "discrete Laplace of rate 0.1, exact",
            exact,
            draws_per_second(opendp_discrete_laplace(0.1, some), some),
        )
    ]
    response = BinaryRandomizedResponse(LOCAL)
    theirs = dp.m.make_randomized_response_bool(math.e / (1.0 + math.e))
    bits = np.ones(10_000_000, dtype=np.uint8)
    one = np.ones(1, dtype=np.uint8)
    calls = 2000
    bulk = draws_per_second(lambda: response.reports(bits, stream), bits.size)
    alone = draws_per_second(lambda: [response.reports(one, stream) for _ in range(calls)], calls)
    other = draws_per_second(lambda: [theirs(True) for _ in range(calls)], calls)
    return [
        *rows,
        ("randomized response of a bit, in bulk", bulk, other),
        ("randomized response of a bit, one a call", alone, other),
    ]


def measurements() -> list[dict[str, Any]]:
    rows = []
    for users in USERS:
        results = [(bound, *timed(bound, users)) for bound in bounds()]
        own = {bound.about: (epsilon, taken) for bound, epsilon, taken in results if bound.ours}
        for bound, epsilon, taken in results:
            name = f"{bound.name}, {bound.about}, {users:.0e} users"
            rows.append(measurement(name, epsilon, f"epsilon, {taken:.3g} s", None))
            if not bound.ours:
                ratio = epsilon / own[bound.about][0]
                rows.append(
                    measurement(
                        "  over ours",
                        ratio,
                        f"times, in {taken / own[bound.about][1]:.3g} times the time",
                        None,
                    )
                )
    rows += [
        measurement(f"{name}: ours / OpenDP", ours / theirs, "times as fast", None)
        for name, ours, theirs in samplers()
    ]
    return rows


def markdown() -> str:
    """Markdown table: epsilon of every bound, and its time as a multiple of ours."""
    known = bounds()
    measured = {
        (bound.name, bound.about, users): timed(bound, users) for users in USERS for bound in known
    }
    lines = [
        "| reports | bound | "
        f"{' | '.join(f'n = 1e{round(math.log10(users))}' for users in USERS)} |",
        f"|---|---|{'---|' * len(USERS)}",
    ]
    for bound in known:
        cells = []
        for users in USERS:
            epsilon, taken = measured[bound.name, bound.about, users]
            ratio = taken / measured["ours", bound.about, users][1]
            cells.append(
                f"**{epsilon:.5g}** ({_duration(taken)})"
                if bound.ours
                else f"{epsilon:.5g} ({_times(ratio)})"
            )
        lines.append(
            f"| {ABOUT[bound.about]} | {f'**{bound.name}**' if bound.ours else bound.name} | "
            f"{' | '.join(cells)} |"
        )
    lines += ["", "| draws | ours / OpenDP |", "|---|---|"]
    lines += [
        f"| {name} | {_times(ours / theirs)} ({ours:.2g} against {theirs:.2g} a second) |"
        for name, ours, theirs in samplers()
    ]
    return "\n".join(lines)


def _times(ratio: float) -> str:
    return f"{float(f'{ratio:.2g}'):,.0f} x" if ratio >= 10.0 else f"{ratio:.2g} x"


def _duration(taken: float) -> str:
    return (
        f"{taken * 1e6:.0f} us"
        if taken < 1e-3
        else f"{taken * 1e3:.2g} ms"
        if taken < 1.0
        else f"{taken:.2g} s"
    )


if __name__ == "__main__":
    print(markdown())
