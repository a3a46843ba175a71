"""The searches of an audit: from what is known of the samples to flags with reasons and evidence."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from torch.nn.functional import normalize

from tangentkit.core.memory import Budget
from tangentkit.core.progress import Progress
from tangentkit.surrogate.audit.evidence import Evidence
from tangentkit.surrogate.audit.kinds import (
    Finding,
    Flag,
    false_shares_of_chances,
    false_shares_of_p_values,
    flagged,
)
from tangentkit.surrogate.audit.mislabels import LabelNoise
from tangentkit.surrogate.audit.poison import NEEDED, TriggerCluster, Votes
from tangentkit.surrogate.audit.surroundings import (
    Surroundings,
    closeness,
    remoteness,
    standardized,
    surroundings,
    widest_gap,
)

LARGEST_GROUP = 4
"""Near duplicates of one sample, at most."""
SHOWN = 10
"""Neighbors whose labels are told."""
NEAREST = 3
"""Neighbors that are near to every sample but an outlying one."""
DOUBT = 4.0
"""How many times likelier another class is, where a label is in doubt."""
FEW = 50
"""Samples below which no law of distances is fitted."""


@dataclass(frozen=True, eq=False)
class Case:
    """The samples of an audit, of each set of equal ones the first, and their surroundings."""

    evidence: Evidence
    level: float
    budget: Budget
    progress: bool | Progress
    names: tuple[str, ...] = ()
    """A name for each sample; none means numbers."""

    @cached_property
    def copies(self) -> list[list[int]]:
        """Samples that are equal to the last bit, two or more together."""
        groups = defaultdict(list)
        for number, digest in enumerate(self.evidence.hashes):
            groups[digest].append(number)
        return [group for group in groups.values() if len(group) > 1]

    @cached_property
    def firsts(self) -> Int[np.ndarray, " m"]:
        """Numbers of the samples, of equal ones the first."""
        later = {number for group in self.copies for number in group[1:]}
        return np.array([i for i in range(len(self.evidence)) if i not in later])

    @cached_property
    def places(self) -> dict[int, int]:
        """Number of a first sample -> its place among them."""
        return {int(number): place for place, number in enumerate(self.firsts)}

    @cached_property
    def by_features(self) -> Surroundings:
        """Neighbors by the kernel; numbers count among the first ones."""
        points = self.evidence.features[self.firsts]
        return surroundings(points, budget=self.budget, progress=self.progress)

    @cached_property
    def by_inputs(self) -> Surroundings | None:
        """Neighbors by the numbers of the samples themselves."""
        if self.evidence.inputs is None:
            return None
        points = self.evidence.inputs[self.firsts]
        points = standardized(points) if self.evidence.rows else normalize(points, dim=1)
        return surroundings(points, budget=self.budget, progress=self.progress)

    def label(self, sample: int) -> str:
        """The name of a sample's label."""
        assert self.evidence.labels is not None
        return repr(self.evidence.classes[self.evidence.labels[sample]])

    def name(self, sample: int) -> str:
        """A sample as sentences call it: by its name, such as that of its file, or by its number."""
        name = self.names[sample] if self.names else str(sample)
        return f"sample {name}" if name.isdecimal() else name

    def listed(self, samples: Sequence[int]) -> str:
        """Some samples in words."""
        names = [self.name(sample) for sample in samples[:5]]
        if len(names) > 1 and all(name.startswith("sample ") for name in names):
            names = [
                "samples " + names[0].removeprefix("sample "),
                *(n.removeprefix("sample ") for n in names[1:]),
            ]
        return ", ".join(names) + (", ..." if len(samples) > 5 else "")

    def spread(self, values: Float[np.ndarray, " m"], otherwise: float = 1.0) -> Float[np.ndarray, " n"]:
        """Values of the first samples as values of all; others of equal ones get another value."""
        whole = np.full(len(self.evidence), otherwise)
        whole[self.firsts] = values
        return whole

    def numbers(self, near: Int[np.ndarray, " k"]) -> tuple[int, ...]:
        """Places among the first samples as numbers of samples."""
        return tuple(self.firsts[near].tolist())


def duplicates(case: Case) -> Finding:
    """Equal samples, by their hashes."""
    n = len(case.evidence)
    chances = np.ones(n)
    flags = []
    for group in case.copies:
        chances[group] = 0.0
        for number in group:
            others = tuple(other for other in group if other != number)
            flags.append(Flag(number, "duplicate", 1.0, f"the same as {case.listed(others)}", others))
    return Finding("duplicate", chances, chances, tuple(sorted(flags, key=lambda flag: flag.sample)))


