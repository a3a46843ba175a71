"""Sketched samples, and the error of what is computed from them.

Two things tell the error of a kernel R = Φ Φᵀ that is sketched in D coordinates.

* The gap between the kernels of two independent half-sketches: E‖R_1 - R_2‖² / 4 = E‖R - E R‖². It assumes nothing,
  but where one eigenvalue dominates, it is a single random number.
* The law of a dense sketch, Var R_ij = (R_ii R_jj + R_ij²) / D, which hash sketches keep up to entries that cannot
  meet. It has no noise to speak of.

So the law says how errors are spread over entries. How large they are in all is a compromise of both, in which the
gap counts the more, the less its distance from the law can be chance (`likely_scale`). That is the error of a typical
seed; `evidence` tells that of the seed at hand from exact norms.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.error.evidence import ROUNDING, Evidence, evidence

ENTRIES = 2**22
"""Entries of Gram matrices that are formed at a time."""
DOUBT = 1.0
"""How fast the odds fall that the law is wrong: by a factor e for a variance that is a factor e larger or smaller."""
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class Sketched:
    """Exact coordinates and two independent sketches of what they leave, for n samples."""

    exact: Tensor
    """(n, rank)"""
    halves: list[Tensor]
    """(n, dim) each; the Gram of one is an unbiased estimate of the residual kernel."""
    shares: list[float]
    """Weight of each half."""
    signs: str = "none"
    """Random output signs: "none", "one" that both halves see, or signs of their "own"."""
    norms: Tensor | None = None
    """Exact ‖gradient‖² (n,), where they are known."""

    @cached_property
    def sketched(self) -> Tensor:
        """Both halves as features (n, D)."""
        return self.features(self.exact.dtype)[:, self.exact.shape[1] :]

    def features(self, dtype: torch.dtype) -> Tensor:
        """Exact coordinates and both halves (n, rank + D), in a dtype."""
        parts = [(1.0, self.exact), *zip(self.shares, self.halves, strict=True)]
        widths = [part.shape[1] for _, part in parts]
        out = torch.empty(len(self.exact), sum(widths), dtype=dtype, device=self.exact.device)
        for (w, part), columns in zip(parts, out.split(widths, 1), strict=True):
            torch.mul(part, math.sqrt(w), out=columns)
        return out

    def first(self) -> "Sketched":
        """The first sample alone."""
        norms = None if self.norms is None else self.norms[:1]
        return Sketched(self.exact[:1], [half[:1] for half in self.halves], self.shares, self.signs, norms)

    def error(self, more: Sequence["Sketched"] = ()) -> Tensor:
        """Estimate of ‖Φ Φᵀ - K‖ / ‖K‖ from the halves, and from exact norms where they are known; in float64.

        Args:
            more: other sketches of the same samples, where random output signs make the gap of two halves a guess.

        Raises:
            InputError: there is one random output sign, whose error nothing tells.
        """
        sums = self._sums(self, [(other, other) for other in more])
        variance, square = self._variance(sums), sums.square
        if self.norms is not None and self.signs == "none" and sums.law > 0:
            seen = self._evidence(self.norms)
            left = (seen.variance() - seen.explained).clamp_min(0)
            expected, corrected = self._corrected(seen)
            variance, square = expected + left * variance / sums.law, corrected - left
        # Not positive only where the sketch says nothing at all: then the error is as large as can be told.
        return (variance / square.clamp_min(TINY)).sqrt()

    def _evidence(self, norms: Tensor) -> Evidence:
        exact = self.exact.double().square().sum(1)
        rounding = ROUNDING * torch.finfo(self.exact.dtype).eps * norms.double()
        return evidence(self.sketched.double(), norms.double() - exact, rounding)

    def _corrected(self, seen: Evidence) -> tuple[Tensor, Tensor]:
        """‖E‖² of the error E that is expected, and ‖Φ Φᵀ - E‖²."""
        phi = self.features(torch.float64)
        total = phi.new_zeros(2)
        for rows in _bands(len(phi), len(phi)):
            error = seen.error(rows)
            total += torch.stack([error.square().sum(), (phi[rows] @ phi.T - error).square().sum()])
        return total[0], total[1]

    def gram_with_error(
        self, other: "Sketched", more: Sequence[tuple["Sketched", "Sketched"]] = ()
    ) -> tuple[Tensor, Tensor]:
        """The kernel (n, m) with other samples, and the standard error of every entry."""
        scale = self._scale(other, more)
        kernel = self.exact @ other.exact.T + self.sketched @ other.sketched.T
        spread = torch.cat([law for law, *_ in self._rows(other)])
        return kernel, (spread * scale).sqrt().to(kernel.dtype)

    def cosines_with_error(
        self, other: "Sketched", more: Sequence[tuple["Sketched", "Sketched"]] = ()
    ) -> tuple[Tensor, Tensor]:
        """The cosines ρ = k(x, y) / √(k(x, x) k(y, y)) (n, m), and the standard error of each.

        The errors of k(x, y), k(x, x) and k(y, y) have the covariances of `evidence`. With the sketched parts r, a
        and b of these, relative to √(k(x, x) k(y, y)), k(x, x) and k(y, y), that of the quotient is to first order

            Var ρ = (a b + r² + ρ² (a² + b² + 2 r²) / 2 - 2 ρ r (a + b)) / D,

        which is (1 - ρ²)² / D where all is sketched.
        """
        scale = self._scale(other, more)
        one, two = self._of_unit_length(), other._of_unit_length()
        a, b = (s.sketched.double().square().sum(1) for s in (one, two))
        cosines, errors = [], []
        for rows in _bands(len(a), len(b)):
            r = one.sketched[rows].double() @ two.sketched.double().T
            rho = r + one.exact[rows].double() @ two.exact.double().T
            left = a[rows, None]
            spread = left * b + r**2 + rho**2 * (left**2 + b**2 + 2 * r**2) / 2 - 2 * rho * r * (left + b)
            cosines.append(rho)
            errors.append((spread.clamp_min(0) * scale / one.sketched.shape[1]).sqrt())
        return torch.cat(cosines).to(self.exact.dtype), torch.cat(errors).to(self.exact.dtype)

    def _scale(self, other: "Sketched", more: Sequence[tuple["Sketched", "Sketched"]]) -> Tensor:
        """How many times the variance of the law the variance is."""
        # Of samples of one length: of others the largest alone would decide how far the law holds for all.
        one, two = self._of_one_length(), other._of_one_length()
        sums = one._sums(two, [(x._of_one_length(), y._of_one_length()) for x, y in more])
        return one._variance(sums) / sums.law.clamp_min(TINY)

    def _of_unit_length(self) -> "Sketched":
        """The samples divided by their norms √k(x, x)."""
        lengths = (self.exact.square().sum(1) + self.sketched.square().sum(1)).sqrt()[:, None]
        return replace(self, exact=self.exact / lengths, halves=[half / lengths for half in self.halves])

    def _of_one_length(self) -> "Sketched":
        """The samples divided by the norms of their sketched parts; those without one stay."""
        lengths = self.sketched.norm(dim=1, keepdim=True)
        lengths = torch.where(lengths > 0, lengths, 1)
        return replace(self, exact=self.exact / lengths, halves=[half / lengths for half in self.halves])

    def _variance(self, sums: "_Sums") -> Tensor:
        """Of all entries together."""
        if self.signs == "one":
            raise InputError("no error estimate", expected="probes=2 or more", got="probes=1")
        if self.signs == "own" or not sums.gap > 0:
            return sums.gap  # the law knows nothing of the error of signs
        # The gap is a sum of squares over pairs of eigenvectors, with weights λ_i λ_j: worth at least so many terms.
        terms = (sums.law * self.sketched.shape[1] / sums.residual.clamp_min(TINY)).square() / 4
        return sums.law * likely_scale(sums.gap / sums.law, terms.clamp_min(0.5))

    def _sums(self, other: "Sketched", more: Sequence[tuple["Sketched", "Sketched"]] = ()) -> "_Sums":
        """Over all entries; the gap is the mean of these and of more sketches of the same samples."""
        total = torch.zeros(4, dtype=torch.float64, device=self.exact.device)
        for law, first, second, exact in self._rows(other):
            gap = math.prod(self.shares) * (first - second).square().sum()
            square = ((exact + first) * (exact + second)).sum()
            total += torch.stack([gap, law.sum(), square, (first * second).sum()])
        sums = _Sums(*total)
        gaps = [sums.gap, *(one._sums(two).gap for one, two in more)]
        return replace(sums, gap=torch.stack(gaps).mean())

    def _rows(self, other: "Sketched") -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Some rows at a time, in float64: variance by the law, kernels of the halves, exact part."""
        phi, psi = self.sketched.double(), other.sketched.double()
        norms = psi.square().sum(1)
        for rows in _bands(len(phi), len(psi)):
            first, second = (
                h[rows].double() @ g.double().T for h, g in zip(self.halves, other.halves, strict=True)
            )
            kernel = self.shares[0] * first + self.shares[1] * second
            law = (phi[rows].square().sum(1)[:, None] * norms + kernel.square()) / phi.shape[1]
            yield law, first, second, self.exact[rows].double() @ other.exact.double().T


