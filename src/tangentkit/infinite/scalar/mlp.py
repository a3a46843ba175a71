"""The kernel of an infinitely wide MLP on normalized inputs, as a function of their inner product.

On inputs of one length, <x, x>/d = 1, both kernels of an MLP depend on c = <x, y>/d alone. With weight variance
σ_w², bias variance σ_b², L hidden layers and the dual V of the activation,

    Σ_0 = σ_w² c + σ_b²                            Θ_0 = Σ_0
    Σ_l = σ_w² V(Σ_{l-1}) + σ_b²                   Θ_l = Σ_l + σ_w² V'(Σ_{l-1}) Θ_{l-1}

the NNGP (conjugate) kernel is Σ_L and the NTK Θ_L. Variances q_l = Σ_l(1) come from the exact diagonal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.whole_numbers import as_count
from tangentkit.infinite.duals.registry import Dual, dual_of

Variance = float | Float[Tensor, " *settings"]


def mlp_layers(
    dual: Dual, c: Tensor, w: Tensor, b: Tensor, *, depth: int, tangent: bool
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Σ_l and (if `tangent`) Θ_l for l = 0, ..., depth, with w = σ_w², b = σ_b² that broadcast with c."""
    q, sigma = w + b, w * c + b
    theta = sigma if tangent else None
    yield sigma, theta
    for _ in range(depth):
        if theta is None:
            sigma = w * dual(q, sigma, q) + b
        else:
            value, slope = dual.both(q, sigma, q)
            sigma = w * value + b
            theta = sigma + w * slope * theta
        q = w * dual.diag(q) + b
        yield sigma, theta


def as_variance(name: str, variance: Variance) -> Tensor:
    """A variance, or a tensor of them, in float64: in float32 rounding would hide all but a few degrees.

    Raises:
        InputError: one is negative or not finite.
    """
    values = torch.as_tensor(variance, dtype=torch.float64)
    if not bool((values >= 0).all() & values.isfinite().all()):
        raise InputError(f"bad {name} variance", expected="finite numbers >= 0", got=values.tolist())
    return values


@dataclass(frozen=True, eq=False)
class MLPKernelFunction:
    """Φ(c), c = <x, y>/d, of an infinitely wide MLP; see `mlp_kernel_function`."""

    depth: int
    dual: Dual
    weight_variance: Tensor
    bias_variance: Tensor
    kind: Literal["ntk", "nngp"]

    def __call__(self, c: Tensor) -> Tensor:
        """Φ of every entry of c; settings come first: shape (*settings, *c.shape)."""
        c = torch.as_tensor(c)
        if not c.is_floating_point() and not c.is_complex():
            c = c.double()
        w, b = (
            variance.to(c).reshape(variance.shape + (1,) * c.ndim)
            for variance in torch.broadcast_tensors(self.weight_variance, self.bias_variance)
        )
        last = c
        for sigma, theta in mlp_layers(self.dual, c, w, b, depth=self.depth, tangent=self.kind == "ntk"):
            last = sigma if theta is None else theta
        return last

    def diag(self) -> Float[Tensor, " *settings"]:
        """Φ(1), the kernel of an input with itself, from the exact diagonals."""
        w, b = torch.broadcast_tensors(self.weight_variance, self.bias_variance)
        q = theta = w + b
        for _ in range(self.depth):
            slope = self.dual.derivative_diag(q)
            q = w * self.dual.diag(q) + b
            theta = q + w * slope * theta
        return q if self.kind == "nngp" else theta


def mlp_kernel_function(
    depth: int,
    activation: object = "relu",
    *,
    weight_variance: Variance = 1.0,
    bias_variance: Variance = 0.0,
    kind: Literal["ntk", "nngp"] = "ntk",
) -> MLPKernelFunction:
    """The NTK or NNGP kernel of an infinitely wide MLP as a function Φ of c = <x, y>/d.

    Args:
        depth: the number L of hidden layers; 0 is a linear model.
        activation: whatever `dual_of` takes.
        weight_variance: σ_w², a number or a tensor of settings.
        bias_variance: σ_b², a number or a tensor that broadcasts with σ_w².
        kind: "ntk" or "nngp" (the conjugate kernel).

    Returns:
        A function of tensors with values in [-1, 1]; settings become the first axes of its result.

    Raises:
        InputError: a negative depth or variance.
        UnknownNameError: another kind.

    Example:
        >>> ntk = mlp_kernel_function(2, "relu", weight_variance=2.0, bias_variance=2.0)
        >>> ntk.diag()
        tensor(18., dtype=torch.float64)
        >>> ck = mlp_kernel_function(1, "erf", weight_variance=torch.tensor([1.0, 4.0]), kind="nngp")
        >>> ck(torch.linspace(-1, 1, 3, dtype=torch.float64)).shape
        torch.Size([2, 3])
    """
    depth = as_count(depth, "depth", least=0)
    if kind not in ("ntk", "nngp"):
        raise UnknownNameError("kernel", kind, ["ntk", "nngp"])
    weights, biases = as_variance("weight", weight_variance), as_variance("bias", bias_variance)
    return MLPKernelFunction(depth, dual_of(activation), weights, biases, kind)
