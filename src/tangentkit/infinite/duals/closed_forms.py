"""The duals that have a closed form: rectifiers, sign, erf, GELU, sines, exponentials, powers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.infinite.duals.dual import Dual, Steps, widened


@dataclass(frozen=True)
class Rectifier(Dual):
    """φ(u) = max(u, 0) + slope · min(u, 0): ReLU (slope 0), leaky ReLU, |u| (slope -1).

    Written as φ(u) = p u + q |u| with p, q = (1 ± slope)/2; with S = sqrt(xx yy - xy²) and the angle
    α = arctan2(xy, S) = arcsin of the correlation,

        E[φ(u) φ(v)]   = p² xy + (2/π) q² (S + α xy)
        E[φ'(u) φ'(v)] = p²    + (2/π) q² α

    The arccos form of the same is wrong by up to 2e-7 at equal inputs in float64; this one is exact there.
    At zero variance φ'(0) = p.

    Example:
        >>> xx, xy, yy = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        >>> [round(value.item() * 2 * math.pi, 12) for value in Rectifier().both(xx, xy, yy)]
        [1.0, 1.570796326795]
    """

    slope: float = 0.0

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one arctan2."""
        p, q = (1 + self.slope) / 2, (1 - self.slope) / 2
        if q == 0:
            return Monomial(1).both(xx, xy, yy)
        scale = q * q * (2 / math.pi)
        # The shift of the angle carries p², so that four passes over the entries are left after arctan2.
        kernel, derivative = _half_planes(xx, xy, yy, shift=p * p / scale)
        step = Steps(xx, xy, yy)
        return step.mul(kernel, scale), step.mul(derivative, scale)

    def diag(self, xx: Tensor) -> Tensor:
        """(1 + slope²)/2 · xx."""
        return xx * ((1 + self.slope**2) / 2)

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """(1 + slope²)/2, or φ'(0)² at zero variance."""
        return _at_zero_or_else(xx, (1 + self.slope) ** 2 / 4, (1 + self.slope**2) / 2)


@dataclass(frozen=True)
class Sign(Dual):
    """φ(u) = sign(u), φ(0) = 0, and φ' = 0: the jump has no derivative, so no gradient flows through it.

    E[φ(u) φ(v)] = (2/π) arctan2(xy, S), S = sqrt(xx yy - xy²).

    Example:
        >>> one = torch.ones((), dtype=torch.float64)
        >>> round(Sign()(one, 0.5 * one, one).item(), 12)         # arcsin(1/2) = π/6
        0.333333333333
    """

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """The angle, and zeros."""
        angle = _half_planes(xx, xy, yy, shift=0.0)[1]
        return Steps(xx, xy, yy).mul(angle, 2 / math.pi), torch.zeros_like(angle)

    def diag(self, xx: Tensor) -> Tensor:
        """1, or 0 at zero variance."""
        return _at_zero_or_else(xx, 0.0, 1.0)

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """The derivative is 0 everywhere."""
        return torch.zeros_like(xx)


