"""Poison: by votes of known poison, or as the second cluster of a class that is unlike the others.

*Known poison.* The votes of a sample are the known poisoned ones among its five nearest. A clean sample gets v or
more with a probability that the hypergeometric law bounds. The likelihood ratio compares the votes with those that
the known ones get from each other.

*Unknown poison* is sought by activation clustering (Chen et al. 2018), with likelihoods in place of its silhouettes:
in every class a mixture of two Gaussians is fitted to the first principal components of the features. A backdoor has
one target; whether one class gains more likelihood by the second Gaussian than the spread over classes explains is
Grubbs' test. Posterior probabilities say who is in which cluster.

Which of the two carries the trigger does not follow from their sizes: at the rates that attackers choose, poison may
well be the larger part of its class. But poisoned samples come from all classes, and clean ones from one. So of every
sample of the class the five nearest samples of other classes are asked for their classes, by the inputs themselves
where they are numbers. The concentration of a cluster is the probability that two of its members name the same class;
that of the trigger is the lower one. A permutation of the members between the clusters tells whether the difference
is chance; if it may be, which is which stays undecided, and nobody is flagged.
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
PERMUTATIONS = 999


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
    """The probability of not being in the trigger's cluster; 1 outside of the class."""
    doubt: float
    """The p-value of the clusters being alike in what other classes their samples look like."""


def trigger_cluster(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    *,
    seed: int,
    inputs: Float[np.ndarray, "n w"] | None = None,
) -> TriggerCluster | None:
    """The class with the clearest second cluster; None where there are too few classes to compare.

    Args:
        features: of the kernel, in which clusters are sought.
        labels: 0, 1, ...
        seed: of the fits and permutations.
        inputs: points in which to ask what a sample looks like; the features where there are none.
    """
    counts = np.bincount(labels)
    classes = [c for c in range(len(counts)) if counts[c] >= FEWEST]
    if len(classes) < FEWEST_CLASSES:
        return None
    found = {c: _two_clusters(features[labels == c], seed) for c in classes}
    gains = np.array([found[c][0] for c in classes])
    p_value, place = grubbs(np.log(np.maximum(gains, np.finfo(float).tiny)))
    label = classes[place]
    larger = found[label][1]
    points = features if inputs is None else inputs
    first_is_trigger, doubt = which_is_mixed(points, labels, label, larger > 0.5, seed=seed)
    clean = np.ones(len(labels))
    clean[labels == label] = 1 - larger if first_is_trigger else larger
    return TriggerCluster(label, p_value, clean, doubt)


def which_is_mixed(
    points: Float[np.ndarray, "n w"],
    labels: Int[np.ndarray, " n"],
    label: int,
    first: Bool[np.ndarray, " k"],
    *,
    seed: int,
) -> tuple[bool, float]:
    """Whether the first of two clusters of a class looks like more classes, and the p-value of neither doing so.

    Args:
        points: of unit length or not, near ones being alike.
        labels: 0, 1, ...
        label: the class.
        first: which of its samples, in their order, are in the first cluster.
        seed: of the permutations.
    """
    own, others = np.flatnonzero(labels == label), np.flatnonzero(labels != label)
    classes = int(labels.max()) + 1
    square = np.square(points[others]).sum(1)
    named = np.empty((len(own), classes))
    for rows in range(0, len(own), 256):
        part = slice(rows, rows + 256)
        # |x - y|² up to |x|², which is the same along a row.
        distances = square - 2 * points[own[part]] @ points[others].T
        near = others[np.argpartition(distances, VOTERS - 1, axis=1)[:, :VOTERS]]
        named[part] = np.eye(classes)[labels[near]].mean(1)

    def difference(first: Bool[np.ndarray, " k"]) -> float:
        return _concentration(named[first]) - _concentration(named[~first])

    if min(first.sum(), (~first).sum()) < 2:
        return False, 1.0
    found, rng = difference(first), Key(seed).fold("which cluster").numpy()
    drawn = np.array([difference(rng.permutation(first)) for _ in range(PERMUTATIONS)])
    return found < 0, float((1 + (np.abs(drawn) >= abs(found) - 1e-12).sum()) / (1 + PERMUTATIONS))


def _concentration(named: Float[np.ndarray, "k c"]) -> float:
    """The probability that two different members name the same class."""
    k = len(named)
    return float((np.square(named.sum(0)).sum() - np.square(named).sum()) / (k * (k - 1)))


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
