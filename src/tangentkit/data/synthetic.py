"""Data from formulas: functions on an interval, signs on a grid, teachers, and data along one direction."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data

T = TypeVar("T")

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "f1": lambda x: torch.exp(torch.sin(2 * math.pi * x)),
    "f2": lambda x: torch.exp(3 * x),
    "f3": lambda x: torch.cos(torch.exp(3 * x)),
}
BOUNDARIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "F1": lambda x1, x2: 4 * x1**2 - 3 * x1 + 5 * x2 - 1,
    "F2": lambda x1, x2: 2 * x1**3 - 0.6 * x1**2 - 1.94 * x1 + x2 + 0.2,
}
INTERVALS = {"train": 200, "test": 600}
CELLS = {"train": (11, 7), "test": (22, 21)}
SOFTPLUS_MEAN, SOFTPLUS_VARIANCE = 0.806059, 0.271514
"""Of softplus(z) for z ~ N(0, 1)."""


def function_data(name: str, split: str) -> Data:
    """A function at equispaced nodes of [-1, 1], with the weights of the trapezoid rule, in float64.

    f1 = exp(sin(2πx)), f2 = exp(3x), f3 = cos(exp(3x)); 201 nodes to train, 601 to test. The weights are the
    distance of the nodes, half of it at the ends: Σ_i w_i g(x_i) ≈ ∫ g.

    Raises:
        UnknownNameError: there is no such function or split.

    Example:
        >>> data = function_data("f2", "train")
        >>> integral = (data.weights * data.targets).sum()
        >>> print(data.inputs.shape, round(float(integral / (math.exp(3) - math.exp(-3)) * 3), 3))
        torch.Size([201, 1]) 1.0
    """
    f, intervals = _named("function", name, FUNCTIONS), _named("split", split, INTERVALS)
    x = _equispaced(intervals)
    weights = torch.full_like(x, 2 / intervals)
    weights[[0, -1]] /= 2
    return Data(x[:, None], f(x), f"function-{name}", split, source="computed", weights=weights)


def grid_data(name: str, split: str) -> Data:
    """The sign of a function at the points of a grid of [-1, 1]²: label 1 where it is positive; in float64.

    F1 = 4 x1² - 3 x1 + 5 x2 - 1, F2 = 2 x1³ - 0.6 x1² - 1.94 x1 + x2 + 0.2; 12 x 8 points to train,
    23 x 22 to test.

    Raises:
        UnknownNameError: there is no such function or split.

    Example:
        >>> grid_data("F1", "train").counts
        {'negative': 43, 'positive': 53}
    """
    boundary, cells = _named("boundary", name, BOUNDARIES), _named("split", split, CELLS)
    points = torch.cartesian_prod(*map(_equispaced, cells))
    labels = (boundary(points[:, 0], points[:, 1]) > 0).long()
    return Data(points, labels, f"grid-{name}", split, ("negative", "positive"), source="computed")


@dataclass(frozen=True, eq=False)
class Teacher:
    """A function of few directions of its input.

    f*(x) = w Σ_i σ*(x·β_i) + (τ/d) |x|², σ*(z) = (softplus(z) - 0.806059) / sqrt(0.271514), β_i orthonormal.
    """

    directions: Float[Tensor, "k d"]
    tau: float = 0.2
    weight: float = 1.0

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The clean labels f*(x)."""
        links = (torch.nn.functional.softplus(x @ self.directions.T) - SOFTPLUS_MEAN) / SOFTPLUS_VARIANCE**0.5
        return self.weight * links.sum(1) + self.tau / x.shape[1] * x.square().sum(1)

    def sample(self, n: int, *, noise: float = 0.3, key: Key) -> Data:
        """Inputs x ~ N(0, I) and labels f*(x) + ε, ε ~ N(0, noise²); the noise changes no input."""
        k, d = self.directions.shape
        x = _normal(n, d, key=key.fold("inputs")).to(self.directions)
        y = self(x) + noise * _normal(n, key=key.fold("noise")).to(x)
        note = f"teacher of {k} direction(s), tau {self.tau}, noise {noise}"
        return Data(x, y, "teacher", "sample", source="computed", note=note)


