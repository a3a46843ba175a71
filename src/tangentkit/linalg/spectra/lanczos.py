"""Lanczos: what products with a symmetric operator tell of its eigenvalues."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.operators.probes import gaussian


def largest_eigenpairs(K: Operator, top: int) -> tuple[Float[Tensor, " r"], Float[Tensor, "n r"]]:
    """The largest eigenvalues of a symmetric operator in descending order, and their eigenvectors as columns.

    Raises:
        NumericalError: the iteration does not converge, or a product is not finite.
    """
    products = _Products(K)
    start = Key(0).fold("lanczos").numpy().standard_normal(K.shape[0]).astype(products.dtype)
    if not products.matvec(start).any():
        # K is zero, for a random vector is in no other kernel's null space; Lanczos cannot begin.
        return torch.zeros(top, dtype=K.dtype, device=K.device), torch.eye(
            K.shape[0], top, dtype=K.dtype, device=K.device
        )
    try:
        values, vectors = eigsh(products, k=top, which="LA", v0=start)
    except ArpackError as error:
        raise NumericalError(
            f"Lanczos found no {top} largest eigenpairs ({error})",
            hint="ask for fewer, or for all by top=None",
        ) from error
    order = np.argsort(values)[::-1].copy()
    return torch.from_numpy(values[order]).to(K.device), torch.from_numpy(vectors[:, order]).to(K.device)


def lanczos_quadrature(
    K: Operator, *, probes: int, steps: int, key: Key, memory: Memory = None
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes θ and weights w of Gauss rules with Σ_k w_k f(θ_k) ≈ vᵀ f(K) v, one for each random unit vector v.

    A rule of k steps is exact for polynomials of degree 2k - 1. The mean over v of vᵀ f(K) v is tr f(K) / n, since v
    is uniform on the sphere, whatever basis K is written in.

    Args:
        K: symmetric.
        probes: the number of vectors v.
        steps: products with each of them, at most n.
        key: the address of the random numbers.
        memory: the most bytes that the Lanczos vectors may take; more probes go through in turns.

    Returns:
        Nodes and weights, each (probes, steps), in float64; nodes that a rule does not need have weight 0.

    Raises:
        NumericalError: a product is not finite.
    """
    n = K.shape[0]
    at_once = memory_budget(memory, device=K.device).rows(n * K.dtype.itemsize, copies=steps + 4, most=probes)
    V = gaussian(K, probes, key=key)
    V = V / V.norm(dim=0)
    rules = [
        _gauss_rule(diagonal, beside)
        for part in V.split(at_once, dim=1)
        for diagonal, beside in zip(*_tridiagonal(K, part, steps), strict=True)
    ]
    nodes, weights = zip(*rules, strict=True)
    return np.array(nodes), np.array(weights)


def _tridiagonal(K: Operator, V: Float[Tensor, "n c"], steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Diagonals (c, steps) and off-diagonals (c, steps - 1) of Qᵀ K Q, Q from each column of V on its own."""
    Q = V.new_zeros(steps, *V.shape)
    diagonal, beside = np.zeros((V.shape[1], steps)), np.zeros((V.shape[1], steps - 1))
    Q[0] = V
    for k in range(steps):
        W = K @ Q[k]
        check_finite(W, "product with the operator")
        diagonal[:, k] = (W * Q[k]).sum(0).double().cpu()
        if k + 1 == steps:
            break
        size = W.norm(dim=0)
        # Twice against all of them: rounding would bring back eigenvalues that were already found.
        for _ in range(2):
            W = W - torch.einsum("knc,kc->nc", Q[: k + 1], torch.einsum("knc,nc->kc", Q[: k + 1], W))
        length = W.norm(dim=0)
        # A vector without a new direction has seen all that it can: the rest of its rule has weight 0.
        alive = length > 100 * torch.finfo(W.dtype).eps * size
        beside[:, k] = length.where(alive, 0).double().cpu()
        Q[k + 1] = (W / length).where(alive, 0)
        if not alive.any():
            break
    return diagonal, beside


def _gauss_rule(diagonal: np.ndarray, beside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nodes, vectors = eigh_tridiagonal(diagonal, beside)
    return nodes, vectors[0] ** 2


class _Products(LinearOperator):
    """An operator as scipy wants it."""

    def __init__(self, K: Operator) -> None:
        super().__init__(np.dtype(str(K.dtype).removeprefix("torch.")), K.shape)
        self.K = K

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        out = self.K @ torch.from_numpy(x.reshape(-1)).to(self.K.device)
        check_finite(out, "product with the operator")
        return out.cpu().numpy()
