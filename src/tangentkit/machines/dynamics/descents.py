"""Ways down a squared loss: what gradient flow, gradient descent and momentum make of one eigenmode.

Along an eigenvector of the kernel training is a motion of one number in a parabola, whose curvature is the rate
ρ of the mode. From an error of 1, at rest, a descent leads in time t to the error φ(ρ, t). Its *progress*
(1 - φ)/ρ is what a prediction needs: it stays exact where ρ goes to zero.
"""

import inspect
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.machines.dynamics.doubling import expm1, repeated

MOST_STEPS = 2**53
"""Up to here every number of steps is a float64."""


class Descent(ABC):
    """A way down. Times are counted in its own unit: time of a flow, or steps."""

    @abstractmethod
    def progress(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """(1 - φ(ρ, t)) / ρ, and its limit where ρ = 0.

        Args:
            rates: ρ >= 0.
            times: finite, not negative.
        """

    def remaining(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """φ(ρ, t), the part of the error that is left, to within rounding of the error at the start."""
        return 1 - rates * self.progress(rates, times)

    @abstractmethod
    def decay(self, rates: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """δ(ρ) in |φ(ρ, t)| ~ exp(-δ t) for late t; below zero where the mode diverges."""

    def check_times(self, times: Float[Tensor, " t"]) -> None:
        """Refuses times that are negative or NaN; infinity is a time.

        Raises:
            InputError: with the first such time.
        """
        bad = times[~(times >= 0)]
        if len(bad):
            raise InputError("bad time", expected="numbers >= 0, or inf", got=f"{float(bad[0]):g}")

    def check_converges(self, rates: Float[Tensor, " r"]) -> None:  # noqa: B027 - flows need no check
        """Refuses a descent that diverges on modes of these rates.

        Raises:
            NumericalError: with the learning rate that would do.
        """


def check_descent(descent: object) -> None:
    """Refuses what is no descent, such as a learning rate alone.

    Raises:
        InputError: with the descent that was probably meant.
    """
    if isinstance(descent, Descent):
        return
    hint = None
    if isinstance(descent, Real):
        hint = f"GradientDescent(lr={descent})"
    elif isinstance(descent, type) and issubclass(descent, Descent):
        options = [f"{name}=..." for name in inspect.signature(descent).parameters]
        hint = f"{descent.__name__}({', '.join(options)})"
    raise InputError(
        "not a descent",
        expected="GradientFlow(), GradientDescent(lr), HeavyBall(lr, momentum), Nesterov(lr, momentum) or "
        "MomentumFlow(friction)",
        got=f"the class {descent.__name__}" if isinstance(descent, type) else repr(descent),
        hint=hint,
    )


@dataclass(frozen=True)
class GradientFlow(Descent):
    """dθ/dt = -∇L, the limit of small steps: φ = exp(-ρ t).

    Gradient descent with learning rate lr is near it at t = lr · steps.

    Example:
        >>> GradientFlow().remaining(torch.tensor([0.0, 1.0]), torch.tensor([1.0]))
        tensor([[1.0000, 0.3679]])
    """

    def progress(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """(1 - exp(-ρ t)) / ρ, or t where ρ = 0."""
        t = times[:, None]
        x = rates * t
        return t * (-torch.expm1(-x) / x).where(x > 0, 1.0)

    def remaining(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """exp(-ρ t)."""
        return torch.exp(-rates * times[:, None])

    def decay(self, rates: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """ρ."""
        return rates


@dataclass(frozen=True)
class MomentumFlow(Descent):
    """θ'' + friction θ' = -∇L from rest: the limit of momentum with small steps.

    φ'' + friction φ' + ρ φ = 0 with φ(0) = 1, φ'(0) = 0. `HeavyBall(lr, momentum)` is near it at
    t = √lr · steps, with friction = (1 - momentum) / √lr. Modes with ρ > friction² / 4 oscillate.

    Example:
        >>> MomentumFlow(0.0).remaining(torch.ones(1).double(), torch.tensor([0.0, math.pi / 3]).double())
        tensor([[1.0000],
                [0.5000]], dtype=torch.float64)
    """

    friction: float

    def __post_init__(self) -> None:
        if not 0 <= self.friction < math.inf:
            raise InputError("bad friction", expected="a finite number >= 0", got=self.friction)

    def progress(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """(1 - φ) / ρ: where a force of 1 leads from rest, in a spring of stiffness ρ."""
        return torch.stack([self._driven(rates, float(t)) for t in times])

    def _driven(self, rates: Float[Tensor, " r"], t: float) -> Float[Tensor, " r"]:
        if t == 0:
            return torch.zeros_like(rates)
        # The state is (κ² q, κ q', 1), and κ = √ρ makes its motion a rotation, which loses no digits.
        kappa = rates.sqrt().clamp(min=1 / t)
        generator = rates.new_zeros(len(rates), 3, 3)
        generator[:, 0, 1] = generator[:, 1, 2] = kappa
        generator[:, 1, 0] = -rates / kappa
        generator[:, 1, 1] = -self.friction
        return expm1(generator * t)[:, 0, 2] / kappa.square()

    def decay(self, rates: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """The smaller real part of the roots of z² - friction z + ρ."""
        half = self.friction / 2
        overdamped = (half**2 - rates).clamp(min=0).sqrt()
        return (rates / (half + overdamped)).where(rates < half**2, half)


@dataclass(frozen=True)
class _Steps(Descent):
    """A descent in steps of a learning rate; times are numbers of steps."""

    lr: float

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise InputError("bad learning rate", expected="a finite number > 0", got=self.lr)

    @property
    @abstractmethod
    def bound(self) -> float:
        """A mode converges if and only if lr ρ is below it (and above zero)."""

    def check_times(self, times: Float[Tensor, " t"]) -> None:
        """Refuses numbers of steps that are not integers >= 0, or infinity.

        Raises:
            InputError: with the first such number.
        """
        super().check_times(times)
        bad = times[((times != times.round()) | (times > MOST_STEPS)) & times.isfinite()]
        if len(bad):
            raise InputError(
                "bad number of steps",
                expected=f"integers from 0 to 2^{int(math.log2(MOST_STEPS))}, or inf",
                got=f"{float(bad[0]):.17g}",
            )

    def check_converges(self, rates: Float[Tensor, " r"]) -> None:
        """Refuses a learning rate at which the mode of the largest rate does not converge.

        Raises:
            NumericalError: with the largest learning rate.
        """
        largest = float(rates.max())
        if self.lr * largest >= self.bound:
            growth = math.exp(-float(self.decay(rates).min()))
            raise NumericalError(
                "training diverges",
                expected=f"a learning rate below {self.bound / largest:.6g}",
                got=f"{self.lr:.6g}, with which the error grows by {growth:.4g} a step",
                hint="max_learning_rate(K, loss=..., momentum=...) gives the bound; the loss sets its scale",
            )


@dataclass(frozen=True)
class GradientDescent(_Steps):
    """θ ← θ - lr ∇L: φ = (1 - lr ρ)^steps.

    Example:
        >>> GradientDescent(0.1).remaining(torch.ones(1).double(), torch.tensor([2.0]).double())
        tensor([[0.8100]], dtype=torch.float64)
    """

    @property
    def bound(self) -> float:
        """A mode converges if and only if lr ρ is below 2."""
        return 2.0

    def progress(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """(1 - (1 - lr ρ)^steps) / ρ, or lr · steps where ρ = 0."""
        x, steps = self.lr * rates, times[:, None]
        done = (-torch.expm1(torch.special.xlog1py(steps, -x))).where(
            x <= 1, 1 - self.remaining(rates, times)
        )
        return self.lr * (done / x).where(x > 0, steps)

    def remaining(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """(1 - lr ρ)^steps."""
        x, steps = self.lr * rates, times[:, None]
        sign = torch.where((x > 1) & (steps % 2 == 1), -1.0, 1.0)
        # 1 - x is the wrong number for small x; xlog1py also knows that 0 · log 0 is 0.
        return sign * torch.special.xlog1py(steps, torch.where(x <= 1, -x, x - 2)).exp()

    def decay(self, rates: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """-log |1 - lr ρ|."""
        return _log_decay(self.lr * rates)


@dataclass(frozen=True)
class HeavyBall(_Steps):
    """v ← momentum v + ∇L, θ ← θ - lr v: `torch.optim.SGD(lr=..., momentum=...)`.

    φ follows φ' = (1 + momentum - lr ρ) φ - momentum φ₋, by powers of its matrix.

    Example:
        >>> HeavyBall(0.1, 0.9).remaining(torch.ones(1).double(), torch.tensor([0.0, 1.0, 2.0]).double())
        tensor([[1.0000],
                [0.9000],
                [0.7200]], dtype=torch.float64)
    """

    momentum: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise InputError("bad momentum", expected="0 <= momentum < 1", got=self.momentum)

    @property
    def bound(self) -> float:
        """2 (1 + momentum)."""
        return 2 * (1 + self.momentum)

    def progress(self, rates: Float[Tensor, " r"], times: Float[Tensor, " t"]) -> Float[Tensor, "t r"]:
        """(1 - φ) / ρ from the steps of q = (1 - φ) / (lr ρ), which sees the force 1 - lr ρ q."""
        step = self._step(self.lr * rates)
        start = rates.new_tensor([0.0, 0.0, 1.0]).expand(len(rates), 3)
        return self.lr * repeated(step, start, times.long())[..., 0]

    def _step(self, x: Float[Tensor, " r"]) -> Float[Tensor, "r 3 3"]:
        """What a step adds to (q, v, 1): v ← momentum v + (1 - x q), q ← q + v."""
        b, one = self.momentum, torch.ones_like(x)
        return _rows([-x, b * one, one], [-x, (b - 1) * one, one], [0 * one, 0 * one, 0 * one])

    def decay(self, rates: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """-log |z| of the larger root of z² - (1 + momentum - lr ρ) z + momentum."""
        x = self.lr * rates
        return _root_decay(x, 1 - self.momentum + x, determinant=self.momentum * torch.ones_like(x))


@dataclass(frozen=True)
class Nesterov(HeavyBall):
    """v ← momentum v + ∇L, θ ← θ - lr (∇L + momentum v): `torch.optim.SGD(..., nesterov=True)`.

    Example:
        >>> Nesterov(0.1, 0.9).remaining(torch.ones(1).double(), torch.tensor([1.0]).double())
        tensor([[0.8100]], dtype=torch.float64)
    """

    @property
    def bound(self) -> float:
        """2 (1 + momentum) / (1 + 2 momentum)."""
        return 2 * (1 + self.momentum) / (1 + 2 * self.momentum)

    def _step(self, x: Float[Tensor, " r"]) -> Float[Tensor, "r 3 3"]:
        """What a step adds to (q, v, 1): v ← momentum v + (1 - x q), q ← q + (1 - x q) + momentum v."""
        b, one = self.momentum, torch.ones_like(x)
        return _rows(
            [-(1 + b) * x, b**2 * one, (1 + b) * one], [-x, (b - 1) * one, one], [0 * one, 0 * one, 0 * one]
        )

    def decay(self, rates: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
        """-log |z| of the larger root of z² - (1 + momentum) (1 - lr ρ) z + momentum (1 - lr ρ)."""
        x, b = self.lr * rates, self.momentum
        return _root_decay(x, 1 - b + (1 + b) * x, determinant=b * (1 - x))


def _rows(*rows: list[Tensor]) -> Float[Tensor, "r d d"]:
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def _log_decay(x: Float[Tensor, " r"]) -> Float[Tensor, " r"]:
    """-log |1 - x|, exact for small x."""
    return -torch.log1p(torch.where(x <= 1, -x, x - 2))


def _root_decay(
    x: Float[Tensor, " r"], p: Float[Tensor, " r"], *, determinant: Float[Tensor, " r"]
) -> Float[Tensor, " r"]:
    """-log |z| of the larger root, from δ = 1 - z with δ² - p δ + x = 0, where small x keep their digits."""
    square = p.square() - 4 * x
    fast = (p + square.clamp(min=0).sqrt()) / 2
    slow = x / fast
    return torch.minimum(_log_decay(slow), _log_decay(fast)).where(square >= 0, -determinant.log() / 2)
