"""Spectra of scalar kernels on the sphere, by Funk-Hecke.

The eigenfunctions are the spherical harmonics, and the eigenvalue depends on their degree k alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.fft import dct
from torch import Tensor

from tangentkit.infinite.scalar.degrees import Space, degree_variances, eigenvalues, resolved
from tangentkit.infinite.scalar.series import ScalarKernel, evaluate

MOST_NODES = 4096


@dataclass(frozen=True)
class Sphere(Space):
    """The sphere of radius sqrt(d) in R^d with the uniform measure, d >= 2.

    Example:
        >>> Sphere(3).sizes(3)
        [1, 3, 5, 7]
    """

    smallest = 2

    @property
    def highest(self) -> None:
        """None: there are harmonics of every degree."""
        return

    def sizes(self, top: int) -> list[int]:
        """The number of harmonics of degree k: binom(d+k-1, k) - binom(d+k-3, k-2)."""
        homogeneous = [math.comb(self.d + k - 1, k) for k in range(top + 1)]
        return [size - (homogeneous[k - 2] if k >= 2 else 0) for k, size in enumerate(homogeneous)]

    def up(self, k: np.ndarray) -> np.ndarray:
        """(k + d - 2)/(2k + d - 2), from the recursion of the Gegenbauer polynomials; 1 at k = 0."""
        return np.where(k == 0, 1.0, (k + self.d - 2) / np.maximum(2 * k + self.d - 2, 1))

    def steps(self, top: int) -> int:
        """Enough for the walk to leave the degrees up to `top`, which it does for good."""
        return 16 * (top + 32)

    def rest(self, top: int) -> np.ndarray:
        """0: the walk wanders off to ever higher degrees."""
        return np.zeros(top + 1)

    def direct(self, phi: ScalarKernel, top: int) -> tuple[np.ndarray, np.ndarray]:
        """size_k E[φ(t) P_k(t)], t = cos θ, by quadrature in θ with nodes doubled until nothing changes."""
        last = resolved(self.sizes(top), np.finfo(float).eps)
        nodes, missing = 64, (0, top - last)
        values, _ = self._quadrature(phi, last, nodes)
        while True:
            nodes, before = 2 * nodes, values
            values, noise = self._quadrature(phi, last, nodes)
            change = np.abs(values - before)
            if (change <= noise).all() or nodes >= MOST_NODES:
                return np.pad(values, missing), np.pad(noise + change, missing, constant_values=np.inf)

    def _quadrature(self, phi: ScalarKernel, top: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        # In θ rather than in t: √(1 - t²) = sin θ and arccos t = θ, so ReLU kernels are smooth up to t = ±1.
        x, weights = fejer_rule(nodes)
        theta = np.pi * (x + 1) / 2
        density = weights * np.sin(theta) ** (self.d - 2)
        density /= density.sum()
        values, eps = evaluate(phi, np.cos(theta))
        polynomials = self._polynomials(np.cos(theta), top)
        sizes = np.array([float(size) for size in self.sizes(top)])
        noise = 8 * eps * sizes * (np.abs(polynomials) @ (density * np.abs(values)))
        return sizes * (polynomials @ (density * values)), noise

    def _polynomials(self, t: np.ndarray, top: int) -> np.ndarray:
        """P_0..P_top at t, each with P_k(1) = 1; shape (top + 1, len(t))."""
        rows = [np.ones_like(t), t]
        up = self.up(np.arange(top + 1))
        for k in range(1, top):
            rows.append((t * rows[k] - (1 - up[k]) * rows[k - 1]) / up[k])
        return np.stack(rows[: top + 1])


def fejer_rule(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes cos((j + 1/2)π/n) and weights for integrals over [-1, 1], accurate to rounding for every n.

    (The usual Gauss-Legendre rules are off by 1e-13 at a thousand nodes, which eigenvalues would show.)

    Example:
        >>> x, w = fejer_rule(20)
        >>> round(float(w @ x**6), 15) == round(2 / 7, 15)
        True
    """
    cosines = np.zeros(n)
    cosines[::2] = 2 / (1 - np.arange(0, n, 2) ** 2)
    return np.cos((np.arange(n) + 0.5) * np.pi / n), np.asarray(dct(cosines, type=3)) / n


def sphere_spectrum(phi: ScalarKernel, d: int, *, top: int) -> Float[Tensor, " k"]:
    """The eigenvalues a_0..a_top of the kernel φ(<x, y>/d) on the sphere of radius sqrt(d) in R^d.

        a_k = E[φ(t) P_k(t)],    t one coordinate of a uniform unit vector, P_k Gegenbauer with P_k(1) = 1

    a_k has multiplicity `Sphere(d).sizes(k)[k]`, and Σ_k size_k a_k = φ(1). As on the cube, large d and k
    need a φ that takes complex tensors; small d does not.

    Args:
        phi: the kernel as an elementwise function of t = <x, y>/d.
        d: the dimension of the space around the sphere, at least 2.
        top: the highest degree.

    Returns:
        The eigenvalues with respect to the uniform probability measure, in float64, of shape (top + 1,).

    Raises:
        InputError: d or top is out of range, or φ changes the shape of its argument.
        NumericalError: φ is not finite, or not a kernel: an eigenvalue is negative beyond rounding.

    Example:
        >>> sphere_spectrum(lambda t: t**2 + t, 4, top=3)
        tensor([0.2500, 0.2500, 0.0833, 0.0000], dtype=torch.float64)
    """
    sphere = Sphere(d)
    variances = degree_variances(phi, sphere, top=top).values
    return eigenvalues(variances, sphere.sizes(len(variances) - 1))
