"""From a target to a plan, a release and a simulation."""

from metricshuffle.amplification.amplify import Amplification, amplify
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.inverse import plan_for_error
from metricshuffle.planning.plan import Plan, plan
from metricshuffle.planning.release import Release
from metricshuffle.planning.simulate import Simulation, simulate
from metricshuffle.privacy.target import Target

__all__ = ["Amplification", "Candidate", "Plan", "Release", "Simulation", "Target", "amplify", "plan", "plan_for_error", "simulate"]
