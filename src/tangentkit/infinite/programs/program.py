"""Tensor programs: random vectors and matrices, what they become at infinite width, and samples at finite width.

A program has five kinds of lines. All vectors have n entries, all matrices are n x n.

    VecIn    x, y = program.inputs(K)        entries (x_i, y_i) ~ N(μ, K), independent over i
    MatIn    A = program.matrix(σ²)          A_ij ~ N(0, σ²/n)
    Nonlin   h = program.apply(f, x, y)      h_i = f(x_i, y_i)
    MatMul   g = A @ h                       g_i = Σ_j A_ij h_j
    LinComb  z = 2.0 * g - x                 z_i = 2 g_i - x_i

Inputs, products and their linear combinations are `Vector`s: as n grows their entries become jointly Gaussian,

    E[A h] = 0,    Cov(A h, B h') = σ² E[h(Z) h'(Z)] if A and B are the same matrix, and 0 otherwise,

and averages over entries converge: (1/n) Σ_i ψ(g_i, ...) -> E ψ(Z) almost surely. A matrix may be used again and
again (a recurrent network), but not with its transpose: then the entries need not be Gaussian.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.infinite.duals.expectations import root
from tangentkit.infinite.programs.limits import Law, Run
from tangentkit.infinite.programs.vectors import (
    Image,
    Input,
    Matrix,
    Product,
    Scalar,
    Vector,
    check_own,
    image_of,
)
from tangentkit.infinite.whole_numbers import as_count
from tangentkit.linalg.operators.checks import check_finite


@dataclass(eq=False)
class Program:
    """A tensor program under construction.

    Example:
        >>> program = Program()
        >>> x, y = program.inputs([[1.0, 0.5], [0.5, 1.0]])
        >>> W = program.matrix(2.0)
        >>> a, b = W @ program.apply(torch.relu, x), W @ program.apply(torch.relu, y)
        >>> program.limit().covariance(a, b + x)
        tensor(0.6090, dtype=torch.float64)
        >>> run = program.sample(1000, Key(0))
        >>> run.average(torch.mul, a, b) - 0.6090 < 0.2
        tensor(True)
    """

    blocks: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Mean and covariance of every block of inputs."""
    sources: list[Input | Product] = field(default_factory=list)
    matrices: list[Matrix] = field(default_factory=list)

    def inputs(
        self,
        covariance: Float[Tensor, "k k"] | Sequence[Sequence[float]],
        *,
        mean: Sequence[float] | None = None,
    ) -> tuple[Vector, ...]:
        """New vectors whose entries are jointly Gaussian, independent of everything before (VecIn).

        Raises:
            InputError: the covariance is not square or the mean does not fit.
            NumericalError: the covariance is not finite, symmetric and positive semi-definite.
        """
        K = torch.as_tensor(covariance, dtype=torch.float64, device="cpu").detach()
        if K.ndim != 2 or K.shape[0] != K.shape[1] or not len(K):
            raise InputError("bad covariance", expected="shape (k, k)", got=tuple(K.shape))
        mu = torch.zeros(len(K)) if mean is None else torch.as_tensor(mean)
        if mu.shape != K.shape[:1]:
            raise InputError("bad mean", expected=f"{len(K)} numbers", got=tuple(mu.shape))
        check_finite(mu, "mean")
        root(K)  # refuses what is not a covariance
        self.blocks.append((mu.to(K), K))
        return tuple(self.add(Input(len(self.blocks) - 1, position)) for position in range(len(K)))

    def matrix(self, variance: float) -> Matrix:
        """A new random matrix with entries N(0, variance/n), independent of everything before (MatIn).

        Raises:
            InputError: the variance is negative or not finite.
        """
        if not isinstance(variance, Real) or not 0 <= float(variance) < float("inf"):
            raise InputError("bad variance of a matrix", expected="a finite number >= 0", got=repr(variance))
        self.matrices.append(Matrix(self, len(self.matrices), float(variance)))
        return self.matrices[-1]

    def apply(self, function: Scalar, *arguments: Vector | Image) -> Image:
        """function(arguments), entry by entry (Nonlin); images may be arguments too.

        The law holds for functions that grow slower than ``exp(|x|^a)`` for some a < 2.

        Raises:
            InputError: there is no argument, or it belongs to another program.
        """
        if not arguments:
            raise InputError("a function of nothing", expected="one or more vectors or images", got="none")
        image = image_of(function, arguments)
        check_own(self, *image.arguments)
        return image

    def limit(self, *, points: int = 2**16) -> Law:
        """The law of the vectors at infinite width.

        Expectations of one function of one Gaussian with mean 0 that has a dual in closed form are exact. All
        others are Gauss-Hermite sums (up to four dimensions) or Sobol averages with `points` points, and the
        whole recursion runs again with a half and with a quarter of them: the larger of the two changes is the
        error that `Law` states.

        Raises:
            NumericalError: an expectation is not finite.
        """
        mean = [
            float(self.blocks[source.block][0][source.position]) if isinstance(source, Input) else 0.0
            for source in self.sources
        ]
        points = as_count(points, "number of points", least=16)
        fine, half, quarter = (self._covariance(mean, share) for share in (points, points // 2, points // 4))
        errors = torch.maximum((fine - half).abs(), (fine - quarter).abs())
        return Law(self, torch.tensor(mean, dtype=torch.float64), fine, errors, points)

    def sample(
        self, width: int, seed: Key, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> Run:
        """The program run once with vectors of `width` entries.

        Raises:
            InputError: the width is below 1.
        """
        width = as_count(width, "width")
        draw = partial(_normal, seed=seed, dtype=dtype, device=torch.device(device))
        blocks = [
            mu.to(device, dtype)
            + draw((width, root(K).shape[1]), "input", number) @ root(K).to(device, dtype).T
            for number, (mu, K) in enumerate(self.blocks)
        ]
        held: dict[int, Tensor] = {}

        def weights(A: Matrix) -> Tensor:
            # One matrix at a time is held: its seed draws it again where a program comes back to it.
            if A.number not in held:
                held.clear()
                held[A.number] = draw((width, width), "matrix", A.number) * (A.variance / width) ** 0.5
            return held[A.number]

        run = Run(self, [])
        for source in self.sources:
            if isinstance(source, Input):
                run.values.append(blocks[source.block][:, source.position])
            else:
                run.values.append(weights(source.matrix) @ run[source.image])
        return run

    def add(self, source: Input | Product) -> Vector:
        """The vector that a new input or product is."""
        self.sources.append(source)
        return Vector(self, {len(self.sources) - 1: 1.0})

    def _covariance(self, mean: Sequence[float], points: int) -> Tensor:
        """The covariances of all sources, row by row: each asks only for those before it."""
        S = torch.zeros(len(self.sources), len(self.sources), dtype=torch.float64)
        law = Law(self, torch.tensor(mean, dtype=torch.float64), S, S, points)
        for i, one in enumerate(self.sources):
            for j, two in enumerate(self.sources[: i + 1]):
                if isinstance(one, Input) and isinstance(two, Input) and one.block == two.block:
                    S[i, j] = S[j, i] = self.blocks[one.block][1][one.position, two.position]
                elif isinstance(one, Product) and isinstance(two, Product) and one.matrix is two.matrix:
                    S[i, j] = S[j, i] = one.matrix.variance * law.moment(one.image, two.image)
        return S


def _normal(
    shape: tuple[int, int], *name: str | int, seed: Key, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.randn(shape, generator=seed.fold(*name).torch(device), dtype=dtype, device=device)
