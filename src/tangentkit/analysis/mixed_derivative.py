"""The mixed second derivative of a network in its parameters and its input, as products with vectors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentkit.core.errors import ModelError
from tangentkit.core.model.functions import ModelFunction
from tangentkit.core.seeds import Key

AGREEMENT = 1e4
"""<r, M v> and <Mᵀ r, v> agree within this times ε of the sizes of what is multiplied."""


@dataclass(frozen=True, eq=False)
class MixedDerivative:
    """M = (1/n) Σ_i ∂²(v · f)(x_i) / ∂θ ∂x for output directions v, one below the other: (r p, d).

    Both products are made of two backward passes, the second through the first.
    """

    function: ModelFunction
    pieces: Callable[[], Iterator[Tensor]]
    """The samples x_i, a few at a time."""
    samples: int
    directions: Float[Tensor, "r c"]
    shape: tuple[int, ...]
    """Of one sample."""

    def times(self, v: Float[Tensor, "..."]) -> list[dict[str, Tensor]]:
        """M v: of each output direction the derivative in the parameters of Σ_i ∂_x f(x_i) · v / n."""
        total = [
            {name: torch.zeros_like(p) for name, p in self.function.params.items()} for _ in self.directions
        ]
        for x, theta, value, held in self._outputs():
            for sums, output in zip(total, value, strict=True):
                (slope,) = held(lambda output=output, x=x: _gradients(output, [x], graph=True))
                along = (slope * v).sum() / self.samples
                found = held(lambda along=along, theta=theta: _gradients(along, list(theta.values())))
                for name, gradient in zip(theta, found, strict=True):
                    sums[name] += gradient
        return total

    def transposed_times(self, u: list[dict[str, Tensor]]) -> Float[Tensor, "..."]:
        """Mᵀ u: the derivative in the samples of Σ_i ∂_θ f(x_i) · u / n, summed over them."""
        total = self.directions.new_zeros(self.shape)
        for x, theta, value, held in self._outputs():
            for tangent, output in zip(u, value, strict=True):
                slopes = held(
                    lambda output=output, theta=theta: _gradients(output, list(theta.values()), graph=True)
                )
                parts = [(slope * tangent[name]).sum() for name, slope in zip(theta, slopes, strict=True)]
                along = torch.stack(parts).sum() / self.samples
                (found,) = held(lambda along=along, x=x: _gradients(along, [x]))
                total += found.sum(0)
        return total

    def gram_times(self, v: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Mᵀ M v."""
        return self.transposed_times(self.times(v))

    def check(self) -> None:
        """Refuses a model whose two products do not belong to one M.

        Raises:
            ModelError: torch's second derivatives of an operation are wrong, or leave a part out.
        """
        generator = Key(0).fold("mixed derivative").torch()
        v = torch.randn(self.shape, generator=generator).to(self.directions)
        right = self.times(v)
        u = [
            {name: torch.randn(p.shape, generator=generator).to(p) for name, p in one.items()}
            for one in right
        ]
        left = self.transposed_times(u)
        there, back = _inner(right, u), float((left.double() * v.double()).sum())
        scale = (_inner(right, right) * _inner(u, u)) ** 0.5 + float(left.norm() * v.norm())
        if not abs(there - back) <= AGREEMENT * torch.finfo(v.dtype).eps * scale:
            raise ModelError(
                "the second derivatives of the model in parameters and input do not agree with each other",
                expected="<r, M v> = <Mᵀ r, v>",
                got=f"{there:.6g} and {back:.6g}",
                hint="an operation has a backward pass of its own that autograd cannot differentiate again",
            )

    def _outputs(self) -> Iterator[tuple[Tensor, dict[str, Tensor], list[Tensor], Callable]]:
        """For a few samples: they and the parameters as leaves, the summed outputs, and how to differentiate."""
        for piece in self.pieces():
            piece = piece.clone() if piece.is_inference() else piece.detach()
            x, theta = piece.requires_grad_(), self.function.leaves()
            # Fused attention has no second derivative; its plain form is the same function.
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                outputs = self.function(theta, x)
                sums = [(outputs @ v).sum() for v in self.directions]
                yield x, theta, sums, lambda work, theta=theta: self.function.within(theta, work)


def _gradients(output: Tensor, wanted: list[Tensor], *, graph: bool = False) -> tuple[Tensor, ...]:
    """The gradients, zero where the output does not depend on something."""
    if not output.requires_grad:
        return tuple(torch.zeros_like(one) for one in wanted)
    with torch.enable_grad():
        found = torch.autograd.grad(
            output, wanted, create_graph=graph, retain_graph=True, allow_unused=True, materialize_grads=True
        )
    return tuple(one.to_dense() if one.is_sparse else one for one in found)


def _inner(a: list[dict[str, Tensor]], b: list[dict[str, Tensor]]) -> float:
    return sum(
        float((p.double() * q[name].double()).sum())
        for one, q in zip(a, b, strict=True)
        for name, p in one.items()
    )
