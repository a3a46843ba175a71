"""The dual of piecewise linear functions: hardtanh, relu6, hardsigmoid, softshrink and whatever looks like them.

A piecewise linear φ is the line L(u) = a + s u that holds around 0, and pieces P that begin at the kinks, on the side
away from 0, and add to its slope. With E[u P(v)] = xy E[P'(v)] (Stein's lemma),

    E[φ φ]   = a² + s² xy + a (E[P(u)] + E[P(v)]) + s xy (E[P'(u)] + E[P'(v)]) + E[P(u) P(v)]
    E[φ' φ'] = s² + s (E[P'(u)] + E[P'(v)]) + E[P'(u) P'(v)]

and the last terms are sums of the moments E[max(u - κ, 0)^j max(v - λ, 0)^j], j = 0, 1 (`pointwise_pieces`).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.infinite.duals.dual import Dual, widened
from tangentkit.infinite.duals.kinks import Piece, Pieces
from tangentkit.infinite.duals.quadrature import refined_line


@dataclass(frozen=True)
class PiecewiseLinear(Dual):
    """φ(u) = offset + slopes[0] u + Σ_i (slopes[i+1] - slopes[i]) max(u - kinks[i], 0).

    At zero variance φ'(0) is the average of both sides. Errors relative to sqrt(E[φ(u)²] E[φ(v)²]) are below 1e-10
    up to standard deviations of a hundred times the distance of the kinks. What one unit in the last place of the
    arguments changes comes on top: up to 1e-8 in the derivative where two kinks meet at correlation ±1.

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
        """Both from the same moments."""
        xy = widened(xx, xy, yy)
        if not (torch.is_grad_enabled() and (xx.requires_grad or xy.requires_grad or yy.requires_grad)):
            return self._both(xx, xy, yy)
        # Values as without gradients; ∂/∂xy is E[φ' φ'], not a derivative of formulas that nearly cancel.
        with torch.no_grad():
            kernel, derivative = self._both(xx, xy, yy)
        kernel = _with_gradient(kernel, self._both(xx, xy.detach(), yy)[0])
        derivative = _with_gradient(derivative, self._both(xx, xy, yy)[1])
        return _Price.apply(kernel, derivative, xy), derivative  # pyright: ignore[reportReturnType]

    def _both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        dtype = xy.dtype
        kernel, derivative = self._pieces.both(xx, xy, yy)
        # In double precision: the pieces may be far larger than the function.
        xx, xy, yy = xx.double(), xy.double(), yy.double()
        (mean_x, slope_x), (mean_y, slope_y) = self._pieces.means(xx), self._pieces.means(yy)
        a, s = self._line
        slopes = s * (s + slope_x + slope_y)
        kernel = kernel + a * (a + mean_x + mean_y) + xy * slopes
        return kernel.to(dtype), (derivative + slopes).to(dtype)

    def diag(self, xx: Tensor) -> Tensor:
        """E[φ(u)²] by quadrature on the line, split at the kinks."""
        return refined_line(self._functions, xx, kinks=self.kinks)[0]

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """E[φ'(u)²] by quadrature on the line, split at the kinks."""
        return refined_line(self._functions, xx, kinks=self.kinks)[1]

    @cached_property
    def _heights(self) -> list[float]:
        """The height of each line at u = 0."""
        heights = [self.offset]
        for kink, (left, right) in zip(self.kinks, pairwise(self.slopes), strict=True):
            heights.append(heights[-1] - (right - left) * kink)
        return heights

    @property
    def _line(self) -> tuple[float, float]:
        """Height and slope of the line left of 0, or that holds there."""
        here = sum(kink < 0 for kink in self.kinks)
        return self._heights[here], self.slopes[here]

    @cached_property
    def _pieces(self) -> Pieces:
        """φ without that line. Left of 0 a piece max(κ - u, 0) takes away what the slope has changed by."""
        jumps = zip(self.kinks, pairwise(self.slopes), strict=True)
        return Pieces(tuple(Piece(kink, (0.0, right - left)) for kink, (left, right) in jumps))

    def _functions(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """φ(u) and φ'(u), each from the line that holds at u: nothing cancels."""
        kinks, slopes, heights = (
            torch.tensor(x, dtype=u.dtype) for x in (self.kinks, self.slopes, self._heights)
        )
        line = torch.bucketize(u, kinks)
        return heights[line] + slopes[line] * u, slopes[line]


class _Price(torch.autograd.Function):
    """E[φ(u) φ(v)] with E[φ'(u) φ'(v)] as its derivative in xy."""

    @staticmethod
    def forward(kernel: Tensor, derivative: Tensor, xy: Tensor) -> Tensor:  # noqa: ARG004
        return kernel.clone()

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, weight: Tensor) -> tuple[Tensor, None, Tensor]:
        (derivative,) = ctx.saved_tensors
        return weight, None, weight * derivative


def _with_gradient(value: Tensor, watched: Tensor) -> Tensor:
    """A value with the gradient of another that is nearly equal."""
    return value + (watched - watched.detach())
