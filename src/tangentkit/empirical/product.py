"""The full kernel times a vector, without the kernel."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.passes.generic import loop_gradients, output_gradients
from tangentkit.empirical.reading.independence import spread
from tangentkit.empirical.structure import trace

SAMPLES = 256
"""Samples of one pass."""
Route = Callable[[ModelFunction, Batch, dict[str, Tensor]], Tensor]
"""(function, batch, u) -> J u."""


def kernel_product(function: ModelFunction, x: Batch, v: Tensor) -> Tensor:
    """K v = J (Jᵀ v) for v (n, c): a vjp over all samples, then a jvp.

    Raises:
        InputError: v is not of shape (n, c).
    """
    c = function(function.params, take(x, slice(0, 1))).shape[1]
    if v.shape != (batch_size(x), c):
        raise InputError("bad vector", expected=f"shape ({batch_size(x)}, {c})", got=tuple(v.shape))
    cotangents = v.to(dtype=function.dtype, device=function.device)
    tangent, routes = {name: torch.zeros_like(p) for name, p in function.params.items()}, _routes(function, x)
    size = SAMPLES if routes else 1
    pieces = [slice(start, start + size) for start in range(0, batch_size(x), size)]
    pull = _vjp if routes else _pull_by_gradients
    for piece in pieces:
        for name, part in pull(function, take(x, piece), cotangents[piece]).items():
            tangent[name] += part
    expected = sum(float(u.double().square().sum()) for u in tangent.values())
    for route in routes:
        try:
            with sdpa_kernel(
                SDPBackend.MATH
            ):  # fused attention knows neither forward mode nor second derivatives
                found = torch.cat([route(function, take(x, piece), tangent) for piece in pieces])
        except Exception:
            continue  # an operation without such a derivative, however it says so: backward passes show it sound
        # vᵀ K v = |Jᵀ v|²: forward and backward mode must mean the same J.
        gap = abs(float((found.double() * cotangents.double()).sum()) - expected)
        if not gap > 1e4 * torch.finfo(function.dtype).eps * expected:
            return found
    return torch.cat([_by_gradients(function, take(x, piece), tangent) for piece in pieces])


def _routes(function: ModelFunction, x: Batch) -> list[Route]:
    """Ways to J u that mean the J of backward passes, the cheapest first."""
    two = spread(x, 2)
    _, outputs, graph = trace(function, two)
    if graph.hooked or any(getattr(node, "_saved_scale_grad_by_freq", False) for node in graph.nodes):
        return []
    if not _batches_are_sums(function, two, outputs):
        return []
    # Forward mode moves the padding row of a table, which gradients leave alone.
    padded = any(0 <= getattr(node, "_saved_padding_idx", -1) < 2**63 for node in graph.nodes)
    return [_double_vjp] if padded else [_forward_mode, _double_vjp]


def _batches_are_sums(function: ModelFunction, two: Batch, outputs: Tensor) -> bool:
    """Whether the gradient of a batch is the sum of its samples' gradients, as some operations will not have it."""
    together = _vjp(function, two, torch.ones_like(outputs))
    alone = [_vjp(function, take(two, slice(i, i + 1)), torch.ones_like(outputs[:1])) for i in range(2)]
    tolerance = 1e4 * torch.finfo(outputs.dtype).eps
    return all(
        float((g - alone[0][name] - alone[1][name]).norm())
        <= tolerance * float(g.norm() + alone[0][name].norm())
        for name, g in together.items()
    )


def _vjp(function: ModelFunction, batch: Batch, v: Tensor) -> dict[str, Tensor]:
    parameters = function.leaves()
    with torch.enable_grad():
        outputs = function(parameters, batch)
    if not outputs.requires_grad:
        return {name: torch.zeros_like(p) for name, p in function.params.items()}
    found = function.within(
        parameters,
        lambda: torch.autograd.grad(
            outputs, list(parameters.values()), v, allow_unused=True, materialize_grads=True
        ),
    )
    return {name: g.to_dense() if g.is_sparse else g for name, g in zip(parameters, found, strict=True)}


def _forward_mode(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    return torch.func.jvp(lambda params: function(params, batch), (function.params,), (tangent,))[1]


def _double_vjp(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    """J u as the derivative of w -> <Jᵀ w, u>."""
    parameters = function.leaves()

    def pushed() -> Tensor:
        outputs = function(parameters, batch)
        w = torch.zeros_like(outputs, requires_grad=True)
        pulled = torch.autograd.grad(
            outputs,
            list(parameters.values()),
            w,
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        value = torch.stack(
            [(g * tangent[name]).sum() for name, g in zip(parameters, pulled, strict=True)]
        ).sum()
        return torch.autograd.grad(value, w)[0]

    with torch.enable_grad():
        return function.within(parameters, pushed)


def _pull_by_gradients(function: ModelFunction, one: Batch, v: Tensor) -> dict[str, Tensor]:
    """Jᵀ v of one sample, v (1, c)."""
    found = output_gradients(function, list(function.params), one, v)
    return {name: g.view_as(function.params[name]) for name, g in found.items()}


def _by_gradients(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    outputs = function(function.params, batch)
    eye = torch.eye(outputs.shape[1]).to(outputs)
    gradients = loop_gradients(function, list(tangent), batch, eye)
    return torch.stack([gradients[name] @ u.flatten() for name, u in tangent.items()]).sum(0)
