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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, ModelError
from tangentkit.core.seeds import Key
from tangentkit.core.whole_numbers import as_count
from tangentkit.infinite.duals.expectations import check_entrywise, gaussian_expectation, root
from tangentkit.infinite.duals.registry import Dual, Pointwise, dual_of
from tangentkit.linalg.operators.checks import check_finite

Scalar = Callable[..., Tensor]
"""A function that acts entry by entry: tensors of one shape to a tensor of that shape."""


@dataclass(frozen=True, eq=False)
class Vector:
    """A linear combination of the inputs and products of a program (VecIn, MatMul, LinComb)."""

    program: "Program"
    terms: dict[int, float]
    """Coefficients by the place of the input or product among the program's sources."""

    def __add__(self, other: "Vector") -> "Vector":
        if not isinstance(other, Vector):
            return NotImplemented
        _check_own(self.program, [other])
        places = {**self.terms, **other.terms}
        return Vector(self.program, {i: self.terms.get(i, 0.0) + other.terms.get(i, 0.0) for i in places})

    def __mul__(self, factor: float) -> "Vector":
        if not isinstance(factor, Real):
            return NotImplemented
        return Vector(self.program, {i: float(factor) * value for i, value in self.terms.items()})

    __rmul__ = __mul__

    def __sub__(self, other: "Vector") -> "Vector":
        return self + (-1.0) * other

    def __neg__(self) -> "Vector":
        return (-1.0) * self


@dataclass(frozen=True, eq=False)
class Image:
    """The image of vectors, or of other images, under an entrywise function (Nonlin)."""

    function: Scalar
    arguments: tuple["Vector | Image", ...]

    def at(self, entries: Callable[[Vector], Tensor]) -> Tensor:
        """The values of the function where the vectors have the given entries."""
        arguments = [a.at(entries) if isinstance(a, Image) else entries(a) for a in self.arguments]
        return check_entrywise(self.function(*arguments), arguments[0])


@dataclass(frozen=True, eq=False)
class Matrix:
    """A random matrix with entries N(0, variance/n) (MatIn); `A @ h` is a line of the program (MatMul)."""

    program: "Program"
    number: int
    variance: float

    def __matmul__(self, line: Vector | Image) -> Vector:
        if not isinstance(line, Vector | Image):
            return NotImplemented
        _check_own(self.program, _vectors([line]))
        return _vector_of(self.program, Product(self, line))

    @property
    def T(self) -> "Matrix":
        """Refused: with a matrix and its transpose the entries need not become Gaussian.

        Raises:
            ModelError: always.
        """
        raise ModelError(
            "a tensor program has no transposes",
            expected="every matrix on one side only",
            got=f"the transpose of matrix {self.number}",
            hint="a matrix of its own, program.matrix(...), where the transpose may be replaced by a fresh draw",
        )


@dataclass(frozen=True)
class Input:
    """One vector of a block of jointly Gaussian inputs."""

    block: int
    position: int


