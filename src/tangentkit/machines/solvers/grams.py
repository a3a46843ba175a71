"""Kernel matrices of training samples for likelihoods: as a matrix in memory, or by a few features.

A likelihood is minimized over a space of functions: those of K itself (`space`), or those of K² (`squared_space`),
since logits K A with the ridge ‖A‖² are, by A = K α, logits K² α with the ridge αᵀ K² α.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.memory import memory_budget
from tangentkit.linalg import FactorOperator
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.operators.times import times
from tangentkit.linalg.solvers.precision import in_working_precision
from tangentkit.machines.solvers.spaces import LEAST_SHIFT, FeatureSpace, SampleSpace, Space

ROWS = 1024
"""Rows that are brought into working precision at a time."""

Lift = Callable[[Tensor], Tensor]


class Gram(ABC):
    """K, in whatever precision it came; all that is computed with it is in float64, where the device has it."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """n, or n c of a block kernel."""

    @property
    @abstractmethod
    def kind(self) -> Tensor:
        """An empty tensor of the working precision, on the device of K."""

    @abstractmethod
    def times(self, V: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """K V."""

    @abstractmethod
    def function(self, coefficients: Float[Tensor, "k q"]) -> Float[Tensor, "m q"]:
        """The function of coefficients of `space`: K α, or Φ γ."""

    @abstractmethod
    def held(self, memory: Memory) -> "HeldGram":
        """K as a matrix in working precision.

        Raises:
            BudgetError: it has to be made, and is beyond the memory budget.
        """

    @abstractmethod
    def mean_diagonal(self) -> float:
        """The mean of K_ii."""

    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of the entries of K."""

    @abstractmethod
    def space(self, roots: Float[Tensor, " n"], *, ridge: float, memory: Memory) -> tuple[Space, Lift]:
        """The functions K α, without an intercept, and the map from their coefficients to α or γ.

        Raises:
            BudgetError: its matrices are beyond the memory budget.
        """

    @abstractmethod
    def squared_space(
        self, roots: Float[Tensor, " n"], *, scale: float, ridge: float, intercept: bool, memory: Memory
    ) -> tuple[Space, Lift]:
        """The functions (K / scale)² α, and the map from their coefficients to A with K A / scale.

        Raises:
            BudgetError: its matrices are beyond the memory budget.
        """


