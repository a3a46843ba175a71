"""The eigenmodes of a kernel, in float64, with zero separated from rounding."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tangentkit.linalg import Operator, check_symmetric, spectrum
from tangentkit.linalg.spectra.measures import clip
from tangentkit.machines.kernel_shapes import WORKING


@dataclass(frozen=True, eq=False)
class Modes:
    """K = V diag(λ) Vᵀ of a positive semi-definite kernel, all of it."""

    values: Float[Tensor, " n"]
    """Descending, rounding below zero set to zero."""
    vectors: Float[Tensor, "n n"]
    """As columns."""
    cutoff: float
    """Eigenvalues that may be zero: n ε λ_max, with the ε of the kernel, or as far as those below zero show."""
    rounding: float
    """What rounding makes of zero in a product of a row of the kernel with a vector of length 1."""

    @classmethod
    def of(cls, K: Operator) -> "Modes":
        """The modes of a kernel.

        Raises:
            NumericalError: K is not symmetric, or has an eigenvalue below zero beyond rounding.
            BudgetError: the dense form of K is beyond the default budget.
        """
        check_symmetric(K)
        matrix = K.dense().to(WORKING)
        s = spectrum((matrix + matrix.T) / 2)
        values = clip(s.values, made_in=K.dtype)
        # Rounding goes as far above zero as it goes below, such as that of a kernel computed in float32.
        n, eps, below = len(matrix), torch.finfo(K.dtype).eps, max(0.0, -float(s.values.min()))
        cutoff = max(n * eps * float(s.values.abs().max()), 2 * below)
        # Independent errors of size σ in all entries reach eigenvalues of 2 σ √n; of many products some reach 5 σ,
        # and more for points that are larger than those of the training.
        rounding = max(4 * eps * float(matrix.abs().max()), 8 * below / n**0.5)
        return cls(values, s.vectors, cutoff, rounding)

    @property
    def in_range(self) -> Bool[Tensor, " n"]:
        """Which modes span the range of K, zero separated from rounding."""
        return self.values > self.cutoff
