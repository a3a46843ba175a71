"""Losses of training, each with what it calls a right answer."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tangentkit.core.errors import InputError


@dataclass(frozen=True)
class Loss:
    """The mean loss of a batch, and which of its samples are answered right."""

    value: Callable[[Tensor, Tensor], Tensor]
    """(outputs, targets) -> a number: the mean over the samples."""
    hits: Callable[[Tensor, Tensor, float], Float[Tensor, " n"]]
    """(outputs, targets, middle) -> the share of right answers of each sample; `middle` divides the targets of a
    single output into two classes."""


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(1/n) Σ_i |f(x_i) - y_i|², summed over the outputs; classes count as one-hot targets.

    Example:
        >>> import torch
        >>> squared_error(torch.zeros(2, 3), torch.tensor([0, 2]))
        tensor(1.)
    """
    outputs, targets = _rows(outputs, targets)
    return (outputs - targets).square().sum(1).mean()


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(1/nc) Σ_i |f(x_i) - y_i|², the mean over samples and outputs."""
    outputs, targets = _rows(outputs, targets)
    return (outputs - targets).square().mean()


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(f(x))_y over the samples; y are classes, or probabilities of every class.

    Example:
        >>> import torch
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3], dtype=torch.int32))
        tensor(1.3863)
    """
    shape = (len(outputs), *outputs.shape[2:]) if outputs.ndim > 1 else None
    are_classes = not targets.is_floating_point()
    if shape is None or targets.shape != (shape if are_classes else outputs.shape):
        raise InputError(
            "targets do not fit the outputs",
            expected=f"classes of shape {shape}, or probabilities of shape {tuple(outputs.shape)}"
            if shape
            else "outputs of shape (n, c)",
            got=f"{targets.dtype} {tuple(targets.shape)} for outputs {tuple(outputs.shape)}",
        )
    return F.cross_entropy(
        outputs, _classes(targets, outputs.shape[1]) if are_classes else targets.to(outputs)
    )


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of -y log σ(f) - (1 - y) log σ(-f) over samples and outputs; outputs are logits, y in [0, 1].

    Raises:
        InputError: targets have another shape, or are beyond 0 or 1, where the loss has no lower bound.
    """
    outputs, targets = _rows(outputs, targets)
    if not (targets.min() >= 0 and targets.max() <= 1):
        raise InputError(
            "targets are no probabilities",
            expected="numbers from 0 to 1",
            got=f"from {targets.min():.4g} to {targets.max():.4g}",
            hint="(y > 0).float() of classes -1 and 1",
        )
    return F.binary_cross_entropy_with_logits(outputs, targets)


def _rows(outputs: Tensor, targets: Tensor) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """Outputs and targets as rows of numbers; classes become one-hot rows."""
    rows = outputs.flatten(1) if outputs.ndim > 1 else outputs[:, None]
    if targets.ndim == 1 and rows.shape[1] > 1 and not targets.is_floating_point():
        targets = F.one_hot(_classes(targets, rows.shape[1]), rows.shape[1])
    aims = (targets.flatten(1) if targets.ndim > 1 else targets[:, None]).to(rows)
    if aims.shape != rows.shape:
        raise InputError(
            "targets do not fit the outputs",
            expected=f"shape {tuple(outputs.shape)}, or classes ({len(outputs)},)",
            got=f"{targets.dtype} {tuple(targets.shape)}",
        )
    return rows, aims


def _classes(targets: Tensor, count: int) -> Tensor:
    """Classes as torch counts them."""
    if not (targets.min() >= 0 and targets.max() < count):
        raise InputError(
            "targets are not classes of the outputs",
            expected=f"integers from 0 to {count - 1}",
            got=f"from {targets.min()} to {targets.max()}",
        )
    return targets.long()


def _nearest_class(outputs: Tensor, targets: Tensor, middle: float) -> Float[Tensor, " n"]:
    outputs, targets = _rows(outputs, targets)
    if outputs.shape[1] > 1:
        return (outputs.argmax(1) == targets.argmax(1)).float()
    return ((outputs > middle) == (targets > middle)).float()[:, 0]


def _largest_logit(outputs: Tensor, targets: Tensor, _middle: float) -> Float[Tensor, " n"]:
    classes = targets.argmax(1) if targets.is_floating_point() else targets
    hits = (outputs.argmax(1) == classes).float()
    return hits.flatten(1).mean(1) if hits.ndim > 1 else hits


def _sign_of_logit(outputs: Tensor, targets: Tensor, _middle: float) -> Float[Tensor, " n"]:
    outputs, targets = _rows(outputs, targets)
    return ((outputs > 0) == (targets > 0.5)).float().mean(1)


LOSSES: dict[str, Loss] = {
    "l2": Loss(squared_error, _nearest_class),
    "l2-mean": Loss(mean_squared_error, _nearest_class),
    "cross-entropy": Loss(cross_entropy, _largest_logit),
    "bce": Loss(binary_cross_entropy, _sign_of_logit),
}
"""Name -> loss."""
