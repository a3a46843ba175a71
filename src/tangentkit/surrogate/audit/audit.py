"""The audit: what is wrong with the samples of a data set, by what a network makes of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress
from tangentkit.empirical import ConjugateKernel
from tangentkit.surrogate.audit import searches
from tangentkit.surrogate.audit.evidence import gather, labeled_samples
from tangentkit.surrogate.audit.kinds import KINDS, Finding
from tangentkit.surrogate.audit.mislabels import LabelNoise, label_noise
from tangentkit.surrogate.audit.poison import FEWEST, FEWEST_CLASSES, trigger_cluster, votes
from tangentkit.surrogate.audit.result import Audit
from tangentkit.surrogate.audit.searches import FEW, Case
from tangentkit.surrogate.forensics import read_mask
from tangentkit.surrogate.network import network_of

LEVEL = 0.05


@briefly
def audit(
    model: nn.Module,
    data: Any,
    kernel: Kernel | None = None,
    *,
    poisoned: Any = None,
    level: float = LEVEL,
    names: Any = None,
    texts: Any = None,
    forward: Forward | None = None,
    seed: int = 0,
    memory: int | str | None = None,
    progress: bool | Progress = True,
) -> Audit:
    """Looks for samples that are mislabeled, duplicated, poisoned, outlying or underrepresented.

    ==================  ========================================================================================
    kind                how it is found
    ==================  ========================================================================================
    "mislabeled"        the probability that the label is right, by a probe that has not seen the sample
    "duplicate"         hashes of the samples
    "near-duplicate"    a gap in the distances of the nearest samples, of features or inputs, against its F law
    "conflicting"       copies, exact or near, with different labels
    "outlying"          the distance of the nearest samples, against the law of that of most samples
    "underrepresented"  the distance of the 25th neighbor, likewise, compared with the class, and a gap before it
    "poisoned"          votes of known poison; without any, the second cluster of a class unlike the others
    ==================  ========================================================================================

    Of each kind as many samples are flagged as leave the expected share of false flags at `level`: by Benjamini and
    Hochberg's rule where there are p-values, by the mean of the probabilities where there are these. The laws are
    stated in `tangentkit.surrogate.audit`; they hold for the features of a network that has not learned the
    wrong labels by heart. Labels to which the probe finds another class four times likelier, but that may as well be
    right and rare as wrong, are no flags: where all samples lie equally far from the border of their class, nothing
    tells these apart. They are in `.doubtful`, the least likely first.

    Args:
        model: in evaluation mode where that matters.
        data: a pair (inputs, labels), labeled data, or a data set of pairs; or inputs alone, whose labels are then
            not looked at.
        kernel: with features, such as `SketchedTangentKernel(model, 1024)`, which tells poison better; by default
            `ConjugateKernel(model)`, the input of the last layer.
        poisoned: (n,), True for samples that are known to be poisoned, if some are.
        level: the share of false flags that is allowed, of each kind.
        names: a name for each sample, such as its file; numbers by default.
        texts: what each sample says, where samples are sentences; the page shows them.
        forward: (model, batch) -> outputs, for models with other inputs.
        seed: of folds, clusters and projections.
        memory: working memory, in bytes or as "2GB".
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: data, labels, names or options do not fit, or the kernel is of another network.
        NumericalError: features are not finite.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> x, y = torch.randn(400, 2), torch.arange(400) % 2
        >>> x = x + 8 * y[:, None]
        >>> y[:8] = 1 - y[:8]
        >>> found = audit(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)), (x, y))
        >>> sorted(flag.sample for flag in found.of("mislabeled"))
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    if not isinstance(level, float) or not 0 < level < 1:
        raise InputError("bad level", expected="0 < level < 1", got=repr(level))
    budget = memory_budget(memory)
    kernel = ConjugateKernel(model, forward=forward, memory=memory) if kernel is None else kernel
    network = network_of(model, kernel, forward)  # refuses the kernel of another network
    evidence = gather(kernel, network, data, seed=seed, budget=budget, progress=progress)
    shown, sentences = _words(names, len(evidence), "names"), _words(texts, len(evidence), "texts")
    case = Case(evidence, level, budget, progress, shown)
    if len(case.firsts) < 4:
        raise InputError("too few samples", expected="4 different ones or more", got=len(case.firsts))
    search = _Search(case, seed)
    findings = search.findings(None if poisoned is None else read_mask(poisoned, len(evidence), "poisoned"))
    order = {kind: i for i, kind in enumerate(KINDS)}
    flags = sorted((flag for one in findings for flag in one.flags), key=lambda flag: order[flag.kind])
    return Audit(
        flags=tuple(flags),
        samples=len(evidence),
        level=level,
        kernel=repr(kernel),
        chances={one.kind: one.chances for one in findings},
        labels=evidence.labels,
        classes=evidence.classes,
        names=shown,
        texts=sentences,
        network_accuracy=evidence.network_accuracy,
        label_noise=search.noise.share if search.noise is not None else None,
        doubtful=tuple(flag for one in findings for flag in one.doubtful),
        not_looked_for=search.not_looked_for,
        source=labeled_samples(data)[0],
    )


