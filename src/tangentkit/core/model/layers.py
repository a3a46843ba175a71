"""What layers take, and what to do with inputs that they do not take."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from tangentkit.core.batches import Batch, batch_size, shapes, tensors
from tangentkit.core.errors import InputError
from tangentkit.core.model.calls import WAYS, samples_in_a_list

AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}
INDEXED = (nn.Embedding, nn.EmbeddingBag)
SIZES = "inputs of the sizes that the model was made for"
TO_CALL = (
    "make model(batch) run by itself first; forward=lambda model, batch: ... says how to call it otherwise"
)


def layer_error(
    name: str,
    layer: nn.Module | None,
    given: Any,
    *,
    ran: Batch,
    batch: Batch,
    reason: str = "",
    sample: int | None = None,
) -> InputError:
    """The error of a layer that does not take what it was given.

    Args:
        name: of the layer in its model.
        layer: None where a rule `forward=` refused the batch.
        given: what the layer was given.
        ran: the samples that were run.
        batch: the user's batch, which they are of.
        reason: torch's words, for layers of which nothing better is known.
        sample: the number of the sample that is at fault, where it is one.
    """
    who = "forward=" if layer is None else f"{type(layer).__name__} {name or 'model'!r}"
    expected, got = expected_by(layer, given)
    own = _own(given, batch)
    if expected is None:
        got = f"{shapes(batch)}; it says: {reason}" if reason else shapes(batch)
    elif got is not None:
        got = f"{got} in {shapes(batch)}"
    elif own is not None:
        got = shapes(own) if own is batch else f"{shapes(own)} of {shapes(batch)}"
    else:
        got = f"{_with_n(given, batch_size(ran))}, made of {shapes(batch)}"
    does = "fails on" if expected is None else "does not take"
    what = "what reaches it" if expected is not None and own is None else "this input"
    step = next_step(layer, own) if what == "this input" else _for_numbers(layer, given) or SIZES
    return InputError(
        f"{who} {does} {what}" + ("" if sample is None else f" for sample {sample}"),
        expected=expected,
        got=got,
        hint=samples_in_a_list(batch) + step,
    )


def expected_by(layer: nn.Module | None, given: Any) -> tuple[str | None, str | None]:
    """What a layer takes, and words for what came where a shape does not say it; None if it should take it."""
    if not isinstance(given, Tensor):
        is_leaf = (
            layer is not None and type(layer).__module__.startswith("torch.") and not any(layer.children())
        )
        return ("a tensor" if is_leaf and given is not None else None), None
    if isinstance(layer, INDEXED):
        if given.is_floating_point():
            return "integers", None
        low, high = (int(end) for end in given.aminmax())
        if low < 0 or high >= layer.num_embeddings:
            return f"integers from 0 to {layer.num_embeddings - 1}", f"integers from {low} to {high}"
        return None, None
    weight = getattr(layer, "weight", None)
    shape = expected_shape(layer, given)
    if isinstance(weight, Tensor) and weight.is_floating_point() and weight.dtype != given.dtype:
        # Infinite kernels take numbers of any precision, but not of any shape.
        return (shape if shape and given.is_floating_point() else f"{_word(weight.dtype)} numbers"), None
    return shape, None


def expected_shape(layer: nn.Module | None, given: Tensor) -> str | None:
    """The shape that a layer takes; None if this one is right, or nothing is known of the layer."""
    if isinstance(layer, nn.Linear) and (not given.ndim or given.shape[-1] != layer.in_features):
        return f"(n, ..., {layer.in_features})"
    if isinstance(layer, _ConvNd):
        axes = len(layer.kernel_size)
        if given.ndim != axes + 2 or given.shape[1] != layer.in_channels:
            return f"(n, {layer.in_channels}, {AXES[axes]})"
        if not layer.transposed and not isinstance(layer.padding, str):
            reach = [
                (k - 1) * d + 1 - 2 * p
                for k, d, p in zip(layer.kernel_size, layer.dilation, layer.padding, strict=True)
            ]
            if any(size < least for size, least in zip(given.shape[2:], reach, strict=True)):
                return f"at least {' x '.join(map(str, reach))} ({AXES[axes]})"
    if isinstance(layer, _NormBase) and (given.ndim < 2 or given.shape[1] != layer.num_features):
        return f"(n, {layer.num_features}, ...)"
    if isinstance(layer, nn.GroupNorm) and (given.ndim < 2 or given.shape[1] != layer.num_channels):
        return f"(n, {layer.num_channels}, ...)"
    if isinstance(layer, nn.LayerNorm):
        last = layer.normalized_shape
        if tuple(given.shape[-len(last) :]) != tuple(last):
            return f"(n, ..., {', '.join(map(str, last))})"
    if isinstance(layer, nn.RNNBase) and (given.ndim != 3 or given.shape[-1] != layer.input_size):
        return f"({'n, t' if layer.batch_first else 't, n'}, {layer.input_size})"
    return None


def next_step(layer: nn.Module | None, x: Any) -> str:
    """What makes an input that a layer takes of one that it does not take."""
    if isinstance(x, (tuple, list, dict)):
        return _of_parts(x)
    if not isinstance(x, Tensor):
        return TO_CALL
    numbers = _for_numbers(layer, x)
    if numbers is not None:
        return numbers
    if isinstance(layer, _ConvNd):
        return _for_channels(layer.in_channels, len(layer.kernel_size), x)
    if isinstance(layer, nn.Linear):
        return _for_features(layer.in_features, x)
    return TO_CALL


def _for_numbers(layer: nn.Module | None, x: Tensor) -> str | None:
    """What makes numbers of the kind that a layer takes; None if they are."""
    if isinstance(layer, INDEXED):
        return "x.long()" if x.is_floating_point() else "the vocabulary that the model was trained with"
    weight = getattr(layer, "weight", None)
    if isinstance(weight, Tensor) and weight.is_floating_point() and not x.is_floating_point():
        return "x.float() / 255, scaled as in training" if x.dtype == torch.uint8 else f"x.to({weight.dtype})"
    return None


def _for_channels(channels: int, axes: int, x: Tensor) -> str:
    shape = tuple(x.shape)
    if len(shape) == axes + 2 and shape[-1] == channels:
        return "x.movedim(-1, 1): channels come second"
    if len(shape) == axes + 2 and shape[1] == 1:
        return f"x.expand(-1, {channels}{', -1' * axes}) for gray images"
    if len(shape) == axes + 1 and channels == 1:
        return "x[:, None]: the axis of channels is missing"
    if len(shape) == axes + 1 and shape[0] == channels:
        return "x[None]: the axis of samples is missing"
    if len(shape) == axes + 1 and shape[-1] == channels:
        return "x.movedim(-1, 0)[None]: channels come first, and the axis of samples is missing"
    if len(shape) == axes and channels == 1:
        return "x[None, None]: the axes of samples and channels are missing"
    return f"samples of shape ({channels}, {AXES[axes]})"


def _for_features(features: int, x: Tensor) -> str:
    shape = tuple(x.shape)
    if shape == (features,):
        return "x[None]: the axis of samples is missing"
    if len(shape) > 2 and prod(shape[1:]) == features:
        return "x.flatten(1)"
    if len(shape) == 2 and shape[0] == features:
        return "x.T: samples come first"
    if len(shape) > 1 and prod(shape) == features:
        return "x.flatten()[None]: the axis of samples is missing"
    return f"samples with {features} numbers along the last axis"


def _of_parts(parts: Any) -> str:
    """Advice on a list, tuple or dict that a layer was given as it is."""
    found = tensors(parts)
    if isinstance(parts, (tuple, list)) and len(parts) > 1:
        if all(isinstance(part, (tuple, list)) for part in parts):
            return "torch.stack([x for x, *_ in samples]) makes a batch of a list of samples and targets"
        if len(found) == len(parts) and len({(part.shape, part.dtype) for part in found}) == 1:
            return f"torch.stack(samples) makes a batch of a list of samples; else {WAYS}"
        if len(parts) == 2:
            return f"batch[0], if the other part are targets; else {WAYS}"
    return WAYS


def _own(given: Any, batch: Batch) -> Any:
    """The part of the user's batch that a layer was given; None if it was something else."""
    if isinstance(given, (tuple, list, dict)):
        return batch
    if not isinstance(given, Tensor):
        return None
    alike = [
        leaf
        for leaf in tensors(batch)
        if leaf.ndim == given.ndim and leaf.shape[1:] == given.shape[1:] and leaf.dtype == given.dtype
    ]
    if not alike:
        return None
    return batch if isinstance(batch, Tensor) else alike[0]


def _with_n(given: Tensor, n: int) -> str:
    """The shape of a tensor, its first axis by its name where it counts the samples."""
    sizes = list(map(str, given.shape))
    if sizes and given.shape[0] == n:
        sizes[0] = "n"
    return f"{_word(given.dtype)} ({', '.join(sizes)})"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