@dataclass(frozen=True)
class HeldGram(Gram):
    """A matrix; where rounding left it unsymmetric, it stands for (K + Kᵀ) / 2, of which no copy is made."""

    K: Float[Tensor, "m m"]

    @cached_property
    def is_exact(self) -> bool:
        """Whether K is symmetric to the last bit."""
        return torch.equal(self.K, self.K.T)

    @property
    def rows(self) -> int:
        """n, or n c of a block kernel."""
        return len(self.K)

    def times(self, V: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """K V, some rows after the others where K is in another precision."""
        if self.is_exact:
            return _times(self.K, V)
        return (_times(self.K, V) + _times(self.K.T, V)) / 2

    @property
    def kind(self) -> Tensor:
        """An empty tensor of the working precision, on the device of K."""
        return in_working_precision(self.K[:0, 0])

    def function(self, coefficients: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """K α."""
        return self.times(coefficients)

    def held(self, memory: Memory) -> "HeldGram":  # noqa: ARG002 - it is there already
        """K in working precision."""
        return HeldGram(in_working_precision(self.K))

    def mean_diagonal(self) -> float:
        """The mean of K_ii."""
        return float(in_working_precision(self.K.diagonal()).mean())

    def deviation(self) -> float:
        """The standard deviation of the entries, from the mean and then the squares around it."""
        mean = sum(float(part.sum()) for part in self._parts()) / self.K.numel()
        squares = sum(float((part - mean).square().sum()) for part in self._parts())
        return (squares / max(1, self.K.numel() - 1)) ** 0.5

    def space(self, roots: Float[Tensor, " n"], *, ridge: float, memory: Memory) -> tuple[Space, Lift]:
        """Of a copy of K; of its eigenvectors where the ridge is below rounding."""
        _check_budget(2 * self.K.numel(), roots, memory)
        if ridge <= LEAST_SHIFT * float(roots.square().sum()) * self.mean_diagonal():
            U, values = self._eigenpairs()
            return FeatureSpace(
                U * values.abs().sqrt(), roots, intercept=False
            ), lambda a: U @ (a / values.abs().sqrt()[:, None])
        H = torch.empty_like(self.K, dtype=roots.dtype, memory_format=torch.contiguous_format)
        H.copy_(self.K).add_(self.K.T).div_(2)
        return SampleSpace(H, roots, intercept=False), lambda alpha: alpha

    def squared_space(
        self, roots: Float[Tensor, " n"], *, scale: float, ridge: float, intercept: bool, memory: Memory
    ) -> tuple[Space, Lift]:
        """Of K², one triangle of which is computed; of the eigenvectors of K where the ridge is below rounding."""
        _check_budget(2 * self.K.numel(), roots, memory)
        if ridge <= LEAST_SHIFT * float(roots.square().sum()) * self._mean_of_rows() / scale**2:
            U, values = self._eigenpairs()
            return FeatureSpace(U * values / scale, roots, intercept=intercept), lambda a: U @ a
        H = roots.new_zeros(self.K.shape)
        for part in self._parts():
            for rows in spans(len(H), ROWS):
                H[rows, rows.start :].addmm_(part[:, rows].T, part[:, rows.start :], alpha=scale**-2)
        for rows in spans(len(H), ROWS):
            H[rows.stop :, rows] = H[rows, rows.stop :].T
        return SampleSpace(H, roots, intercept=intercept), lambda alpha: self.times(alpha) / scale

    def _eigenpairs(self) -> tuple[Float[Tensor, "m r"], Float[Tensor, " r"]]:
        """Of K, those that stand out from rounding."""
        values, vectors = torch.linalg.eigh(in_working_precision(self.K))
        kept = values.abs() > len(values) * torch.finfo(values.dtype).eps * values.abs().max()
        return vectors[:, kept], values[kept]

    def _mean_of_rows(self) -> float:
        """The mean of ‖K_i‖², which is that of the diagonal of K²."""
        return sum(float(part.square().sum()) for part in self._parts()) / len(self.K)

    def _parts(self) -> Iterator[Float[Tensor, "r m"]]:
        for rows in spans(len(self.K), ROWS):
            yield in_working_precision(self.K[rows])


@dataclass(frozen=True)
class FactoredGram(Gram):
    """K = Φ Φᵀ with fewer features than samples."""

    features: Float[Tensor, "n d"]
    """Φ, in working precision."""

    @property
    def rows(self) -> int:
        """The number of rows, n."""
        return len(self.features)

    def times(self, V: Float[Tensor, "n q"]) -> Float[Tensor, "n q"]:
        """Φ Φᵀ V."""
        return times(self.features, self.primal(V))

    def primal(self, V: Float[Tensor, "n q"]) -> Float[Tensor, "d q"]:
        """Φᵀ V: coefficients of the features from those of the samples."""
        return times(self.features.T, V)

    @property
    def kind(self) -> Tensor:
        """An empty tensor of the working precision, on the device of Φ."""
        return self.features[:0, 0]

    def function(self, coefficients: Float[Tensor, "d q"]) -> Float[Tensor, "n q"]:
        """Φ γ."""
        return times(self.features, coefficients)

    def held(self, memory: Memory) -> HeldGram:
        """Φ Φᵀ."""
        return HeldGram(FactorOperator(self.features).dense(memory))

    def mean_diagonal(self) -> float:
        """The mean of ‖φ‖²."""
        return float(torch.linalg.vector_norm(self.features)) ** 2 / self.rows

    def deviation(self) -> float:
        """From Σ K_ij = ‖Σ φ‖² and, about their mean m, Σ (K_ij - m)² = ‖Φᵀ Φ‖² - (n m)²."""
        count = self.rows**2
        total = float(self.features.sum(0).square().sum())
        squares = float((self.features.T @ self.features).square().sum()) - total**2 / count
        return (max(squares, 0.0) / max(1, count - 1)) ** 0.5

    def space(
        self,
        roots: Float[Tensor, " n"],
        *,
        ridge: float,  # noqa: ARG002
        memory: Memory,
    ) -> tuple[Space, Lift]:
        """The space that Φ spans."""
        _check_budget(self.features.numel(), roots, memory)
        return FeatureSpace(self.features.clone(), roots, intercept=False), lambda gamma: gamma

    def squared_space(
        self,
        roots: Float[Tensor, " n"],
        *,
        scale: float,
        ridge: float,  # noqa: ARG002
        intercept: bool,
        memory: Memory,
    ) -> tuple[Space, Lift]:
        """Of Ψ = Φ Rᵀ with Φ = Q R, since Ψ Ψᵀ = Φ Φᵀ Φ Φᵀ: its coefficients a are A = Q a."""
        _check_budget(3 * self.features.numel(), roots, memory)
        Q, R = torch.linalg.qr(self.features)
        space = FeatureSpace((self.features @ R.T).div_(scale), roots, intercept=intercept)
        return space, lambda a: times(Q, a)


def _times(K: Float[Tensor, "m m"], V: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
    if K.dtype == V.dtype:
        return times(K, V)
    return torch.cat([times(K[rows].to(V), V) for rows in spans(len(K), ROWS)])


def _check_budget(numbers: int, like: Tensor, memory: Memory) -> None:
    memory_budget(memory, device=like.device).check(
        numbers * like.element_size(),
        "the matrices of a Newton step are",
        of=f"{len(like)} samples",
        hint='memory=..., KernelGLM with solver="lbfgs", which needs the kernel matrix alone, or a kernel with few '
        "features, such as SketchedTangentKernel",
    )
