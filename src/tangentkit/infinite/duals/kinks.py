"""What a function does at its kinks, as a piecewise polynomial, whose dual is known.

At each kink κ the Taylor polynomials of φ on both sides differ by Σ_j c_j (u - κ)^j. The pieces

    P(u) = Σ_{κ >= 0} Σ_j c_κj max(u - κ, 0)^j  +  Σ_{κ < 0} Σ_j c_κj max(κ - u, 0)^j

vanish around 0 and jump, in their value and their first derivatives, as φ does: φ - P is smooth to that order. With
M_ab = E[max(u - κ, 0)^a max(v - λ, 0)^b], Stein's lemma gives

    M_ab = -κ M_{a-1,b} + (a-1) xx M_{a-2,b} + b xy M_{a-1,b-1}

where M_{-1,b} times 0 stands for E[δ(u - κ) max(v - λ, 0)^b], a moment on the line, and so on. All moments follow
from M_00 = P(u > κ, v > λ).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from tangentkit.infinite.duals.dual import widened
from tangentkit.infinite.duals.gaussian_path import (
    NODES,
    end_of_path,
    kept_inside,
    legendre,
    place_of,
    remaining,
    std_of,
)

ENTRIES = 2**15
"""Entries whose moments are computed at a time: a few dozen tensors of them stay in the cache."""
DEGREE, WIDEST = 14, 0.5
"""Degree, and greatest width, of the polynomials by which φ is known beside a kink."""


@dataclass(frozen=True)
class Piece:
    """Σ_j coefficients[j] max(u - kink, 0)^j for a kink >= 0, and of max(kink - u, 0)^j for one below 0."""

    kink: float
    coefficients: tuple[float, ...]

    @property
    def side(self) -> int:
        """Where the piece begins: 1 for right of the kink, -1 for left."""
        return -1 if self.kink < 0 else 1

    @property
    def slope(self) -> tuple[float, ...]:
        """The coefficients of the derivative, as if nothing jumped."""
        return tuple(self.side * j * c for j, c in enumerate(self.coefficients) if j)


@dataclass(frozen=True)
class Pieces:
    """The piecewise polynomial part P of a function, with its dual.

    Example:
        >>> pieces = pieces_of(lambda u: u.clamp(max=1) ** 2, kinks=(1.0,), order=3)
        >>> [round(c, 6) for c in pieces.pieces[0].coefficients]                  # 1 - u² in powers of u - 1
        [0.0, -2.0, -1.0]
    """

    pieces: tuple[Piece, ...]

    def __call__(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """P(u) and P'(u)."""
        value, slope = torch.zeros_like(u), torch.zeros_like(u)
        for piece in self.pieces:
            beyond = piece.side * (u - piece.kink)
            inside = beyond > 0
            value = value + torch.where(inside, _polynomial(piece.coefficients, beyond), 0)
            slope = slope + torch.where(inside, _polynomial(piece.slope, beyond), 0)
        return value, slope

    def means(self, xx: Tensor) -> tuple[Tensor, Tensor]:
        """E[P(u)] and E[P'(u)]."""
        mean, slope = torch.zeros_like(xx), torch.zeros_like(xx)
        for piece in self.pieces:
            # What is left of a kink below 0 is right of its mirror image.
            place = -place_of(abs(piece.kink), xx)
            found = _moments_on_line(-abs(piece.kink) + 0 * xx, place, xx, len(piece.coefficients))
            mean = mean + sum(c * moment for c, moment in zip(piece.coefficients, found, strict=True))
            slope = slope + sum(c * moment for c, moment in zip(piece.slope, found, strict=False))
        return mean, slope

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """E[P(u) P(v)] and E[P'(u) P'(v)], in float64 whatever the arguments are: P may be larger than φ."""
        xy = widened(xx, xy, yy)
        if torch.is_grad_enabled() and (xx.requires_grad or xy.requires_grad or yy.requires_grad):
            return self._both(xx.double(), xy.double(), yy.double())
        kernel, slope = (torch.empty_like(xy, dtype=torch.float64) for _ in range(2))
        arguments = [x.expand(xy.shape) for x in (xx, xy, yy)]
        for part in _blocks(xy.shape):
            kernel[part], slope[part] = self._both(*(x[part].double() for x in arguments))
        return kernel, slope

    def _both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        kernel, slope = torch.zeros_like(xy), torch.zeros_like(xy)
        for (kink, other, sign), (weights, slope_weights) in self._pairs().items():
            found = moments(kink, other, xx, sign * xy, yy, shape=weights.shape)
            for (a, b), moment in found.items():
                if weights[a, b]:
                    kernel = torch.add(kernel, moment, alpha=float(weights[a, b]))
                if slope_weights[a, b]:
                    slope = torch.add(slope, moment, alpha=float(slope_weights[a, b]))
        return kernel, slope

    def _pairs(self) -> dict[tuple[float, float, int], tuple[np.ndarray, np.ndarray]]:
        """What multiplies M_ab of P and of P' for every pair of kinks; only the product of their sides counts."""
        degree = max((len(piece.coefficients) for piece in self.pieces), default=0)
        pairs: dict[tuple[float, float, int], tuple[np.ndarray, np.ndarray]] = {}
        for one, other in product(self.pieces, repeat=2):
            key = abs(one.kink), abs(other.kink), one.side * other.side
            sums = pairs.setdefault(key, (np.zeros((degree, degree)), np.zeros((degree, degree))))
            for total, x, y in (
                (sums[0], one.coefficients, other.coefficients),
                (sums[1], one.slope, other.slope),
            ):
                total[: len(x), : len(y)] += np.outer(x, y)
        return pairs


