"""Solutions of linear systems, and the methods that find them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.operators.operator import Operator


@dataclass(frozen=True)
class Solution:
    """What a method found for K x = y, and how far to trust it."""

    value: Float[Tensor, " n *c"]
    """The solution x, of the shape of y."""
    converged: bool
    """Whether the method did what it promises, for every column of y."""
    residual: float
    """‖K x - y‖ / ‖y‖, recomputed from x; of several columns the largest."""
    steps: int
    """Steps of an iteration; 0 of a direct method."""
    message: str
    """What happened; where it failed, the likely cause and what to try next."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the method: "residuals" of each column, and "jitter", "rank", ..."""


class Method(ABC):
    """A way to solve a symmetric system; an instance carries its options."""

    @abstractmethod
    def solve(self, K: Operator, Y: Float[Tensor, "n c"], *, ridge: float) -> Solution:
        """Solves (K + ridge I) X = Y.

        Args:
            K: square and symmetric, as `solve` has checked.
            Y: right-hand sides of the dtype and on the device of K, finite.
            ridge: not negative.
        """


def relative_residuals(K: Operator, X: Float[Tensor, "n c"], Y: Float[Tensor, "n c"]) -> Float[Tensor, " c"]:
    """‖K x - y‖ / ‖y‖ of each column; of a column of zeros ‖K x‖."""
    size = Y.norm(dim=0)
    return (K @ X - Y).norm(dim=0) / size.where(size > 0, 1.0)
