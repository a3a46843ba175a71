"""A network minus itself at the start."""

import copy

from torch import Tensor, nn


class Centered(nn.Module):
    """`model(x) - model_init(x)`, zero until the model is trained.

    The copy of the model as it was when wrapped is frozen and always in evaluation mode: initialize first,
    then wrap.

    Example:
        >>> import torch
        >>> from tangentkit.models import mnist2_cnn
        >>> model = Centered(mnist2_cnn())
        >>> model(torch.rand(3, 1, 28, 28)).abs().max().item()
        0.0
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        self.initial = copy.deepcopy(model).requires_grad_(False).eval()

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """The change of the output since the start, (n, c)."""
        return self.model(*inputs, **named) - self.initial(*inputs, **named)

    def train(self, mode: bool = True) -> "Centered":
        """Sets the mode of the model; that of its frozen copy stays."""
        super().train(mode)
        self.initial.eval()
        return self
