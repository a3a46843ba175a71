"""Labels in doubt: what a probe that has not seen a sample thinks of its label, and how often labels are wrong.

A logistic probe on the features is fitted to the other folds. Its probabilities, sharpened or flattened by a
temperature τ, are those of right labels, and a share ε of the labels was drawn at random from all c classes:

    P(label | x) = (1 - ε) softmax(log p(x) / τ)_label + ε / c.

ε and τ have the largest likelihood. Beside them each pair of classes may have a rate of its own, of labels of one
class that were given to the other (`tangentkit.surrogate.audit.pairs`). The probability r that a label is right
follows: that it was not drawn, or was drawn and hit by chance. Labels of low r count less in the next fit of the
probe, since wrong labels flatten it.
Whether there is any noise at all is decided by a likelihood-ratio test of ε = 0, whose law is half a point mass at 0
and half chi-squared of one degree, or by the tests of the pairs; each has half of the level.

Errors of the probe that are more certain than any temperature makes right look like wrong labels, so that on real
data the share of false flags may be above the level. Measured on the 8 x 8 digits (1,000 samples, level 5 %, three
draws each): of 32, 165 and 634 flags at 1, 5 and 20 % uniform noise 16, 13 and 6 % were false, with 90, 96 and 99 %
of the wrong labels found. Of 16 labels of one class that another got, 44 of 80 were found in five draws, nearly all
in three of them and none in two, with 3 of 47 flags false.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import optimize, special, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.machines import KernelLogistic
from tangentkit.surrogate.audit.pairs import adjusted, of_labels, pair_p_values, transitions

FOLDS, FEW_FOLDS = 5, 2
"""Parts of the samples that are held out in turn; and where ridges are only compared."""
ROUNDS = 3
"""Fits of the probe, each with the weights of the one before."""
RIDGES = (1.0, 0.1, 0.01)
"""Of features of mean square 1, for 1,000 samples; the best is chosen by the likelihood of labels held out."""
ENOUGH = 4000
"""Samples on which a ridge is chosen, about."""
ROUGHLY = 1e-3
"""How far above its minimum the mean loss of the probe may be."""
LEAST = 1e-30
"""A probability that is as good as none."""
PAIR_LEVEL = 0.025
"""The share of pairs that are taken for noisy without being so."""
LOG_ODDS, LOG_TAUS = (-20.0, 0.0), (-3.0, 3.0)
"""Where ε / (1 - ε) and τ are looked for, by their logarithms."""


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """How much label noise there is, and where."""

    share: float
    """ε, the share of labels that are random; a part of these is right by chance."""
    temperature: float
    """τ."""
    p_value: float
    """Of no noise."""
    probabilities: Float[np.ndarray, "n c"]
    """Of each class, by a probe that has not seen the sample, under right labels."""
    right: Float[np.ndarray, " n"]
    """r, the probability that the label is right."""
    pairs: tuple[tuple[int, int, float], ...] = ()
    """(right class, given class, rate) of pairs that have a rate of their own."""


def label_noise(
    features: Float[Tensor, "n d"],
    labels: Int[np.ndarray, " n"],
    *,
    seed: int,
    progress: bool | Progress = False,
) -> LabelNoise:
    """The noise of labels, by a probe on features; labels are 0, 1, ..., c - 1, two of each class or more."""
    Phi = _prepared(features)
    weights = np.ones(len(labels))
    ridge, noise = _best_ridge(Phi, labels, seed), None
    with counted_off(progress, "probing labels", ROUNDS) as advance:
        for _ in range(ROUNDS):
            noise = fit_noise(_held_out(Phi, labels, weights, ridge, seed), labels)
            weights = np.maximum(noise.right, 1e-3)
            advance()
    assert noise is not None
    return noise


def fit_noise(log_p: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> LabelNoise:
    """ε, τ and rates of pairs of the largest likelihood, for log-probabilities of samples that were held out.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> log_p = special.log_softmax(6 * rng.normal(size=(4000, 4)), axis=1)
        >>> y = (log_p + rng.gumbel(size=log_p.shape)).argmax(1)
        >>> wrong = rng.random(4000) < 0.1
        >>> y[wrong] = rng.integers(4, size=wrong.sum())
        >>> noise = fit_noise(log_p, y)
        >>> abs(noise.share - 0.1) < 0.03, abs(noise.temperature - 1) < 0.1, noise.p_value < 1e-9
        (True, True, True)
    """
    n, c = log_p.shape
    rows = np.arange(n)
    below = log_p - log_p.max(1, keepdims=True)  # whose exponentials never overflow, whatever τ is
    below_of_label = below[rows, labels]

    def of_label(log_tau: float) -> np.ndarray:
        tau = np.exp(log_tau)
        return below_of_label / tau - np.log(np.exp(below / tau).sum(1))

    def loss(p: np.ndarray) -> float:
        share = special.expit(p[0])
        return -float(np.logaddexp(np.log1p(-share) + of_label(p[1]), np.log(share / c)).mean())

    clean: Any = optimize.minimize_scalar(lambda t: -of_label(t).mean(), bounds=LOG_TAUS, method="bounded")
    found: Any = min(
        (
            optimize.minimize(loss, (start, clean.x), method="Nelder-Mead", bounds=(LOG_ODDS, LOG_TAUS))
            for start in (-6.0, -2.0)
        ),
        key=lambda one: one.fun,
    )
    gain = 2 * n * max(0.0, float(clean.fun) - float(found.fun))
    share, tau = float(special.expit(found.x[0])), float(np.exp(found.x[1]))
    p_value = float(stats.chi2.sf(gain, 1) / 2) if gain > 0 else 1.0
    q = special.softmax(log_p / tau, axis=1)
    T = transitions(q, labels, share, np.zeros((c, c), bool))
    of_pairs = adjusted(pair_p_values(q, T, labels))
    chosen = of_pairs <= PAIR_LEVEL
    if chosen.any():
        for _ in range(ROUNDS):
            T = transitions(q, labels, share, chosen)
            tau = _sharpest(log_p, labels, T)
            q = special.softmax(log_p / tau, axis=1)
    right = q[rows, labels] * T[labels, labels] / of_labels(q, T, labels)
    pairs = tuple(
        (int(k), int(d), float(T[k, d] - share / c)) for k, d in zip(*chosen.nonzero(), strict=True)
    )
    return LabelNoise(share, tau, min(1.0, 2 * min(p_value, float(of_pairs.min()))), q, right, pairs)


def _sharpest(log_p: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"], T: np.ndarray) -> float:
    """τ of the largest likelihood under transitions."""

    def loss(log_tau: float) -> float:
        q = special.softmax(log_p / np.exp(log_tau), axis=1)
        return -float(np.log(of_labels(q, T, labels)).mean())

    found: Any = optimize.minimize_scalar(loss, bounds=LOG_TAUS, method="bounded")
    return float(np.exp(found.x))


def _prepared(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Centered, of mean square 1, with a one for the bias."""
    Phi = features - features.mean(0)
    Phi = Phi / Phi.square().sum(1).mean().sqrt().clamp_min(torch.finfo(Phi.dtype).tiny)
    return torch.cat([Phi, Phi.new_ones(len(Phi), 1)], 1)


