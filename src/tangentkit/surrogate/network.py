"""What a network says of samples: logits of classes, and whether a kernel is its own."""

from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource
from tangentkit.core.errors import InputError
from tangentkit.core.model.functions import Forward, ModelFunction, snapshot_to_call
from tangentkit.core.model.refusals import refusal
from tangentkit.core.progress import Progress, counted_off
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.loss import LossOfModel

AT_ONCE = 256
"""Samples of one pass."""


def network_of(model: nn.Module, kernel: Kernel, forward: Forward | None) -> ModelFunction:
    """The network at its snapshot, called as its kernel calls it.

    Raises:
        InputError: the kernel is of another network, or of other values of the weights.
    """
    functions = kernel.functions()
    if forward is None and functions:
        own = functions[0].forward
        forward = own.forward if isinstance(own, LossOfModel) else own
    network = snapshot_to_call(model, forward=forward)
    for function in functions:
        check_same(network, function)
    return network


def network_logits(
    network: ModelFunction, x: SampleSource, progress: bool | Progress = False
) -> Float[Tensor, "n c"]:
    """Logits of all classes, in float64; one output z, of two classes, is (0, z).

    Raises:
        InputError: the network does not take these samples.

    Example:
        >>> from tangentkit.compute.sources import as_source
        >>> model = nn.Linear(3, 1)
        >>> network_logits(snapshot_to_call(model), as_source(torch.zeros(2, 3))).shape
        torch.Size([2, 2])
    """
    parts, pieces = [], list(spans(len(x), AT_ONCE))
    with torch.no_grad(), counted_off(progress, "network", len(pieces)) as advance:
        for span in pieces:
            batch = x.read(span)
            try:
                parts.append(network(network.params, batch).double())
            except Exception as error:
                raise refusal(network, error, batch) or error from error
            advance()
    return class_logits(torch.cat(parts))


def class_logits(outputs: Float[Tensor, "n k"]) -> Float[Tensor, "n c"]:
    """Logits of all classes; one output z, of two classes, is (0, z).

    Example:
        >>> class_logits(torch.tensor([[3.0]]))
        tensor([[0., 3.]])
    """
    return torch.cat([torch.zeros_like(outputs), outputs], 1) if outputs.shape[1] == 1 else outputs


def whole_labels(y: Any, n: int) -> Int[Tensor, " n"]:
    """Labels that are whole numbers, as integers.

    Raises:
        InputError: they are of another number, or no integers.

    Example:
        >>> whole_labels([1.0, 0.0], 2)
        tensor([1, 0])
    """
    if not isinstance(y, Tensor):
        y = np.array(y)
        if y.dtype.kind == "O" and all(isinstance(label, Integral) for label in y.flat):
            y = y.astype(np.int64)  # as columns of data frames are
        if y.dtype.kind not in "biuf":
            first = y.flat[0] if y.size else None
            raise InputError(
                "labels are no numbers",
                expected="integers: numbers of the network's outputs",
                got=f"{y.dtype}, such as {first!r}",
                hint="y = [classes.index(word) for word in words], with classes in the order of the outputs",
            )
        y = torch.from_numpy(y)
    else:
        y = as_tensor(y, "labels")
    y = y.detach().cpu()
    if y.shape != (n,):
        hint = "y.argmax(1), if these are one-hot rows" if y.ndim == 2 and len(y) == n else None
        raise InputError(
            "labels do not match the samples", expected=f"{n} labels", got=tuple(y.shape), hint=hint
        )
    whole = y.long()
    broken = y if y.is_complex() else y[whole.double() != y.double()]
    if len(broken):
        raise InputError(
            "bad labels",
            expected="integers: numbers of the network's outputs",
            got=f"{y.dtype}, such as {broken[0].item():g}" if not y.is_complex() else y.dtype,
        )
    return whole


def class_labels(y: Any, classes: int, n: int, *, every: bool = False) -> Int[Tensor, " n"]:
    """Labels as the network's outputs are numbered, 0 to classes - 1.

    Args:
        y: n labels.
        classes: how many outputs the network has; 2 for a single logit.
        n: how many samples there are.
        every: whether each class must occur.

    Raises:
        InputError: they are of another number, no integers, or of classes that the network does not have.
    """
    whole = whole_labels(y, n)
    strange = whole[(whole < 0) | (whole >= classes)].unique().tolist()
    if strange:
        signs = classes == 2 and set(strange) == {-1}
        raise InputError(
            "labels of classes that the network does not have",
            expected=f"0 to {classes - 1}, the numbers of its outputs",
            got=f"{strange[:5]}",
            hint="(y + 1) // 2, if these are signs" if signs else None,
        )
    missing = sorted(set(range(classes)) - set(whole.tolist())) if every else []
    if missing:
        raise InputError(
            "classes without a training sample",
            expected=f"samples of all {classes} classes that the network tells apart",
            got=f"none of class {', '.join(map(str, missing[:5]))}",
            hint="forward=lambda model, batch: model(batch)[:, classes] leaves outputs out",
        )
    return whole


def check_same(
    network: ModelFunction,
    other: ModelFunction,
    what: str = "the kernel is of another network than the model",
) -> None:
    """Refuses another network, or other values of its weights.

    Raises:
        InputError: parameters or buffers differ.
    """
    own, theirs = (f.as_held(f.params) | f.frozen | f.buffers for f in (network, other))
    if own.keys() != theirs.keys():
        strange = sorted(own.keys() ^ theirs.keys())
        got = f"one with other parameters: {strange[0]} and {len(strange) - 1} more" if strange else ""
        raise _of_another(what, got)
    for name, value in own.items():
        same = value.shape == theirs[name].shape and torch.equal(value, theirs[name].to(value))
        if not same:
            raise _of_another(what, f"one whose {name} differs")


def _of_another(what: str, got: str) -> InputError:
    return InputError(
        what,
        expected="a kernel of this model, as it is now",
        got=got,
        hint="a kernel is a snapshot: make it after the training, such as tk.TangentKernel(model)",
    )
