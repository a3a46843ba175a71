"""Whether a kernel matrix is positive where its solver needs it, and a ridge that would do where it is not."""

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.linalg.operators.checks import MOST_NOISE, rounding
from tangentkit.linalg.operators.operator import Operator
from tangentkit.linalg.solvers.factor import factorize
from tangentkit.linalg.spectra.spectrum import spectrum


def check_positive(H: Float[Tensor, "n n"], *, hint: str) -> None:
    """Refuses a matrix with an eigenvalue below zero that is not rounding.

    Raises:
        NumericalError: with the smallest eigenvalue and what would do on the diagonal.
    """
    # Of a matrix that is positive but for rounding this factorization cannot fail.
    if H.any() and factorize(H.diagonal_scatter(H.diagonal() + MOST_NOISE * H.norm())) is None:
        raise not_positive(H, ridge=None, hint=hint)


def not_positive(matrix: Float[Tensor, "n n"], *, ridge: float | None, hint: str) -> NumericalError:
    """The error that names the smallest eigenvalue and a ridge that would do.

    Args:
        matrix: the kernel matrix.
        ridge: what was added to its diagonal; None for solvers that add nothing.
        hint: what else would do.
    """
    values = torch.linalg.eigvalsh(matrix)
    smallest, largest = float(values[0]), float(values.abs().max())
    return _error(smallest, largest, ridge, 10 * len(values) * torch.finfo(matrix.dtype).eps, hint)


def judged_by_products(K: Operator, *, ridge: float) -> str:
    """What the ends of the spectrum, found by products alone, say of an iteration for K + ridge I that failed.

    Raises:
        NumericalError: K + ridge I has an eigenvalue below zero that is not rounding: then what the iteration found
            means nothing.
    """
    try:
        largest = float(spectrum(K, top=1).values[0])
        smallest = largest - float(spectrum((-1.0 * K).shift(largest), top=1).values[0])
    except NumericalError:  # Lanczos gives up where the iteration did
        return ""
    size, noise = max(abs(smallest), abs(largest)), rounding(K.dtype)
    if smallest + ridge < -noise * size:
        raise _error(smallest, size, ridge, noise, 'solver="eigh" for the pseudo-inverse')
    enough = 2 * max(-smallest, 0.0) + noise * size
    ends = f"eigenvalues go from about {smallest:.1e} to {largest:.3g}"
    return f"; its {ends}: ridge={enough:.3g} would do"


def _error(smallest: float, largest: float, ridge: float | None, noise: float, hint: str) -> NumericalError:
    enough = f"{2 * max(-smallest, 0.0) + noise * largest:.3g}"
    return NumericalError(
        "the kernel matrix is not positive definite",
        expected="a smallest eigenvalue >= 0"
        if ridge is None
        else f"a smallest eigenvalue above -ridge = {-ridge:.3g}",
        got=f"{smallest:.3g} (largest {largest:.3g})",
        hint=f"{f'the kernel K + {enough} I' if ridge is None else f'ridge={enough}'}, or {hint}",
    )
