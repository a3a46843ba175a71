"""What the dual of a scalar function is.

The dual of φ is what one layer of an infinitely wide network does to covariances. With
(u, v) ~ N(0, [[xx, xy], [xy, yy]]),

    dual(xx, xy, yy)            = E[φ(u) φ(v)]
    dual.derivative(xx, xy, yy) = E[φ'(u) φ'(v)] = ∂ E[φ(u) φ(v)] / ∂ xy        (Price's theorem)

All arguments broadcast; usually xx is (n, 1), yy is (1, m) and xy (n, m), so that what depends on one variance
alone costs next to nothing. Where φ jumps or has a kink at 0, φ(0) and φ'(0) mean the average of both sides
(sign(0) = 0, relu'(0) = 1/2): that is what the formulas give at zero variance.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


class Dual(abc.ABC):
    """E[φ(u) φ(v)] of one scalar function φ, as a function of the covariance of (u, v).

    Duals are values: two of the same function are equal, and none holds a tensor. Device and dtype are those
    of the arguments, results are tensors of their own (never a view of an argument), and gradients with
    respect to all three arguments are finite also at correlations ±1 and variance 0, where a true gradient may
    be infinite: there the infinite part counts as 0.

    A subclass writes `both`, `diag` and `derivative_diag`, and `__call__` or `derivative` where one of the two
    alone is cheaper.
    """

    @property
    def name(self) -> str:
        """What the function is called in tables and messages."""
        return repr(self)

    @abc.abstractmethod
    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """E[φ(u) φ(v)] and E[φ'(u) φ'(v)], sharing their work."""

    def __call__(self, xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
        """E[φ(u) φ(v)] for (u, v) ~ N(0, [[xx, xy], [xy, yy]])."""
        return self.both(xx, xy, yy)[0]

    def derivative(self, xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
        """E[φ'(u) φ'(v)]."""
        return self.both(xx, xy, yy)[1]

    @abc.abstractmethod
    def diag(self, xx: Tensor) -> Tensor:
        """E[φ(u)²], without the cancellation of the general formula at equal inputs."""

    @abc.abstractmethod
    def derivative_diag(self, xx: Tensor) -> Tensor:
        """E[φ'(u)²]."""

    def sides(self, xx: Tensor, yy: Tensor) -> "Sides":
        """What there is to know of the two sides of pairs before any covariance is: here the variances alone."""
        return Sides(self, xx[None], yy[None])


@dataclass(frozen=True, eq=False)
class Sides:
    """A dual whose variances are known, of samples that will meet again and again.

    It is called with numbers of `left` and of `right`, picked as the pairs need them; their first axis stays.
    """

    dual: Dual
    left: Tensor
    """Some numbers for each variance xx (k, *xx.shape)."""
    right: Tensor
    """Some numbers for each variance yy (k, *yy.shape)."""

    @property
    def is_wide(self) -> bool:
        """Whether there are so many numbers that they should be picked as seldom as possible."""
        return len(self.left) > 1

    def __call__(self, left: Tensor, xy: Tensor, right: Tensor, *, slope: bool) -> tuple[Tensor, ...]:
        """E[φ(u) φ(v)], and with `slope` E[φ'(u) φ'(v)]."""
        arguments = left[0], xy, right[0]
        return self.dual.both(*arguments) if slope else (self.dual(*arguments),)


class Steps:
    """The methods of a tensor, writing into their first argument where nothing watches.

    A formula written with them once is differentiable when autograd or a torch.func transform runs, and
    otherwise makes as few passes over fresh memory as it can.
    """

    def __init__(self, *tensors: Tensor):
        watched = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        self._suffix = "" if watched or torch._C._are_functorch_transforms_active() else "_"

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        return getattr(Tensor, name + self._suffix)


def widened(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """xy in the full shape: only a tensor of that shape can be written into."""
    return xy.expand(torch.broadcast_shapes(xx.shape, xy.shape, yy.shape))
