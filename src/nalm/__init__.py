"""Neural Arithmetic Logic Modules: layers that learn exact arithmetic and can be read as a formula.

Importing this package loads nothing heavy; each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nalm import layers as layers
    from nalm import symbolic as symbolic
    from nalm import training as training
    from nalm.composing import from_sympy as from_sympy
    from nalm.dynamics import fit_ode as fit_ode
    from nalm.layers import GNALU as GNALU
    from nalm.layers import NALU as NALU
    from nalm.layers import NAU as NAU
    from nalm.layers import NLRL as NLRL
    from nalm.layers import NMRU as NMRU
    from nalm.layers import NMU as NMU
    from nalm.layers import NPU as NPU
    from nalm.layers import NRU as NRU
    from nalm.layers import NSR as NSR
    from nalm.layers import FrozenSelector as FrozenSelector
    from nalm.layers import Gated as Gated
    from nalm.layers import GatedNAUNMU as GatedNAUNMU
    from nalm.layers import Linear as Linear
    from nalm.layers import NACAdd as NACAdd
    from nalm.layers import NACMul as NACMul
    from nalm.layers import NACMulNMU as NACMulNMU
    from nalm.layers import NACMulSigmoid as NACMulSigmoid
    from nalm.layers import NaiveNPU as NaiveNPU
    from nalm.layers import NALUSeparate as NALUSeparate
    from nalm.layers import NMRUGated as NMRUGated
    from nalm.layers import NMRUNoSign as NMRUNoSign
    from nalm.layers import NRUSepSign as NRUSepSign
    from nalm.layers import ProductFC as ProductFC
    from nalm.layers import Quadratic as Quadratic
    from nalm.layers import RealNPU as RealNPU
    from nalm.layers import RecurrentSelector as RecurrentSelector
    from nalm.layers import ReLU6MLP as ReLU6MLP
    from nalm.layers import ReLUMLP as ReLUMLP
    from nalm.layers import Stack as Stack
    from nalm.layers import SumOrProduct as SumOrProduct
    from nalm.layers import Unit as Unit
    from nalm.layers import iMNAC as iMNAC
    from nalm.layers import iNAC as iNAC
    from nalm.layers import iNALU as iNALU
    from nalm.layers import penalty as penalty
    from nalm.layers import project_ as project_
    from nalm.layers import snap_ as snap_
    from nalm.layers import sNMU as sNMU
    from nalm.layers import sNMUBatch as sNMUBatch
    from nalm.layers import sparsity_error as sparsity_error
    from nalm.layers import stgNMU as stgNMU
    from nalm.options import Centring as Centring
    from nalm.options import LevenbergMarquardt as LevenbergMarquardt
    from nalm.options import LogMagnitude as LogMagnitude
    from nalm.options import Restarts as Restarts
    from nalm.options import Snap as Snap
    from nalm.registry import create as create
    from nalm.registry import modules as modules
    from nalm.registry import register as register
    from nalm.registry import unregister as unregister
    from nalm.regressor import NALMRegressor as NALMRegressor
    from nalm.reproduction import reproduce as reproduce
    from nalm.runner import benchmark as benchmark
    from nalm.solver import fit as fit
    from nalm.symbolic import readout as readout

_LAYERS = (
    "NAU NACAdd iNAC NACMul NACMulSigmoid NACMulNMU iMNAC NMU sNMU sNMUBatch stgNMU NRU NRUSepSign NMRU NMRUNoSign "
    "NMRUGated NaiveNPU NPU RealNPU NALU NALUSeparate iNALU GNALU GatedNAUNMU NLRL NSR Linear ReLUMLP ReLU6MLP ProductFC "
    "Quadratic SumOrProduct Stack Gated RecurrentSelector FrozenSelector Unit penalty project_ snap_ sparsity_error"
)
_HOME = {
    **dict.fromkeys(_LAYERS.split(), "nalm.layers"),
    "create": "nalm.registry",
    "modules": "nalm.registry",
    "register": "nalm.registry",
    "unregister": "nalm.registry",
    "readout": "nalm.symbolic",
    "benchmark": "nalm.runner",
    "reproduce": "nalm.reproduction",
    "fit": "nalm.solver",
    "from_sympy": "nalm.composing",
    "fit_ode": "nalm.dynamics",
    "NALMRegressor": "nalm.regressor",
    **dict.fromkeys(["LogMagnitude", "Centring", "LevenbergMarquardt", "Snap", "Restarts"], "nalm.options"),
}

_SUBMODULES = ("layers", "symbolic", "training")

__all__ = [*_HOME, *_SUBMODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"nalm.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'nalm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
