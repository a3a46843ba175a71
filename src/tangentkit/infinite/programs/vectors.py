"""The lines of a tensor program: vectors, their images under entrywise functions, and matrices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

from torch import Tensor

from tangentkit.core.errors import InputError, ModelError

Scalar = Callable[..., Tensor]
"""A function that acts entry by entry: tensors of one shape to a tensor of that shape."""


class Writing(Protocol):
    """What lines need of the program they belong to."""

    def add(self, source: "Input | Product") -> "Vector":
        """The vector that a new input or product is."""
        ...


@dataclass(frozen=True, eq=False)
class Vector:
    """A vector of the program: a linear combination of its inputs and products (VecIn, MatMul, LinComb)."""

    program: Writing
    terms: dict[int, float]
    """Coefficients by the place of the input or product among the program's sources."""

    def __add__(self, other: "Vector") -> "Vector":
        if not isinstance(other, Vector):
            return NotImplemented
        check_own(self.program, other)
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
    """The image of vectors under an entrywise function (Nonlin)."""

    function: Scalar
    arguments: tuple[Vector, ...]

    @property
    def program(self) -> Writing:
        """The program it is a line of."""
        return self.arguments[0].program


@dataclass(frozen=True, eq=False)
class Matrix:
    """A random matrix with entries N(0, variance/n) (MatIn); `A @ h` is a line of the program (MatMul)."""

    program: Writing
    number: int
    variance: float

    def __matmul__(self, image: Vector | Image) -> Vector:
        if isinstance(image, Vector):
            image = Image(identity, (image,))
        if not isinstance(image, Image):
            return NotImplemented
        check_own(self.program, *image.arguments)
        return self.program.add(Product(self, image))

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
    """A matrix times the image of earlier vectors."""

    matrix: Matrix
    image: Image


def image_of(function: Scalar, arguments: Sequence[Vector | Image]) -> Image:
    """function(arguments), entry by entry; images among them are composed with it."""
    if all(isinstance(argument, Vector) for argument in arguments):
        return Image(function, tuple(arguments))  # pyright: ignore[reportArgumentType]
    images = [Image(identity, (a,)) if isinstance(a, Vector) else a for a in arguments]
    return Image(_composition(function, images), tuple(v for image in images for v in image.arguments))


def check_own(program: Writing, *vectors: Vector) -> None:
    """Refuses vectors of another program.

    Raises:
        InputError: one of them is.
    """
    if any(vector.program is not program for vector in vectors):
        raise InputError(
            "vectors of two programs", expected="vectors of one program", got="a vector of another"
        )


def identity(x: Tensor) -> Tensor:
    """x."""
    return x


def _composition(function: Scalar, images: Sequence[Image]) -> Scalar:
    """function(image_1(...), image_2(...), ...) as a function of all arguments of the images."""
    counts = [len(image.arguments) for image in images]

    def composed(*arguments: Tensor) -> Tensor:
        rest = iter(arguments)
        parts = [[next(rest) for _ in range(count)] for count in counts]
        return function(*(image.function(*part) for image, part in zip(images, parts, strict=True)))

    return composed
