"""Ordinary layers that the papers compare with: linear, ReLU and ReLU6 networks, plain product, quadratic layer."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.layers.base import COEFFICIENTS, Unit, fill_row_, parameter
from nalm.layers.products import affine_product

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Linear", "ProductFC", "Quadratic", "ReLU6MLP", "ReLUMLP", "quadratic"]


def quadratic(
    x: Tensor, first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor, square: Tensor, bias: Tensor
) -> Tensor:
    """Product of two linear layers plus a linear layer of squares: ``(A x + a) (B x + b) + C x^2 + c``."""
    return F.linear(x, first, first_bias) * F.linear(x, second, second_bias) + F.linear(x.square(), square, bias)


class Linear(Unit):
    r"""Linear layer, as a baseline.

    .. math:: y = W x + b

    Exact: add, sub, identity, for all real inputs; nothing draws its weights there, so `penalty` is zero. Glorot's uniform
    start, bias zero.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features), `bias` (out_features).

    Reference: baseline of Madsen and Johansen, Neural Arithmetic Units, ICLR 2020; without the bias it is what the NPU
    paper's code calls a NAU.

    Args:
        bias: whether there is a bias.
    """

    operations = tuple(COEFFICIENTS)
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.weight = parameter(out_features, in_features, device, dtype)
        self.bias = parameter(out_features, None, device, dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weight from Glorot's uniform distribution; the bias is zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight`, and `bias` if there is one."""
        weights = {"weight": self.weight.clone()}
        return weights if self.bias is None else {**weights, "bias": self.bias.clone()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.weight, operands, COEFFICIENTS[operation])
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return F.linear(x, self.weight, self.bias)


