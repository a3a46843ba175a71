"""The initial function f0 that a machine starts from: none, a function of samples, or values with every call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.core.batches import as_batch
from tangentkit.core.errors import InputError
from tangentkit.core.model.functions import snapshot
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.machines.kernel_sources import cast


@dataclass(frozen=True)
class Initial:
    """f0, as it is when the machine is fitted."""

    function: Callable[[Any], Any] | None
    """A function of samples."""
    is_given: bool
    """Whether its values come with every call."""

    @classmethod
    def of(cls, f0: Callable[[Any], Any] | None, *, values: Any, precomputed: bool) -> "Initial":
        """From the parameter of a machine and the values that came with `fit`.

        Raises:
            InputError: both, or a function where there are no samples.
        """
        if f0 is not None and (precomputed or values is not None):
            raise InputError(
                "f0 as a function needs samples",
                expected="no values beside it, and a kernel that is not precomputed",
                hint="KernelRegression().fit(K, y, f0=values) and predict(K, f0=values)",
            )
        return cls(_frozen(f0), values is not None)

    def as_given(self) -> "Initial":
        """The same function, whose values then come with every call."""
        return Initial(None, self.is_given or self.function is not None)

    def at(self, X: Any, values: Any, *, like: Float[Tensor, "n c"]) -> Float[Tensor, "n c"] | float:
        """f0(X), or 0 where there is none.

        Raises:
            InputError: values are missing, not asked for, or of the wrong shape.
        """
        if self.is_given != (values is not None):
            raise InputError(
                "f0 does not match",
                expected="values with fit and predict both, or with neither",
                got="values with one of them only",
            )
        if self.function is not None:
            with torch.no_grad():
                values = self.function(X)
        if values is None:
            return 0.0
        f0 = as_tensor(values, "f0").to(like)
        f0 = f0 if f0.ndim == 2 else f0[:, None]
        if f0.shape != like.shape:
            raise InputError("bad values of f0", expected=tuple(like.shape), got=tuple(f0.shape))
        return f0


def _frozen(f0: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A module as it is now; training it later changes nothing."""
    if not isinstance(f0, nn.Module):
        return f0
    return _Frozen(f0)


class _Frozen:
    """A snapshot of a module as a function of samples."""

    def __init__(self, module: nn.Module):
        self.snapshot = snapshot(module, params=lambda *_: True)

    def __call__(self, X: Any) -> Tensor:
        if isinstance(X, np.ndarray):
            X = cast(X, self.snapshot.dtype, self.snapshot.device)
        return self.snapshot(self.snapshot.params, as_batch(X))