class _Search:
    """All searches of one case, and what had to be left out."""

    def __init__(self, case: Case, seed: int):
        self.case, self.seed = case, seed
        self.noise: LabelNoise | None = None
        self.not_looked_for: dict[str, str] = {}

    def findings(self, known: Bool[np.ndarray, " n"] | None) -> list[Finding]:
        """Of all kinds that can be looked for."""
        copies, near = searches.duplicates(self.case), searches.near_duplicates(self.case)
        conflicts = searches.conflicts(self.case, copies.flags, near.flags)
        outlying = searches.outliers(self.case)
        nothing = np.ones(len(self.case.evidence))
        found = [copies, near, Finding("conflicting", nothing, nothing, conflicts), outlying]
        found.append(searches.rarities(self.case, outlying.flags))
        found += [one for one in (self._mislabels(), self._poison(known)) if one is not None]
        if len(self.case.firsts) < FEW:
            why = f"fewer than {FEW} different samples"
            self.not_looked_for |= {"outlying": why, "underrepresented": why}
        return found

    def _mislabels(self) -> Finding | None:
        labels = self.case.evidence.labels
        if labels is None:
            self.not_looked_for |= {"mislabeled": "no labels", "conflicting": "no labels"}
            return None
        counts = np.bincount(labels)
        usable = counts[labels] >= 2
        present, indices = np.unique(labels[usable], return_inverse=True)
        if len(present) < 2:
            self.not_looked_for["mislabeled"] = "fewer than two classes with two samples"
            return None
        features = self.case.evidence.features[torch.from_numpy(usable)]
        noise = label_noise(features, indices, seed=self.seed, progress=self.case.progress)
        probabilities = np.zeros((len(indices), len(counts)))
        probabilities[:, present] = noise.probabilities
        pairs = tuple((int(present[right]), int(present[given]), rate) for right, given, rate in noise.pairs)
        self.noise = replace(noise, probabilities=probabilities, pairs=pairs)
        return searches.mislabels(self.case, self.noise, usable)

    def _poison(self, known: Bool[np.ndarray, " n"] | None) -> Finding | None:
        evidence, firsts = self.case.evidence, self.case.firsts
        if known is not None and known.any():
            found = votes(self.case.by_features.indices, known[firsts])
            return searches.known_poison(self.case, found, known[firsts])
        cluster = None
        if evidence.labels is not None:
            cluster = trigger_cluster(
                evidence.features[firsts].double().numpy(),
                evidence.labels[firsts],
                seed=self.seed,
                inputs=None if evidence.inputs is None else _directions(evidence.inputs[firsts]),
            )
        if cluster is None:
            self.not_looked_for["poisoned"] = (
                f"without known poison it takes {FEWEST_CLASSES} classes of {FEWEST} samples to compare"
            )
            return None
        if cluster.p_value <= self.case.level < cluster.doubt:
            mate = evidence.labels == cluster.label
            second = int((cluster.clean < 0.5).sum())
            self.not_looked_for["poisoned"] = (
                f"class {evidence.classes[cluster.label]!r} falls into two clusters, of {second} and "
                f"{int(mate[firsts].sum()) - second} samples, as no other class does (p = {cluster.p_value:.2g}); "
                f"which of them has a trigger, if one has, is not decided (p = {cluster.doubt:.2g})"
            )
        return searches.trigger_poison(self.case, cluster)


def _directions(inputs: Float[Tensor, "m w"]) -> Float[np.ndarray, "m w"]:
    """Inputs of length 1: a picture that is only darker looks the same."""
    return nn.functional.normalize(inputs.double(), dim=1).numpy()


def _words(given: Any, n: int, what: str) -> tuple[str, ...]:
    if given is None:
        return ()
    found = tuple(map(str, given))
    if len(found) != n:
        raise InputError(f"{what} do not match the samples", expected=f"{n} {what}", got=len(found))
    return found
