"""Lanczos quadrature: what products with a symmetric operator tell of all of its eigenvalues."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.operators.probes import gaussian


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
        Nodes and weights, each (probes, steps), in float64; a rule that needs fewer nodes repeats its last one with
        weight 0.

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
        # Squares of large or small products would leave the range of numbers.
        scale = W.abs().amax(0)
        W = W / scale.where(scale > 0, 1)
        size = W.norm(dim=0)
        # Twice against all of them: rounding would bring back eigenvalues that were already found.
        for _ in range(2):
            W = W - torch.einsum("knc,kc->nc", Q[: k + 1], torch.einsum("knc,nc->kc", Q[: k + 1], W))
        length = W.norm(dim=0)
        # A vector without a new direction has seen all that it can: the rest of its rule has weight 0.
        alive = length > 100 * torch.finfo(W.dtype).eps * size
        beside[:, k] = length.where(alive, 0).double().cpu() * scale.double().cpu()
        Q[k + 1] = (W / length).where(alive, 0)
        if not alive.any():
            break
    return diagonal, beside


def _gauss_rule(diagonal: np.ndarray, beside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # What stands behind a zero is of no vector: its nodes would look like eigenvalues.
    ends = np.flatnonzero(beside == 0)
    size = ends[0] + 1 if len(ends) else len(diagonal)
    largest = max(np.abs(diagonal[:size]).max(), np.abs(beside).max()) or 1.0
    nodes, vectors = eigh_tridiagonal(diagonal[:size] / largest, beside[: size - 1] / largest)
    rest = len(diagonal) - size
    return np.pad(nodes * largest, (0, rest), mode="edge"), np.pad(vectors[0] ** 2, (0, rest))