@dataclass(frozen=True)
class Erf(Dual):
    """φ(u) = erf(scale · u).

    With s = 2 scale², X = 1 + s xx, Y = 1 + s yy and ρ = s xy / sqrt(X Y),

        E[φ(u) φ(v)]   = (2/π) arcsin ρ
        E[φ'(u) φ'(v)] = (2/π) s / sqrt(X Y (1 - ρ²))

    Example:
        >>> one = torch.ones((), dtype=torch.float64)
        >>> round(1 / Erf().diag(one).item(), 5)                  # the scale that keeps unit variance
        2.15258
    """

    scale: float = 1.0

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one ρ."""
        s, step = 2 * self.scale**2, Steps(xx, xy, yy)
        rx, ry, rho, rest = _smoothed_correlation(xx, xy, yy, s=s)
        derivative = step.mul(step.mul(step.rsqrt(rest), rx * (2 * s / math.pi)), ry)
        return step.mul(step.asin(rho), 2 / math.pi), derivative

    def diag(self, xx: Tensor) -> Tensor:
        """(2/π) arctan2(s xx, sqrt(1 + 2 s xx))."""
        s = 2 * self.scale**2
        return torch.atan2(s * xx, (1 + 2 * s * xx).sqrt()) * (2 / math.pi)

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """(2/π) s / sqrt(1 + 2 s xx)."""
        s = 2 * self.scale**2
        return (1 + 2 * s * xx).rsqrt() * (2 * s / math.pi)


@dataclass(frozen=True)
class Gelu(Dual):
    """φ(u) = u Φ(u), Φ the normal distribution function: GELU without the tanh approximation.

    With X = 1 + xx, Y = 1 + yy, ρ = xy / sqrt(X Y), τ = sqrt(1 - ρ²) and g = 1 / (τ sqrt(X Y)),

        E[φ(u) φ(v)]   = xy/4 + (xy arcsin ρ + xx yy τ / sqrt(X Y) + ρ² g) / 2π
        E[φ'(u) φ'(v)] = 1/4  + (arcsin ρ + xy g (1/X + 1/Y + g²)) / 2π

    Example:
        >>> xx, xy, yy = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        >>> [round(value.item(), 6) for value in Gelu().both(xx, xy, yy)]         # 1/4π and 1/4
        [0.079577, 0.25]
    """

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both from one arcsin and one square root."""
        half, step = 1 / (2 * math.pi), Steps(xx, xy, yy)
        rx, ry, rho, rest = _smoothed_correlation(xx, xy, yy)
        inverse = step.mul(rest.rsqrt() * rx, ry)
        derivative = inverse * inverse
        derivative = step.mul(step.add(step.add(derivative, rx * rx), ry * ry), inverse)
        kernel = step.mul(step.mul(step.sqrt(rest), xx * rx), yy * ry)
        kernel = step.add(kernel, step.mul(step.mul(inverse, rho), rho))
        angle = step.add(step.asin(rho), math.pi / 2)
        return (
            step.mul(step.addcmul(kernel, angle, xy), half),
            step.mul(step.add(step.mul(derivative, xy), angle), half),
        )

    def diag(self, xx: Tensor) -> Tensor:
        """The formula at ρ = xx/(1 + xx), where τ = sqrt(1 + 2 xx)/(1 + xx)."""
        root = (1 + 2 * xx).sqrt()
        angle = torch.atan2(xx, root) + math.pi / 2
        return (xx * angle + (xx / (1 + xx)) ** 2 * (root + 1 / root)) / (2 * math.pi)

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """The formula at ρ = xx/(1 + xx)."""
        root = (1 + 2 * xx).sqrt()
        angle = torch.atan2(xx, root) + math.pi / 2
        return (angle + xx / root * (2 / (1 + xx) + 1 / root**2)) / (2 * math.pi)


