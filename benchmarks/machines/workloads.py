"""Samples, and random features of them, for regressions on many of them."""

import numpy as np

DIMENSION, NOISE, RIDGE, TESTS = 32, 0.1, 1e-2, 1000
GAMMA = 0.5 / DIMENSION


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in float32 and a smooth function of them with noise."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((n, DIMENSION), dtype=np.float32)
    target = np.sin(x[:, 0]) + x[:, 1] * np.cos(x[:, 2]) + NOISE * draw.standard_normal(n, dtype=np.float32)
    return x, target.astype(np.float32)


def random_features(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Random Fourier features (n, m) in float32, made in pieces, of samples and the function of them."""
    x, y = samples(n)
    draw = np.random.default_rng(1)
    directions = draw.standard_normal((DIMENSION, m), dtype=np.float32) * np.float32(np.sqrt(2 * GAMMA))
    phases = draw.uniform(0, 2 * np.pi, m).astype(np.float32)
    Phi = np.empty((n, m), dtype=np.float32)
    for start in range(0, n, 4096):
        Phi[start : start + 4096] = np.sqrt(2 / m) * np.cos(x[start : start + 4096] @ directions + phases)
    return Phi, y
