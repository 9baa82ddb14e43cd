"""From a target to a plan, and how such plans behave."""

from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.inverse import plan_for_error
from metricshuffle.planning.plan import Plan, plan
from metricshuffle.planning.simulate import Simulation, simulate

__all__ = ["Candidate", "Plan", "Simulation", "plan", "plan_for_error", "simulate"]
