"""Differential equations: fitting right-hand sides of nalm layers to time series, and reading them as equations."""

from nalm.dynamics.fitting import OdeFit, discover_ode, fit_ode
from nalm.dynamics.solving import BlowUpError, integrate
from nalm.dynamics.systems import SYSTEMS, System
from nalm.dynamics.trajectories import Trajectories, read_trajectories

__all__ = [
    "SYSTEMS",
    "BlowUpError",
    "OdeFit",
    "System",
    "Trajectories",
    "discover_ode",
    "fit_ode",
    "integrate",
    "read_trajectories",
]
