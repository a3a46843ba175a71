"""The computations of the study of the Boolean cube: exact spectra, random networks, draws, Gaussian points."""

from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentkit.core.seeds import Key
from tangentkit.infinite import (
    InfiniteKernel,
    boolean_cube_spectrum,
    cube_points,
    depth_profile,
    empirical_fractional_variance,
    fractional_variance,
    mlp_kernel_function,
    ntk_above_nngp,
    optimal_depth,
    sample_on_cube,
    sphere_spectrum,
)
from tangentkit.models import mlp

SMALL = 7
"""Coordinates of the cube whose functions are counted."""
NETWORKS = {
    "ReLU(2, 2)": ("relu", 2.0, 2.0),
    "erf(1, 0)": ("erf", 1.0, 0.0),
    "erf(2, 0)": ("erf", 2.0, 0.0),
    "erf(4, 0)": ("erf", 4.0, 0.0),
}
"""Activation, weight variance and bias variance of random networks with two hidden layers."""
SHOWN = 50
"""Ranks of functions that are kept."""


def small_cube() -> dict[str, Any]:
    """Shares of the variance by degree on {-1, 1}^7, and whether eigenvalues fall along even and odd degrees."""
    kernels = {
        f"{kind}, depth {depth}, {name}": (kind, depth, which)
        for kind in NETWORKS
        for depth in (1, 2, 32)
        for name, which in (("CK", "nngp"), ("NTK", "ntk"))
    }
    spectra = {name: boolean_cube_spectrum(_phi(*how), SMALL) for name, how in kernels.items()}
    # Eigenvalues that rounding cannot tell apart are in order.
    ordered = [
        bool(mu[k] >= mu[k + 2] * (1 - 1e-9) - 1e-14 * mu.max())
        for mu in spectra.values()
        for k in range(SMALL - 1)
    ]
    return {
        "shares": {name: fractional_variance(mu, SMALL).tolist() for name, mu in spectra.items()},
        "eigenvalues": {name: mu.tolist() for name, mu in spectra.items()},
        "in_order": float(np.mean(ordered)),
    }


def depths(
    *, activation: str, d: int, top: int, depth: int, relu_biases: int, erf_grid: int
) -> dict[str, Any]:
    """For each degree the depth that gives it most, and how often the NTK gives it more than the CK."""
    if activation == "relu":
        weights, biases = torch.tensor(2.0), torch.linspace(0, 4, relu_biases)
    else:
        weights, biases = torch.linspace(1, 5, erf_grid)[:, None], torch.linspace(0, 4, erf_grid)
    profile = depth_profile(
        activation, d=d, top=top, depth=depth, weight_variance=weights, bias_variance=biases
    )
    return {
        "best_depth": {
            name: optimal_depth(profile.shares(kind)).tolist()
            for name, kind in (("CK", "nngp"), ("NTK", "ntk"))
        },
        "ntk_above": ntk_above_nngp(profile).tolist(),
        "ntk_above_unfiltered": ntk_above_nngp(profile, floor=0.0).tolist(),
    }


def three_spaces(*, dimension: int) -> dict[str, Any]:
    """Eigenvalues of degree 0 to 3 on the cube and on the sphere, of the NTK of a ReLU network."""
    phi = _reference()
    cube, sphere = boolean_cube_spectrum(phi, dimension, top=3), sphere_spectrum(phi, dimension, top=3)
    return {"cube": cube.tolist(), "sphere": sphere.tolist()}


def gaussian_points(*, dimension: int, points: int, seed: int) -> dict[str, Any]:
    """The same for x ~ N(0, I): E[k(x, x')] and E[k(x, x') <x, x'>/d] over pairs of points, of degree 0 and 1."""
    rng = Key(seed).fold("boolean-cube", "points", dimension).torch()
    x = torch.randn(points, dimension, generator=rng, dtype=torch.float64)
    net = mlp((dimension, 1, 1, 1)).double()
    # The widths do not matter at infinite width.
    K = InfiniteKernel(net, w_std=sqrt(2.0), b_std=1.0)(x)
    pairs = ~torch.eye(points, dtype=torch.bool)
    return {"gaussian": [float(K[pairs].mean()), float((K * (x @ x.T) / dimension)[pairs].mean())]}


def random_networks(*, kind: str, networks: int, seed: int) -> dict[str, Any]:
    """Random networks on all points of {-1, 1}^7: variance by degree, and how often each Boolean function comes."""
    f = draw_networks(kind, networks, Key(seed).fold("boolean-cube", "networks", kind))
    _, counts = np.unique(np.packbits((f > 0).numpy(), axis=1), axis=0, return_counts=True)
    constant = ((f > 0).all(1) | (f <= 0).all(1)).double().mean()
    return {
        "network_shares": empirical_fractional_variance(f).tolist(),
        "constant": float(constant),
        "repeated": float(counts[counts > 1].sum() / networks),
        "frequencies": (np.sort(counts)[::-1][:SHOWN] / networks).astype(np.float32),
    }


def draw_networks(kind: str, networks: int, key: Key, width: int = 40) -> Tensor:
    """Outputs (networks, 128) of random networks 7-40-40-1, W ~ N(0, σ_w²/fan_in), b ~ N(0, σ_b²)."""
    activation, weight_variance, bias_variance = NETWORKS[kind]
    rng = key.torch()
    h = cube_points(SMALL).expand(networks, -1, -1)
    for layer, (n, m) in enumerate(((SMALL, width), (width, width), (width, 1))):
        W = torch.randn(networks, n, m, generator=rng, dtype=h.dtype) * sqrt(weight_variance / n)
        b = torch.randn(networks, 1, m, generator=rng, dtype=h.dtype) * sqrt(bias_variance)
        h = h @ W + b
        if layer < 2:
            h = torch.relu(h) if activation == "relu" else torch.erf(h)
    return h[..., 0]


def gaussian_process(*, draws: int, seed: int) -> dict[str, Any]:
    """Draws of the Gaussian process of ReLU(2, 2) networks: their variance by degree against the exact one."""
    mu = boolean_cube_spectrum(_phi("ReLU(2, 2)", 2, "nngp"), SMALL)
    f = sample_on_cube(mu, SMALL, samples=draws, seed=Key(seed).fold("boolean-cube", "process"))
    found = empirical_fractional_variance(f)
    return {
        "process_shares": found.tolist(),
        "off": float((found - fractional_variance(mu, SMALL)).abs().max()),
    }


def _phi(kind: str, depth: int, which: Any) -> Any:
    activation, weight_variance, bias_variance = NETWORKS[kind]
    return mlp_kernel_function(
        depth, activation, weight_variance=weight_variance, bias_variance=bias_variance, kind=which
    )


def _reference() -> Any:
    return mlp_kernel_function(2, "relu", weight_variance=2.0, bias_variance=1.0)
