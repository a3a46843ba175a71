"""Directional derivatives of a model in its weights: φ(s) = f(w0 + s u), φ'(0), φ''(0), ...

Each route returns φ(0), φ'(0), ..., to a degree, differentiable in u and in the inputs. With degree 1 that is
f and J u; reverse mode then gives the gradient Jᵀ v in one pass, since φ'(0) is linear in u.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tangentkit.linearized.evaluation import Evaluation, Outputs, Weights
from tangentkit.linearized.substitutes import BY_DECREE, GRAPHLESS, Substitutes

Route = Callable[[Evaluation, Weights, int], list[Outputs]]
"""(evaluation, u, degree) -> φ(0), φ'(0), ..., φ^(degree)(0)."""


def dual_numbers(evaluate: Evaluation, u: Weights, degree: int) -> list[Outputs]:
    """By one pass of dual numbers w0 + ε u: the cheapest, of first order only."""
    with Substitutes(GRAPHLESS):
        return dual_numbers_in_a_graph(evaluate, u, degree)


def dual_numbers_in_a_graph(evaluate: Evaluation, u: Weights, degree: int) -> list[Outputs]:
    """The same for models that use gradients of their own activations.

    Raises:
        NotImplementedError: the degree is above 1.
    """
    if degree > 1:
        raise NotImplementedError("of first order only")
    # Inside of an autograd.Function torch switches forward mode off, and drops tangents without a word.
    with Substitutes(BY_DECREE), forward_ad._set_fwd_grad_enabled(True), forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(w, u[name]) for name, w in evaluate.origin.items()}
        pairs = [forward_ad.unpack_dual(output) for output in evaluate(duals)]
    return [
        tuple(pair.primal for pair in pairs),
        tuple(torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs),
    ]


def nested_jvp(evaluate: Evaluation, u: Weights, degree: int) -> list[Outputs]:
    """By `torch.func.jvp` inside of itself; works within other transforms of `torch.func` too."""

    def orders(k: int) -> Callable[[Tensor], tuple[Outputs, ...]]:
        if k == 0:
            return lambda s: (evaluate({name: w + s * u[name] for name, w in evaluate.origin.items()}),)

        def function(s: Tensor) -> tuple[Outputs, ...]:
            values, slopes = torch.func.jvp(orders(k - 1), (s,), (torch.ones_like(s),))[:2]
            return (*values, slopes[-1])

        return function

    with Substitutes(BY_DECREE):
        found = list(orders(degree)(_zero(evaluate)))
    if evaluate.has_constant_tensors:
        with torch.no_grad():
            evaluate(evaluate.origin)  # which finds them again, free of the wrappers of torch.func
    return found


def substituted_jvp(evaluate: Evaluation, u: Weights, degree: int) -> list[Outputs]:
    """Nested jvp, with formulas for the functions of torch that do not know forward mode."""
    with Substitutes():
        return nested_jvp(evaluate, u, degree)


def double_reverse(evaluate: Evaluation, u: Weights, degree: int) -> list[Outputs]:
    """By backward passes alone: φ' is the derivative of v -> d<v, φ>/ds.

    Needs second derivatives of every operation instead of forward mode; slower, and adjoint to the model's own
    backward pass by construction.
    """
    through = degree > 1 or evaluate.inputs_require_grad
    with torch.enable_grad():
        s = _zero(evaluate).requires_grad_()
        weights = {
            name: w + s * (u[name] if through else u[name].detach()) for name, w in evaluate.origin.items()
        }
        orders = [evaluate(weights)]
        for _ in range(degree):
            orders.append(_slope(evaluate, weights, orders[-1], s, create_graph=through))
    if through:
        return orders
    outputs, slopes = orders
    if not torch.is_grad_enabled() or not any(direction.requires_grad for direction in u.values()):
        return [_detached(outputs), _detached(slopes)]
    # Only second derivatives have been asked of the model so far: the gradient in u is its plain backward pass.
    slopes = _WithGradient.apply(evaluate, weights, outputs, slopes, *u.values())
    return [_detached(outputs), slopes]


ROUTES: dict[str, Route] = {
    "dual numbers": dual_numbers,
    "dual numbers in a graph": dual_numbers_in_a_graph,
    "jvp": nested_jvp,
    "jvp with substitutes": substituted_jvp,
    "double reverse": double_reverse,
}
"""Name -> route, the cheapest first."""


def _zero(evaluate: Evaluation) -> Tensor:
    return torch.zeros((), dtype=evaluate.function.dtype, device=evaluate.function.device)


def _slope(
    evaluate: Evaluation, weights: Weights, outputs: Outputs, s: Tensor, *, create_graph: bool
) -> Outputs:
    v = tuple(torch.zeros_like(output, requires_grad=True) for output in outputs)
    pulled = tuple(evaluate.gradient(weights, outputs, [s], v, create_graph=True))
    one = (torch.ones_like(s),)
    return tuple(evaluate.gradient(weights, pulled, list(v), one, create_graph=create_graph))


class _WithGradient(torch.autograd.Function):
    """J u, already computed, whose gradient in u is Jᵀ v by the graph of the outputs."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, evaluate: Evaluation, weights: Weights, outputs: Outputs, slopes: Outputs, *_u: Tensor
    ) -> Outputs:
        ctx.evaluate, ctx.names, ctx.count = evaluate, list(weights), len(outputs)
        # Saved, not kept: torch frees them, and with them the graph, after the backward pass.
        ctx.save_for_backward(*outputs, *weights.values())
        return slopes

    @staticmethod
    def backward(ctx: Any, *v: Tensor) -> tuple[Tensor | None, ...]:
        outputs, values = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        weights = dict(zip(ctx.names, values, strict=True))
        wanted = ctx.needs_input_grad[4:]
        inputs = [w for w, want in zip(values, wanted, strict=True) if want]
        create = torch.is_grad_enabled()
        found = iter(ctx.evaluate.gradient(weights, outputs, inputs, v, create_graph=create))
        return (None, None, None, None, *(next(found) if want else None for want in wanted))


def _detached(outputs: Outputs) -> Outputs:
    return tuple(output.detach() for output in outputs)
