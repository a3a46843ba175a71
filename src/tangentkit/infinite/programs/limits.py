"""What becomes of the vectors of a tensor program: their law at infinite width, and one draw at finite width."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, ModelError
from tangentkit.infinite.duals.expectations import check_entrywise, gaussian_expectation
from tangentkit.infinite.duals.registry import Dual, Pointwise, dual_of
from tangentkit.infinite.programs.vectors import Image, Scalar, Vector, Writing, check_own, identity, image_of


@dataclass(frozen=True, eq=False)
class Law:
    """The joint Gaussian law of the entries of all vectors of a program at infinite width."""

    program: Writing
    means: Float[Tensor, " k"]
    covariances: Float[Tensor, "k k"]
    """Of the inputs and products, in the order they were written; so are `means` and `errors`."""
    errors: Float[Tensor, "k k"]
    """How much the covariances changed with the number of points of the expectations."""
    points: int

    def mean(self, *vectors: Vector) -> Float[Tensor, " k"]:
        """The means of vectors, linear in them."""
        return self._rows(vectors) @ self.means

    def covariance(self, one: Vector, two: Vector) -> Float[Tensor, ""]:
        """Cov(Z_one, Z_two), bilinear in the vectors."""
        a, b = self._rows([one, two])
        return a @ self.covariances @ b

    def matrix(self, *vectors: Vector) -> Float[Tensor, "k k"]:
        """The covariance matrix of several vectors."""
        C = self._rows(vectors)
        return C @ self.covariances @ C.T

    def error(self, one: Vector, two: Vector) -> Float[Tensor, ""]:
        """The stated error of `covariance`; 0 where every expectation before it has a closed form."""
        a, b = self._rows([one, two]).abs()
        return a @ self.errors @ b

    def expectation(self, psi: Scalar, *arguments: Vector | Image) -> Float[Tensor, ""]:
        """E ψ(Z): what the average of ψ over the entries converges to."""
        image = image_of(psi, arguments)
        return gaussian_expectation(
            image.function, self.mean(*image.arguments), self.matrix(*image.arguments), points=self.points
        )

    def moment(self, one: Image, two: Image) -> Float[Tensor, ""]:
        """E[h(Z) h'(Z)] of two images, in closed form where there is one."""
        dual = _dual(one, two)
        arguments = one.arguments + two.arguments
        if dual is None or bool(self.mean(*arguments).any()):
            return self.expectation(torch.mul, one, two)
        K = self.matrix(*arguments)
        return dual.diag(K[0, 0]) if one.arguments == two.arguments else dual(K[0, 0], K[0, 1], K[1, 1])

    def _rows(self, vectors: Sequence[Vector]) -> Tensor:
        check_known(self.program, vectors, len(self.means))
        C = torch.zeros(len(vectors), len(self.means), dtype=torch.float64)
        for row, vector in zip(C, vectors, strict=True):
            row[list(vector.terms)] = torch.tensor(list(vector.terms.values()), dtype=torch.float64)
        return C


@dataclass(frozen=True, eq=False)
class Run:
    """One draw of a program at finite width; `run[v]` are the entries of a vector or image."""

    program: Writing
    values: list[Tensor]

    def __getitem__(self, line: Vector | Image) -> Float[Tensor, " n"]:
        if isinstance(line, Image):
            arguments = [self[argument] for argument in line.arguments]
            return check_entrywise(line.function(*arguments), arguments[0])
        check_known(self.program, [line], len(self.values))
        return torch.stack([value * self.values[i] for i, value in line.terms.items()]).sum(0)

    def average(self, psi: Scalar, *arguments: Vector | Image) -> Float[Tensor, ""]:
        """(1/n) Σ_i ψ(arguments_i)."""
        return self[image_of(psi, arguments)].mean()


def check_known(program: Writing, vectors: Sequence[Vector], known: int) -> None:
    """Refuses vectors of another program, and those that were written too late.

    Raises:
        InputError: one of them is.
    """
    check_own(program, *vectors)
    if any(max(vector.terms, default=-1) >= known for vector in vectors):
        raise InputError(
            "a vector of a later line",
            expected="vectors that were there when the program was run",
            got=f"one that needs more than its first {known} inputs and products",
            hint="call limit() or sample() again",
        )


def _dual(one: Image, two: Image) -> Dual | None:
    """The closed form of E[f(u) f(v)], where both images are that of one variable under the same f."""
    if one.function is not two.function or len(one.arguments) + len(two.arguments) != 2:
        return None
    if one.function is identity:
        return None  # Gauss-Hermite is exact
    try:
        dual = dual_of(one.function)
    except ModelError:
        return None
    return None if isinstance(dual, Pointwise) else dual  # its quadrature does not say how far off it is
