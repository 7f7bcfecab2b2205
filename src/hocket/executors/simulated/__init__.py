"""An executor whose clock is a variable."""

from hocket.executors.simulated.beliefs import BeliefMode, parse_beliefs
from hocket.executors.simulated.executor import SimulatedExecutor
from hocket.executors.simulated.run import Simulation, simulate

__all__ = ["BeliefMode", "SimulatedExecutor", "Simulation", "parse_beliefs", "simulate"]