@dataclass(frozen=True)
class Product:
    """A matrix times a vector or an image."""

    matrix: Matrix
    line: Vector | Image


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
    """What all vectors are combinations of, in the order of the program."""
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
        return tuple(_vector_of(self, Input(len(self.blocks) - 1, position)) for position in range(len(K)))

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
        _check_own(self, _vectors(arguments))
        return Image(function, arguments)

    def limit(self, *, points: int = 2**16) -> "Law":
        """The law of the vectors at infinite width.

        Expectations of one function of one Gaussian with mean 0 that has a dual in closed form are exact. All
        others are Gauss-Hermite sums (up to four dimensions) or Sobol averages with `points` points, and the
        whole recursion runs again with a half and with a quarter of them: the larger of the two changes is the
        error that `Law` states.

        Raises:
            NumericalError: an expectation is not finite.
        """
        points = as_count(points, "number of points", least=16)
        fine, half, quarter = (_law(self, share) for share in (points, points // 2, points // 4))
        changes = [(fine.covariances - other.covariances).abs() for other in (half, quarter)]
        return replace(fine, errors=torch.maximum(*changes))

    def sample(
        self, width: int, seed: Key, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> "Run":
        """The program run once with vectors of `width` entries.

        Raises:
            InputError: the width is below 1.
        """
        width = as_count(width, "width")

        def normal(columns: int, *name: str | int) -> Tensor:
            generator = seed.fold(*name).torch(torch.device(device))
            return torch.randn(width, columns, generator=generator, dtype=dtype, device=device)

        @lru_cache(maxsize=1)  # a matrix is large; its seed draws it again where a program comes back to it
        def weights(A: Matrix) -> Tensor:
            return normal(width, "matrix", A.number).mul_((A.variance / width) ** 0.5)

        blocks = [
            mu.to(device, dtype) + normal(R.shape[1], "input", number) @ R.to(device, dtype).T
            for number, (mu, R) in enumerate((mu, root(K)) for mu, K in self.blocks)
        ]
        run = Run(self, [])
        for source in self.sources:
            if isinstance(source, Input):
                run.values.append(blocks[source.block][:, source.position])
            else:
                run.values.append(weights(source.matrix) @ run[source.line])
        return run


def _check_own(program: Program, vectors: Iterable[Vector], known: int | None = None) -> None:
    """Refuses vectors of another program, and those that need more than its first `known` sources."""
    for vector in vectors:
        if vector.program is not program:
            raise InputError(
                "vectors of two programs", expected="vectors of one program", got="a vector of another"
            )
        if known is not None and max(vector.terms, default=-1) >= known:
            raise InputError(
                "a vector of a later line",
                expected="vectors that were there when the program was run",
                got=f"one that needs more than its first {known} inputs and products",
                hint="call limit() or sample() again",
            )


def _vector_of(program: Program, source: Input | Product) -> Vector:
    """The vector that a new input or product is."""
    program.sources.append(source)
    return Vector(program, {len(program.sources) - 1: 1.0})


def _vectors(lines: Iterable[Vector | Image]) -> list[Vector]:
    """The vectors that lines are functions of, each once."""
    found = (_vectors(line.arguments) if isinstance(line, Image) else [line] for line in lines)
    return list(dict.fromkeys(vector for some in found for vector in some))


@dataclass(frozen=True, eq=False)
class Run:
    """One draw of a program at finite width; `run[v]` are the entries of a vector or image."""

    program: Program
    values: list[Tensor]
    """The entries of every source."""

    def __getitem__(self, line: Vector | Image) -> Float[Tensor, " n"]:
        if isinstance(line, Image):
            return line.at(self.__getitem__)
        _check_own(self.program, [line], len(self.values))
        return torch.stack([value * self.values[i] for i, value in line.terms.items()]).sum(0)

    def average(self, psi: Scalar, *arguments: Vector | Image) -> Float[Tensor, ""]:
        """(1/n) Σ_i ψ(arguments_i)."""
        return self[Image(psi, arguments)].mean()


@dataclass(frozen=True, eq=False)
class Law:
    """The joint Gaussian law of the entries of all vectors of a program at infinite width."""

    program: Program
    means: Float[Tensor, " k"]
    """Of the program's sources, in their order; so are `covariances` and `errors`."""
    covariances: Float[Tensor, "k k"]
    errors: Float[Tensor, "k k"]
    """How much the covariances changed with the number of points of the expectations."""
    points: int

    def mean(self, *vectors: Vector) -> Float[Tensor, " k"]:
        """The means of vectors, linear in them."""
        return self._rows(vectors) @ self.means

    def covariance(self, one: Vector, two: Vector) -> Float[Tensor, ""]:
        """Cov(Z_one, Z_two), bilinear in the vectors."""
        return self.matrix(one, two)[0, 1]

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
        image, vectors = Image(psi, arguments), _vectors(arguments)

        def function(*z: Tensor) -> Tensor:
            return image.at(dict(zip(vectors, z, strict=True)).__getitem__)

        return gaussian_expectation(function, self.mean(*vectors), self.matrix(*vectors), points=self.points)

    def moment(self, one: Vector | Image, two: Vector | Image) -> Float[Tensor, ""]:
        """E[h(Z) h'(Z)] of two lines, in closed form where there is one."""
        dual, vectors = _dual(one, two), _vectors([one, two])
        if dual is None or bool(self.mean(*vectors).any()):
            return self.expectation(torch.mul, one, two)
        K = self.matrix(*vectors)
        return dual.diag(K[0, 0]) if len(vectors) == 1 else dual(K[0, 0], K[0, 1], K[1, 1])

    def _rows(self, vectors: Sequence[Vector]) -> Tensor:
        _check_own(self.program, vectors, len(self.means))
        C = torch.zeros(len(vectors), len(self.means), dtype=torch.float64)
        for row, vector in zip(C, vectors, strict=True):
            row[list(vector.terms)] = torch.tensor(list(vector.terms.values()), dtype=torch.float64)
        return C


def _law(program: Program, points: int) -> Law:
    """The law of all sources, covariances row by row: each asks only for those before it."""
    sources = program.sources
    S = torch.zeros(len(sources), len(sources), dtype=torch.float64)
    law = Law(program, S.new_zeros(len(sources)), S, torch.zeros_like(S), points)
    for i, one in enumerate(sources):
        if isinstance(one, Input):
            law.means[i] = program.blocks[one.block][0][one.position]
        for j, two in enumerate(sources[: i + 1]):
            if isinstance(one, Input) and isinstance(two, Input) and one.block == two.block:
                S[i, j] = S[j, i] = program.blocks[one.block][1][one.position, two.position]
            elif isinstance(one, Product) and isinstance(two, Product) and one.matrix is two.matrix:
                S[i, j] = S[j, i] = one.matrix.variance * law.moment(one.line, two.line)
    return law


def _dual(one: Vector | Image, two: Vector | Image) -> Dual | None:
    """The closed form of E[f(u) f(v)], where both lines are f of one vector each, with the same f."""
    if not (isinstance(one, Image) and isinstance(two, Image) and one.function is two.function):
        return None
    arguments = one.arguments + two.arguments
    if len(arguments) != 2 or not all(isinstance(argument, Vector) for argument in arguments):
        return None
    try:
        dual = dual_of(one.function)
    except ModelError:
        return None
    return None if isinstance(dual, Pointwise) else dual  # its quadrature does not say how far off it is
