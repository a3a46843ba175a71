"""Attribution: what each training sample adds to the logits of a decision.

Scores have the unit of a logit. A positive score of output c is a training sample that speaks for c (helpful), a
negative one that speaks against it (harmful). They are not normalized: over all training samples they add up to the
logit itself.

Of two classes a machine may have one logit z, that of the second against the first. An attribution holds both sides
of it: the scores for class 1 add up to z, those for class 0 are the same with the other sign and add up to -z.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.compute.sources import SampleSource
from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.operator import Operator
from tangentkit.surrogate.cross_matrix import CrossMatrix, joined
from tangentkit.surrogate.nearest import largest as largest_of

Output = int | Int[Tensor, " n"] | None
"""The output that is explained: of each sample the class that the network predicts, one for all, or one for each."""
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False, repr=False)
class Top:
    """The k training samples with the largest scores of each of n samples (or the smallest), the extreme first."""

    indices: Int[Tensor, "n k"]
    """Numbers of training samples."""
    scores: Float[Tensor, "n k"]
    """Their scores."""

    def __repr__(self) -> str:
        n, k = self.indices.shape
        return f"Top(k={k}, samples={n:,})"


@dataclass(frozen=True, eq=False, repr=False)
class Spread:
    """How the scores of one output are spread over the training samples of each class: n samples, k classes."""

    mean: Float[Tensor, "n k"]
    quartiles: Float[Tensor, "n k 3"]
    """Lower quartile, median, upper quartile."""
    ends: Float[Tensor, "n k 2"]
    """The least and the largest."""

    @property
    def mean_in_box(self) -> Tensor:
        """Whether the mean lies between the quartiles, (n, k)."""
        return (self.mean >= self.quartiles[..., 0]) & (self.mean <= self.quartiles[..., 2])


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Scores A(x, x_i)^c = W_ic κ(x, x_i) + b_c / m of n samples, c outputs and m training samples.

    Sum rule: over the training samples they add up to the logits. There is an output for each class, also where a
    machine has one logit z for two: they are (-z, z), see `both_sides`. Nothing of size n x c x m is made unless
    `scores` is asked for: what else is asked goes through the rows of κ a strip at a time.
    """

    cross: CrossMatrix
    """κ(x, train), (n, m)."""
    weights: Float[Tensor, "m c"]
    """W."""
    offset: Float[Tensor, " c"]
    """b."""
    labels: Int[Tensor, " m"]
    """The class of each training sample."""
    network: Float[Tensor, "n k"]
    """The logits of the network itself."""
    samples: tuple[SampleSource, SampleSource] | None = None
    """The samples x and the training samples."""
    gram: Operator | None = None
    """κ(train, train), where it is there: the page draws a map of the samples from it."""
    with_error: Callable[[Any, Any], tuple[Tensor, Tensor]] | None = None
    """The kernel with the standard error of every entry, where it is sketched."""
    about: Literal["classes", "margin"] = "classes"
    """What outputs are: the classes, or the margin of each sample's own class."""
    predicts: bool = True
    """Whether the sums of the scores are the logits of a machine; sums of influence and of TRAK's scores are not."""
    one_logit: bool = False
    """Whether the two outputs are both sides (-z, z) of the one logit that a machine has for two classes."""

    def __post_init__(self) -> None:
        classes, outputs = self.network.shape[1], len(self.offset)
        if self.about == "classes" and outputs != classes:
            raise InputError(
                "scores are not of the network's classes",
                expected=f"weights of {classes} outputs",
                got=outputs,
                hint="both_sides(weights, offset) makes two outputs of the one logit of two classes",
            )

    def __repr__(self) -> str:
        n, m = self.cross.shape
        return f"Attribution(samples={n:,}, outputs={len(self.offset)}, training samples={m:,})"

    @property
    def predicted(self) -> Int[Tensor, " n"]:
        """The class that the network predicts."""
        return self.network.argmax(1)

    @cached_property
    def logits(self) -> Float[Tensor, "n c"]:
        """W κ(train, x) + b, to which the scores of each sample add up: of one logit z of two classes (-z, z)."""
        return torch.cat([k @ self.weights for _, k in self._strips()]) + self.offset

    @property
    def scores(self) -> Float[Tensor, "n c m"]:
        """All scores, made when asked for.

        Raises:
            BudgetError: they do not fit in memory.
        """
        (n, m), c = self.cross.shape, len(self.offset)
        memory_budget().check(
            8 * n * c * m,
            "all scores are",
            of=f"{n:,} samples x {c} outputs x {m:,} training samples",
            hint="top(k), by_class() and spread() never make them all",
        )
        parts = [k[:, None, :] * self.weights.T for _, k in self._strips()]
        return torch.cat(parts) + (self.offset / m)[:, None]

    def of(self, output: Output = None) -> Float[Tensor, "n m"]:
        """The scores of one output for each sample.

        Args:
            output: its number, or one for each sample; None for the class that the network predicts.
        """
        return joined([scores for _, scores in self._of(output)])

    def top(self, k: int, output: Output = None, *, largest: bool = True) -> Top:
        """The k training samples that speak most for an output, or most against it.

        Args:
            k: how many.
            output: its number, or one for each sample; None for the class that the network predicts.
            largest: whether helpful ones, of the largest scores, are meant; else harmful ones.
        """
        m = self.cross.shape[1]
        if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= m:
            raise InputError("bad number of training samples", expected=f"from 1 to {m}", got=repr(k))
        found = [_extreme(scores, int(k), largest=largest) for _, scores in self._of(output)]
        values, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Top(indices, values)

    def errors(self, output: Output = None) -> Float[Tensor, "n m"]:
        """Standard errors |W_ic| σ(κ(x, x_i)) of the scores of one output: those of the kernel's sketch, at given W.

        They take another pass over all samples. Those of the k largest are
        `why.errors().gather(1, why.top(k).indices)`.

        Raises:
            InputError: the kernel is exact, or says nothing of its errors.
        """
        if self.with_error is None or self.samples is None:
            raise InputError(
                "the kernel gives no errors",
                expected="a sketched kernel, such as tk.SketchedTangentKernel(model).normalized()",
            )
        x, train = self.samples
        everything = train.read(slice(0, len(train)))
        sigma = torch.cat(
            [self.with_error(x.read(rows), everything)[1].to(self.weights) for rows in self.cross.ranges()]
        )
        return sigma * self.weights.T[self._outputs(output)].abs()

    def share_of_mass(self, share: float = 0.01, output: Output = None) -> Float[Tensor, " n"]:
        """The part of Σ |A| that the largest |A| hold: those of a share of the training samples, 1 % by default."""
        if not 0 < share <= 1:
            raise InputError("bad share", expected="above 0, at most 1", got=share)
        k = max(1, round(share * self.cross.shape[1]))
        parts = []
        for _, scores in self._of(output):
            size = scores.abs()
            parts.append(size.topk(k, dim=1).values.sum(1) / size.sum(1))
        return torch.cat(parts)

    def by_class(self) -> Float[Tensor, "n c k"]:
        """The mean score of each output over the training samples of each class."""
        m, parts = self.cross.shape[1], []
        members = self._members()
        for _, k in self._strips():
            means = [k[:, own] @ self.weights[own] / len(own) for own in members]
            parts.append(torch.stack(means, 2))
        return torch.cat(parts) + (self.offset / m)[:, None]

    def spread(self, output: Output = None) -> Spread:
        """Mean, quartiles and ends of the scores over the training samples of each class."""
        means, quartiles, ends, members = [], [], [], self._members()
        for _, scores in self._of(output):
            own = [scores[:, numbers] for numbers in members]
            at = torch.tensor(QUARTILES, dtype=scores.dtype, device=scores.device)
            means.append(torch.stack([s.mean(1) for s in own], 1))
            quartiles.append(torch.stack([torch.quantile(s, at, dim=1).T for s in own], 1))
            ends.append(torch.stack([torch.stack([s.amin(1), s.amax(1)], 1) for s in own], 1))
        return Spread(torch.cat(means), torch.cat(quartiles), torch.cat(ends))

    def report(self, path: str | Path, **shown: Any) -> Path:
        """Writes the page on which a person asks why: one file that opens without a network.

        Args:
            path: of the file, such as "why.html".
            shown: what people see: labels, names of classes, pictures or texts, further kernels (see `explanation`).
        """
        from tangentkit.surrogate.explanation import explanation
        from tangentkit.surrogate.page import write_page

        return write_page(explanation(self, **shown), path)

    def _strips(self) -> Iterator[tuple[slice, Float[Tensor, "r m"]]]:
        return ((rows, k.to(self.weights)) for rows, k in self.cross.strips())

    def _of(self, output: Output) -> Iterator[tuple[slice, Float[Tensor, "r m"]]]:
        """Scores of one output for each sample, in blocks of rows."""
        chosen, m = self._outputs(output), self.cross.shape[1]
        weights = self.weights.T.contiguous()  # rows that are read one after the other, and not across memory
        for rows, k in self.cross.strips():
            # One output for all needs no copy of its weights for each sample.
            c = chosen[rows] if bool((chosen != chosen[0]).any()) else chosen[:1]
            yield rows, k.to(weights, copy=True).mul_(weights[c]).add_((self.offset[c] / m)[:, None])

    def _outputs(self, output: Output) -> Int[Tensor, " n"]:
        """The output of each sample."""
        n, c = len(self.network), len(self.offset)
        if output is None:
            chosen = self.predicted if self.about == "classes" else torch.zeros(n, dtype=torch.long)
        else:
            try:
                chosen = torch.as_tensor(output)
            except (TypeError, ValueError, RuntimeError):
                chosen = torch.empty(0)  # words and the like, refused below
            chosen = chosen.expand(n) if chosen.ndim == 0 else chosen
        if (
            chosen.shape != (n,)
            or chosen.is_floating_point()
            or not bool(((chosen >= 0) & (chosen < c)).all())
        ):
            raise InputError(
                "bad output",
                expected=f"a number from 0 to {c - 1}, or {n} of them",
                got=repr(output),
                hint="classes are numbered as the network's outputs are: classes.index(name)"
                if isinstance(output, str)
                else None,
            )
        return chosen.long().to(self.weights.device)

    def _members(self) -> list[Int[Tensor, " k"]]:
        """The training samples of each class."""
        return [(self.labels == label).nonzero()[:, 0] for label in self.labels.unique()]


def both_sides(
    weights: Float[Tensor, "m c"], offset: Float[Tensor, " c"]
) -> tuple[Float[Tensor, "m k"], Float[Tensor, " k"]]:
    """Weights and offset of both classes where there is one logit z, that of the second: of (-z, z).

    Each of the two is the log-odds of its class against the other. With more outputs nothing is changed.

    Example:
        >>> both_sides(torch.tensor([[2.0], [-1.0]]), torch.tensor([0.5]))
        (tensor([[-2.,  2.],
                [ 1., -1.]]), tensor([-0.5000,  0.5000]))
    """
    return (
        (torch.cat([-weights, weights], 1), torch.cat([-offset, offset]))
        if len(offset) == 1
        else (weights, offset)
    )


def _extreme(scores: Tensor, k: int, *, largest: bool) -> tuple[Tensor, Tensor]:
    values, columns = largest_of(scores if largest else -scores, k)
    return (values if largest else -values), columns
