"""Derivatives that stay finite where the network's own are.

Norms, standard deviations and products are not smooth where all their entries are zero. Torch's backward passes count
their slope as 0 there; its forward mode divides zero by zero, in the values or only in the gradients of them. Such
zeros may come with any batch (a blank image, a sentence of padding), so every batch is looked at.
"""

from typing import Any

import torch
from torch import Tensor

from tangentkit.linearized.derivatives import Route, double_reverse
from tangentkit.linearized.evaluation import Evaluation, Outputs, Weights


def finite_orders(route: Route, evaluate: Evaluation, u: Weights, degree: int) -> list[Outputs]:
    """φ(0), φ'(0), ... by a route; by backward passes alone where the route leaves what is finite.

    To first order the gradient in u is Jᵀ v: where it comes out not finite, it is the network's own backward pass.
    """
    if degree == 1 and torch.is_grad_enabled() and any(direction.requires_grad for direction in u.values()):
        own = _OwnGradient(evaluate)
        outputs, slopes = route(evaluate, own.watched(u), degree)
        orders = [outputs, _Gate.apply(own, *slopes)]
    else:
        orders = route(evaluate, u, degree)
    if _are_finite(orders[0]) and not all(map(_are_finite, orders[1:])):
        return double_reverse(evaluate, u, degree)
    return orders


class _OwnGradient:
    """Jᵀ v by the network's own backward pass, made when some gradient turns out not finite."""

    def __init__(self, evaluate: Evaluation):
        self.evaluate = evaluate
        self.v: Outputs = ()
        """The gradient that has come to the slopes."""
        self._found: Weights = {}

    def come(self, v: Outputs) -> None:
        """Another backward pass begins."""
        self.v, self._found = () if torch.is_grad_enabled() else v, {}

    def watched(self, u: Weights) -> Weights:
        """The directions, whose gradients are replaced where they are not finite."""
        views = {name: direction.view_as(direction) for name, direction in u.items()}
        for name, view in views.items():
            if view.requires_grad:
                view.register_hook(lambda gradient, name=name: self._replaced(name, gradient))
        return views

    def _replaced(self, name: str, gradient: Tensor) -> Tensor:
        # Of many backward passes in one nobody can see the values; a graph of v would hold itself for ever.
        if torch._C._are_functorch_transforms_active() or torch.is_grad_enabled():
            return gradient
        if gradient.isfinite().all() or not _are_finite(self.v):
            return gradient
        if not self._found:
            self._found = self._gradient()
        return self._found[name]

    def _gradient(self) -> Weights:
        with torch.enable_grad():
            weights = {name: w.detach().requires_grad_() for name, w in self.evaluate.origin.items()}
            outputs = self.evaluate(weights)
        parameters = list(weights.values())
        found = self.evaluate.gradient(weights, outputs, parameters, self.v)
        return dict(zip(weights, found, strict=True))


class _Gate(torch.autograd.Function):
    """The slopes as they are; what comes back to them is noted for the network's own backward pass.

    One gate for all slopes: a hook on each would count twice what flows from one slope through another.
    """

    @staticmethod
    def forward(ctx: Any, own: _OwnGradient, *slopes: Tensor) -> Outputs:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.own = own
        return tuple(slope.view_as(slope) for slope in slopes)

    @staticmethod
    def backward(ctx: Any, *v: Tensor) -> tuple[Tensor | None, ...]:
        ctx.own.come(v)
        return None, *v

    @staticmethod
    def jvp(ctx: Any, _own: None, *tangents: Tensor) -> Outputs:  # noqa: ARG004
        return tuple(t.view_as(t) for t in tangents)


def _are_finite(tensors: Outputs) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)
