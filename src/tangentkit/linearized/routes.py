"""Which route computes the derivatives of a model: the first that agrees with the model's own backward pass."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tangentkit.core.batches import tensors
from tangentkit.core.errors import ModelError
from tangentkit.core.model.hooks import hooks_made
from tangentkit.core.seeds import Key
from tangentkit.linearized.derivatives import ROUTES, Route
from tangentkit.linearized.evaluation import Evaluation, Weights
from tangentkit.linearized.substitutes import Substitutes

TROUBLE = (RuntimeError, NotImplementedError, AttributeError)
"""What torch raises where an operation lacks a derivative; nested tensors lack attributes."""


def choose_route(evaluate: Evaluation, degree: int) -> str:
    """The name of the first route whose derivatives are those of backward passes, tried on random u and v.

    Some operations have no forward mode, some no derivative of it or a wrong one, and for some (an embedding with
    padding_idx) forward and backward mode mean different things. The backward pass of the model decides what J is,
    and a backward pass through that one what derivatives of J are.

    Raises:
        ModelError: no route will do; the operations at fault are named.
    """
    # Inputs of its own: nothing that is tried reaches the graph behind the user's.
    batch = pytree.tree_map_only(Tensor, lambda x: x.detach().requires_grad_(x.requires_grad), evaluate.batch)
    evaluate = Evaluation(evaluate.function, batch)
    reasons = []
    with torch.enable_grad():
        trial = _Trial(evaluate, degree)
        # Hooks change backward passes alone, and some of them only for some samples.
        routes = {"double reverse": ROUTES["double reverse"]} if trial.hooked else ROUTES
        for name, route in routes.items():
            try:
                if trial.passed_by(route):
                    return name
                reasons.append("disagrees with the backward pass")
            except TROUBLE as error:
                reasons.append(_fault(error))
    raise ModelError(
        f"{type(evaluate.function.module).__name__} has no derivative in the direction of its weights: "
        + "; ".join(f"{name}: {reason}" for name, reason in zip(routes, reasons, strict=True)),
        hint="write the operation as a composition of others, give an autograd.Function of yours a jvp, switch off "
        "what makes a gradient differ from the derivative (scale_grad_by_freq, checkpointing, hooks), or leave "
        "its parameters out by params=",
    )


class _Trial:
    """Derivatives of <v, f> at w0 by backward passes alone, and routes compared with them.

    With φ(s) = <v, f(w0 + s u)>, g = ∇_w <v, f>, and H u the gradient of <g, u> in the weights:

        φ' = <g, u>,  ∇_u φ' = g,  ∇_x φ' = ∇_x <g, u>,  φ'' = <H u, u>,  ∇_u φ'' = 2 H u

    Beyond the second order Euler's law must do: <u, ∇_u φ^(k)> = k φ^(k).
    """

    def __init__(self, evaluate: Evaluation, degree: int):
        self.evaluate, self.degree = evaluate, degree
        self.inputs = [leaf for leaf in tensors(evaluate.batch) if leaf.requires_grad]
        weights = {name: w.detach().requires_grad_() for name, w in evaluate.origin.items()}
        parameters = list(weights.values())
        made = hooks_made()
        with _Precisions() as inside:
            outputs = evaluate(weights)
        self.hooked = hooks_made() > made
        if not any(output.requires_grad for output in outputs):
            raise ModelError(
                "no parameter reaches the output: the forward pass runs under torch.no_grad, .detach() or NumPy",
                expected="outputs with a gradient, as a loss would need them",
                got="outputs without one",
                hint="remove it from the model's forward, or from forward=",
            )
        self.rounding = inside.rounding
        key = Key(0).fold("trial")
        self.v = tuple(_like(output, key.fold("v", i)) for i, output in enumerate(outputs))
        self.u = {name: _like(w, key.fold("u", name)).requires_grad_() for name, w in weights.items()}
        self.gradient = evaluate.gradient(weights, outputs, parameters, self.v)
        self.curvature: list[Tensor] = []
        self.input_gradient: list[Tensor] = []
        if degree > 1 or self.inputs:
            self._differentiate_again(weights)

    def _differentiate_again(self, weights: Weights) -> None:
        evaluate, parameters = self.evaluate, list(weights.values())
        try:
            with Substitutes():
                outputs = evaluate(weights)
                g = evaluate.gradient(weights, outputs, parameters, self.v, create_graph=True)
                slope = (_inner([u.detach() for u in self.u.values()], g),)
                one = (torch.ones_like(slope[0]),)
                found = evaluate.gradient(weights, slope, [*self.inputs, *parameters], one)
        except TROUBLE as error:
            raise ModelError(
                f"{type(evaluate.function.module).__name__} has no second derivative: {_fault(error)}",
                hint="linearize, with inputs that require no grad, does without",
            ) from error
        self.input_gradient, self.curvature = found[: len(self.inputs)], found[len(self.inputs) :]

    def passed_by(self, route: Route) -> bool:
        """Whether a route agrees, to rounding."""
        directions = list(self.u.values())
        orders = route(self.evaluate, self.u, self.degree)[1:]
        values = [_inner(self.v, order) for order in orders]
        gradients = [_gradient(value, directions) for value in values]
        pairs = [(gradients[0], self.gradient)]
        if self.inputs:
            pairs.append((_gradient(values[0], self.inputs), self.input_gradient))
        if self.degree > 1:
            pairs.append((gradients[1], [2 * h for h in self.curvature]))
        for found, truth in pairs:
            error = [a - b for a, b in zip(found, truth, strict=True)]
            # What vanishes is compared with what does not.
            if not _norm(error) <= self.rounding * (_norm(truth) + _norm(self.gradient)):
                return False
        return all(
            abs(_inner(g, directions) - k * value) <= self.rounding * _norm(g) * _norm(directions)
            for k, (value, g) in enumerate(zip(values, gradients, strict=True), 1)
        )


class _Precisions(TorchDispatchMode):
    """Sees in which dtypes a model computes: some do part of their work in float32, whatever their weights are in."""

    rounding = 0.0
    """The relative error that a right route may have: far above rounding, below that of a wrong derivative."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                self.rounding = max(self.rounding, min(1e5 * torch.finfo(leaf.dtype).eps, 0.3))
        return result


def _gradient(value: Tensor, inputs: list[Tensor]) -> Sequence[Tensor]:
    if not value.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    # Derivatives of all orders hang on one graph.
    return torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)


def _inner(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    # Sums over all parameters would overflow in half precision.
    products = (
        (x.conj() * y).sum(dtype=torch.promote_types(x.dtype, torch.float32)).real
        for x, y in zip(a, b, strict=True)
    )
    return torch.stack([*products]).sum()


def _norm(a: Sequence[Tensor]) -> float:
    return float(_inner(a, a).detach().sqrt())


def _like(tensor: Tensor, key: Key) -> Tensor:
    # Drawn on the CPU in float32: the same direction whatever the device and dtype.
    return torch.randn(tensor.shape, generator=key.torch()).to(tensor)


def _fault(error: Exception) -> str:
    """The operation that an error of torch speaks of, or else its first line."""
    text = str(error)
    if "meta" in text:
        # The code of the network, without its values, was run outside of a call.
        return "activation checkpointing runs the network again in the backward pass"
    operation = re.search(r"forward AD with (\S+)|derivative for '?([\w:]+)'? is not implemented", text)
    if operation:
        return f"{operation[1] or operation[2]} has no such derivative"
    return text.splitlines()[0] if text else type(error).__name__
