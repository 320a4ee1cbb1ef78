"""One record per module: what `nalm list modules`, the docs table and the contract tests are made from."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nalm import layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nalm.layers import Unit

__all__ = ["PAPERS", "ModuleInfo", "create", "info", "modules"]

PAPERS = {
    "trask2018": "Trask et al., Neural Arithmetic Logic Units, NeurIPS 2018",
    "rana2019": "Rana et al., Exploring Numerical Calculations with CalcNet, ICTAI 2019",
    "reimann2019": "Reimann and Schwung, Neural Logic Rule Layers, 2019",
    "faber2020": "Faber and Wattenhofer, Neural Status Registers, 2020",
    "heim2020": "Heim, Pevný and Šmídl, Neural Power Units, NeurIPS 2020",
    "madsen2020": "Madsen and Johansen, Neural Arithmetic Units, ICLR 2020",
    "schloer2020": "Schlör, Ring and Hotho, iNALU: Improved Neural Arithmetic Logic Unit, Frontiers in AI 2020",
    "mistry2022division": "Mistry, Farrahi and Hare, Exploring the Learning Mechanisms of Neural Division Modules, TMLR 2022",
    "mistry2022snmu": "Mistry, Farrahi and Hare, Improving the Robustness of Neural Multiplication Units with Reversible "
    "Stochasticity, 2022",
    "mistry2023": "Mistry, Neural Arithmetic Logic Modules, PhD thesis, University of Southampton, 2023",
}
"""Where the modules come from, by the key that records use."""


@dataclass(frozen=True)
class ModuleInfo:
    """What there is to know about a module before building it."""

    name: str
    """Name in the registry."""
    label: str
    """How tables and figures print it."""
    cls: type[Unit]
    """The layer class."""
    paper: str
    """Key into `PAPERS`."""
    summary: str
    """What it does, in one line."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Constructor options that make this module out of its class."""
    penalty: str = "discrete"
    """What its penalty measures: distance to `discrete` weights, number of `open-gates`, or `none`."""
    fused: bool = False
    """Whether the fused engine has a kernel for it."""

    def build(self, in_features: int, out_features: int, **options: Any) -> Unit:
        """Build the layer; `options` are those of the class and go before the record's own."""
        allowed = [name for name, p in inspect.signature(self.cls).parameters.items() if p.kind is p.KEYWORD_ONLY]
        for name in options:
            if name not in allowed:
                raise TypeError(f"{self.name} has no option {name!r}; it takes: {', '.join(allowed)}")
        return self.cls(in_features, out_features, **{**self.options, **options})

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Operations of two inputs that the module can express exactly."""
        return self.build(2, 1).operations

    @property
    def domain(self) -> str:
        """Inputs for which the operations are exact: real, nonzero, positive, boolean or integer."""
        return self.cls.domain


def _records() -> dict[str, ModuleInfo]:
    modified = {"bounded": True, "clip_gate": True, "constrained_start": True, "skip_zero_weight": True}
    division, snmu = "mistry2022division", "mistry2022snmu"
    records = [
        ModuleInfo("nac-add", "NAC+", layers.NACAdd, "trask2018", "Sum; weights tanh times sigmoid."),
        ModuleInfo("nac-mul", "NAC•", layers.NACMul, "trask2018", "Product of powers in log space; loses signs."),
        ModuleInfo("nac-mul-sigmoid", "NAC•,σ", layers.NACMulSigmoid, "madsen2020", "NAC• with sigmoid exponents."),
        ModuleInfo("nac-mul-nmu", "NAC•,NMU", layers.NACMulNMU, "madsen2020", "NAC• with the linear weights of the NMU."),
        ModuleInfo("nalu", "NALU", layers.NALU, "trask2018", "Gate between sum and product of one shared weight."),
        ModuleInfo("nalu-separate", "NALU (separate)", layers.NALUSeparate, "madsen2020", "NALU with a weight per path."),
        ModuleInfo("inalu", "iNALU", layers.iNALU, "schloer2020", "NALU with signs, separate weights, free gate."),
        ModuleInfo("inac", "iNAC", layers.iNAC, "schloer2020", "Additive half of the iNALU."),
        ModuleInfo("imnac", "iMNAC", layers.iMNAC, "schloer2020", "Multiplicative half of the iNALU, with sign and cap."),
        ModuleInfo("gnalu", "G-NALU", layers.GNALU, "rana2019", "NALU to the base of the golden ratio."),
        ModuleInfo("nau", "NAU", layers.NAU, "madsen2020", "Sum; linear weights clipped to [-1, 1]."),
        ModuleInfo("nmu", "NMU", layers.NMU, "madsen2020", "Product of selected inputs; weights clipped to [0, 1]."),
        ModuleInfo("gated-nau-nmu", "Gated NAU/NMU", layers.GatedNAUNMU, "madsen2020", "NAU and NMU behind the NALU's gate."),
        ModuleInfo("snmu", "sNMU", layers.sNMU, snmu, "NMU with reversible noise U(1, 5) in training."),
        ModuleInfo("snmu-batch", "sNMU (batch)", layers.sNMUBatch, snmu, "sNMU whose noise follows the spread of the batch."),
        ModuleInfo("stgnmu", "stgNMU", layers.stgNMU, snmu, "NMU with stochastic gates.", penalty="open-gates"),
        ModuleInfo("naive-npu", "NaiveNPU", layers.NaiveNPU, "heim2020", "Complex powers of all inputs, no gate."),
        ModuleInfo("npu", "NPU", layers.NPU, "heim2020", "Complex powers of gated inputs."),
        ModuleInfo("npu-mod", "NPU (mod.)", layers.NPU, division, "NPU with clipping and discretisation.", modified),
        ModuleInfo("real-npu", "Real NPU", layers.RealNPU, "heim2020", "Real powers of gated inputs, with sign."),
        ModuleInfo(
            "real-npu-mod", "Real NPU (mod.)", layers.RealNPU, division, "Real NPU with clipping and discretisation.", modified
        ),
        ModuleInfo("nru", "NRU", layers.NRU, division, "Product of inputs and reciprocals; exponents in [-1, 1]."),
        ModuleInfo("nru-sep-sign", "NRU (sep. sign)", layers.NRUSepSign, division, "NRU with magnitude and sign apart."),
        ModuleInfo("nmru", "NMRU", layers.NMRU, division, "NMU over inputs and reciprocals, sign by a cosine."),
        ModuleInfo("nmru-no-sign", "NMRU (no sign)", layers.NMRUNoSign, division, "NMRU without the sign path."),
        ModuleInfo("nmru-gated", "NMRU (gated)", layers.NMRUGated, division, "NMRU behind gates on inputs and reciprocals."),
        ModuleInfo("nlrl", "NLRL", layers.NLRL, "reimann2019", "Boolean rules: AND, OR, NOT of selected inputs."),
        ModuleInfo("nsr", "NSR", layers.NSR, "faber2020", "Comparison of two selected inputs."),
        ModuleInfo("linear", "Linear", layers.Linear, "madsen2020", "Linear layer (baseline).", penalty="none"),
        ModuleInfo("relu-mlp", "ReLU MLP", layers.ReLUMLP, "madsen2020", "ReLU network (baseline).", penalty="none"),
        ModuleInfo("relu6-mlp", "ReLU6 MLP", layers.ReLU6MLP, "madsen2020", "ReLU6 network (baseline).", penalty="none"),
        ModuleInfo("product-fc", "FC product", layers.ProductFC, snmu, "Product of all inputs (baseline).", penalty="none"),
        ModuleInfo("quadratic", "Quadratic", layers.Quadratic, "mistry2023", "Quadratic layer (baseline).", penalty="none"),
    ]
    by_name = {record.name: record for record in records}
    if len(by_name) != len(records):
        raise ValueError("two records share a name")
    return by_name


_MODULES = _records()


def modules() -> Mapping[str, ModuleInfo]:
    """The registry: name -> record, in the order of the papers."""
    return MappingProxyType(_MODULES)


def info(name: str) -> ModuleInfo:
    """The record of a module; ValueError with the nearest names for an unknown one."""
    record = _MODULES.get(name)
    if record is None:
        near = difflib.get_close_matches(str(name).lower(), _MODULES, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"unknown module {name!r}.{hint} Known: {', '.join(_MODULES)}")
    return record


def create(name: str, in_features: int, out_features: int, **options: Any) -> Unit:
    """Build a layer by its registry name; `options` are those of the layer's class.

    >>> create("nmu", 2, 1)
    NMU(in_features=2, out_features=1)
    """
    return info(name).build(in_features, out_features, **options)
