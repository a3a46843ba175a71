"""Spaces: the functions that a likelihood chooses from, by coefficients a, known on the n training samples.

All is weighted and centered once, so that what follows sees neither weights nor an intercept that is nearly one of
the functions. With r = √w, e = r / ‖r‖, t = Σ w, and Π = I - e eᵀ where there is an intercept (else Π = I):

    samples    Ĥ = Π diag(r) H diag(r) Π + t e eᵀ         logits  diag(r)⁻¹ Ĥ a,    norm of a function  aᵀ Π Ĥ Π a
    features   Ψ̂ = [Π diag(r) Ψ,  √t e]                   logits  diag(r)⁻¹ Ψ̂ a,    norm of a function  aᵀ Π a

The part of a that Π takes away (along e; the last feature) is the intercept, which no ridge holds. Both are the same
space where H = Ψ Ψᵀ; coefficients of samples have the inner product of Ĥ, in which their gradient is r itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.linalg.operators.times import times
from tangentkit.linalg.solvers.factor import GROWTH, TRIES, invert_in_place

LEAST_SHIFT = 1e-11
"""Of the trace of Ĥ: with a smaller s the inverse of Ĥ + s Π is mostly rounding."""


@dataclass(frozen=True)
class Inverse:
    """(Ĥ + s Π)⁻¹, or (Ψ̂ᵀ Ψ̂ + s Π)⁻¹."""

    apply: Callable[[Tensor], tuple[Tensor, Tensor]]
    """g ↦ a and the image of a."""
    hidden: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    """g ↦ the part of g, with its image, that moves logits little or not at all; None where there is none."""


class Space(ABC):
    """Functions by coefficients.

    Args:
        roots: r (n,).
        outputs: the rows of H for every sample: 1, or more of a block kernel.
        intercept: whether there is one, for every logit.
    """

    rows: int
    """Of coefficients."""
    least: float
    """The least s that means anything."""

    def __init__(self, roots: Float[Tensor, " n"], *, outputs: int, intercept: bool) -> None:
        self.roots = roots.repeat_interleave(outputs)[:, None]
        eye = torch.eye(outputs, dtype=roots.dtype, device=roots.device)
        self.E = torch.kron((roots / roots.norm())[:, None], eye)[:, : outputs if intercept else 0]
        """e, for every output a column; no column without an intercept."""
        self.t = float(roots.square().sum())

    @abstractmethod
    def image(self, a: Float[Tensor, "k q"]) -> Float[Tensor, "m q"]:
        """The weighted logits of coefficients."""

    @abstractmethod
    def pull(self, r: Float[Tensor, "m q"]) -> Float[Tensor, "k q"]:
        """The gradient with respect to coefficients, from that with respect to the weighted logits."""

    @abstractmethod
    def penalized(self, a: Float[Tensor, "k q"]) -> Float[Tensor, "k q"]:
        """Π a, the part that the ridge holds."""

    @abstractmethod
    def inner(self, g: Tensor, a: Tensor, image: Tensor) -> float:
        """The inner product of a gradient, or of coefficients, with coefficients a whose image is known."""

    def norm(self, a: Float[Tensor, "k q"]) -> float:
        """Of the function of coefficients."""
        return max(0.0, self.inner(a, a, self.image(a))) ** 0.5

    @abstractmethod
    def inverse(self, s: float) -> Inverse:
        """The inverse for a shift s, which is larger where rounding makes the matrix lose its positivity."""

    @abstractmethod
    def coefficients(self, a: Float[Tensor, "k q"]) -> Float[Tensor, "k q"]:
        """Those of H or Ψ as they were, before weights and centers, without the intercept."""


class SampleSpace(Space):
    """Of a matrix H (n, n), or a block kernel's (n c, n c), which becomes Ĥ in place."""

    def __init__(self, H: Float[Tensor, "m m"], roots: Float[Tensor, " n"], *, intercept: bool) -> None:
        super().__init__(roots, outputs=len(H) // len(roots), intercept=intercept)
        H.mul_(self.roots).mul_(self.roots.T)
        self.rows, self.least = len(H), LEAST_SHIFT * float(H.trace())
        H.addmm_(self.E, self.E.T @ H, alpha=-1)
        H.addmm_(H @ self.E, self.E.T, alpha=-1).addmm_(self.E, self.E.T, alpha=self.t)
        self.matrix = H

    def image(self, a: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """Ĥ a."""
        return times(self.matrix, a)

    def pull(self, r: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """r."""
        return r

    def penalized(self, a: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """a - e eᵀ a."""
        return a - self.E @ (self.E.T @ a)

    def inner(self, g: Tensor, a: Tensor, image: Tensor) -> float:  # noqa: ARG002
        """gᵀ Ĥ a."""
        return float((g * image).sum())

    def inverse(self, s: float) -> Inverse:
        """By the inverse itself, one product of which takes a tenth of the time of two triangular solves.

        The image comes for nothing: Ĥ (Ĥ + s Π)⁻¹ g = g - s Π (Ĥ + s Π)⁻¹ g.
        """
        M, shift = _inverted(self._shifted, s)

        def apply(g: Tensor) -> tuple[Tensor, Tensor]:
            a = times(M, g)
            return a, g - shift * self.penalized(a)

        def hidden(g: Tensor) -> tuple[Tensor, Tensor]:
            a, image = apply(shift * apply(self.penalized(g))[0])
            return shift * a, shift * image

        return Inverse(apply, hidden)

    def coefficients(self, a: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """r Π a."""
        return self.roots * self.penalized(a)

    def _shifted(self, s: float) -> Float[Tensor, "m m"]:
        N = self.matrix.clone()
        N.diagonal().add_(s)
        return N.addmm_(self.E, self.E.T, alpha=-s)


class FeatureSpace(Space):
    """Of features Ψ (n, d), which stand for H = Ψ Ψᵀ and become Π diag(r) Ψ in place: never an (n, n) matrix.

    The feature of ones, √t e, is apart: it is orthogonal to all others, so that Ψ̂ᵀ Ψ̂ is theirs, and t.
    """

    def __init__(self, Psi: Float[Tensor, "n d"], roots: Float[Tensor, " n"], *, intercept: bool) -> None:
        super().__init__(roots, outputs=1, intercept=intercept)
        Psi.mul_(self.roots)
        self.least = LEAST_SHIFT * float(torch.linalg.vector_norm(Psi)) ** 2
        self.features = Psi.addmm_(self.E, self.E.T @ Psi, alpha=-1)
        self.ones = self.t**0.5 * self.E
        self.d = Psi.shape[1]
        self.rows = self.d + self.ones.shape[1]

    def image(self, a: Float[Tensor, "k q"]) -> Float[Tensor, "n q"]:
        """Ψ̂ a."""
        return times(self.features, a[: self.d]) + self.ones @ a[self.d :]

    def pull(self, r: Float[Tensor, "n q"]) -> Float[Tensor, "k q"]:
        """Ψ̂ᵀ r."""
        return torch.cat([times(self.features.T, r), self.ones.T @ r])

    def penalized(self, a: Float[Tensor, "k q"]) -> Float[Tensor, "k q"]:
        """Zero of the feature of ones."""
        return a if self.rows == self.d else torch.cat([a[: self.d], torch.zeros_like(a[self.d :])])

    def inner(self, g: Tensor, a: Tensor, image: Tensor) -> float:  # noqa: ARG002
        """gᵀ a."""
        return float((g * a).sum())

    def inverse(self, s: float) -> Inverse:
        """From Ψ̂ᵀ Ψ̂ (d, d), and from t for the feature of ones."""
        M, _ = _inverted(self._shifted, s)

        def apply(g: Tensor) -> tuple[Tensor, Tensor]:
            a = torch.cat([times(M, g[: self.d]), g[self.d :] / self.t])
            return a, self.image(a)

        return Inverse(apply)

    def coefficients(self, a: Float[Tensor, "k q"]) -> Float[Tensor, "d q"]:
        """The coefficients of a function in terms of Ψ."""
        return a[: self.d]

    @cached_property
    def _products(self) -> Float[Tensor, "d d"]:
        """Of the features but that of ones, of which every inverse is made."""
        return self.features.T @ self.features

    def _shifted(self, s: float) -> Float[Tensor, "d d"]:
        N = self._products.clone()
        N.diagonal().add_(s)
        return N


def _inverted(shifted: Callable[[float], Tensor], s: float) -> tuple[Tensor, float]:
    """The inverse of a matrix that is positive but for rounding, with the s that made it so.

    Raises:
        NumericalError: it is not positive, or it overflows.
    """
    found = invert_in_place(shifted, s)
    if found is not None:
        return found
    raise NumericalError(
        "the kernel matrix is not positive, or its numbers are too large",
        expected=f"a positive matrix with {s * GROWTH**TRIES:.1e} on its diagonal",
        hint="a normalized kernel",
    )