def likely_scale(ratio: Tensor, terms: Tensor) -> Tensor:
    """The most probable factor on the law, where the gap is `ratio` times it and a mean of so many squares.

    With ratio = factor χ²_k / k and the prior exp(-DOUBT |log factor|), of twice the logarithm of the error. A single
    square is near to zero too often to speak for a small error.

    Example:
        >>> one, many = torch.tensor([1.0, 1000.0]).double()
        >>> small = torch.tensor(0.01).double()
        >>> likely_scale(small, one).item(), round(likely_scale(small, many).item(), 4)
        (1.0, 0.01)
    """
    pull = 2 * DOUBT / terms
    fallen = torch.where(pull < 1, ratio / (1 - pull).clamp_min(TINY), 1.0).clamp_max(1)
    grown = (ratio / (1 + pull)).clamp_min(1)
    return torch.where(ratio < 1, fallen, grown)


def _bands(n: int, m: int) -> Iterator[slice]:
    """Some rows of a matrix (n, m) at a time."""
    return spans(n, max(1, ENTRIES // m))


@dataclass(frozen=True)
class _Sums:
    """Over all entries of a kernel."""

    gap: Tensor
    """Variance by the gap of the halves."""
    law: Tensor
    """Variance by the law."""
    square: Tensor
    """K², without bias."""
    residual: Tensor
    """The square of its sketched part, without bias."""
