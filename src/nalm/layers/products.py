"""Products over many factors, in blocks of outputs and with exact gradients at zero factors.

A layer that multiplies writes ``y_o = prod_i f(x_i, w_oi)``. Written naively it builds a tensor of shape (batch, out, in),
forward and again backward, and the usual gradient ``y / f`` is wrong where a factor is zero. Here factors are multiplied
pair by pair (a tree of halves), so the gradient of each factor is the product of all the others, without a division; and
above `BLOCK` elements the outputs are taken a block at a time, with the factors computed anew in the backward pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["affine_product", "noised_product", "over_zero", "pairwise_product", "power_product"]

BLOCK = 1 << 20
"""Largest number of factors held at once, unless one output alone needs more."""


def pairwise_product(factors: Tensor) -> Tensor:
    """Product over the last dimension, multiplying halves: (..., n) -> (...).

    The gradient with respect to a factor is the product of the others, also where factors are zero.
    """
    return _tree(factors)[-1].squeeze(-1)


def affine_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Multiply affine functions of each input: ``y_o = prod_i (w_oi x_i + b_oi)``.

    Shapes: x (..., in), weight and bias (out, in), result (..., out).
    """
    if x.numel() * weight.shape[0] <= BLOCK:
        return pairwise_product(_affine(x, weight, bias))
    return _over_rows(_AffineProduct.apply, x, weight, bias)


def power_product(x: Tensor, exponent: Tensor, amount: Tensor) -> Tensor:
    """Multiply signed powers, each mixed with one: ``y_o = prod_i (a_oi sign(x_i) |x_i|^w_oi + 1 - a_oi)``.

    A zero to a negative power makes the result infinite, as `over_zero` says; the gradient of a power of zero counts as zero.

    Shapes: x (..., in), exponent w and amount a (out, in), result (..., out).
    """
    if x.numel() * exponent.shape[0] <= BLOCK:
        y = pairwise_product(_signed_power(x, exponent) * amount + (1 - amount))
    else:
        y = _over_rows(_PowerProduct.apply, x, exponent, amount)
    return over_zero(y, x == 0, exponent < 0)


