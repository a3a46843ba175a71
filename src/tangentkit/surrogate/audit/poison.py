"""Poison: by votes of known poison, or as the second cluster of a class that is unlike the others.

*Known poison.* The votes of a sample are the known poisoned ones among its five nearest. A clean sample gets v or
more with a probability that the hypergeometric law bounds. The likelihood ratio compares the votes with those that
the known ones get from each other.

*Unknown poison* is sought by activation clustering (Chen et al. 2018), with likelihoods in place of its silhouettes:
in every class a mixture of two Gaussians is fitted to the first principal components of the features. A backdoor has
one target; whether one class gains more likelihood by the second Gaussian than the spread over classes explains is
Grubbs' test. The smaller Gaussian is then the trigger cluster, and posterior probabilities say who is in it.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from tangentkit.core.seeds import Key

VOTERS, NEEDED = 5, 3
"""Nearest samples that vote, and votes that make a flag."""
FEWEST_CLASSES = 5
"""Classes below which one cannot be unlike the others."""
FEWEST = 30
"""Samples of a class in which clusters are sought."""
COMPONENTS = 10


@dataclass(frozen=True, eq=False)
class Votes:
    """How many known poisoned samples are among the nearest of each sample."""

    counts: Int[np.ndarray, " n"]
    p_values: Float[np.ndarray, " n"]
    """Of so many votes for a clean sample."""
    log_ratios: Float[np.ndarray, " n"]
    """Log-likelihood of the votes under poison minus that under none."""


def votes(near: Int[np.ndarray, "n k"], known: Bool[np.ndarray, " n"]) -> Votes:
    """The votes of known poison among the nearest samples."""
    voters = min(VOTERS, near.shape[1])
    counts = known[near[:, :voters]].sum(1)
    n, poisoned = len(known), int(known.sum())
    p = stats.hypergeom.sf(counts - 1, n - 1, poisoned, voters)
    # One vote more and one less than seen, so that no share is 0 or 1.
    among = (counts[known].sum() + 1) / (voters * poisoned + 2)
    chance = (poisoned + 1) / (n + 1)
    ratio = stats.binom.logpmf(counts, voters, among) - stats.binom.logpmf(counts, voters, chance)
    return Votes(counts, p, ratio)


@dataclass(frozen=True, eq=False)
class TriggerCluster:
    """The class that is unlike the others, and its second cluster."""

    label: int
    p_value: float
    """Grubbs' test over classes."""
    clean: Float[np.ndarray, " n"]
    """The probability of not being in the second cluster; 1 outside of the class."""


def trigger_cluster(
    features: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], *, seed: int
) -> TriggerCluster | None:
    """The class with the clearest second cluster; None where there are too few classes to compare."""
    counts = np.bincount(labels)
    classes = [c for c in range(len(counts)) if counts[c] >= FEWEST]
    if len(classes) < FEWEST_CLASSES:
        return None
    found = {c: _two_clusters(features[labels == c], seed) for c in classes}
    gains = np.array([found[c][0] for c in classes])
    p_value, place = grubbs(np.log(np.maximum(gains, np.finfo(float).tiny)))
    label = classes[place]
    clean = np.ones(len(labels))
    clean[labels == label] = found[label][1]
    return TriggerCluster(label, p_value, clean)


def grubbs(values: Float[np.ndarray, " k"]) -> tuple[float, int]:
    """The one-sided p-value of the largest of k normal values being too large, and its place (Grubbs 1950).

    Example:
        >>> p, place = grubbs(np.array([0.1, -0.2, 0.0, 9.0, 0.2, -0.1]))
        >>> p < 1e-4, place
        (True, 3)
    """
    k, place = len(values), int(values.argmax())
    spread = values.std(ddof=1)
    if not spread > 0:
        return 1.0, place
    g = (values[place] - values.mean()) / spread
    rest = max((k - 1) ** 2 - k * g**2, np.finfo(float).tiny)
    return float(min(1.0, k * stats.t.sf(np.sqrt(k * (k - 2) * g**2 / rest), k - 2))), place


def _two_clusters(features: Float[np.ndarray, "m d"], seed: int) -> tuple[float, Float[np.ndarray, " m"]]:
    """The gain in mean log-likelihood by a second Gaussian, and the probability of being in the larger one."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    centered = features - features.mean(0)
    _, s, V = np.linalg.svd(centered, full_matrices=False)
    r = min(COMPONENTS, len(features) // 10, int((s > 1e-6 * max(s[0], 1e-30)).sum()))
    if r < 1:
        return 0.0, np.ones(len(features))
    scores = centered @ V[:r].T
    scores /= scores.std(0).mean()
    state = Key(seed).fold("clusters").entropy % 2**32

    def fitted(k: int) -> Any:
        return GaussianMixture(k, n_init=3, reg_covar=1e-4, random_state=state).fit(scores)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, two = fitted(1), fitted(2)
    larger = int(np.argmax(two.weights_))
    return float(two.score(scores) - one.score(scores)), two.predict_proba(scores)[:, larger]
