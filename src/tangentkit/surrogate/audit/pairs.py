"""Labels of one class that were given to another: each pair of classes has its own rate.

With r_k(x) the probability that the right label of x is k, and T_kl that it is given as l,

    P(label l | x) = Σ_k r_k(x) T_kl.

Of uniform noise all T_kl of k ≠ l are the same. Whether one pair has more is a likelihood-ratio test of its own rate
π_kl = 0, with half a point mass at 0 and half chi-squared of one degree as its law, and the pairs together are
controlled by Benjamini and Hochberg's rule. The rates of those that are left are fitted together.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, stats

CANDIDATES = 100
"""Pairs that are tested, at most: those whose scores stand out most; the others count as tested without a gain."""
FEWEST_OF_PAIR = 3.0
"""Labels that a pair explains, at least: one strange sample alone is no law of a pair."""
MOST = 0.9
"""Of the labels of a class, the share that others may get."""
STEPS = 50
"""Of the expectation-maximization of rates."""


def of_labels(
    r: Float[np.ndarray, "n c"], T: Float[np.ndarray, "c c"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """P(label | x) of every sample's label, above 0."""
    return np.maximum((r * T[:, labels].T).sum(1), np.finfo(float).tiny)


def pair_p_values(
    r: Float[np.ndarray, "n c"], T: Float[np.ndarray, "c c"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "c c"]:
    """The p-value of each pair (right class, given class) of having no rate beyond T; 1 on the diagonal.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> right = rng.integers(4, size=800)
        >>> given = np.where((right == 1) & (rng.random(800) < 0.2), 3, right)
        >>> r = 0.96 * np.eye(4)[right] + 0.01
        >>> p = pair_p_values(r, np.eye(4), given)
        >>> bool(p[1, 3] < 1e-6), int((p < 0.01).sum())
        (True, 1)
    """
    classes = r.shape[1]
    ratio = r / of_labels(r, T, labels)[:, None]
    given = np.eye(classes)[labels]
    slope, curve = ratio.T @ given, np.square(ratio).T @ given
    # A pair takes from the right labels of its class what it gives to the others.
    z = (slope - slope.diagonal()[:, None]) / np.sqrt(np.maximum(curve + curve.diagonal()[:, None], 1e-300))
    np.fill_diagonal(z, -np.inf)
    p = np.ones((classes, classes))
    order = np.argsort(-z, axis=None)[:CANDIDATES]
    for k, other in zip(*np.unravel_index(order, z.shape), strict=True):
        if z[k, other] <= 0:
            break
        got, kept = ratio[labels == other, k], ratio[labels == k, k]
        steps = np.concatenate([got, -kept])
        best: Any = optimize.minimize_scalar(
            lambda rate, steps=steps: -np.log1p(rate * steps).sum(),
            bounds=(0, MOST * T[k, k]),
            method="bounded",
        )
        explained = float((best.x * got / (1 + best.x * got)).sum())
        gain = max(0.0, -2 * float(best.fun))
        if explained >= FEWEST_OF_PAIR and gain > 0:
            p[k, other] = stats.chi2.sf(gain, 1) / 2
    return p


def adjusted(p: Float[np.ndarray, "c c"]) -> Float[np.ndarray, "c c"]:
    """The false-discovery rate at which each pair would just be taken."""
    off = ~np.eye(len(p), dtype=bool)
    shares = np.ones_like(p)
    shares[off] = stats.false_discovery_control(p[off])
    return shares


def transitions(
    r: Float[np.ndarray, "n c"],
    labels: Int[np.ndarray, " n"],
    share: float,
    chosen: Bool[np.ndarray, "c c"],
) -> Float[np.ndarray, "c c"]:
    """T with a share ε of labels drawn at random, and the rates of the chosen pairs of the largest likelihood."""
    c = r.shape[1]
    given = np.eye(c)[labels]
    rates = np.where(chosen, 0.02, 0.0)

    def law() -> Float[np.ndarray, "c c"]:
        return np.diag(1 - share - rates.sum(1)) + share / c + rates

    for _ in range(STEPS if chosen.any() else 0):
        ratio = r / of_labels(r, law(), labels)[:, None]
        moved = rates * (ratio.T @ given)
        of_class = np.maximum((law() * (ratio.T @ given)).sum(1, keepdims=True), 1e-9)
        rates = moved / of_class
        rates *= np.minimum(1.0, (MOST - share) / np.maximum(rates.sum(1, keepdims=True), 1e-9))
    return law()