def _held_out(
    Phi: Float[Tensor, "n d"],
    labels: Int[np.ndarray, " n"],
    weights: np.ndarray,
    ridge: float,
    seed: int,
    folds: int = FOLDS,
) -> Float[np.ndarray, "n c"]:
    """Log-probabilities of the classes of every sample, by the probe of the other folds."""
    classes = int(labels.max()) + 1
    log_p = np.full((len(labels), classes), np.log(LEAST))
    folds = min(folds, int(np.bincount(labels).min()))
    cut = StratifiedKFold(folds, shuffle=True, random_state=Key(seed).fold("folds").entropy % 2**32)
    for inside, outside in cut.split(labels, labels):
        scale = len(inside) / 1000
        machine = KernelLogistic("features", ridge=ridge * scale, tol=ROUGHLY)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the temperature is fitted to what came out
            machine.fit(Phi[inside], labels[inside], weights[inside])
        p = np.asarray(machine.predict_proba(Phi[outside]))
        log_p[np.ix_(outside, machine.classes_)] = np.log(np.maximum(p, LEAST))
    return log_p


def _best_ridge(Phi: Float[Tensor, "n d"], labels: np.ndarray, seed: int) -> float:
    """From the strongest down, as long as labels held out become likelier."""
    step = -(-len(labels) // ENOUGH)
    some = np.sort(np.concatenate([np.flatnonzero(labels == c)[::step] for c in np.unique(labels)]))
    if np.bincount(labels[some]).min() < 2:
        some = np.arange(len(labels))
    best, least = RIDGES[0], np.inf
    for ridge in RIDGES:
        log_p = _held_out(Phi[some], labels[some], np.ones(len(some)), ridge, seed, FEW_FOLDS)
        noise = fit_noise(log_p, labels[some])
        own = noise.probabilities[np.arange(len(some)), labels[some]]
        loss = -np.log((1 - noise.share) * own + noise.share / log_p.shape[1]).mean()
        if loss > least:
            break
        best, least = ridge, loss
    return best
