"""The largest eigenpairs of a symmetric operator, from its products with blocks of vectors."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.operators.probes import gaussian

SMALLEST_BLOCK, LARGEST_BLOCK = 8, 32
"""Vectors of a block. A product with 32 of them takes but three times as long as one with a single vector."""

MOST_BLOCKS = 20
"""Blocks that the basis holds, where memory allows, before it is compressed to its best vectors."""

GROWTH = 1.2
"""The basis grows by this factor from one look at its eigenpairs to the next."""

ROUNDING = 4
"""Eigenpairs of symmetric matrices err by about ε of the largest, whatever the size; seldom by more than this."""

MOST_PRODUCTS = 1000
"""Products with blocks, after which the iteration gives up."""


def largest_eigenpairs(
    K: Operator, top: int, *, memory: Memory = None
) -> tuple[Float[Tensor, " r"], Float[Tensor, "n r"]]:
    """The largest eigenvalues of a symmetric operator in descending order, and their eigenvectors as columns.

    Block Lanczos: the eigenpairs θ, y of Qᵀ K Q, for an orthonormal basis Q of random vectors X and of K X, K² X, ...
    They are returned as θ, v = Q y when ‖K v - θ v‖ <= 4 ε ‖K‖ for each of them, which is what rounding does to the
    eigenpairs of a full decomposition, too; where memory is so short that the basis is compressed dozens of times,
    rounding adds to it (90 ε after 50 times). X has at least `top` vectors (32, where `top` is larger), so that an
    eigenvalue that occurs many times is found as often as it occurs.

    Args:
        K: symmetric.
        top: how many, at most n.
        memory: the most bytes that the basis should take; a smaller one needs more products.

    Raises:
        NumericalError: the iteration does not converge, or a product is not finite.

    Example:
        >>> from tangentkit.linalg import DenseOperator
        >>> values, vectors = largest_eigenpairs(DenseOperator(torch.diag(torch.arange(100.0))), 2)
        >>> values.round(decimals=3)
        tensor([99., 98.])
    """
    block = min(K.shape[0], max(SMALLEST_BLOCK, min(top, LARGEST_BLOCK)))
    key, eps = Key(0).fold("block lanczos"), torch.finfo(K.dtype).eps
    basis = _Basis(K, _room(K, top, block, memory))
    new = torch.linalg.qr(gaussian(K, block, key=key)).Q
    look, unit = top, None
    for step in range(MOST_PRODUCTS):
        products = K @ new
        check_finite(products, "product with the operator")
        unit = unit or _power_of_two(products)
        # Squares of large or small products would leave the range of numbers.
        products = products / unit
        beyond = basis.add(new, products)
        full = basis.count + block > basis.room
        if basis.count >= look or full:
            values, Y = basis.eigenpairs()
            residuals = (beyond @ Y[-new.shape[1] :, :top].to(new)).norm(dim=0)
            if basis.is_complete or residuals.max() <= ROUNDING * eps * values.abs().max():
                return (values[:top] * unit).to(new), basis.vectors @ Y[:, :top].to(new)
            look = GROWTH * basis.count
            if full and basis.room < K.shape[0]:
                basis.compress(values, Y, top + block)
                look = 0
        # Random vectors of the size of rounding: they matter only where K X has fewer dimensions than X.
        noise = gaussian(K, new.shape[1], key=key.fold(step)) * (
            eps * (products.norm() or 1.0) / len(products) ** 0.5
        )
        new = basis.apart(beyond + noise)
    raise NumericalError(
        f"Lanczos found no {top} largest eigenpairs in {MOST_PRODUCTS} products with blocks of {block} vectors",
        hint="ask for fewer, or for all by top=None",
    )


def _power_of_two(numbers: Tensor) -> float:
    """The power of two near the largest of some numbers: a division by it rounds nothing."""
    largest = max(float(numbers.abs().max()), torch.finfo(numbers.dtype).tiny)
    return 2.0 ** (math.frexp(largest)[1] - 1)


def _room(K: Operator, top: int, block: int, memory: Memory) -> int:
    """How many vectors the basis may have: at least those that are kept when it is compressed, and two blocks."""
    n = K.shape[0]
    fits = memory_budget(memory, device=K.device).rows(n * K.dtype.itemsize, copies=1)
    return min(n, max(top + 3 * block, min(fits, top + MOST_BLOCKS * block)))


class _Basis:
    """Orthonormal vectors Q, and H = Qᵀ K Q.

    Args:
        K: the operator.
        room: the most vectors.
    """

    def __init__(self, K: Operator, room: int) -> None:
        self.room = room
        self.count = 0
        # The vectors are rows, so that those that are there are one piece of memory.
        self._rows = torch.empty(room, K.shape[0], dtype=K.dtype, device=K.device)
        self._H = torch.zeros(room, room, dtype=torch.float64)

    @property
    def vectors(self) -> Float[Tensor, "n m"]:
        """Q."""
        return self._rows[: self.count].T

    @property
    def is_complete(self) -> bool:
        """Whether Q spans the whole space."""
        return self.count == self._rows.shape[1]

    def add(self, new: Float[Tensor, "n b"], products: Float[Tensor, "n b"]) -> Float[Tensor, "n b"]:
        """Adds vectors, given K new, and returns the part of K new that is orthogonal to Q."""
        last = slice(self.count, self.count + new.shape[1])
        self._rows[last] = new.T
        self.count = last.stop
        beyond, within = self._split(products)
        self._H[: self.count, last] = within
        self._H[last, : self.count] = within.T
        self._H[last, last] = (within[last] + within[last].T) / 2
        return beyond

    def eigenpairs(self) -> tuple[Float[Tensor, " m"], Float[Tensor, "m m"]]:
        """The eigenvalues of H in descending order, and its eigenvectors."""
        values, Y = torch.linalg.eigh(self._H[: self.count, : self.count])
        return values.flip(0), Y.flip(1)

    def compress(self, values: Float[Tensor, " m"], Y: Float[Tensor, "m m"], count: int) -> None:
        """Keeps the span of the first approximate eigenvectors only, Q ← Q Y and H ← Yᵀ H Y."""
        # Orthonormal but for rounding, which would add up from one compression to the next.
        self._rows[:count] = torch.linalg.qr(self.vectors @ Y[:, :count].to(self._rows)).Q.T
        self._H.zero_()
        self._H[:count, :count] = torch.diag(values[:count])
        self.count = count

    def apart(self, vectors: Float[Tensor, "n b"]) -> Float[Tensor, "n b"]:
        """Orthonormal vectors that are orthogonal to Q, and with Q span the given ones, as far as there is room."""
        vectors = vectors[:, : self._rows.shape[1] - self.count]
        # To unit length first: of vectors that are short, rounding has left a part in the span of Q that is not.
        vectors, _ = self._split(torch.linalg.qr(vectors).Q)
        return torch.linalg.qr(vectors).Q

    def _split(self, vectors: Float[Tensor, "n b"]) -> tuple[Float[Tensor, "n b"], Float[Tensor, "m b"]]:
        """What is orthogonal to Q, and the coordinates of the rest, in float64."""
        Q = self.vectors
        first = Q.T @ vectors
        vectors = vectors - Q @ first
        # Once more, since rounding of the first is as large as what may be left.
        second = Q.T @ vectors
        return vectors - Q @ second, first.double().cpu() + second.double().cpu()
