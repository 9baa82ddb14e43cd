"""Largest loss per unit of distance of features of zones: single zones, and barycentric hats."""

from __future__ import annotations

import math

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces.places import SMALLEST_RADIUS

PLANE_ERROR = 1e-6  # metres: rounding of coordinates in the plane


@theorem("metricshuffle", "Z2, zones counted one by one")
def single_zone_slope(rates: Floats, half_distances: Floats) -> float:
    """Upper bound on the loss per unit of distance of indicators of zones, rounded up.

    Statement: let w_z be at most half the distance from zone z to the nearest other zone, and a_z
    the rate of the noise on its count. Then the loss of a move between two zones is at most the
    largest quotient a_z/w_z times their distance. No pairs are compared.
    Conditions: w_z > 0: no two zones have the same point. The distances may be any lower bounds,
    such as straight lines for distances on the ground.
    Proof: a move from z to y changes the counts of z and y by one each and costs a_z + a_y <= s
    (w_z + w_y), with s the largest quotient; both w_z and w_y are at most half the distance of z
    and y. QED
    Numerics: the quotient is rounded up.
    Reference: docs/proofs/zones.md, (a).
    """
    if not np.all(half_distances > 0.0):
        raise InputError("zones at distance 0 cannot be counted one by one; merge them.")
    return round_up(float(np.max(rates / half_distances)), 8)


@theorem("metricshuffle", "Z1, barycentric hats on a lattice of triangles")
def barycentric_slope(
    grain: float, least_distance: float, diameter: float, metre: float = 1.0
) -> float:
    """Upper bound on the sum of changes of hats per unit of distance, rounded up.

    Statement: let a plane be divided into triangles, and let phi_e(x) be the barycentric
    coordinates of x in its triangle. Then sum_e |phi_e(x) - phi_e(y)| <= 2 |x - y|/h, with h the
    least height of a triangle. For the lattice of (30, 0) and (15, 26), times s steps of `grain`
    units, and hats 780 s phi_e, the sum is at most 2 sqrt(901)/grain per unit: .02 % more than for
    equilateral triangles of the same area. The bound is attained.
    Conditions: points at least `least_distance` apart, by straight lines of length at most
    `diameter`, which are placed in a plane with no distance longer than on the ground
    (`least_metres`) and rounded to multiples of `grain`. `metre` is the number of metres in a unit.
    Proof: within a triangle the gradients of its three coordinates have sum 0, and each has the
    length 1/(a height). If three numbers sum to 0, their absolute values sum to twice the largest
    of these, so the hats change by at most 2/h per length; add this up along the segment from x to
    y. QED
    Numerics: rounding moves a point by at most grain/sqrt(2), so a distance grows by at most
    sqrt(2) grain, in proportion at most that over `least_distance`. A distance on the ground is at
    most the arc, over the straight line, of a circle of the smallest radius of curvature (Schur).
    Rounded up.
    Reference: docs/proofs/zones.md, (b).
    """
    bend = diameter * metre / (2.0 * SMALLEST_RADIUS)
    if not (grain > 0.0 and 0.0 < least_distance <= diameter and bend < 1.0):
        raise InputError(
            "hats need points at different places on one side of the Earth, got distances from "
            f"{least_distance!r} to {diameter!r}."
        )
    moved = (math.sqrt(2.0) * grain + PLANE_ERROR / metre) / least_distance
    arc = math.asin(bend) / bend
    return round_up(2.0 * math.sqrt(901.0) / grain * (1.0 + moved) * arc, 32)


@theorem("metricshuffle", "F1, products of hats at both ends of a trip")
def product_slope(one_end: float, top: int) -> float:
    """Upper bound on the sum of changes of products of hats per unit of distance, rounded up.

    Statement: let the features of a trip from o to d be a_e(o) a_f(d), where the a_e >= 0 have the
    sum `top` at every point and change in total by at most `one_end` per unit of distance. Then
    they change in total by at most top * one_end * (d(o, o') + d(d, d')). With hats of triangles of
    side L and sum 1 this is 2.3094/L per unit: the second end costs nothing.
    Conditions: the distance of two trips is that of their starts plus that of their ends.
    Proof: sum_ef |a_e(o) a_f(d) - a_e(o') a_f(d')| <= sum_ef |a_e(o) - a_e(o')| a_f(d) + sum_ef
    a_e(o') |a_f(d) - a_f(d')| = top (sum_e |a_e(o) - a_e(o')| + sum_f |a_f(d) - a_f(d')|). QED
    Numerics: rounded up.
    Reference: docs/proofs/flows.md, (a).
    """
    if not (one_end > 0.0 and top > 0):
        raise InputError(f"hats change and have a sum > 0, got {one_end!r} and {top!r}.")
    return round_up(one_end * top, 2)


@theorem("metricshuffle", "F2, pairs of zones or blocks counted one by one")
def pair_half_distances(half_distances: Floats) -> Floats:
    """Weights of pairs of groups of zones for `single_zone_slope`, row by row.

    Statement: let h_A be at most half the distance from any zone of group A to any zone of another
    group. Then w_(A,B) = min(h_A, h_B) has w_P + w_Q <= the distance of any two trips that are
    counted in different pairs of groups P and Q. So counts of trips by pairs of groups, with rates
    a_P, lose at most the largest a_P/w_P times the distance.
    Conditions: the distance of two trips is that of their starts plus that of their ends. A group
    may be a single zone, and both ends may lie in the same group.
    Proof: let P = (A, B) and Q = (A', B') differ at the start: A != A'. The starts are in different
    groups, so their distance is at least 2 max(h_A, h_A') >= h_A + h_A' >= w_P + w_Q, and the
    distance of the trips is no less. The same holds at the end. QED
    Numerics: exact.
    Reference: docs/proofs/flows.md, (b).
    """
    return np.minimum.outer(half_distances, half_distances).ravel()
