"""Formulas for the few functions whose kernels in torch lack derivatives, or have wrong ones.

Some have no forward mode, some no second derivative. Normalizations have both, but take their saved mean and variance
for constants, so that a derivative of their forward mode is wrong without a word. The formulas here are compositions
of operations without such faults; values agree to rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Formulas = dict[Callable, Callable[..., Tensor]]
"""Function of torch -> the same by operations that have every derivative."""


class Substitutes(TorchFunctionMode):
    """While it is entered, calls of some functions take their formulas.

    Args:
        formulas: of these functions; None for all of `FORMULAS`.

    Example:
        >>> with Substitutes():
        ...     F.glu(torch.tensor([2.0, 0.0]))
        tensor([1.])
    """

    def __init__(self, formulas: Formulas | None = None):
        super().__init__()
        self.formulas = FORMULAS if formulas is None else formulas

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Calls the formula of a function, or the function itself."""
        return self.formulas.get(func, func)(*args, **(kwargs or {}))


def _unfused(layer: Callable) -> Callable:
    """A recurrent layer without the fused kernels of a vendor, which have no forward mode."""

    def formula(*args: Any, **kwargs: Any) -> Any:
        vendors = (torch.backends.mkldnn, torch.backends.cudnn)
        before = [vendor.enabled for vendor in vendors]
        try:
            for vendor in vendors:
                vendor.enabled = False  # pyright: ignore[reportAttributeAccessIssue]
            return layer(*args, **kwargs)
        finally:
            for vendor, enabled in zip(vendors, before, strict=True):
                vendor.enabled = enabled  # pyright: ignore[reportAttributeAccessIssue]

    return formula


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if padding_idx is None:
        return F.embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    # The row of padding has no gradient by decree, of which forward mode knows nothing.
    rows = F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    return torch.where((input == padding_idx % len(weight))[..., None], rows.detach(), rows)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,  # noqa: ARG001
) -> Tensor:
    axes = list(range(-len(normalized_shape), 0))
    return _affine(_standardized(input, axes, eps), weight, bias)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return F.instance_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    shape = [1, -1] + [1] * (input.ndim - 2)
    weight, bias = (None if p is None else p.view(shape) for p in (weight, bias))
    return _affine(_standardized(input, list(range(2, input.ndim)), eps), weight, bias)


def _standardized(x: Tensor, axes: list[int], eps: float) -> Tensor:
    centered = x - x.mean(axes, keepdim=True)
    return centered * (centered.square().mean(axes, keepdim=True) + eps).rsqrt()


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _glu(input: Tensor, dim: int = -1) -> Tensor:
    a, b = input.chunk(2, dim)
    return a * torch.sigmoid(b)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    # dim = -1 is torch's word for one norm of the whole tensor.
    axes = [i for i in range(v.ndim) if dim == -1 or i != dim]
    return v * (g / _length(v, axes, keepdim=True))


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:  # noqa: ARG001
    difference = x1[..., :, None, :] - x2[..., None, :, :]
    return _length(difference, [-1]) if p == 2 else torch.linalg.vector_norm(difference, p, dim=-1)


def _length(x: Tensor, axes: list[int], *, keepdim: bool = False) -> Tensor:
    """The Euclidean norm, with derivative 0 at 0; torch's own cannot be differentiated three times."""
    square = x.square().sum(axes, keepdim=keepdim)
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, 1).sqrt(), 0)


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if max_norm is not None or scale_grad_by_freq:  # they change the table, or the meaning of its gradient
        return F.embedding_bag(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
            per_sample_weights, include_last_offset, padding_idx,
        )  # fmt: skip
    if offsets is None:
        bags = list(input)
        scales = list(per_sample_weights) if per_sample_weights is not None else [None] * len(bags)
    else:
        inner = (offsets[1:-1] if include_last_offset else offsets[1:]).tolist()
        bags = list(input.tensor_split(inner))
        scales = (
            list(per_sample_weights.tensor_split(inner))
            if per_sample_weights is not None
            else [None] * len(bags)
        )
    return torch.stack(
        [_bag(weight, *pair, mode=mode, padding_idx=padding_idx) for pair in zip(bags, scales, strict=True)]
    )


def _bag(
    weight: Tensor, indices: Tensor, scale: Tensor | None, *, mode: str, padding_idx: int | None
) -> Tensor:
    if padding_idx is not None:
        kept = indices != padding_idx % len(weight)
        indices, scale = indices[kept], scale[kept] if scale is not None else None
    if not len(indices):
        return 0 * weight[0]
    rows = weight[indices] if scale is None else weight[indices] * scale[:, None]
    if mode == "max":
        return rows.max(0).values
    return rows.sum(0) if mode == "sum" else rows.mean(0)


BY_DECREE: Formulas = {F.embedding: _embedding}
"""Functions whose gradient is not their derivative, by decree and on some batches only: no trial would find them."""
GRAPHLESS: Formulas = {Tensor.requires_grad_: lambda tensor, _requires_grad=True: tensor}
"""Keeps a model from asking for gradients of its own activations, as those with checkpointing do without using them:
torch cannot walk back through all that forward mode does."""
FORMULAS: Formulas = BY_DECREE | {
    F.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    F.instance_norm: _instance_norm,
    F.glu: _glu,
    F.embedding_bag: _embedding_bag,
    torch.cdist: _cdist,
    torch._weight_norm: _weight_norm,
    **{layer: _unfused(layer) for layer in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)},
}
