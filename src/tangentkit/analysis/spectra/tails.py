"""The tail of the spectrum of a matrix, such as a weight, beside shuffled or Gaussian matrices of its shape."""

import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError, TangentkitError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linalg import Hill, Tail, check_finite
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.linalg.spectra.tails import DRAWS, PowerLawFit, TailEstimator, check_null, gaussian_null, tail

Null = Literal["gaussian", "shuffled"]
NULLS = ("gaussian", "shuffled")


@dataclass(frozen=True)
class PowerLaw(TailEstimator):
    """A power law above the xmin of the smallest Kolmogorov-Smirnov distance (Clauset, Shalizi, Newman 2009).

    The package `powerlaw` fits it. Its bootstrap draws all values again and chooses xmin anew.
    """

    bootstraps: int = 50
    """Samples of the bootstrap, each of which is a whole fit."""
    name = "power law with xmin by KS"

    def fit(self, values: np.ndarray) -> PowerLawFit:
        """The fit by `powerlaw`.

        Raises:
            NumericalError: no xmin gives a law.
        """
        with warnings.catch_warnings():
            # The package warns of names that it uses itself, and of single xmin that it then leaves out.
            warnings.simplefilter("ignore")
            found = _package().Fit(values, verbose=False)
            alpha, xmin, distance = float(found.power_law.alpha), float(found.xmin), float(found.power_law.D)
        if not (np.isfinite(alpha) and alpha > 1):
            raise NumericalError("no power law", expected="an exponent above 1", got=alpha)
        return PowerLawFit(alpha, xmin, int((values >= xmin).sum()), distance)

    def again(self, values: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Exponents of bootstrap samples of all values."""
        samples = rng.choice(values, (min(draws, self.bootstraps), len(values)))
        return np.array([self.fit(np.sort(sample)[::-1]).alpha for sample in samples])


def matrix_tail(
    A: Any,
    estimator: TailEstimator | None = None,
    *,
    null: Null = "gaussian",
    draws: int = DRAWS,
    seed: int = 0,
) -> Tail:
    """The exponent of the tail of the squared singular values of a matrix, beside its null model.

    Args:
        A: weights, features or data (n, d).
        estimator: `Hill(m)` or `PowerLaw()`; None is Hill with a tenth of the values.
        null: "gaussian" for Gaussian matrices of the same shape; "shuffled" for the entries of A in random order,
            which keeps heavy-tailed entries, and takes a decomposition for each draw.
        draws: matrices of the null model, at least 19.
        seed: of the null model and of the bootstrap.

    Raises:
        UnknownNameError: there is no such null model.
        InputError: A is not a matrix, or has too few singular values beyond rounding, or there are too few draws.
        NumericalError: A is not finite.

    Example:
        >>> A = torch.randn(200, 60, generator=torch.Generator().manual_seed(0))
        >>> matrix_tail(A).is_heavy, matrix_tail(torch.linspace(1, 30, 60) ** -2 * A).is_heavy
        (False, True)
    """
    A = as_tensor(A, "matrix")
    if A.ndim != 2:
        raise InputError("not a matrix", expected="two axes", got=f"shape {tuple(A.shape)}")
    check_finite(A, "matrix")
    A = A if A.is_floating_point() else A.double()
    return tail_of_values(squared_singular_values(A), A, estimator, null=null, draws=draws, seed=seed)


def tail_of_values(
    values: np.ndarray,
    A: Float[Tensor, "n d"],
    estimator: TailEstimator | None,
    *,
    null: Null,
    draws: int,
    seed: int,
) -> Tail:
    """`matrix_tail` of a matrix whose squared singular values are known."""
    if null not in NULLS:
        raise UnknownNameError("null model", null, NULLS)
    estimator = Hill() if estimator is None else estimator
    positive = values[values > rounding(values, A)]
    count = len(positive)
    if count < 2:
        n, d = A.shape
        raise InputError(
            "too few singular values for a tail",
            expected="at least 2 beyond rounding, and better 20",
            got=f"{count} of the {min(n, d)} of a matrix {n} x {d}",
            hint="a matrix of higher rank: this one is zero, or all of its rows are alike",
        )
    check_null(estimator.size(count) if isinstance(estimator, Hill) else 1, count, draws)
    n, d = A.shape
    made = gaussian_null(n, d, draws, seed) if null == "gaussian" else shuffled_null(A, draws, seed)
    # Shuffled entries may make a matrix of low rank, whose zeros have no logarithm.
    made = np.maximum(made, made[:, :1] * (max(n, d) * np.finfo(float).eps) ** 2)
    words = f"{'Gaussian' if null == 'gaussian' else 'shuffled'} {n} x {d}, {draws} draws, seed {seed}"
    return tail(
        positive, estimator, null_values=made[:, :count], null=words, key=Key(seed).fold("matrix tail")
    )


def squared_singular_values(A: Float[Tensor, "n d"]) -> np.ndarray:
    """The squared singular values in descending order, in float64."""
    return torch.linalg.svdvals(A.double()).square().cpu().numpy()


def rounding(values: np.ndarray, A: Float[Tensor, "n d"]) -> float:
    """What rounding of A may put where a squared singular value is zero."""
    return float(values[0]) * (max(A.shape) * torch.finfo(A.dtype).eps) ** 2


def shuffled_null(A: Float[Tensor, "n d"], draws: int, seed: int) -> np.ndarray:
    """Squared singular values of A with its entries in random order, (draws, min(n, d))."""
    return np.array([squared_singular_values(shuffled(A, seed, draw)) for draw in range(draws)])


def shuffled(A: Float[Tensor, "n d"], seed: int, draw: int = 0) -> Float[Tensor, "n d"]:
    """The entries of A in random order."""
    order = torch.randperm(A.numel(), generator=Key(seed).fold("shuffled", draw).torch())
    return A.flatten()[order.to(A.device)].reshape(A.shape)


def _package() -> ModuleType:
    try:
        import powerlaw  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise TangentkitError(
            "fitting a power law with xmin needs the package powerlaw",
            hint="pip install 'tangentkit[analysis]'; or Hill(), which needs nothing",
        ) from error
    return powerlaw
