"""The full kernel times a vector, without the kernel."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError
from tangentkit.core.functions import ModelFunction

SAMPLES = 256
"""Samples of one pass."""


def kernel_product(function: ModelFunction, x: Batch, v: Tensor) -> Tensor:
    """K v = J (Jᵀ v) for v (n, c): a vjp over all samples, then a jvp.

    Raises:
        InputError: v is not of shape (n, c).
    """
    pieces = [slice(start, start + SAMPLES) for start in range(0, batch_size(x), SAMPLES)]
    cotangents = v.to(dtype=function.dtype, device=function.device)
    tangent: dict[str, Tensor] | None = None
    for piece in pieces:
        part = _vjp(function, take(x, piece), cotangents, piece, batch_size(x))
        tangent = part if tangent is None else {name: tangent[name] + part[name] for name in part}
    assert tangent is not None
    return torch.cat([_jvp(function, take(x, piece), tangent) for piece in pieces])


def _vjp(function: ModelFunction, batch: Batch, v: Tensor, piece: slice, n: int) -> dict[str, Tensor]:
    parameters = {name: p.detach().requires_grad_() for name, p in function.params.items()}
    with torch.enable_grad():
        outputs = function(parameters, batch)
    if v.shape != (n, outputs.shape[1]):
        raise InputError("bad vector", expected=f"shape ({n}, {outputs.shape[1]})", got=tuple(v.shape))
    found = torch.autograd.grad(
        outputs, list(parameters.values()), v[piece], allow_unused=True, materialize_grads=True
    )
    return dict(zip(parameters, found, strict=True))


def _jvp(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    try:
        with _forward_mode_friendly():
            return torch.func.jvp(lambda params: function(params, batch), (function.params,), (tangent,))[1]
    except (RuntimeError, NotImplementedError):
        return _double_vjp(function, batch, tangent)


def _double_vjp(function: ModelFunction, batch: Batch, tangent: dict[str, Tensor]) -> Tensor:
    """J u as the derivative of w -> <Jᵀ w, u>, for operations that forward mode does not know."""
    parameters = {name: p.detach().requires_grad_() for name, p in function.params.items()}
    with torch.enable_grad(), _forward_mode_friendly():
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
        value = sum((g * tangent[name]).sum() for name, g in zip(parameters, pulled, strict=True))
    assert isinstance(value, Tensor)
    return torch.autograd.grad(value, w)[0]


@contextmanager
def _forward_mode_friendly() -> Iterator[None]:
    # Fused attention has neither forward mode nor second derivatives; its plain form is the same function.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
