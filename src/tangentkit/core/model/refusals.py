"""Why a model refuses a batch: which layer, what it takes, what came, and what to do next.

Passes of kernels run few samples, in ways that a plain call does not. So when one fails the model is simply called
with the user's samples: what that raises is what the user would see, and the innermost of the model's layers that
were running is the one that refused.
"""

from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch
from torch import nn

from tangentkit.core.batches import Batch, as_batch, batch_size, describe, split, take
from tangentkit.core.data_sets import is_data_set
from tangentkit.core.errors import InputError, TangentkitError
from tangentkit.core.model.functions import ModelFunction, check_inputs
from tangentkit.core.model.layers import layer_error

FEW = 2
"""Samples of the first call: with one, torch would take a missing axis for a sample that stands alone."""
MANY = 64
"""Samples of the calls after it."""


@dataclass(frozen=True)
class Place:
    """Where a model was when something was raised."""

    name: str
    layer: nn.Module | None
    """The innermost layer that was running; None where it was the rule `forward=`."""
    given: Any
    """Its first argument."""
    code: str
    """File and line, where that is the user's code."""


def accepted(function: ModelFunction, data: Any) -> Batch:
    """The samples of some data as the model takes them.

    Of a data set of pairs (input, target) the inputs are taken where the model refuses the pairs.

    Raises:
        InputError: they are no batch, not finite, or of another device or float type than the model.
    """
    batch = as_batch(data)
    pairs = is_data_set(data) and isinstance(batch, (tuple, list)) and len(batch) == 2
    if pairs and _raised(function, take(batch, slice(0, FEW))) is not None:
        batch = batch[0]
    check_inputs(function, batch)
    return batch


def refusal(function: ModelFunction, error: Exception, *data: Any) -> TangentkitError | None:
    """The error that says why the model does not take some data; None if it takes them, or did not raise this.

    Args:
        function: the model.
        error: what was raised.
        data: batches that the model was run on, in whatever way; of the others, what is no batch like the first is
            left out.

    Example:
        >>> from tangentkit.core.model.functions import snapshot
        >>> f, x = snapshot(nn.Linear(3, 2)), torch.ones(7, 4)
        >>> try:
        ...     f(f.params, x)
        ... except RuntimeError as error:
        ...     print(refusal(f, error, x))
        Linear 'model' does not take this input: expected (n, ..., 3), got float32 (7, 4). Try: ...
    """
    if _place(function, error) is None:
        return None
    form = None
    for place, one in enumerate(data):
        try:
            batch = accepted(function, one)
        except InputError as found:
            if place == 0:
                return found
            continue
        form = form or describe(batch)
        found = _refusal(function, batch) if describe(batch) == form else None
        if found is not None:
            return found
    return None


def _refusal(function: ModelFunction, batch: Batch) -> TangentkitError | None:
    few = take(batch, slice(0, FEW))
    found = _raised(function, few)
    if found is not None:
        # Of a small batch torch's words are about the user's own sizes. (All of it may pass for one large sample.)
        whole = _raised(function, batch) if batch_size(batch) <= MANY else None
        if whole is not None and _layer(function, whole) is _layer(function, found):
            return _explained(function, batch, whole, batch)
        return _explained(function, few, found, batch)
    start = 0
    for piece in split(batch, MANY):
        if _raised(function, piece) is not None:
            return _of_one_sample(function, batch, range(start, start + batch_size(piece)))
        start += MANY
    return None


def _raised(function: ModelFunction, batch: Batch) -> Exception | None:
    """What the model raises when it is simply called."""
    try:
        with torch.inference_mode(False), torch.no_grad():
            function.run(function.params, batch)
    except Exception as error:
        return error
    return None


def _of_one_sample(function: ModelFunction, batch: Batch, numbers: range) -> TangentkitError | None:
    """The error of the first of some samples that is refused beside sample 0, which is not."""
    for i in numbers:
        pair = take(batch, [0, i])
        found = _raised(function, pair)
        if found is not None:
            return _explained(function, pair, found, batch, sample=i)
    piece = take(batch, slice(numbers.start, numbers.stop))
    found = _raised(function, piece)
    return None if found is None else _explained(function, piece, found, batch)


def _explained(
    function: ModelFunction, ran: Batch, error: Exception, batch: Batch, sample: int | None = None
) -> TangentkitError:
    """The error for the user: `ran` are the samples of the call that raised, of the user's batch."""
    if isinstance(error, TangentkitError):
        return error
    place = _place(function, error) or Place("", function.module, None, "")
    words = str(error).strip().partition("\n")[0] or "nothing"
    words = words if isinstance(error, (RuntimeError, ValueError)) else f"{type(error).__name__}: {words}"
    whose = "" if batch_size(ran) == batch_size(batch) else f" of {batch_size(ran)} samples"
    return layer_error(
        place.name,
        place.layer,
        place.given,
        ran=ran,
        batch=batch,
        reason=f"{words}{whose}{place.code}",
        sample=sample,
    )


def _place(function: ModelFunction, error: Exception) -> Place | None:
    """Where the model was; None if it was not running."""
    names = {module: name for name, module in function.module.named_modules()}
    rule, found = getattr(function.forward, "__code__", None), None
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        layer = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if code is rule:
            found = Place("", None, None, f" ({Path(code.co_filename).name}, line {line})")
        elif isinstance(layer, nn.Module) and layer in names:
            called = code.co_name in ("_wrapped_call_impl", "_call_impl")
            found = Place(
                names[layer], layer, None if called else _first_argument(frame), _code(layer, frame, line)
            )
    return found


def _layer(function: ModelFunction, error: Exception) -> nn.Module | None:
    place = _place(function, error)
    return None if place is None else place.layer


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[1]) if code.co_argcount > 1 else None


def _code(layer: nn.Module, frame: FrameType, line: int) -> str:
    """File and line of a layer that is not torch's own."""
    if type(layer).__module__.partition(".")[0] == "torch":
        return ""
    return f" ({Path(frame.f_code.co_filename).name}, line {line})"