def pieces_of(function: Callable[[Tensor], Tensor], *, kinks: Sequence[float], order: int) -> Pieces:
    """The pieces that jump as the function does, up to its derivative of this order.

    On both sides of each kink the function is interpolated in Chebyshev points; no derivative is asked for.
    """
    ordered = sorted(set(kinks))
    pieces = []
    for kink in ordered:
        gaps = [abs(kink - other) for other in ordered if other != kink]
        width = min([WIDEST, *gaps])
        (right, right_noise), (left, left_noise) = (
            _taylor(function, kink, side * width, order) for side in (1, -1)
        )
        jumps = np.where(np.abs(right - left) > right_noise + left_noise, right - left, 0.0)
        # Seen from the left, (u - κ)^j is (-1)^j (κ - u)^j, and it is the left side that differs.
        signed = jumps if kink >= 0 else -jumps * (-1.0) ** np.arange(order + 1)
        pieces.append(Piece(kink, tuple(np.trim_zeros(signed, "b").tolist())))
    return Pieces(tuple(piece for piece in pieces if piece.coefficients))


def moments(
    kink: float, other: float, xx: Tensor, xy: Tensor, yy: Tensor, *, shape: tuple[int, ...]
) -> dict[tuple[int, int], Tensor]:
    """M_ab = E[max(u - κ, 0)^a max(v - λ, 0)^b] for kinks κ, λ >= 0, all a < shape[0] and b < shape[1].

    Example:
        >>> one = torch.ones((), dtype=torch.float64)
        >>> found = moments(0.0, 0.0, one, 0.5 * one, one, shape=(2, 2))
        >>> round(found[0, 0].item(), 12), round(found[1, 0].item(), 6)           # 1/3, E[u; u > 0, v > 0]
        (0.333333333333, 0.299207)
    """
    xy = kept_inside(xx, xy, yy)
    std_x, std_y = std_of(xx), std_of(yy)
    k, l = place_of(kink, xx), place_of(other, yy)  # noqa: E741
    tiny = torch.finfo(xx.dtype).tiny
    along_x, along_y = xy / std_x.clamp(min=tiny), xy / std_y.clamp(min=tiny)
    # std times density, of u at κ and of v at λ; then the moments of one where the other is at its kink.
    density_x, density_y = _density(k), _density(l)
    sign = torch.ones_like(xy).masked_fill(xy < 0, -1.0)
    end = end_of_path(xx, sign * xy, yy)
    at_v, at_u = _places(sign * k, l, end), _places(sign * l, k, end)
    of_v = _moments_on_line(along_x * k - other, at_v, remaining(xx, xy, yy), shape[1])
    of_u = _moments_on_line(along_y * l - kink, at_u, remaining(yy, xy, xx), shape[0])
    found = {(0, 0): _beyond_both(k, l, sign, end)}
    for b in range(1, shape[1]):
        found[0, b] = -other * found[0, b - 1] + along_x * density_x * of_v[b - 1]
        found[0, b] = found[0, b] + (
            std_y * density_y * of_u[0] if b == 1 else (b - 1) * yy * found[0, b - 2]
        )
    for a in range(1, shape[0]):
        for b in range(shape[1]):
            value = -kink * found[a - 1, b]
            value = value + (std_x * density_x * of_v[b] if a == 1 else (a - 1) * xx * found[a - 2, b])
            found[a, b] = value + (b * xy * found[a - 1, b - 1] if b else along_y * density_y * of_u[a - 1])
    return found


