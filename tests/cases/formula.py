"""Modules written as formulas."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Formula(nn.Module):
    """A module written as a formula; parts are shapes of parameters, or submodules."""

    def __init__(self, formula: Callable[..., Tensor], **parts: Any):
        super().__init__()
        self.formula = formula
        for name, part in parts.items():
            keep = isinstance(part, (nn.Module, nn.Parameter))
            setattr(self, name, part if keep else nn.Parameter(torch.randn(part) / 2))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The formula."""
        return self.formula(self, *args, **kwargs)
