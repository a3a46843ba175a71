"""What exact norms of gradients tell of the error of one seed.

The halves of a sketch tell how large errors are on average over seeds; where one eigenvalue of a kernel dominates,
the error of the seed at hand may be a third of that, or three times as much. But its diagonal is known as soon as the
norms ‖gradient‖² are, and these take no pairs of samples.

The error E = R̂ - R of a sketched kernel is nearly normal with cov(E_ij, E_kl) = (R_ik R_jl + R_il R_jk) / D. So what
the diagonal d says of all entries is a regression:

    E[E | d] = R diag(w) R    with (R ∘ R) w = d,

and of the variance Σ Var E_ij = (tr² R + ‖R‖²) / D it takes away (2/D) tr[(R ∘ R)⁻¹ (R² ∘ R²)].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LANDMARKS = 512
"""Samples whose norms are looked at: more of them are spread evenly over the batch."""
SLACK = 1e-4
"""Share of the variance of a norm that the law may leave unexplained."""
ROUNDING = 8.0
"""Units in the last place by which an exact norm may be off."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The regression of all errors of a sketched kernel on those of the diagonal."""

    features: Tensor
    """(n, D), scaled so that their norms are as far as is known: the best guess of R is their Gram."""
    landmarks: Tensor
    """Some of the samples."""
    weights: Tensor
    """w, of the landmarks."""
    explained: Tensor
    """Variance of all entries together that the diagonal explains, by the law."""

    def variance(self) -> Tensor:
        """Of all entries together, by the law, before the diagonal is seen."""
        features = self.features
        gram = features.T @ features if len(features) > features.shape[1] else features @ features.T
        return (features.square().sum() ** 2 + gram.square().sum()) / features.shape[1]

    def error(self, rows: slice) -> Tensor:
        """E[E | d] of some rows (rows, n)."""
        chosen = self.features[self.landmarks]
        return ((self.features[rows] @ chosen.T) * self.weights) @ (chosen @ self.features.T)


def evidence(features: Tensor, norms: Tensor, rounding: Tensor) -> Evidence:
    """Compares the norms of features with the exact ones.

    Args:
        features: of the sketched part of samples (n, D), in float64.
        norms: what ‖features‖² stands for (n,).
        rounding: standard error of these norms (n,).
    """
    n, dim = features.shape
    found, noise = features.square().sum(1), rounding.square()
    chance = 2 * found.square() / dim
    # The sketch and the exact norm, each by how far it can be trusted.
    trust = chance / (chance + noise).clamp_min(torch.finfo(noise.dtype).tiny)
    guess = (found + trust * (norms - found)).clamp_min(0)
    scaled = features * torch.where(found > 0, guess / found, 0).sqrt()[:, None]
    landmarks = torch.linspace(0, n - 1, min(n, LANDMARKS), device=features.device).round().long()
    some = scaled[landmarks]
    inner = some @ some.T
    law = inner.square()
    doubt = SLACK * law.diagonal() + dim / 2 * noise[landmarks]
    # A sample without a gradient has no error, and says nothing.
    law = law + torch.diag(torch.where(doubt > 0, doubt, 1))
    between = some @ (scaled.T @ scaled) @ some.T if n > dim else (some @ scaled.T) @ (scaled @ some.T)
    solved = torch.linalg.solve(law, torch.cat([(found - norms)[landmarks, None], between.square()], 1))
    return Evidence(scaled, landmarks, solved[:, 0], 2 / dim * solved[:, 1:].diagonal().sum())
