"""Expectations of functions of several Gaussian variables, singular covariances included."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import roots_hermitenorm
from torch import Tensor
from torch.quasirandom import SobolEngine

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg.operators.checks import check_finite, rounding

MOST_DIMENSIONS = 4  # of a product of Gauss-Hermite rules; Sobol points beyond
MOST_NODES = 256  # of one Gauss-Hermite rule; the outer weights of larger ones underflow


def gaussian_expectation(
    function: Callable[..., Tensor],
    mean: Float[Tensor, " k"],
    covariance: Float[Tensor, "k k"],
    *,
    points: int = 2**16,
) -> Float[Tensor, ""]:
    """E f(z_1, ..., z_k) for z ~ N(mean, covariance).

    With z = mean + R ξ, R Rᵀ = covariance and ξ ~ N(0, I) of as many dimensions as the covariance has rank: a
    product of Gauss-Hermite rules up to four dimensions, Sobol points beyond. Smooth functions of few variables
    are exact to rounding; kinks converge like 1/nodes.

    Args:
        function: k tensors of shape (n,) to one.
        mean: of the k variables.
        covariance: positive semi-definite; it may be singular.
        points: the number of points.

    Raises:
        InputError: the function changes the shape of its arguments.
        NumericalError: it is not finite, or the covariance is none.

    Example:
        >>> K = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
        >>> gaussian_expectation(lambda u, v: u * v, torch.zeros(2, dtype=torch.float64), K)
        tensor(0.5000, dtype=torch.float64)
    """
    R = root(covariance)
    xi, weights = _rule(R.shape[1], points)
    z = mean + xi.to(R) @ R.T
    values = check_entrywise(function(*z.unbind(1)), z[:, 0])
    # Where the weight underflows so does the density: an overflow of the function there has no part in the mean.
    seen = weights > 0
    check_finite(values[seen], "values of a function of Gaussian variables")
    return values[seen] @ weights.to(values)[seen]


def check_entrywise(values: Tensor, argument: Tensor) -> Tensor:
    """The values of an entrywise function.

    Raises:
        InputError: they do not have the shape of its arguments.
    """
    if values.shape != argument.shape:
        raise InputError(
            "the function changes the shape of its arguments",
            expected=tuple(argument.shape),
            got=tuple(values.shape),
            hint="write it entry by entry",
        )
    return values


def root(covariance: Float[Tensor, "k k"]) -> Float[Tensor, "k r"]:
    """R with R Rᵀ = covariance and as many columns as the covariance has rank.

    Raises:
        NumericalError: it is not finite, not symmetric, or has an eigenvalue that is negative beyond rounding.

    Example:
        >>> root(torch.ones(2, 2)).abs()
        tensor([[1.0000],
                [1.0000]])
    """
    check_finite(covariance, "covariance")
    tolerance = rounding(covariance.dtype)
    scale = covariance.diagonal().clamp(min=0).sqrt()
    unit = torch.where(scale > 0, scale, 1.0)
    correlation = covariance / unit[:, None] / unit
    values, vectors = torch.linalg.eigh((correlation + correlation.T) / 2)
    if (correlation - correlation.T).abs().max() > tolerance or values[0] < -tolerance:
        raise NumericalError(
            "not a covariance",
            expected="a symmetric matrix with eigenvalues >= 0, to rounding",
            got=f"a smallest eigenvalue of {float(values[0]):.3g} (scaled to unit variances)",
        )
    kept = values > 16 * len(values) * torch.finfo(values.dtype).eps
    return unit[:, None] * vectors[:, kept] * values[kept].sqrt()


def _rule(dimensions: int, points: int) -> tuple[Tensor, Tensor]:
    """Points (n, dimensions) and weights (n,) of the standard Gaussian measure."""
    if dimensions == 0:
        return torch.zeros(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    if dimensions <= MOST_DIMENSIONS:
        nodes = min(MOST_NODES, max(2, round(points ** (1 / max(2, dimensions)))))
        x, w = (torch.from_numpy(a) for a in roots_hermitenorm(nodes))
        w = w / w.sum()
        grid = torch.cartesian_prod(*[x] * dimensions).reshape(-1, dimensions)
        return grid, torch.cartesian_prod(*[w] * dimensions).reshape(-1, dimensions).prod(1)
    # Scrambled by the number of points: two sizes give two independent answers, and every call the same one.
    uniform = SobolEngine(dimensions, scramble=True, seed=points).draw(points, dtype=torch.float64)
    tiny = np.finfo(float).eps / 2
    return torch.special.ndtri(uniform.clamp(tiny, 1 - tiny)), torch.full((points,), 1 / points).double()