@dataclass(frozen=True)
class Sine(Dual):
    """φ(u) = sin(frequency · u + phase); the cosine has phase π/2.

    With f = frequency, β = phase, A = exp(-f² var(u - v)/2) - 1 and B = exp(-f² var(u + v)/2) - 1,

        E[φ(u) φ(v)]   = sin²β + (A - B cos 2β)/2
        E[φ'(u) φ'(v)] = f² (cos²β + (A + B cos 2β)/2)

    Example:
        >>> one = torch.ones((), dtype=torch.float64)
        >>> round(Sine()(one, one, one).item(), 6), round((1 - math.exp(-2)) / 2, 6)
        (0.432332, 0.432332)
    """

    frequency: float = 1.0
    phase: float = 0.0

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both from the same two exponentials."""
        f2, sine, cosine, twice = self._constants()
        step = Steps(xx, xy, yy)
        covariance, mean = widened(xx, xy, yy) * f2, xx * (f2 / 2) + yy * (f2 / 2)
        # expm1, because small variances would cancel in exp(..) - exp(..).
        minus, plus = step.expm1(covariance - mean), step.expm1(step.neg(step.add(covariance, mean)))
        minus, plus = step.div(minus, 2), step.mul(plus, twice / 2)
        return step.add(minus - plus, sine), step.mul(step.add(minus + plus, cosine), f2)

    def diag(self, xx: Tensor) -> Tensor:
        """sin²β - cos 2β (exp(-2 f² xx) - 1)/2."""
        f2, sine, _, twice = self._constants()
        return sine - torch.expm1(-2 * f2 * xx) * (twice / 2)

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """f² (cos²β + cos 2β (exp(-2 f² xx) - 1)/2)."""
        f2, _, cosine, twice = self._constants()
        return (cosine + torch.expm1(-2 * f2 * xx) * (twice / 2)) * f2

    def _constants(self) -> tuple[float, float, float, float]:
        # cos(π/2) is 6e-17 in floating point and its square vanishes, so cosines come out as cosines.
        sine, cosine = math.sin(self.phase) ** 2, math.cos(self.phase) ** 2
        return self.frequency**2, sine, cosine, cosine - sine


@dataclass(frozen=True)
class Exponential(Dual):
    """φ(u) = exp(rate · u): E[φ(u) φ(v)] = exp(rate² (xx + 2 xy + yy)/2).

    Example:
        >>> zero = torch.zeros(())
        >>> Exponential().both(zero, zero, zero)
        (tensor(1.), tensor(1.))
    """

    rate: float = 1.0

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """The exponential, and rate² times it."""
        kernel = self(xx, xy, yy)
        return kernel, kernel * self.rate**2

    def __call__(self, xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
        """exp(rate² (xx + 2 xy + yy)/2)."""
        r2 = self.rate**2
        return torch.exp(xy * r2 + xx * (r2 / 2) + yy * (r2 / 2))

    def diag(self, xx: Tensor) -> Tensor:
        """exp(2 rate² xx)."""
        return torch.exp(xx * (2 * self.rate**2))

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """rate² exp(2 rate² xx)."""
        return self.diag(xx) * self.rate**2


@dataclass(frozen=True)
class Monomial(Dual):
    """φ(u) = u^power for an integer power >= 0; power 1 is the identity.

        E[uⁿ vⁿ]   = Σ_{k = n, n-2, ...} (n!)² / (k! (j!)² 4^j) · xy^k (xx yy)^j,    j = (n - k)/2
        E[φ' φ']   = n² E[uⁿ⁻¹ vⁿ⁻¹]

    Example:
        >>> xx, xy, yy = torch.tensor([1.0, 0.5, 2.0])
        >>> Monomial(2)(xx, xy, yy)                               # xx yy + 2 xy²
        tensor(2.5000)
    """

    power: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.power, bool) or self.power != int(self.power) or self.power < 0:
            raise InputError("bad power of a monomial", expected="an integer >= 0", got=repr(self.power))

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both expectations, as values of two polynomials."""
        return self(xx, xy, yy), self.derivative(xx, xy, yy)

    def __call__(self, xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
        """The polynomial in xy and xx yy, by Horner's rule in xy²."""
        n = self.power
        coefficients = [
            math.factorial(n) ** 2 / (math.factorial(n - 2 * j) * math.factorial(j) ** 2 * 4**j)
            for j in range(n // 2 + 1)
        ]
        xy = widened(xx, xy, yy)
        value, product, square, power = torch.full_like(xy, coefficients[0]), xx * yy, xy * xy, 1.0
        for coefficient in coefficients[1:]:
            power = power * product
            value = value * square + coefficient * power
        return value * xy if n % 2 else value

    def derivative(self, xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
        """n² times the dual of the power below."""
        if self.power == 0:
            return torch.zeros_like(widened(xx, xy, yy))
        return Monomial(self.power - 1)(xx, xy, yy) * self.power**2

    def diag(self, xx: Tensor) -> Tensor:
        """(2n - 1)!! xxⁿ."""
        return xx**self.power * float(math.prod(range(1, 2 * self.power, 2)))

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """n² (2n - 3)!! xxⁿ⁻¹."""
        return Monomial(self.power - 1).diag(xx) * self.power**2 if self.power else torch.zeros_like(xx)


def _half_planes(xx: Tensor, xy: Tensor, yy: Tensor, *, shift: float) -> tuple[Tensor, Tensor]:
    """S + t xy and t, with S = sqrt(xx yy - xy²) and t = arctan2(xy, S) + shift."""
    if torch.is_grad_enabled() and (xx.requires_grad or xy.requires_grad or yy.requires_grad):
        return _HalfPlanes.apply(xx, xy, yy, shift)  # pyright: ignore[reportReturnType]
    return _HalfPlanes.forward(xx, xy, yy, shift)


class _HalfPlanes(torch.autograd.Function):
    """`_half_planes` with the derivatives that its formula has, which autograd would compute as ∞ - ∞ at S = 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(xx: Tensor, xy: Tensor, yy: Tensor, shift: float) -> tuple[Tensor, Tensor]:
        step = Steps(xx, xy, yy)
        # Dividing first neither overflows nor underflows, and gives exactly 0 for xx = xy = yy.
        quotient = xy / xx.clamp(min=torch.finfo(xx.dtype).tiny)
        rest = torch.addcmul(yy, xy, quotient, value=-1)
        root = step.mul(step.sqrt(step.clamp(rest, min=0)), xx.sqrt())
        t = step.add(torch.atan2(xy, root), shift)
        return step.addcmul(root, t, xy), t

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:  # noqa: ARG004
        xx, xy, yy, shift = inputs
        ctx.save_for_backward(xx, xy, yy)
        ctx.shift = shift

    @staticmethod
    def backward(ctx, kernel: Tensor, angle: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        xx, xy, yy = ctx.saved_tensors
        _, t = _half_planes(xx, xy, yy, shift=ctx.shift)
        rest = yy - xy * (xy * _inverse(xx))
        root = _guarded(torch.sqrt, rest) * _guarded(torch.sqrt, xx)
        along = angle * _inverse(root)
        spread = kernel * root - xy * along
        return (
            (spread * _inverse(xx) / 2).sum_to_size(xx.shape),
            (kernel * t + along).sum_to_size(xy.shape),
            (spread * _inverse(yy) / 2).sum_to_size(yy.shape),
            None,
        )


def _smoothed_correlation(
    xx: Tensor, xy: Tensor, yy: Tensor, *, s: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """With X = 1 + s xx, Y = 1 + s yy: 1/sqrt(X), 1/sqrt(Y), ρ = s xy/sqrt(X Y) and 1 - ρ²."""
    step = Steps(xx, xy, yy)
    rx, ry = (1 + s * xx).rsqrt(), (1 + s * yy).rsqrt()
    x2, y2 = rx * rx, ry * ry
    # xy² <= xx yy bounds 1 - ρ² from below; rounding must not go beneath, or huge variances divide by zero.
    least = torch.addcmul(y2, x2, 1 - y2)
    rho = step.mul(widened(xx, xy, yy) * (s * rx), ry)
    rest = torch.addcmul(torch.ones((), dtype=rho.dtype, device=rho.device), rho, rho, value=-1)
    bound = 1 - torch.finfo(rho.dtype).eps
    return rx, ry, _clamped(step, rho, min=-bound, max=bound), _clamped(step, rest, min=least)


def _clamped(step: Steps, x: Tensor, **limits: Any) -> Tensor:
    """Within limits, but with the gradient of x: equal inputs lie on the limit, and are no corner of a formula."""
    return x + (x.clamp(**limits) - x).detach() if x.requires_grad else step.clamp(x, **limits)


def _inverse(x: Tensor) -> Tensor:
    return _guarded(torch.reciprocal, x)


def _guarded(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    # Two wheres: one alone would let the infinite gradient of the branch not taken through as NaN.
    positive = x > 0
    return torch.where(positive, function(torch.where(positive, x, 1)), 0)


def _at_zero_or_else(xx: Tensor, at_zero: float, otherwise: float) -> Tensor:
    return torch.full_like(xx, at_zero).masked_fill(xx > 0, otherwise)
