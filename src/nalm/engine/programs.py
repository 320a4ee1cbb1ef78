"""From a network to the instructions of the compiled interpreter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.engine.kernels import IMNAC, KERNELS, NMU, NPU, Program, Quadratic, program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["program_of"]


def program_of(network: Any) -> Program:
    """The program of a stack, gate or selector; ValueError for a layer that the interpreter does not have."""
    builder = _Builder(network)
    builder.add(network, 0, network.in_features, [builder.room(1)])
    return builder.finish()


class _Builder:
    """Collects instructions; registers are given out in order."""

    def __init__(self, network: Any) -> None:
        self.inputs: int = network.in_features
        self.registers: int = self.inputs
        self.starts: dict[int, int] = {}
        start = 0
        for p in network.parameters():
            self.starts[id(p)] = start
            start += p.numel()
        self.code: list[list[int]] = []
        self.numbers: list[float] = []
        self.places: list[NDArray[np.int64]] = []
        self.penalties: list[tuple[int, ...]] = []
        self.boxes: list[tuple[int, int]] = []
        self.limits: list[tuple[float, float]] = []
        self.sparsities: list[tuple[int, int, int]] = []
        self.scratch = 0

    def room(self, count: int) -> int:
        """The first of so many new registers."""
        self.registers += count
        return self.registers - count

    def index(self, p: Any) -> NDArray[np.int64]:
        """Where the elements of a parameter stand among all."""
        return self.starts[id(p)] + np.arange(p.numel()).reshape(p.shape)

    def span(self, p: Any) -> tuple[int, int]:
        """Start and stop of a parameter."""
        return self.starts[id(p)], self.starts[id(p)] + p.numel()

    def emit(
        self,
        what: int,
        first: int,
        count: int,
        out: int,
        places: Sequence[Any] = (),
        *,
        rows: int = 0,
        detail: int = 0,
        number: float = 0.0,
    ) -> None:
        """Append an instruction."""
        own = np.concatenate([np.ravel(part) for part in places]) if places else np.zeros(0, np.int64)
        inner = int(first + count > self.inputs)
        self.code.append([what, first, count, out, len(own), self.scratch, detail, inner])
        self.numbers.append(number)
        self.places.append(own)
        self.scratch += rows

    def add(self, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
        """The instructions of a layer that reads `count` registers from `first` on and writes to `outs`."""
        name = type(layer).__name__
        if name not in _ADD:
            raise ValueError(f"the fused engine has no kernel for {name} in a network; use the torch engine")
        _ADD[name](self, layer, first, count, outs)

    def finish(self) -> Program:
        """The program."""
        widest = max(len(own) for own in self.places)
        places = np.zeros((len(self.code), max(widest, 1)), np.int64)
        for row, own in zip(places, self.places, strict=True):
            row[: len(own)] = own
        code = np.array(self.code, np.int64)

        def table(rows: Sequence[Any], columns: int, kind: Any = np.int64) -> NDArray[Any]:
            return np.array(rows, kind).reshape(-1, columns)

        return Program(
            code=code,
            numbers=np.array(self.numbers),
            places=places,
            penalties=table(self.penalties, 4),
            boxes=table(self.boxes, 2),
            limits=table(self.limits, 2, np.float64),
            sparsities=table(self.sparsities, 3),
            registers=self.registers,
            widest=int(code[:, 2].max()),
            rows=self.scratch,
        )


def _rows(kernel: type, count: int) -> int:
    each, more = KERNELS[kernel].rows
    return each * count + more


def _nau(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    for out, places in zip(outs, b.index(layer.weight), strict=True):
        b.emit(program.SUM, first, count, out, [places])
    span = b.span(layer.weight)
    b.penalties.append((program.TO_INTEGERS, *span, 0))
    b.boxes.append(span)
    b.limits.append((-1.0, 1.0))
    b.sparsities.append((program.BOXED_INTEGERS, *span))


def _nmu(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    for out, places in zip(outs, b.index(layer.weight), strict=True):
        b.emit(program.FACTORS, first, count, out, [places], rows=_rows(NMU, count))
    span = b.span(layer.weight)
    b.penalties.append((program.TO_BITS, *span, 0))
    b.boxes.append(span)
    b.limits.append((0.0, 1.0))
    b.sparsities.append((program.BOXED_BITS, *span))


def _real_npu(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    for out, places in zip(outs, b.index(layer.real), strict=True):
        parts = [places, b.index(layer.gate)]
        b.emit(program.POWERS, first, count, out, parts, rows=_rows(NPU, count), number=layer.epsilon)
    span, gate = b.span(layer.real), b.span(layer.gate)
    b.penalties.append((program.TO_ONES if layer.skip_zero_weight else program.TO_INTEGERS, *span, 0))
    b.penalties.append((program.TO_BITS, *gate, 1))
    for wanted, own, low in ((layer.bounded, span, -1.0), (layer.clip_gate, gate, 0.0)):
        if wanted:
            b.boxes.append(own)
            b.limits.append((low, 1.0))
    b.sparsities.append((program.FREE_INTEGERS, *span))


def _nac(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    signed = type(layer).__name__ == "iMNAC"
    for out, w_hat, m_hat in zip(outs, b.index(layer.w_hat), b.index(layer.m_hat), strict=True):
        what, rows = (program.SIGNED, _rows(IMNAC, count)) if signed else (program.NAC, 0)
        b.emit(what, first, count, out, [w_hat, m_hat], rows=rows)
    both = b.span(layer.w_hat)[0], b.span(layer.m_hat)[1]
    if type(layer).__name__ == "NACAdd":
        b.penalties.append((program.NAC_TO_INTEGERS, *both, 0))
    else:
        b.penalties += [(program.TO_SATURATION, *b.span(p), 0) for p in (layer.w_hat, layer.m_hat)]
    b.sparsities.append((program.NAC_INTEGERS, *both))


def _linear(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    weights, biases = b.index(layer.weight), layer.bias
    for number, out in enumerate(outs):
        places = [weights[number]] if biases is None else [weights[number], b.index(biases)[number : number + 1]]
        b.emit(program.LINEAR, first, count, out, places, detail=int(biases is not None))
    b.sparsities.append((program.FREE_INTEGERS, *b.span(layer.weight)))


def _perceptron(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    cap = 6.0 if type(layer).__name__ == "ReLU6MLP" else math.inf
    *hidden, last = layer.linears
    for linear in hidden:
        start = b.room(linear.out_features)
        weights, biases = b.index(linear.weight), b.index(linear.bias)
        for number in range(linear.out_features):
            places = [weights[number], biases[number : number + 1]]
            b.emit(program.RECTIFIED, first, count, start + number, places, number=cap)
        b.sparsities.append((program.FREE_INTEGERS, *b.span(linear.weight)))
        first, count = start, linear.out_features
    _linear(b, last, first, count, outs)


def _quadratic(b: _Builder, layer: Any, first: int, count: int, outs: Sequence[int]) -> None:
    weights = [b.index(p) for p in (layer.first, layer.second, layer.square)]
    biases = [b.index(p) for p in (layer.first_bias, layer.second_bias, layer.bias)]
    for number, out in enumerate(outs):
        places = [*(part[number] for part in weights), *(part[number : number + 1] for part in biases)]
        b.emit(program.QUADRATIC, first, count, out, places, rows=_rows(Quadratic, count))
    b.sparsities += [(program.FREE_INTEGERS, *b.span(p)) for p in (layer.first, layer.second, layer.square)]


def _stack(b: _Builder, network: Any, first: int, count: int, outs: Sequence[int]) -> None:
    *others, last = network
    for layer in others:
        start = b.room(layer.out_features)
        b.add(layer, first, count, range(start, start + layer.out_features))
        first, count = start, layer.out_features
    b.add(last, first, count, outs)


def _gated(b: _Builder, network: Any, first: int, count: int, outs: Sequence[int]) -> None:
    start = b.room(2 * len(outs))
    b.add(network.first, first, count, range(start, start + 2 * len(outs), 2))
    b.add(network.second, first, count, range(start + 1, start + 2 * len(outs), 2))
    for number, (out, place) in enumerate(zip(outs, b.index(network.gate_hat), strict=True)):
        b.emit(program.GATE, start + 2 * number, 2, out, [place])


def _selector(b: _Builder, network: Any, first: int, count: int, outs: Sequence[int]) -> None:
    choice, certainty = b.index(network.choice), b.index(network.certainty)
    modules, results = choice.shape[1], list[int]()
    frozen = type(network).__name__ == "FrozenSelector"
    counts = [0, 0, 0]
    for step in range(network.steps):
        pad = b.room(count + network.steps)
        for i in range(count):
            b.emit(program.COPY, first + i, 1, pad + i)
        for slot in range(network.steps):
            if slot < step:
                b.emit(program.COPY, results[slot], 1, pad + count + slot)
            else:
                b.emit(program.CONSTANT, first, 0, pad + count + slot, number=network.blank)
        start, width = b.room(modules), count + network.steps
        if frozen:
            for module in range(modules):
                places, rows = [b.index(network.mask)[step]], width + 2
                number = network.mask_temperature
                b.emit(program.MASKED, pad, width, start + module, places, rows=rows, detail=module, number=number)
        else:
            for module, layer in enumerate(network.layers):
                b.add(layer, pad, width, [start + module])
            if step == 0:
                counts = [len(b.penalties), len(b.boxes), len(b.sparsities)]
        results.append(outs[0] if step == network.steps - 1 else b.room(1))
        places = [choice[step], certainty[step : step + 1]]
        b.emit(program.SELECT, start, modules, results[-1], places, detail=step * modules, number=network.temperature)
    if not frozen:  # the layers are the same at every step, and are counted once
        del b.penalties[counts[0] :], b.boxes[counts[1] :], b.limits[counts[1] :], b.sparsities[counts[2] :]


_ADD: dict[str, Any] = {
    "NAU": _nau,
    "NMU": _nmu,
    "RealNPU": _real_npu,
    "NACAdd": _nac,
    "iNAC": _nac,
    "iMNAC": _nac,
    "Linear": _linear,
    "ReLUMLP": _perceptron,
    "ReLU6MLP": _perceptron,
    "Quadratic": _quadratic,
    "Stack": _stack,
    "Gated": _gated,
    "RecurrentSelector": _selector,
    "FrozenSelector": _selector,
}
"""How to add a layer, by the name of its class."""