class _MLP(Unit):
    """Hidden layers with an activation, then a linear one."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: Sequence[int] = (100,),
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if not hidden or min(hidden) < 1:
            raise ValueError(f"hidden must hold at least one width, each at least 1, got {tuple(hidden)}")
        self.hidden = tuple(hidden)
        sizes = (in_features, *self.hidden, out_features)
        self.linears = nn.ModuleList([Linear(before, after, device=device, dtype=dtype) for before, after in pairwise(sizes)])
        self.reset_parameters()

    @property
    def weights(self) -> list[Tensor]:
        """The weight of every layer, from the first to the last."""
        return [cast("Tensor", layer.weight) for layer in self.linears]

    @property
    def biases(self) -> list[Tensor]:
        """The bias of every layer, from the first to the last."""
        return [cast("Tensor", layer.bias) for layer in self.linears]

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Kaiming's uniform start for hidden layers, Glorot's for the last; biases are zero."""
        *hidden, last = self.weights
        for weight in hidden:
            nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=generator)
        nn.init.xavier_uniform_(last, generator=generator)
        for bias in self.biases:
            nn.init.zeros_(bias)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight0`, `bias0`, `weight1`, ...: from the first layer to the last."""
        layers = enumerate(zip(self.weights, self.biases, strict=True))
        return {f"{kind}{k}": value.clone() for k, pair in layers for kind, value in zip(("weight", "bias"), pair, strict=True)}

    @torch.no_grad()
    def sparsity_error(self) -> Tensor:
        """Largest distance of a weight, biases left out, to the nearest of -1, 0, 1."""
        errors = [torch.minimum(w.abs(), (1 - w.abs()).abs()).amax() for w in self.weights]
        return torch.stack(errors).amax()

    def activate(self, x: Tensor) -> Tensor:
        """Activation of the hidden layers."""
        return x.relu()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        last = len(self.weights) - 1
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = F.linear(x, weight, bias)
            x = self.activate(x) if k < last else x
        return x

    def extra_repr(self) -> str:
        """Sizes, with the hidden widths."""
        return f"{super().extra_repr()}, hidden={self.hidden}"


class ReLUMLP(_MLP):
    r"""Multilayer perceptron with ReLU hidden layers and a linear output.

    .. math:: y = W_L\,\mathrm{relu}(\dots \mathrm{relu}(W_1 x + b_1) \dots) + b_L

    Exact: add, sub, identity, for all real inputs, where every hidden layer has two units or more (s = relu(s) - relu(-s));
    training does not find it. `penalty` is zero.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        hidden: width of each hidden layer.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features).

    Reference: baseline of Mistry, thesis 2023, chapter 1, and of Madsen and Johansen, Neural Arithmetic Units, ICLR 2020,
    whose table prints an activation on both layers while the code has a linear second one.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: Sequence[int] = (100,),
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, hidden=hidden, device=device, dtype=dtype)
        if min(self.hidden) >= 2:
            self.operations = tuple(COEFFICIENTS)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        for value in (*self.weights, *self.biases):
            value.zero_()
        first, *middle, last = self.weights
        fill_row_(first[0], operands, COEFFICIENTS[operation])
        first[1] = -first[0]
        for weight in middle:
            weight[0, 0] = weight[1, 1] = 1.0
        last[:, 0], last[:, 1] = 1.0, -1.0


class ReLU6MLP(_MLP):
    r"""Multilayer perceptron with ReLU6 hidden layers, min(max(x, 0), 6), and a linear output.

    .. math:: y = W_L\,\mathrm{relu6}(\dots \mathrm{relu6}(W_1 x + b_1) \dots) + b_L

    Exact: nothing, since its output is bounded. `penalty` is zero.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        hidden: width of each hidden layer.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features).

    Reference: baseline of Madsen and Johansen, Neural Arithmetic Units, ICLR 2020.
    """

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        """Never called: no operation is declared."""

    def activate(self, x: Tensor) -> Tensor:
        """Activation of the hidden layers."""
        return F.relu6(x)


class ProductFC(Unit):
    r"""Product of weighted inputs, without the identity term of the NMU: it cannot leave an input out.

    .. math:: y_o = \prod_i W_{oi} x_i

    Exact: mul where the operands are all the inputs. Starts from U(0.25, 0.75), unclipped; `penalty` is zero.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: baseline of Mistry et al., Improving the Robustness of Neural Multiplication Units with Reversible
    Stochasticity, 2022.
    """

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.operations = {1: ("identity",), 2: ("mul",)}.get(in_features, ())
        self.weight = parameter(out_features, in_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weight from U(0.25, 0.75)."""
        nn.init.uniform_(self.weight, 0.25, 0.75, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight`, as it is."""
        return {"weight": self.weight.clone()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        self.weight.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return affine_product(x, self.weight, torch.zeros_like(self.weight))


class Quadratic(Unit):
    r"""Layer of quadratic functions, as a baseline; two of them make the quadratic network of the thesis.

    .. math:: y = (A x + a) \odot (B x + b) + C x^2 + c

    Exact: add, sub, mul, square, identity, for all real inputs; nothing draws its weights there, so `penalty` is zero.
    All start from U(-r, r), r = 1 / sqrt(in_features), as PyTorch's linear layers do: the thesis gives no values, these reach
    its errors, and from Glorot's start two layers diverge at its learning rate.

    Shapes: x (..., in_features) -> (..., out_features); `first`, `second`, `square` (out_features, in_features),
    `first_bias`, `second_bias`, `bias` (out_features).

    Reference: Mistry, thesis 2023, chapter 7.
    """

    operations = ("add", "sub", "mul", "square", "identity")
    counted = ("first", "second", "square")

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.first = parameter(out_features, in_features, device, dtype)
        self.second = parameter(out_features, in_features, device, dtype)
        self.square = parameter(out_features, in_features, device, dtype)
        self.first_bias = parameter(out_features, None, device, dtype)
        self.second_bias = parameter(out_features, None, device, dtype)
        self.bias = parameter(out_features, None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw everything from U(-r, r), r = 1 / sqrt(in_features)."""
        bound = 1 / math.sqrt(self.in_features)
        for value in self.parameters():
            nn.init.uniform_(value, -bound, bound, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """The six parameters, as they are."""
        return {name: value.clone() for name, value in self.named_parameters()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        for value in self.parameters():
            value.zero_()
        if operation in COEFFICIENTS:
            fill_row_(self.first, operands, COEFFICIENTS[operation])
            self.second_bias.fill_(1.0)
        else:
            self.first[:, operands[0]] = 1.0
            self.second[:, operands[-1]] = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return quadratic(x, self.first, self.first_bias, self.second, self.second_bias, self.square, self.bias)
