"""The full kernel times a vector, without the kernel."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError
from tangentkit.core.functions import ModelFunction
from tangentkit.empirical.generic import loop_gradients
from tangentkit.empirical.structure import spread, trace

SAMPLES = 256
"""Samples of one pass."""


def kernel_product(function: ModelFunction, x: Batch, v: Tensor) -> Tensor:
    """K v = J (Jᵀ v) for v (n, c): a vjp over all samples, then a jvp.

    Raises:
        InputError: v is not of shape (n, c).
    """
    c = function(function.params, take(x, slice(0, 1))).shape[1]
    if v.shape != (batch_size(x), c):
        raise InputError("bad vector", expected=f"shape ({batch_size(x)}, {c})", got=tuple(v.shape))
    cotangents = v.to(dtype=function.dtype, device=function.device)
    plain = _batches_are_sums(function, spread(x, 2))
    size, jvp = (SAMPLES, _jvp) if plain else (1, _by_gradients)
    pieces = [slice(start, start + size) for start in range(0, batch_size(x), size)]
    tangent = {name: torch.zeros_like(p) for name, p in function.params.items()}
    for piece in pieces:
        for name, part in _vjp(function, take(x, piece), cotangents[piece]).items():
            tangent[name] += part
    return torch.cat([jvp(function, take(x, piece), tangent) for piece in pieces])


def _batches_are_sums(function: ModelFunction, two: Batch) -> bool:
    """Whether the gradient of a batch is the sum of its samples' gradients, as some operations will not have it."""
    _, outputs, graph = trace(function, two)
    if any(getattr(node, "_saved_scale_grad_by_freq", False) for node in graph.nodes):
        return False
    together = _vjp(function, two, torch.ones_like(outputs))
    alone = [_vjp(function, take(two, slice(i, i + 1)), torch.ones_like(outputs[:1])) for i in range(2)]
    tolerance = 1e4 * torch.finfo(outputs.dtype).eps
    return all(
        float((g - alone[0][name] - alone[1][name]).norm())
        <= tolerance * float(g.norm() + alone[0][name].norm())
        for name, g in together.items()
    )


def _vjp(function: ModelFunction, batch: Batch, v: Tensor) -> dict[str, Tensor]:
    parameters = {name: p.detach().requires_grad_() for name, p in function.params.items()}
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


def _jvp(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    """J u by forward mode; where an operation does not know it by two backward passes; else sample by sample."""
    for route in (_forward_mode, _double_vjp):
        try:
            with sdpa_kernel(SDPBackend.MATH):  # fused attention knows neither
                return route(function, batch, tangent)
        except (RuntimeError, NotImplementedError):
            continue
    return _by_gradients(function, batch, tangent)


def _forward_mode(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    return torch.func.jvp(lambda params: function(params, batch), (function.params,), (tangent,))[1]


def _double_vjp(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    """J u as the derivative of w -> <Jᵀ w, u>."""
    parameters = {name: p.detach().requires_grad_() for name, p in function.params.items()}
    with torch.enable_grad():
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


def _by_gradients(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    outputs = function(function.params, batch)
    eye = torch.eye(outputs.shape[1]).to(outputs)
    gradients = loop_gradients(function, list(tangent), batch, eye)
    return torch.stack([gradients[name] @ u.flatten() for name, u in tangent.items()]).sum(0)
