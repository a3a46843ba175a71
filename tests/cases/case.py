"""What a case is: a module, how samples are drawn for it, and how its kernel is asked for."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cases.draws import Draw
from tangentkit.core.batches import Batch, take
from tangentkit.core.model.functions import Forward
from tangentkit.core.model.parameters import Selection
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel

N, M = 6, 4
"""Samples of the two batches of a case."""


@dataclass(frozen=True)
class Case:
    """A module, how to draw samples for it, and how the kernel is to be asked for."""

    name: str
    make: Callable[[], nn.Module]
    draw: Draw
    forward: Forward | None = None
    params: Selection = None
    unused: bool = False
    """Whether some selected parameter does not reach the output, so that a warning is due."""
    order: tuple[int, ...] | None = None
    """Samples x in this order, for cases whose first samples must be of a kind."""

    def model(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """A fresh copy of the module; all its parameters and statistics are random, none is at rest."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(Key(0).fold("model", self.name).entropy % 2**63)
            model = self.make()
            _stir(model)
        # `to` would make complex parameters real.
        return model._apply(lambda tensor: _converted(tensor, dtype)).eval()

    def batches(self, dtype: torch.dtype = torch.float64) -> tuple[Batch, Batch]:
        """x of N and y of M samples."""
        generator = Key(0).fold("batches", self.name).torch()
        x = self.draw(generator, N)
        if self.order is not None:
            x = take(x, list(self.order))
        return cast(x, dtype), cast(self.draw(generator, M), dtype)

    def kernel(
        self, outputs: str | int | Tensor = "trace", dtype: torch.dtype = torch.float64, **options: Any
    ) -> TangentKernel:
        """The tangent kernel of a fresh copy of the module."""
        return TangentKernel(self.model(dtype), outputs, **self.keywords, **options)

    @property
    def keywords(self) -> dict[str, Any]:
        """What TangentKernel and `reference.jacobian` take beside the model."""
        return {"params": self.params, "forward": self.forward}


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch with its floating-point tensors in a dtype."""
    return pytree.tree_map(lambda leaf: _converted(leaf, dtype) if isinstance(leaf, Tensor) else leaf, batch)


def _converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.is_complex():
        return tensor.to(dtype.to_complex())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _stir(model: nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value.normal_()
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)


class Zoo(dict[str, Case]):
    """Name -> case; called, it adds one."""

    def __call__(self, name: str, make: Callable[[], nn.Module], draw: Draw, **options: Any) -> None:
        """Adds a case."""
        assert name not in self
        self[name] = Case(name, make, draw, **options)
