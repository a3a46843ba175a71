"""Powers and exponentials of many small matrices at once, exact for motions that hardly move.

Both work with N = M - I in place of M: a step of size 1e-20 is lost in M, and is not lost in N. From
I + N_2k = (I + N_k)² follows N_2k = 2 N_k + N_k², which needs no subtraction from one.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

TERMS = 15
"""Of the exponential series; with a norm of at most 1/2 the next is 2e-18."""


def repeated(
    step: Float[Tensor, "r d d"], start: Float[Tensor, "r d"], counts: Int[Tensor, " t"]
) -> Float[Tensor, "t r d"]:
    """(I + step)^count start for every count, in log2(count) matrix products.

    Args:
        step: what one step adds, as a matrix that acts on the state.
        start: the state before the first step.
        counts: numbers of steps, not negative.

    Example:
        >>> step = torch.tensor([[[1e-20]]], dtype=torch.float64)
        >>> repeated(step, torch.ones(1, 1).double(), torch.tensor([10**18]))
        tensor([[[1.0101]]], dtype=torch.float64)
    """
    state = start.expand(len(counts), *start.shape).clone()
    while counts.any():
        odd = counts % 2 == 1
        state[odd] += torch.einsum("rij,trj->tri", step, state[odd])
        step, counts = 2 * step + step @ step, counts // 2
    return state


def expm1(matrices: Float[Tensor, "r d d"]) -> Float[Tensor, "r d d"]:
    """exp(A) - I for every matrix A, by the series of A / 2^k and k doublings.

    Example:
        >>> expm1(torch.tensor([[[1e-20]]], dtype=torch.float64))
        tensor([[[1.0000e-20]]], dtype=torch.float64)
    """
    norm = float(matrices.abs().sum(-1).max())
    doublings = max(0, math.ceil(math.log2(norm)) + 1) if norm > 0 else 0
    A = matrices / 2.0**doublings
    N = A / TERMS
    for i in range(TERMS - 1, 0, -1):
        N = (A + A @ N) / i
    for _ in range(doublings):
        N = 2 * N + N @ N
    return N