def random_teacher(d: int, *, k: int = 1, tau: float = 0.2, weight: float | None = None, key: Key) -> Teacher:
    """A teacher with k random orthonormal directions in d dimensions, in float64.

    Args:
        d: dimension of the inputs.
        k: number of directions; the multi-index teacher of the literature has k = 5 and tau = 0.
        tau: weight of |x|²/d.
        weight: of the sum over directions; default 1/k (1/sqrt(k) in some public code).
        key: of the directions.

    Raises:
        InputError: k is not between 1 and d.

    Example:
        >>> teacher = random_teacher(20, k=5, tau=0.0, key=Key(0))
        >>> torch.allclose(teacher.directions @ teacher.directions.T, torch.eye(5, dtype=torch.float64))
        True
        >>> teacher.sample(100, key=Key(1))
        Data(teacher/sample: 100 samples, inputs float64 (20,), regression)
    """
    if not 1 <= k <= d:
        raise InputError("bad number of directions", expected=f"from 1 to d = {d}", got=k)
    q, r = torch.linalg.qr(_normal(d, k, key=key))
    # Positive diagonal: makes the directions uniform, and for k = 1 the Gaussian vector itself, normalized.
    directions = (q * r.diagonal().sign()).T.contiguous()
    return Teacher(directions, tau, 1 / k if weight is None else weight)


def directional_data(
    u: Float[Tensor, "*d"],
    n: int = 10_000,
    *,
    margin: float = 1.0,
    variance: float = 1.0,
    half_margin: bool = False,
    key: Key,
) -> Data:
    """D(u): two classes that differ along one direction only.

    x = ε y u + w, w ~ N(0, σ (I - u uᵀ)), y uniform in {-1, +1}; labels 0 and 1 for y = -1 and +1.

    Args:
        u: the direction, of the shape of an input; it is normalized.
        n: number of samples.
        margin: ε.
        variance: σ.
        half_margin: ε/2 in place of ε, as in public code of the authors.
        key: of labels and noise.

    Raises:
        InputError: the direction is zero or not finite.

    Example:
        >>> u = torch.zeros(1, 4, 4); u[0, 0, 0] = 1.0
        >>> data = directional_data(u, 100, key=Key(0))
        >>> data, torch.equal(data.inputs[:, 0, 0, 0] > 0, data.targets == 1)
        (Data(directional/sample: 100 samples, inputs float32 (1, 4, 4), 2 classes), True)
    """
    length = torch.linalg.vector_norm(u)
    if not (torch.isfinite(length) and length > 0):
        raise InputError("bad direction", expected="a finite vector other than zero", got=f"norm {length}")
    direction = (u / length).flatten()
    epsilon = margin / 2 if half_margin else margin
    labels = torch.randint(2, (n,), generator=key.fold("labels").torch()).to(u.device)
    w = _normal(n, direction.numel(), key=key.fold("noise")).to(u) * variance**0.5
    w -= torch.outer(w @ direction, direction)
    x = w + torch.outer(epsilon * (2 * labels - 1).to(u), direction)
    note = f"margin {epsilon} along one direction, variance {variance} across it"
    classes = ("-1", "+1")
    return Data(x.reshape(n, *u.shape), labels, "directional", "sample", classes, "computed", note=note)


def _equispaced(intervals: int) -> Tensor:
    # Correctly rounded, unlike linspace: symmetric, and nodes that two grids share are equal.
    return (2 * torch.arange(intervals + 1, dtype=torch.float64) - intervals) / intervals


def _normal(*shape: int, key: Key) -> Tensor:
    # Drawn in float64 on the CPU: the same numbers whatever the dtype and the device that they go to.
    return torch.randn(shape, generator=key.torch(), dtype=torch.float64)


def _named(kind: str, name: str, known: dict[str, T]) -> T:
    if name not in known:
        raise UnknownNameError(kind, str(name), known)
    return known[name]