def _places(k: Tensor, l: Tensor, end: Tensor) -> Tensor:  # noqa: E741
    """(ρ k - l) / sqrt(1 - ρ²) for ρ >= 0, given (1 - ρ) / sqrt(1 - ρ²).

    At ρ = 1 it and its mirror image, k and l exchanged, are exactly opposite: where v is all on one side of its
    kink, u is all on the other, and where k = l both are half and half. Rounding of ρ k - l would decide otherwise.
    """
    apart = k - l
    steep = torch.where(end > 0, (1 + end * end) / (2 * torch.where(end > 0, end, 1)), math.inf)
    return torch.where(apart == 0, 0, apart * steep.nan_to_num()).clamp(-40, 40) - k * end


def _beyond_both(k: Tensor, l: Tensor, sign: Tensor, end: Tensor) -> Tensor:  # noqa: E741
    """P(u > κ, v > λ), the kinks in standard deviations, the correlation as its sign and the end of its path.

    With ± the sign of the correlation, c = (k ∓ l)²/8 and b = (k ± l)²/8, the density along the path is, in w,

        exp(-Q) dt = 2 exp(-2c ∓ k l/2) exp(-c/w²) exp(-b w²) / (1 + w²) dw.

    Of the last two factors the terms up to w⁴ are integrated in closed form: exp(-c/w²) is a thin layer at w = 0
    for kinks that nearly meet, of which a rule would see too little, and the rest vanishes there.
    """
    along = sign * (k * l)
    c = (k - sign * l).square() / 8
    b = c + along / 2
    taylor = 1.0, -(b + 1), b * b / 2 + b + 1
    below, above = _layer(c, end), _layer(c, torch.ones_like(end))
    mass = sum(t * (high - low) for t, low, high in zip(taylor, below, above, strict=True))
    for node, weight in zip(*legendre(NODES), strict=True):
        w2 = (end + (1 - end) * node).square()
        smooth = torch.exp(-b * w2) / (1 + w2) - (taylor[0] + w2 * (taylor[1] + w2 * taylor[2]))
        mass = mass + weight * (1 - end) * torch.exp(-c / w2) * smooth
    mass = mass * torch.exp(-2 * c - along / 2) / math.pi
    return torch.special.ndtr(-k) * torch.special.ndtr(-l) + sign * mass


def _layer(c: Tensor, w: Tensor) -> list[Tensor]:
    """∫ w^j exp(-c/w²) dw from 0 for j = 0, 2, 4."""
    w = w.clamp(min=torch.finfo(w.dtype).tiny ** 0.25)
    height = torch.exp(-c / (w * w))
    found = [w * height - math.sqrt(math.pi) * std_of(c) * torch.special.erfc(std_of(c) / w)]
    for j in (2, 4):
        found.append((w ** (j + 1) * height - 2 * c * found[-1]) / (j + 1))
    return found


def _moments_on_line(mean: Tensor, place: Tensor, variance: Tensor, count: int) -> list[Tensor]:
    """E[max(z, 0)^j] of a Gaussian z for j < count, given also its mean in standard deviations."""
    found = [torch.special.ndtr(place), mean * torch.special.ndtr(place) + std_of(variance) * _density(place)]
    for j in range(2, count):
        found.append(mean * found[-1] + (j - 1) * variance * found[-2])
    return found[:count]


def _blocks(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Parts of at most ENTRIES entries that together are a tensor of this shape."""
    steps, room = [], ENTRIES
    for size in reversed(shape):
        steps.append(max(1, min(size, room)))
        room //= steps[-1]
    ranges = [range(0, size, step) for size, step in zip(shape, reversed(steps), strict=True)]
    for starts in product(*ranges):
        yield tuple(slice(start, start + part.step) for start, part in zip(starts, ranges, strict=True))


def _density(z: Tensor) -> Tensor:
    return torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    value = torch.zeros_like(x)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def _taylor(
    function: Callable[[Tensor], Tensor], kink: float, width: float, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """Taylor coefficients at one side of a kink, and what of them may be rounding."""
    x = np.cos((np.arange(DEGREE + 1) + 0.5) * (math.pi / (DEGREE + 1)))
    u = torch.from_numpy(kink + width * (x + 1) / 2)
    values = function(u).detach().numpy()
    series = np.polynomial.chebyshev.chebfit(x, values, DEGREE)
    noise = 64 * np.finfo(float).eps * np.abs(values).max()
    coefficients, errors = [], []
    for j in range(order + 1):
        scale = (2 / width) ** j / math.factorial(j)
        derivative = np.polynomial.chebyshev.chebder(series, j)
        coefficients.append(np.polynomial.chebyshev.chebval(-1.0, derivative) * scale)
        # |T_n^(j)| is largest at the ends, and there it is at most n^(2j) / (2j - 1)!!.
        steepest = DEGREE ** (2 * j) / math.prod(range(1, 2 * j, 2))
        errors.append(noise * steepest * abs(scale))
    return np.array(coefficients), np.array(errors)
