"""What sending noisy vectors in mixed shares adds: several coordinates in one element, many piles, and how far a promise reaches."""

from __future__ import annotations

import math
from collections.abc import Iterable

from metricshuffle.accounting.sums.split_and_mix import security_bits, view_penalty
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.certified_search import first_certified, last_certified
from metricshuffle.privacy.profile import checked_delta

# Fewer bits say nothing about more people than `honest`, and too little about so many.
MIN_BITS = 0.25


@theorem("metricshuffle", "Split-and-mix, several coordinates in one element, any number of people from a least one on")
def packed_security_bits(honest: int, messages: int, moduli: Iterable[int]) -> float:
    """Certified sigma of one pile whose elements hold one residue for each of `moduli`; 0 where it would be below 1/4.

    Statement: everybody splits a vector of residues, an element of G = Z_q1 x ... x Z_qb, into M elements of G: M - 1 uniform ones and the
    difference. With sigma = `security_bits` at the modulus |G| = q1 ... qb and n0 = `honest` people, a law that depends on the sum
    alone lies within 2^-(sigma + 1) of every view of n people with that sum, for EVERY n >= n0. For several piles, each mixed by
    itself, whose ideal sums keep (epsilon, delta), the views keep (epsilon, delta + piles (1 + e^epsilon) 2^-(sigma + 1)):
    `SplitAndMix` with one sharing for each pile and round.
    Conditions: those of `security_bits`; elements are shuffled whole, piles independently of each other (were a person's messages linked
    across piles, |G| would be the product over all of them). Coordinates that are 0 in all values (to detect lost messages) are part
    of G: their shares are as random as the others and link messages just as well.
    Proof: docs/proofs/noisy-vectors.md, (c) and (d). Only sums and a count of images enter the proof for Z_q, which hold in any finite
    commutative group; and the expectation behind sigma does not grow with n once it is at most 0.73, that is sigma >= 0.23.
    Numerics: rounded down.
    """
    order = math.prod(moduli)
    sigma = security_bits(honest, messages, order)
    return sigma if sigma >= MIN_BITS else 0.0


def mixing_term(epsilon: float, sigma: float, sharings: int) -> float:
    """sharings * (1 + e^epsilon) 2^-(sigma + 1), rounded up; at most 1. What `SplitAndMix` adds to delta."""
    return min(1.0, math.nextafter(_whole(sharings) * view_penalty(epsilon, sigma), math.inf))


def largest_mixed_epsilon(sharings: int, sigma: float, delta: float) -> float:
    """The largest total epsilon, over everybody who moves, at which `mixing_term` is at most delta; the last certified.

    Pure promises about ideal sums hold at every distance; sent in shares they hold with this delta up to here.
    """
    delta, sharings = checked_delta(delta), _whole(sharings)

    def certified(epsilon: float) -> bool:
        return mixing_term(epsilon, sigma, sharings) <= delta

    if not certified(0.0):
        raise NotCertified(
            f"sharing alone adds {mixing_term(0.0, sigma, sharings):.1e} to delta, more than the {delta:g} allowed; use more messages each."
        )
    # ln((delta 2^(sigma+1) / sharings) - 1) is not far below this, which does not pass.
    limit = max(1.0, math.log(delta) + (sigma + 1.0) * math.log(2.0) + 1.0)
    bracket = first_certified(certified, limit, 0.0, step=-0.5, failing=limit)
    return last_certified(certified, bracket.failing, bracket.passing)


def _whole(sharings: int) -> int:
    if isinstance(sharings, bool) or not isinstance(sharings, int) or sharings < 1:
        raise InputError(f"sharings must be a whole number >= 1, got {sharings!r}.")
    return sharings