def near_duplicates(case: Case) -> Finding:
    """Samples whose nearest are far nearer than chance explains: by directions of features, or by inputs."""
    spaces = {"the directions of the kernel's features": case.by_features}
    if case.by_inputs is not None:
        spaces["the inputs" if case.evidence.rows else "the inputs, brightness aside"] = case.by_inputs
    found = [closeness(space.distances, LARGEST_GROUP) for space in spaces.values()]
    p = np.stack([one for one, _ in found])
    best = p.argmin(0)
    chances = np.minimum(1.0, len(spaces) * p.min(0))
    shares = false_shares_of_p_values(chances)
    flags = []
    for place in flagged(shares, case.level):
        name, space = list(spaces.items())[best[place]]
        size = int(found[best[place]][1][place])
        inner, outer = space.distances[place, size - 1], space.distances[place, size]
        close = case.numbers(space.indices[place, :size])
        reason = (
            f"{case.listed(close)} at distance {inner:.2g} by {name}, the next of the region at {outer:.2g}, "
            f"{outer / inner:.1f} times as far"
        )
        flags.append(Flag(int(case.firsts[place]), "near-duplicate", float(1 - shares[place]), reason, close))
    return Finding("near-duplicate", case.spread(chances), case.spread(shares), tuple(flags))


def conflicts(case: Case, copies: Sequence[Flag], near: Sequence[Flag]) -> tuple[Flag, ...]:
    """Copies, exact or near, whose labels differ."""
    labels = case.evidence.labels
    if labels is None:
        return ()
    flags = {}
    for flag, words in [*((f, "the same sample") for f in copies), *((f, "a near copy") for f in near)]:
        others = tuple(other for other in flag.evidence if labels[other] != labels[flag.sample])
        if others and flag.sample not in flags:
            other = others[0]
            reason = (
                f"labeled {case.label(flag.sample)}, while {words}, {case.name(other)}, "
                f"is labeled {case.label(other)}"
            )
            flags[flag.sample] = Flag(flag.sample, "conflicting", flag.score, reason, others)
    return tuple(flags.values())


def mislabels(case: Case, noise: LabelNoise, known: Bool[np.ndarray, " n"]) -> Finding:
    """Labels that are likely wrong, and those in doubt; `known` are the samples that the probe was about."""
    n = len(case.evidence)
    chances, shares = np.ones(n), np.ones(n)
    chances[known] = noise.right
    if noise.p_value <= case.level:
        shares[known] = false_shares_of_chances(noise.right)
    rows = {int(number): row for row, number in enumerate(np.flatnonzero(known))}
    chosen = flagged(shares, case.level)
    assert case.evidence.labels is not None
    given = noise.probabilities[np.arange(len(rows)), case.evidence.labels[known]]
    contradicted = np.flatnonzero(known)[noise.probabilities.max(1) > DOUBT * given]
    doubtful = sorted(set(contradicted.tolist()) - set(chosen), key=lambda number: chances[number])
    flags = tuple(_label_flag(case, noise, i, rows[i], float(1 - shares[i])) for i in chosen)
    others = tuple(_label_flag(case, noise, i, rows[i], float(1 - chances[i])) for i in doubtful)
    return Finding("mislabeled", chances, shares, flags, others)


def _label_flag(case: Case, noise: LabelNoise, sample: int, row: int, score: float) -> Flag:
    """What speaks against a label."""
    labels, p = case.evidence.labels, noise.probabilities[row]
    assert labels is not None
    likely = int(p.argmax())
    reason = (
        f"labeled {case.label(sample)}, to which a probe that has not seen it gives "
        f"{_percent(p[labels[sample]])}; "
        f"{case.evidence.classes[likely]!r} is likelier ({p[likely]:.0%})"
    )
    for right, given, rate in noise.pairs:
        if (right, given) == (likely, labels[sample]):
            reason += (
                f"; {_percent(rate)} of class {case.evidence.classes[right]!r} seem to have been labeled so"
            )
    place = case.places.get(sample)
    if place is None:
        return Flag(sample, "mislabeled", score, reason)
    near = np.array(case.numbers(case.by_features.indices[place, :SHOWN]))
    alike = near[labels[near] == likely]
    reason += f"; {len(alike)} of its {len(near)} nearest samples are {case.evidence.classes[likely]!r}"
    return Flag(sample, "mislabeled", score, reason, tuple(alike.tolist()))


def outliers(case: Case) -> Finding:
    """Samples whose nearest samples are far away."""
    distances = case.by_features.distances[:, :NEAREST].mean(1)
    chances = remoteness(np.log(distances)) if len(distances) >= FEW else np.ones(len(distances))
    shares = false_shares_of_p_values(chances)
    flags = []
    for place in flagged(shares, case.level):
        reason = (
            f"its {NEAREST} nearest samples are at a mean distance of {distances[place]:.2g}, those of the median "
            f"sample at {np.median(distances):.2g}"
        )
        close = case.numbers(case.by_features.indices[place, :NEAREST])
        flags.append(Flag(int(case.firsts[place]), "outlying", float(1 - shares[place]), reason, close))
    return Finding("outlying", case.spread(chances), case.spread(shares), tuple(flags))


