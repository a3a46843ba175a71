"""Newton's method for likelihoods of kernels, every step by preconditioned conjugate gradients.

    φ = Σ_i w_i ℓ(y_i, z_i) + (ridge / 2) ‖f‖²,    z = f + b,

ℓ being the logistic loss (one logit) or the cross-entropy (c logits), f a function of a space with coefficients a
(see `spaces`). With p the probabilities, χ the one-hot labels and C_i = diag(p_i) - p_i p_iᵀ the curvature, the
gradient of samples' coefficients in their inner product, and the equations of a step δ, are

    g = √w (p - χ) + ridge Π a,    (C Ĥ + ridge Π) δ = -g,

and of features' Ψ̂ᵀ √w (p - χ) + ridge Π a and (Ψ̂ᵀ C Ψ̂ + ridge Π) δ = -g. With c̄ the mean curvature, c̄ Ĥ + ridge Π is
near the matrix, whatever the spectrum of Ĥ: conjugate gradients need few steps, each of one product with the inverse
of Ĥ + (ridge / c̄) Π, which is made once or a few times.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from tangentkit.core.text import counted
from tangentkit.machines.solvers.spaces import Inverse, Space

STALE = 8.0
"""The factor by which ridge / c̄ may have moved before the inverse is made anew."""
ARMIJO, HALVINGS = 1e-4, 40
MOST_LEFT = 0.1
"""What may be left of the equations of a step far from the minimum; near it, as much as of the gradient."""
MOST_INNER = 500
"""The most steps of conjugate gradients for one step of Newton."""


@dataclass(frozen=True)
class Likelihood:
    """φ on a space of functions."""

    space: Space
    targets: Float[Tensor, "n c"]
    """χ: one column of zeros and ones, or one-hot rows."""
    roots: Float[Tensor, " n"]
    """√w."""
    ridge: float

    def logits(self, image: Float[Tensor, "m q"]) -> Float[Tensor, "n c"]:
        """z; 0 of a sample of no weight, which no one looks at."""
        return image.reshape(self.targets.shape) / self.roots.where(self.roots > 0, 1.0)[:, None]

    def probabilities(self, z: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """p."""
        return torch.sigmoid(z) if z.shape[1] == 1 else z.softmax(1)

    def loss(self, z: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
        """Σ_i w_i ℓ(y_i, z_i)."""
        if z.shape[1] == 1:
            each = softplus(z[:, 0]) - self.targets[:, 0] * z[:, 0]
        else:
            each = z.logsumexp(1) - (self.targets * z).sum(1)
        return self.roots.square() @ each

    def value(self, a: Float[Tensor, "k q"], image: Float[Tensor, "m q"]) -> Float[Tensor, ""]:
        """φ."""
        square = self.space.inner(self.space.penalized(a), a, image)
        return self.loss(self.logits(image)) + self.ridge / 2 * square

    def gradient(self, a: Float[Tensor, "k q"], p: Float[Tensor, "n c"]) -> Float[Tensor, "k q"]:
        """g."""
        r = self.roots[:, None] * (p - self.targets)
        return self._held(self.space.pull(r.reshape(-1, a.shape[1])), a)

    def curved(
        self, p: Float[Tensor, "n c"], a: Float[Tensor, "k q"], image: Float[Tensor, "m q"]
    ) -> Float[Tensor, "k q"]:
        """The curvature of φ times coefficients: C Ĥ a + ridge Π a of samples."""
        pv = p * image.reshape(p.shape)
        Cv = (1 - p) * pv if p.shape[1] == 1 else pv - p * pv.sum(1, keepdim=True)
        return self._held(self.space.pull(Cv.reshape(image.shape)), a)

    def _held(self, g: Float[Tensor, "k q"], a: Float[Tensor, "k q"]) -> Float[Tensor, "k q"]:
        return g + self.ridge * self.space.penalized(a) if self.ridge else g

    def shift(self, p: Float[Tensor, "n c"]) -> float:
        """ridge / c̄."""
        c = p.shape[1]
        each = (p * (1 - p)).sum(1) / max(1, c - 1)
        w = self.roots.square()
        mean = float(w @ each / w.sum())
        return max(self.ridge / mean, self.space.least) if mean > 0 else self.space.least

    def separates(self, z: Float[Tensor, "n c"]) -> bool:
        """Whether every sample with a weight has its own class strictly in front."""
        if z.shape[1] == 1:
            margins = (2 * self.targets[:, 0] - 1) * z[:, 0]
        else:
            own = (self.targets * z).sum(1)
            margins = own - z.masked_fill(self.targets > 0, -torch.inf).amax(1)
        return bool((margins[self.roots > 0] > 0).all())


@dataclass(frozen=True)
class Goal:
    """What counts as the minimum: either of the two."""

    gap: float = 0.0
    """How far φ may be above its minimum, as the Newton decrement tells."""
    slope: float = 0.0
    """The norm of the gradient, relative to that at zero."""
    near: float = math.inf
    """How far φ may be above its minimum where that norm is reached, as a share of φ: where the kernel separates
    classes, the gradient becomes small long before φ is at its minimum."""
    norm: Callable[[Float[Tensor, "n c"], Float[Tensor, "k q"]], float] | None = None
    """That norm from the probabilities and the coefficients; None takes the norm of the function it is."""


@dataclass(frozen=True)
class Minimum:
    """Where an iteration ended."""

    coefficients: Float[Tensor, "k q"]
    """Of the samples or the features, without weights and centers."""
    logits: Float[Tensor, "n c"]
    """z, as the iteration knows them."""
    value: float
    steps: int
    converged: bool
    message: str


def minimize(likelihood: Likelihood, *, goal: Goal, max_steps: int) -> Minimum:
    """Newton from zero, damped by backtracking, until the goal is reached.

    Where the data can be separated and there is no ridge, the infimum is at infinity: the iteration goes on to its
    end and says so.
    """
    space, (n, c) = likelihood.space, likelihood.targets.shape
    columns = n * c // len(space.roots)
    a = torch.zeros(space.rows, columns).to(likelihood.targets)
    image = torch.zeros(len(space.roots), columns).to(a)
    value, first, shift, inverse = likelihood.value(a, image), 0.0, 0.0, None
    gap, taken, stuck = float("inf"), 0, False
    while True:
        p = likelihood.probabilities(likelihood.logits(image))
        g = likelihood.gradient(a, p)
        norm = goal.norm(p, space.coefficients(a)) if goal.norm else space.norm(g)
        first = first or norm
        slope = norm / first if first else 0.0
        is_near = not slope or gap <= goal.near * float(value)
        done = (slope <= goal.slope and is_near) or gap <= goal.gap
        if done or stuck or taken >= max_steps:
            break
        wanted = likelihood.shift(p)
        if inverse is None or not shift / STALE <= wanted <= STALE * shift:
            inverse, shift = None, wanted  # the old inverse is freed before the new one is made
            inverse = space.inverse(shift)
        # No more of the step than the goal asks for.
        enough = min(MOST_LEFT, max(slope, goal.slope / (3 * slope)))
        step, along = _step(likelihood, inverse, p, g, enough=enough)
        decrement = -space.inner(g, step, along)
        gap = decrement / 2
        found = _backtrack(likelihood, (a, image, value), (step, along), decrement)
        stuck = found is None or not decrement > 0
        if found is not None:
            a, image, value = found
            taken += 1
    z = likelihood.logits(image)
    converged, message = _verdict(likelihood, z, done=done, stuck=stuck, taken=taken, slope=slope, gap=gap)
    return Minimum(space.coefficients(a), z, float(value), taken, converged, message)


def _verdict(
    likelihood: Likelihood, z: Tensor, *, done: bool, stuck: bool, taken: int, slope: float, gap: float
) -> tuple[bool, str]:
    steps = counted(taken, "step")
    if likelihood.ridge == 0 and likelihood.separates(z):
        return (
            False,
            f"the data are separable and ridge is 0: the optimum is at infinity; stopped after {steps}",
        )
    if done:
        return True, f"converged in {steps}, relative gradient {slope:.1e}"
    if stuck:
        return False, f"no step lowers the objective any more (relative gradient {slope:.1e}): rounding"
    return (
        False,
        f"stopped after {steps}, about {gap:.1e} above the minimum, relative gradient {slope:.1e}; "
        "try more, or more ridge",
    )


def _step(
    likelihood: Likelihood, inverse: Inverse, p: Tensor, g: Tensor, *, enough: float
) -> tuple[Tensor, Tensor]:
    """The step δ and its image, until what is left of the equations is `enough` of what it was."""
    space, left = likelihood.space, -g
    a, image = inverse.apply(left)
    step, total = torch.zeros_like(a), torch.zeros_like(image)
    along, its_image, size = a, image, space.inner(left, a, image)
    target = enough**2 * size
    for _ in range(MOST_INNER):
        bent = likelihood.curved(p, along, its_image)
        curvature = space.inner(bent, along, its_image)
        if not curvature > 0:  # rounding: what there is goes downhill all the same
            break
        length = size / curvature
        step, total = step.add(along, alpha=length), total.add(its_image, alpha=length)
        left = left.sub(bent, alpha=length)
        a, image = inverse.apply(left)
        size, before = space.inner(left, a, image), size
        if not size > target:
            break
        along, its_image = a.add(along, alpha=size / before), image.add(its_image, alpha=size / before)
    if inverse.hidden and likelihood.ridge:
        # The inner product does not see what moves no logit: it would grow from step to step. There δ = left / ridge.
        rest, its_image = inverse.hidden(left)
        step, total = (
            step.add(rest, alpha=1 / likelihood.ridge),
            total.add(its_image, alpha=1 / likelihood.ridge),
        )
    return step, total


def _backtrack(
    likelihood: Likelihood,
    here: tuple[Tensor, Tensor, Tensor],
    along: tuple[Tensor, Tensor],
    decrement: float,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The first of the steps 1, ½, ¼, ... with enough of a decrease, to within rounding, or None."""
    (a, image, value), (step, its_image), size = here, along, 1.0
    slack = 10 * torch.finfo(value.dtype).eps * float(value.abs())
    for _ in range(HALVINGS):
        new, new_image = a + size * step, image + size * its_image
        new_value = likelihood.value(new, new_image)
        if new_value <= value - ARMIJO * size * decrement + slack:
            return new, new_image, new_value
        size /= 2
    return None
