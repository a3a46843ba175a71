"""The dual of piecewise linear functions: hardtanh, relu6, hardsigmoid, softshrink and whatever looks like them.

For φ with slope jumps J_κ at its kinks κ, φ'' is a sum of point masses, so that by Price's theorem, applied twice,

    ∂² E[φ(u) φ(v)] / ∂xy² = Σ_κλ J_κ J_λ p(κ, λ),      p the density of (u, v).

Integrated from xy = 0, where u and v are independent, along xy = sqrt(xx yy) sin t (`gaussian_path`),

    E[φ' φ'] = E[φ'(u)] E[φ'(v)] + (1/2π) Σ_κλ J_κ J_λ ∫ exp(-Q) dt
    E[φ φ]   = E[φ(u)] E[φ(v)] + xy E[φ'(u)] E[φ'(v)] + (1/2π) Σ_κλ J_κ J_λ ∫ (xy - sqrt(xx yy) sin t) exp(-Q) dt
"""

import math
from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.infinite.dual import Dual, Steps, widened
from tangentkit.infinite.gaussian_path import end_of_path, path, place_of, std_of
from tangentkit.infinite.quadrature import refined_line


@dataclass(frozen=True)
class PiecewiseLinear(Dual):
    """φ(u) = offset + slopes[0] u + Σ_i (slopes[i+1] - slopes[i]) max(u - kinks[i], 0).

    At zero variance φ'(0) is the average of both sides. Relative errors are below 1e-9 up to standard deviations
    of a hundred times the distance of the kinks, and far smaller for the kernel itself.

    Args:
        kinks: where the slope changes, ascending.
        slopes: left of, between and right of the kinks; one more than kinks.
        offset: the height of the leftmost line at u = 0.

    Raises:
        InputError: the numbers do not fit together.

    Example:
        >>> hardtanh = PiecewiseLinear(kinks=(-1.0, 1.0), slopes=(0.0, 1.0, 0.0), offset=-1.0)
        >>> xx, xy, yy = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        >>> round(hardtanh.derivative(xx, xy, yy).item() ** 0.5, 6)               # P(|u| < 1)
        0.682689
    """

    kinks: tuple[float, ...]
    slopes: tuple[float, ...]
    offset: float = 0.0

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in pairwise(self.kinks))
        finite = all(math.isfinite(x) for x in (*self.kinks, *self.slopes, self.offset))
        if len(self.slopes) != len(self.kinks) + 1 or not ascending or not finite:
            raise InputError(
                "bad piecewise linear function",
                expected="ascending kinks, one more slope than kinks, all finite",
                got=f"kinks {self.kinks}, slopes {self.slopes}, offset {self.offset}",
            )

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both from the same exponentials."""
        xy = widened(xx, xy, yy)
        (mean_x, slope_x), (mean_y, slope_y) = self._means(xx), self._means(yy)
        sign = torch.ones_like(xy).masked_fill(xy < 0, -1.0)
        scale, end = end_of_path(xx, sign * xy, yy)
        # Q = apart / (2 cos² t) + along / (1 + |sin t|) loses nothing as |sin t| -> 1.
        terms = []
        for (kink, other), jumps in self._pairs().items():
            k, l = place_of(kink, xx), place_of(other, yy)  # noqa: E741
            along = sign * (k * l)
            terms.append((k * k + l * l - 2 * along, along, jumps / (2 * math.pi)))
        step = Steps(xx, xy, yy)
        mass, moment = torch.zeros_like(xy), torch.zeros_like(xy)
        for sine, cosine, weight in path(end):
            across, forward = -0.5 / (cosine * cosine), -1 / (1 + sine)
            density = torch.zeros_like(xy)
            for apart, along, jumps in terms:
                density = step.add(
                    density, step.exp(step.addcmul(apart * across, along, forward)), alpha=jumps
                )
            density = step.mul(density, weight)
            mass, moment = step.add(mass, density), step.addcmul(moment, density, sine)
        derivative = slope_x * slope_y + sign * mass
        return mean_x * mean_y + xy * derivative - scale * moment, derivative

    def diag(self, xx: Tensor) -> Tensor:
        """E[φ(u)²] by quadrature on the line, split at the kinks."""
        return refined_line(self._functions, xx, kinks=self.kinks)[0]

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """E[φ'(u)²] by quadrature on the line, split at the kinks."""
        return refined_line(self._functions, xx, kinks=self.kinks)[1]

    def _jumps(self) -> list[tuple[float, float]]:
        return [
            (kink, right - left)
            for kink, (left, right) in zip(self.kinks, pairwise(self.slopes), strict=True)
        ]

    def _pairs(self) -> dict[tuple[float, float], float]:
        """J_κ J_λ of every pair; since p(κ, λ) = p(-κ, -λ), opposite pairs are one."""
        pairs: dict[tuple[float, float], float] = {}
        for (kink, jump), (other, there) in product(self._jumps(), repeat=2):
            pair = (kink, other) if (kink, other) >= (-kink, -other) else (-kink, -other)
            pairs[pair] = pairs.get(pair, 0.0) + jump * there
        return pairs

    def _means(self, xx: Tensor) -> tuple[Tensor, Tensor]:
        """E[φ(u)] and E[φ'(u)]."""
        mean, slope = torch.full_like(xx, self.offset), torch.full_like(xx, self.slopes[0])
        for kink, jump in self._jumps():
            k = place_of(kink, xx)
            beyond = torch.special.ndtr(-k)
            density = torch.exp(-k * k / 2) / math.sqrt(2 * math.pi)
            mean, slope = mean + jump * (std_of(xx) * density - kink * beyond), slope + jump * beyond
        return mean, slope

    def _functions(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """φ(u) and φ'(u), each from the line that holds at u: nothing cancels."""
        heights = [self.offset]
        for kink, jump in self._jumps():
            heights.append(heights[-1] - jump * kink)
        kinks, slopes, heights = (torch.tensor(x, dtype=u.dtype) for x in (self.kinks, self.slopes, heights))
        line = torch.bucketize(u, kinks)
        return heights[line] + slopes[line] * u, slopes[line]