def noised_product(x: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """Multiply noised factors, each without its noise: ``y_o = prod_i (w_oi n_i x_i + 1 - w_oi) / (w_oi n_i + 1 - w_oi)``.

    Factor by factor nothing overflows that the product without noise would hold.

    Shapes: x and noise (..., in), weight (out, in), result (..., out).
    """
    if x.numel() * weight.shape[0] <= BLOCK:
        return pairwise_product(_noised(x, weight, noise)[0])
    return _over_rows(_NoisedProduct.apply, x, weight, noise.expand_as(x).reshape(-1, x.shape[-1]))


def over_zero(y: Tensor, zero: Tensor, divides: Tensor) -> Tensor:
    """What division by zero gives, where y (..., out) is the result without its zero divisors.

    Infinity with the sign of y; not a number where y is zero too. Only the rows in question are touched, and no gradient flows
    through them: the rest of the batch can be trained on. `zero` (..., in) marks zero inputs, `divides` (out, in) divisors.
    """
    hit = F.linear(zero.to(y.dtype), divides.to(y.dtype)) > 0
    return torch.where(hit, y.detach() * math.inf, y)


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addcmul(bias, x.unsqueeze(-2), weight)


def _noised(x: Tensor, weight: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of `noised_product`, and what they were divided by."""
    rest, below = 1 - weight, _affine(noise, weight, 1 - weight)
    return _affine(noise * x, weight, rest) / below, below


def _signed_power(x: Tensor, exponent: Tensor) -> Tensor:
    """``sign(x) |x|^w``, and one for a zero to a negative power, which `over_zero` deals with; no gradient at zero."""
    zero = x == 0
    power = x.sign().unsqueeze(-2) * x.abs().masked_fill(zero, 1).unsqueeze(-2).pow(exponent)
    return torch.where(zero.unsqueeze(-2) & (exponent < 0), 1, power)


def _tree(factors: Tensor) -> list[Tensor]:
    """Every level of the product tree, from all factors to the one product: last dimension n, ceil(n / 2), ..., 1."""
    levels = [factors]
    while (size := levels[-1].shape[-1]) > 1:
        level, half = levels[-1], size // 2
        pairs = level[..., :half] * level[..., half : 2 * half]
        levels.append(torch.cat([pairs, level[..., 2 * half :]], -1) if size % 2 else pairs)
    return levels


def _others(levels: list[Tensor], grad: Tensor) -> Tensor:
    """Walk the tree back: for each factor, `grad` (..., 1) times the product of all other factors."""
    for level in reversed(levels[:-1]):
        half = level.shape[-1] // 2
        pair = grad[..., :half]
        parts = [pair * level[..., half : 2 * half], pair * level[..., :half], grad[..., half:]]
        grad = torch.cat(parts if level.shape[-1] % 2 else parts[:2], -1)
    return grad


def _blocks(x: Tensor, out_features: int) -> list[slice]:
    step = max(1, BLOCK // max(1, x.numel()))
    return [slice(start, start + step) for start in range(0, out_features, step)]


def _over_rows(product: Callable[..., Any], x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Apply a product written for x (rows, in) to x with any leading dimensions."""
    y: Tensor = product(x.reshape(-1, x.shape[-1]), first, second)
    return y.reshape(*x.shape[:-1], first.shape[0])


def _one_by_one(product: Any, info: Any, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor, int]:
    """Rule for `torch.func.vmap`: products large enough for blocks are taken one after the other."""
    results = []
    for k in range(info.batch_size):
        part = [t if dim is None else t.select(dim, k) for t, dim in zip(tensors, in_dims, strict=True)]
        results.append(product.apply(*part))
    return torch.stack(results), 0


class _AffineProduct(torch.autograd.Function):
    """`affine_product` for x (rows, in), a block of outputs at a time.

    Results are written into tensors made beforehand: small results kept between large temporary ones would leave holes in
    the heap and cost the memory that the blocks save.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = x.new_empty(x.shape[0], weight.shape[0])
        for b in _blocks(x, weight.shape[0]):
            y[:, b] = pairwise_product(_affine(x, weight[b], bias[b]))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        return _one_by_one(_AffineProduct, info, in_dims, tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, bias = ctx.saved_tensors
        grad_x, grad_weight, grad_bias = torch.zeros_like(x), torch.empty_like(weight), torch.empty_like(bias)
        for b in _blocks(x, weight.shape[0]):
            others = _others(_tree(_affine(x, weight[b], bias[b])), grad[:, b].unsqueeze(-1))
            grad_x += (others * weight[b]).sum(-2)
            grad_weight[b] = (others * x.unsqueeze(-2)).sum(0)
            grad_bias[b] = others.sum(0)
        return grad_x, grad_weight, grad_bias


class _PowerProduct(torch.autograd.Function):
    """`power_product` for x (rows, in), a block of outputs at a time."""

    @staticmethod
    def forward(x: Tensor, exponent: Tensor, amount: Tensor) -> Tensor:
        y = x.new_empty(x.shape[0], exponent.shape[0])
        for b in _blocks(x, exponent.shape[0]):
            y[:, b] = pairwise_product(_signed_power(x, exponent[b]) * amount[b] + (1 - amount[b]))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        return _one_by_one(_PowerProduct, info, in_dims, tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, exponent, amount = ctx.saved_tensors
        magnitude, sign = x.abs().masked_fill(x == 0, 1).unsqueeze(-2), x.sign().unsqueeze(-2)
        log = magnitude.log()
        grad_x, grad_exponent, grad_amount = torch.zeros_like(x), torch.empty_like(exponent), torch.empty_like(amount)
        for b in _blocks(x, exponent.shape[0]):
            w, a = exponent[b], amount[b]
            power = _signed_power(x, w)
            others = _others(_tree(power * a + (1 - a)), grad[:, b].unsqueeze(-1))
            slope = w * magnitude.pow(w - 1) * sign * sign
            grad_x += (others * a * slope).sum(-2)
            grad_exponent[b] = (others * a * power * log).sum(0)
            grad_amount[b] = (others * (power - 1)).sum(0)
        return grad_x, grad_exponent, grad_amount


class _NoisedProduct(torch.autograd.Function):
    """`noised_product` for x and noise (rows, in), a block of outputs at a time."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
        y = x.new_empty(x.shape[0], weight.shape[0])
        for b in _blocks(x, weight.shape[0]):
            y[:, b] = pairwise_product(_noised(x, weight[b], noise)[0])
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        return _one_by_one(_NoisedProduct, info, in_dims, tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, noise = ctx.saved_tensors
        grad_x, grad_weight, grad_noise = torch.zeros_like(x), torch.empty_like(weight), torch.zeros_like(noise)
        for b in _blocks(x, weight.shape[0]):
            w = weight[b]
            factors, below = _noised(x, w, noise)
            others = _others(_tree(factors), grad[:, b].unsqueeze(-1)) / below
            grad_x += (others * w).sum(-2) * noise
            grad_weight[b] = (others / below * (noise * (x - 1)).unsqueeze(-2)).sum(0)
            grad_noise += (others / below * w * (1 - w)).sum(-2) * (x - 1)
        return grad_x, grad_weight, grad_noise
