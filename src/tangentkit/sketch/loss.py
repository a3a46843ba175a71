"""The loss of each sample as the one output of a model."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from tangentkit.core.batches import Batch, batch_size
from tangentkit.core.errors import InputError
from tangentkit.core.model.calls import read_outputs
from tangentkit.core.model.functions import Forward

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs (n, c), targets) -> losses (n,)."""


@dataclass(frozen=True)
class LossOfModel:
    """A forward rule for batches (inputs, targets): the loss of each sample as the one output."""

    forward: Forward
    loss: Loss

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of each sample, (n, 1).

        Raises:
            InputError: the batch is not a pair, or the loss is not one number a sample.
        """
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InputError(
                "bad batch for a loss",
                expected="a pair (inputs, targets)",
                got=type(batch).__name__,
                hint="(inputs, labels), with inputs = dict(batch) and labels = inputs.pop('labels')"
                if isinstance(batch, dict) and "labels" in batch
                else None,
            )
        losses = self.loss(read_outputs(self.forward(model, batch[0])), batch[1])
        if not isinstance(losses, Tensor) or losses.shape != (batch_size(batch),):
            got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                "bad loss",
                expected=f"one number a sample, ({batch_size(batch)},)",
                got=got,
                hint='reduction="none", and .sum(1) if that gives a number for each output',
            )
        return losses[:, None]
