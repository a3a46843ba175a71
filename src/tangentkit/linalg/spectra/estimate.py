"""Estimates: traces and diagonals of operators from products with random vectors, with standard errors."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import check_finite, check_square
from tangentkit.linalg.operators.matrices import as_operator
from tangentkit.linalg.operators.operator import Operator
from tangentkit.linalg.operators.probes import rademacher


@dataclass(frozen=True)
class Estimate:
    """A random estimate, what it may be off by, and what it cost."""

    value: Float[Tensor, "*r"]
    """The estimate, a number or one for each entry."""
    error: Float[Tensor, "*r"]
    """Its standard error, of the same shape."""
    products: int
    """The number of vectors that the operator was multiplied with."""


def trace(K: Any) -> Float[Tensor, ""]:
    """Σ_i K_ii of a square operator, exactly.

    Example:
        >>> trace(torch.eye(3))
        tensor(3.)
    """
    K = _square(K)
    return K.diagonal().sum()


def hutchinson_trace(K: Any, *, samples: int, key: Key) -> Estimate:
    """The trace as E[zᵀ K z] over random signs z (Hutchinson 1989); the error falls as 1 / √samples.

    Args:
        K: an operator, a tensor or an array (n, n).
        samples: the number of vectors z, at least 2.
        key: the address of the random numbers.

    Raises:
        InputError: K is not square, or there are too few samples.

    Example:
        >>> estimate = hutchinson_trace(torch.eye(4), samples=3, key=Key(0))  # exact for a diagonal matrix
        >>> float(estimate.value), float(estimate.error)
        (4.0, 0.0)
    """
    K = _square(K)
    Z = rademacher(K, _at_least(2, samples, "samples"), key=key.fold("hutchinson"))
    mean, error = _mean((Z * _product(K, Z)).sum(0))
    return Estimate(mean, error, samples)


def hutchpp_trace(K: Any, *, products: int, key: Key) -> Estimate:
    """Hutch++: the trace on the range of a sketch exactly, what is left by Hutchinson (Meyer et al. 2021).

    With Q an orthonormal basis of K S for random signs S and G⊥ = (I - Q Qᵀ) G for others,

        tr K = tr(Qᵀ K Q) + E[g⊥ᵀ K g⊥].

    A third of the products goes to each of S, Q and G. For positive semi-definite K the error falls as
    1 / products; it is exact where the rank of K is at most a third of them.

    Args:
        K: an operator, a tensor or an array (n, n).
        products: the number of vectors that K is multiplied with, at least 6.
        key: the address of the random numbers.

    Raises:
        InputError: K is not square, or there are too few products.

    Example:
        >>> x = torch.arange(1.0, 5.0, dtype=torch.float64)
        >>> round(float(hutchpp_trace(torch.outer(x, x), products=6, key=Key(0)).value), 6)
        30.0
    """
    K = _square(K)
    third = _at_least(6, products, "products") // 3
    S, G = (rademacher(K, third, key=key.fold("hutch++", name)) for name in ("sketch", "rest"))
    Q, _ = torch.linalg.qr(_product(K, S))
    G = G - Q @ (Q.T @ G)
    rest, error = _mean((G * _product(K, G)).sum(0))
    return Estimate((Q * _product(K, Q)).sum() + rest, error, S.shape[1] + Q.shape[1] + G.shape[1])


def hutchinson_diagonal(K: Any, *, samples: int, key: Key) -> Estimate:
    """The diagonal as E[z_i (K z)_i] over random signs z (Bekas, Kokiopoulou, Saad 2007), for all i at once.

    The standard error of entry i is about √(Σ_{j≠i} K_ij² / samples).

    Args:
        K: an operator, a tensor or an array (n, n).
        samples: the number of vectors z, at least 2.
        key: the address of the random numbers.

    Raises:
        InputError: K is not square, or there are too few samples.

    Example:
        >>> hutchinson_diagonal(torch.diag(torch.tensor([1.0, 2.0])), samples=2, key=Key(0)).value
        tensor([1., 2.])
    """
    K = _square(K)
    Z = rademacher(K, _at_least(2, samples, "samples"), key=key.fold("diagonal"))
    mean, error = _mean(Z * _product(K, Z))
    return Estimate(mean, error, samples)


def _mean(draws: Float[Tensor, "*r s"]) -> tuple[Float[Tensor, "*r"], Float[Tensor, "*r"]]:
    """The mean over the last axis and its standard error."""
    return draws.mean(-1), draws.std(-1) / draws.shape[-1] ** 0.5


def _product(K: Operator, Z: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    out = K @ Z
    check_finite(out, "product with the operator")
    return out


def _square(K: Any) -> Operator:
    K = as_operator(K)
    check_square(K)
    return K


def _at_least(least: int, count: int, what: str) -> int:
    if count < least:
        raise InputError(f"too few {what}", expected=f"at least {least}", got=count)
    return count