def rarities(case: Case, outlying: Sequence[Flag]) -> Finding:
    """Samples that have mates, but few: the last of their neighbors is far, compared with the class."""
    space = case.by_features
    last = np.log(space.distances[:, -1])
    labels = None if case.evidence.labels is None else case.evidence.labels[case.firsts]
    enough = len(last) >= max(FEW, 2 * space.distances.shape[1])
    chances = np.ones(len(last))
    if enough:
        # Far from most, as many are where the tail is long, and a group of its own, with a gap behind it.
        gap, sizes = widest_gap(space.distances, space.distances.shape[1])
        chances = np.maximum(remoteness(_relative(last, labels)), gap)
    shares = false_shares_of_p_values(chances)
    alone = {flag.sample for flag in outlying}
    flags = []
    for place in flagged(shares, case.level):
        sample = int(case.firsts[place])
        if sample in alone:
            continue
        mates = int(sizes[place])
        close = case.numbers(space.indices[place, :mates])
        k = space.distances.shape[1]
        reason = (
            f"one of about {mates + 1} alike: its nearest are at {space.distances[place, mates - 1]:.2g} at most, "
            f"its {k}th neighbor at {space.distances[place, -1]:.2g}, that of the median sample at "
            f"{np.exp(np.median(last)):.2g}"
        )
        flags.append(Flag(sample, "underrepresented", float(1 - shares[place]), reason, close))
    return Finding("underrepresented", case.spread(chances), case.spread(shares), tuple(flags))


def known_poison(case: Case, found: Votes, known: Bool[np.ndarray, " m"]) -> Finding:
    """Samples that get enough votes of known poison; the known ones themselves are not told again."""
    shares = false_shares_of_p_values(found.p_values)
    flags = []
    for place in flagged(shares, case.level, (found.counts >= NEEDED) & ~known):
        near = case.by_features.indices[place, :5]
        reason = (
            f"{found.counts[place]} of its {len(near)} nearest samples are known to be poisoned "
            f"(log-likelihood ratio {found.log_ratios[place]:+.1f})"
        )
        voters = case.numbers(near[known[near]])
        flags.append(Flag(int(case.firsts[place]), "poisoned", float(1 - shares[place]), reason, voters))
    return Finding("poisoned", case.spread(found.p_values), case.spread(shares), tuple(flags))


def trigger_poison(case: Case, found: TriggerCluster) -> Finding:
    """The members of a trigger cluster, if one class has one."""
    shares = false_shares_of_chances(found.clean)
    flags = []
    sure = found.p_value <= case.level and found.doubt <= case.level
    members = flagged(shares, case.level) if sure else []
    for place in members:
        odds = np.log(max(1 - found.clean[place], 1e-300)) - np.log(max(found.clean[place], 1e-300))
        reason = (
            f"in a cluster of class {case.evidence.classes[found.label]!r}, of {len(members)} samples (log-odds "
            f"{odds:+.1f}); no other class has one as clear (p = {found.p_value:.2g}), and its samples look "
            f"like more classes than the rest of the class does (p = {found.doubt:.2g})"
        )
        near = case.by_features.indices[place, :NEAREST]
        flags.append(
            Flag(int(case.firsts[place]), "poisoned", float(1 - shares[place]), reason, case.numbers(near))
        )
    return Finding("poisoned", case.spread(found.clean), case.spread(shares), tuple(flags))


def _relative(
    values: Float[np.ndarray, " m"], labels: Int[np.ndarray, " m"] | None
) -> Float[np.ndarray, " m"]:
    """Values in quartile ranges from the median of their class; small classes are measured by all samples."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    relative = (values - middle) / max(high - low, np.finfo(float).tiny)
    for c in np.unique(labels) if labels is not None else ():
        rows = labels == c
        if rows.sum() >= FEW:
            low, middle, high = np.quantile(values[rows], [0.25, 0.5, 0.75])
            relative[rows] = (values[rows] - middle) / max(high - low, np.finfo(float).tiny)
    return relative


def _percent(share: float) -> str:
    """A share in percent, with one digit that counts where it is small.

    Example:
        >>> _percent(0.5), _percent(0.031), _percent(1.6e-6), _percent(0.0)
        ('50 %', '3 %', '0.0002 %', 'less than 0.0001 %')
    """
    percent = 100 * share
    if percent < 1e-4:
        return "less than 0.0001 %"
    return f"{percent:.{max(0, -math.floor(math.log10(percent)))}f} %"
