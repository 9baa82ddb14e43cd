"""Planning: find and compare protocols that meet a privacy target, and simulate their errors."""

from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.error_simulation import Simulation, simulate
from metricshuffle.planning.plan import Plan, plan
from metricshuffle.planning.plan_for_error import plan_for_error

__all__ = ["Candidate", "Plan", "Simulation", "plan", "plan_for_error", "simulate"]
