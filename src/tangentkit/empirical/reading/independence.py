"""Batch independence: the outputs of a sample must not depend on the other samples of its batch.

Half precision would hide it: rounding alone may change its outputs by percents. There the question is put to a copy
of the model in single precision. Outputs that cancel (of a network minus its copy at the start, say) are nothing but
rounding, in any precision: two precisions tell it from what samples see of each other.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tangentkit.core.batches import Batch, batch_size, take, tensors
from tangentkit.core.errors import ModelError
from tangentkit.core.model.functions import ModelFunction

HALVES = (torch.float16, torch.bfloat16)
ROUNDINGS = 1000
"""Units of rounding by which the outputs of a sample may differ between batches."""
ROUNDINGS_OF_HALVES = 32
"""The same for half precision, where it must do."""
SMALLER = 4
"""Samples of the smaller batches in which those of a large one are run again."""
Result = TypeVar("Result")


class BatchDependenceError(ModelError):
    """A sample has other outputs in another batch."""


def check_all(function: ModelFunction, batch: Batch, outputs: Tensor) -> None:
    """Runs every sample of a batch again, alone.

    Raises:
        ModelError: one has other outputs alone.
    """
    check_independence(function, batch, outputs, chosen=torch.arange(batch_size(batch)), size=1)


def keeps_apart(function: ModelFunction, batch: Batch, outputs: Tensor) -> bool:
    """Looks at a few samples of a batch, in batches of a few.

    Returns:
        Whether that says something of other batches: the samples that were run differ.
    """
    n = batch_size(batch)
    chosen = spread_indices(n, min(n, 2 * SMALLER))
    check_independence(function, batch, outputs, chosen=chosen, size=max(1, len(chosen) // 2))
    return distinct(take(batch, chosen)) == len(chosen)


def check_independence(
    function: ModelFunction, batch: Batch, outputs: Tensor, *, chosen: Tensor, size: int
) -> None:
    """Runs some samples of a batch again in smaller batches: their outputs must be the same.

    Args:
        function: the model.
        batch: n samples.
        outputs: of the model for them, (n, c).
        chosen: indices of the samples to run again.
        size: how many of them go together.

    Raises:
        ModelError: the outputs differ, so samples see each other; or the model cannot be run on one sample.
    """

    def in_few(model: ModelFunction, samples: Batch) -> Tensor:
        return torch.cat([_run(model, take(samples, part)) for part in chosen.split(size)]).detach()

    def compare(model: ModelFunction, samples: Batch, together: Tensor) -> None:
        check_same(in_few(model, samples), together.detach()[chosen], (size, batch_size(batch)))

    def gap(model: ModelFunction, samples: Batch) -> float:
        return float((in_few(model, samples) - model(model.params, samples).detach()[chosen]).abs().max())

    try:
        if function.dtype not in HALVES:
            compare(function, batch, outputs)
        else:
            in_single_precision(
                function,
                batch,
                lambda model, samples: compare(model, samples, model(model.params, samples)),
                otherwise=lambda: compare(function, batch, outputs),
            )
    except BatchDependenceError:
        if not is_rounding(function, batch, gap):
            raise


def is_rounding(function: ModelFunction, batch: Batch, gap: Callable[[ModelFunction, Batch], float]) -> bool:
    """Whether a gap falls with the precision, as rounding does; what samples see of each other does not."""
    single, double = (
        in_precision(dtype, function, batch, gap, otherwise=lambda: math.nan)
        for dtype in (torch.float32, torch.float64)
    )
    return double <= ROUNDINGS * torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps * single


def in_single_precision(
    function: ModelFunction,
    batch: Batch,
    work: Callable[[ModelFunction, Batch], Result],
    *,
    otherwise: Callable[[], Result],
) -> Result:
    """Does some work with a copy of the model and its samples in float32; otherwise if its code insists on half."""
    return in_precision(torch.float32, function, batch, work, otherwise=otherwise)


def in_precision(
    dtype: torch.dtype,
    function: ModelFunction,
    batch: Batch,
    work: Callable[[ModelFunction, Batch], Result],
    *,
    otherwise: Callable[[], Result],
) -> Result:
    """Does some work with a copy of the model and its samples in a precision; otherwise if its code refuses."""
    copy = replace(
        function,
        params=_cast(function.params, dtype),
        frozen=_cast(function.frozen, dtype),
        buffers=_cast(function.buffers, dtype),
    )
    try:
        return work(copy, _cast(batch, dtype))
    except RuntimeError:
        return otherwise()


def check_same(few: Tensor, together: Tensor, sizes: tuple[int, int]) -> None:
    """Refuses a model that gives samples other outputs in a batch than alone, or among fewer.

    Args:
        few: the outputs of samples in a small batch.
        together: those of the same samples in a larger one.
        sizes: of both batches.

    Raises:
        BatchDependenceError: with the gap.
    """
    if not together.isfinite().all():
        return  # the kernel will not be finite either, and says so
    scale = together.abs().max().clamp_min(torch.finfo(together.dtype).tiny)
    gap = float((few - together).abs().max() / scale)
    roundings = ROUNDINGS_OF_HALVES if together.dtype in HALVES else ROUNDINGS
    if not gap <= roundings * torch.finfo(together.dtype).eps:
        raise BatchDependenceError(
            "the output of a sample depends on the other samples of its batch, or on chance: samples gave other "
            f"outputs in a batch of {sizes[1]} than {'alone' if sizes[0] == 1 else f'in one of {sizes[0]}'} "
            f"(relative gap {gap:.1e})",
            hint="model.eval(), or a forward= that treats every sample alone",
        )


def distinct(batch: Batch) -> int:
    """How many different samples there are."""
    n = batch_size(batch)
    rows = torch.cat([leaf.reshape(n, -1).double() for leaf in tensors(batch)], 1)
    return len(torch.unique(rows, dim=0))


def spread(batch: Batch, size: int) -> Batch:
    """Samples from all over a batch, as far apart as they can be; fewer than wanted are repeated."""
    return take(batch, spread_indices(batch_size(batch), size))


def spread_indices(n: int, size: int) -> Tensor:
    """`size` of n indices, as far apart as they can be; fewer than wanted are repeated."""
    return torch.arange(size) % n if n < size else torch.arange(size) * (n - 1) // max(size - 1, 1)


def _run(function: ModelFunction, batch: Batch) -> Tensor:
    if batch_size(batch) > 1:
        return function(function.params, batch)
    try:
        return function(function.params, batch)
    except (ValueError, RuntimeError) as error:
        raise ModelError(
            "the model cannot be run on a sample alone: the output of a sample depends on the other samples of its "
            f"batch ({error})",
            hint="model.eval(), or a forward= that treats every sample alone",
        ) from error


def _cast(tree: Batch, dtype: torch.dtype) -> Batch:
    def cast(leaf: object) -> object:
        if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        return leaf.to(dtype.to_complex() if leaf.is_complex() else dtype)

    return pytree.tree_map(cast, tree)
