"""What an audit looks for, and what it says when it has found it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

KINDS = {
    "mislabeled": "The label is likely wrong: a probe that has not seen the sample expects another one.",
    "conflicting": "The same or nearly the same sample occurs with another label.",
    "duplicate": "The same sample, to the last bit, occurs more than once.",
    "near-duplicate": "Another sample is far nearer than the neighbors of this region are to each other.",
    "outlying": "Even the nearest samples are far away, compared with how far neighbors are elsewhere.",
    "underrepresented": "One of a few alike, apart from the rest: the data have little to learn it from.",
    "poisoned": "Likely part of a backdoor: near to known poison, or in a cluster that looks like other classes.",
}
"""Kind -> what it means, in one sentence."""


@dataclass(frozen=True)
class Flag:
    """One sample, and what is wrong with it."""

    sample: int
    kind: str
    score: float
    """1 - the share of false flags to be expected among the flags of this kind up to this one, the surest first."""
    reason: str
    evidence: tuple[int, ...] = ()
    """Numbers of the samples that show it, the nearest first."""


def false_shares_of_p_values(p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The false-discovery rate at which each would just be flagged (Benjamini, Hochberg)."""
    return stats.false_discovery_control(np.clip(p, 0.0, 1.0)) if len(p) else p


def false_shares_of_chances(right: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The expected share of false flags, if all up to each were flagged: the mean of the chances up to it.

    Example:
        >>> false_shares_of_chances(np.array([0.3, 0.1, 1.0])).round(3).tolist()
        [0.2, 0.1, 0.467]
    """
    order = np.argsort(right, kind="stable")
    shares = np.empty(len(right))
    shares[order] = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
    return shares


@dataclass(frozen=True, eq=False)
class Finding:
    """What was computed of one kind, for every sample."""

    kind: str
    chances: Float[np.ndarray, " n"]
    """p-values of nothing being wrong; of labels and poison the probability of it."""
    false_shares: Float[np.ndarray, " n"]
    flags: tuple[Flag, ...]
    doubtful: tuple[Flag, ...] = ()
    """What may be of this kind, but is not flagged: how many of these would be false, nobody can tell."""


def flagged(
    false_shares: Float[np.ndarray, " n"], level: float, where: Bool[np.ndarray, " n"] | None = None
) -> list[int]:
    """Samples up to the level, the surest first."""
    chosen = false_shares <= level if where is None else (false_shares <= level) & where
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(false_shares[rows], kind="stable")].tolist()
