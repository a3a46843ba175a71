"""The kernel surrogate of a network: a kernel machine on the network's own kernel and training data."""

import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from sklearn.base import clone
from torch import Tensor, nn

from tangentkit.compute.gram import gram as gram_of
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource, as_source, sources_of
from tangentkit.compute.terms import HasFeatures
from tangentkit.core.errors import InputError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress, counted_off
from tangentkit.linalg.operators.matrices import FactorOperator, as_operator
from tangentkit.linalg.operators.operator import Operator
from tangentkit.linalg.operators.spans import spans
from tangentkit.linearized.labeled import labeled
from tangentkit.machines import KernelGLM
from tangentkit.surrogate.attribution import Attribution, both_sides
from tangentkit.surrogate.cross_matrix import CrossMatrix, OfFeatures, OfKernel, OfOperator
from tangentkit.surrogate.faithfulness import Faithfulness, measure_faithfulness
from tangentkit.surrogate.matrix_check import check_matrix
from tangentkit.surrogate.network import class_labels, network_logits, network_of

AT_ONCE = 1024
"""Samples whose features are computed at a time."""


class Surrogate:
    """A kernel machine in place of a network: logits W κ(X, x) + b on the network's own kernel κ.

    It is fitted to the network's training data with their true labels, and stands for the network as far as it is
    faithful (`faithfulness`). Being a sum over training samples, it says which of them a decision comes from
    (`attribute`).

    The kernel is any of this library, of this very network (of a kernel that has no network, such as an infinite
    one, nothing is checked). One with features (conjugate, sketched, and their `normalized()`) is solved in the
    features where these are fewer than the samples. A Gram matrix that is there already, in memory or stored, is
    given to `fit` and the matrices between samples and training samples to the methods that need them.

    Args:
        model: the network, in evaluation mode, with one output for each class, or one logit for two.
        kernel: its kernel. The published surrogate has `tk.TangentKernel(model).normalized()`.
        machine: what is fitted: by default `KernelGLM()`; `KernelGLM(solver="sgd", ridge=1e-4)` is the published one.
        forward: how the model is called, (model, batch) -> (n, c); by default as the kernel calls it.

    Attributes:
        coef_: W (m, c), a row for each training sample.
        intercept_: b (c,).
        machine_: the fitted machine.
        labels_: the labels of the training samples.

    Example:
        >>> from tangentkit import TangentKernel
        >>> model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
        >>> x, y = torch.randn(30, 2), torch.arange(30) % 3
        >>> surrogate = Surrogate(model, TangentKernel(model).normalized()).fit(x, y)
        >>> surrogate.predict_proba(x[:4]).shape, surrogate.attribute(x[:4]).scores.shape
        (torch.Size([4, 3]), torch.Size([4, 3, 30]))
    """

    coef_: Tensor
    intercept_: Tensor
    machine_: KernelGLM
    labels_: Tensor
    classes_: Tensor
    train_: SampleSource
    features_: Tensor | None
    gram_: Operator | None

    def __init__(
        self,
        model: nn.Module,
        kernel: Kernel,
        *,
        machine: KernelGLM | None = None,
        forward: Forward | None = None,
    ):
        if not isinstance(kernel, Kernel):
            raise InputError(
                "not a kernel",
                expected="a kernel of this library",
                got=type(kernel).__name__,
                hint="a matrix is given to fit: Surrogate(model, kernel).fit(x, y, gram=K)",
            )
        if machine is not None and not isinstance(machine, KernelGLM):
            raise InputError("not a machine", expected="a KernelGLM", got=type(machine).__name__)
        self.kernel = kernel
        self.machine = KernelGLM() if machine is None else machine
        self.network = network_of(model, kernel, forward)

    def __repr__(self) -> str:
        fitted = f", fitted on {len(self.labels_):,} samples" if hasattr(self, "labels_") else ""
        return f"Surrogate({self.kernel!r}){fitted}"

    @briefly
    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        gram: Operator | Tensor | None = None,
        progress: bool | Progress = True,
    ) -> "Surrogate":
        """Fits the machine to training samples and their labels.

        Args:
            x: the samples: a batch, or a data set.
            y: their labels, numbers of the network's outputs; None for a data set of pairs or labeled data.
            gram: the kernel matrix κ(x, x) where it is there already, such as a stored one of `tk.gram`.
            progress: whether to show a bar on a terminal; or a function (stage, done, total).

        Raises:
            InputError: labels and samples do not match, a class of the network has no sample, or the given matrix
                is of another kernel, network or other samples.
            BudgetError: the kernel matrix does not fit in memory.
        """
        x, y = _parted(x, y)
        source = sources_of(self.kernel, x)["x"]
        outputs = network_logits(self.network, _first(source)).shape[1]
        labels = class_labels(y, outputs, len(source), every=True)
        fitted = copy.copy(self)  # what an earlier fit has found stays whole if this one is refused
        fitted.features_ = fitted.gram_ = None
        if gram is None and isinstance(self.kernel, HasFeatures):
            fitted.features_ = _features(self.kernel, source, progress)
        else:
            given = gram_of(self.kernel, source, progress=progress) if gram is None else as_operator(gram)
            _check_gram(given, len(source))
            if gram is not None:
                check_matrix(given, self.kernel, source, source, "the Gram matrix")
            fitted.gram_ = given
        fitted.train_, fitted.labels_ = source, labels
        fitted.classes_ = torch.arange(outputs)
        vars(self).update(vars(fitted._solved(self.machine)))
        return self

    def refitted(self, machine: KernelGLM) -> "Surrogate":
        """Another surrogate on the same kernel matrix or features, which are not computed again.

        Args:
            machine: with other options.
        """
        self._check_fitted()
        twin = copy.copy(self)
        twin.machine = machine
        return twin._solved(machine)

    def _solved(self, machine: KernelGLM) -> "Surrogate":
        fresh = clone(machine)
        assert isinstance(fresh, KernelGLM)
        fresh.kernel = "precomputed" if self.features_ is None else "features"
        self.machine_ = fresh.fit(self.gram_ if self.features_ is None else self.features_, self.labels_)
        self.coef_ = torch.as_tensor(fresh.dual_coef_).double()
        self.intercept_ = torch.as_tensor(fresh.intercept_).double()
        return self

    def decision_function(self, x: Any, *, cross: Operator | Tensor | None = None) -> Float[Tensor, "n c"]:
        """The logits W κ(X, x) + b of every class; of a one-against-rest machine of two classes the second alone.

        Args:
            x: samples.
            cross: κ(x, train) (n, m), where it is there already.
        """
        return self._own(self.attribute(x, cross=cross).logits)

    def predict_proba(self, x: Any, *, cross: Operator | Tensor | None = None) -> Float[Tensor, "n c"]:
        """Probabilities of the classes."""
        return self._probabilities(self.decision_function(x, cross=cross))

    def predict(self, x: Any, *, cross: Operator | Tensor | None = None) -> Int[Tensor, " n"]:
        """The most probable class."""
        return self.predict_proba(x, cross=cross).argmax(1)

    def score(self, x: Any, y: Any, *, cross: Operator | Tensor | None = None) -> float:
        """The share of samples whose class is predicted rightly."""
        guessed = self.predict(x, cross=cross)
        labels = class_labels(y, len(self.classes_), len(guessed))
        return float((guessed.cpu() == labels).double().mean())

    @briefly
    def attribute(self, x: Any, *, cross: Operator | Tensor | None = None) -> Attribution:
        """Which training samples the logits of samples come from: A(x, x_i)^c = W_ic κ(x, x_i) + b_c / m.

        There are scores for every class. Where the machine has one logit z for two classes (one against the rest),
        those for class 1 add up to z, and those for class 0 are their negatives.

        Args:
            x: samples.
            cross: κ(x, train) (n, m), where it is there already.
        """
        self._check_fitted()
        source = sources_of(self.kernel, x)["x"]
        if cross is not None:
            _check_cross(as_operator(cross), len(source), len(self.labels_))
            check_matrix(as_operator(cross), self.kernel, source, self.train_, "the matrix `cross`")
        errors = getattr(self.kernel, "with_error", None)
        weights, offset = both_sides(self.coef_, self.intercept_)
        return Attribution(
            self._cross(source, cross),
            weights,
            offset,
            labels=self.labels_,
            network=network_logits(self.network, source),
            samples=(source, self.train_),
            gram=self.gram_ if self.features_ is None else FactorOperator(self.features_),
            with_error=errors if cross is None else None,
            one_logit=len(self.intercept_) == 1,
        )

    def self_attribution(self) -> Float[Tensor, " m"]:
        """A(x_i, x_i)^{y_i} = W_{i, y_i} κ(x_i, x_i) + b / m: how much each training sample speaks for its own label.

        A sample whose label contradicts its neighbors must speak for itself, so large values hint at wrong labels;
        `representer_points` and `tk.audit` find them more surely.
        """
        self._check_fitted()
        if self.features_ is not None:
            diagonal = self.features_.square().sum(1)
        else:
            assert self.gram_ is not None
            diagonal = self.gram_.diagonal()
        W, b = self.coef_, self.intercept_
        if W.shape[1] == 1:
            sign = 2 * self.labels_.to(W) - 1
            return sign * (W[:, 0] * diagonal.to(W) + b / len(W))
        own = self.labels_.to(W.device)
        return W.gather(1, own[:, None])[:, 0] * diagonal.to(W) + b[own] / len(W)

    @briefly
    def faithfulness(
        self, x: Any, y: Any = None, *, cross: Operator | Tensor | None = None, **options: Any
    ) -> Faithfulness:
        """How faithfully it repeats the network on samples: Kendall's τ, TAD, agreement, R², each with its error.

        Args:
            x: samples, which the training did not see.
            y: their labels; None for a data set of pairs or labeled data.
            cross: κ(x, train) (n, m), where it is there already.
            options: see `measure_faithfulness`.
        """
        x, y = _parted(x, y)
        a = self.attribute(x, cross=cross)
        labels = class_labels(y, len(self.classes_), len(a.network))
        return measure_faithfulness(a.network, self._class_logits(self._own(a.logits)), labels, **options)

    def _cross(self, source: SampleSource, cross: Operator | Tensor | None) -> CrossMatrix:
        n, m = len(source), len(self.labels_)
        if cross is not None:
            given = as_operator(cross)
            _check_cross(given, n, m)
            return OfOperator(given)
        if self.features_ is not None:
            assert isinstance(self.kernel, HasFeatures)
            return OfFeatures(self.kernel.features, source, self.features_)
        return OfKernel(self.kernel, {"x": source, "y": self.train_})

    def _own(self, logits: Float[Tensor, "n k"]) -> Float[Tensor, "n c"]:
        """The logits of the machine itself, of those of all classes: of one logit alone the last."""
        return logits[:, -len(self.intercept_) :]

    def _class_logits(self, logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Logits whose softmax are the probabilities."""
        if logits.shape[1] == len(self.classes_) and not self.machine_._one_against_rest:
            return logits
        return self._probabilities(logits).log()

    def _probabilities(self, logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        scores = logits[:, 0] if logits.shape[1] == 1 else logits
        return self.machine_._probabilities(scores)

    def _check_fitted(self) -> None:
        if not hasattr(self, "labels_"):
            raise InputError("the surrogate is not fitted", expected="fit(x, y) first")


def _features(kernel: HasFeatures, source: SampleSource, progress: bool | Progress) -> Float[Tensor, "m d"]:
    """The features of all samples."""
    pieces = list(spans(len(source), AT_ONCE))
    first = kernel.features(source.read(pieces[0]))
    memory_budget().check(
        len(source) * first.shape[1] * first.element_size(),
        "features of the training samples are",
        of=f"{len(source):,} samples of {first.shape[1]:,} features",
        hint="a smaller dim, or tk.gram(kernel, x, store=...) and fit(x, y, gram=...)",
    )
    everything = first.new_empty(len(source), first.shape[1])
    with counted_off(progress, "features", len(pieces)) as advance:
        for span in pieces:
            everything[span] = first if span.start == 0 else kernel.features(source.read(span))
            advance()
    return everything


def _parted(x: Any, y: Any) -> tuple[Any, Any]:
    """Samples and labels; those of a data set of pairs, or of labeled data, where none are given."""
    if y is not None:
        return x, y
    pairs = labeled(x, None)
    y = torch.cat([torch.as_tensor(targets) for _, targets in pairs])
    return (x.inputs if hasattr(x, "inputs") else x), y


def _check_cross(given: Operator, n: int, m: int) -> None:
    if given.shape != (n, m):
        raise InputError(
            "the matrix does not match the samples",
            expected=f"κ(x, train) of shape ({n}, {m})",
            got=tuple(given.shape),
        )


def _check_gram(G: Operator, m: int) -> None:
    if G.shape != (m, m):
        between = G.shape[0] % m == 0 and G.shape[0] == G.shape[1]
        raise InputError(
            "a surrogate needs one number for each pair of samples"
            if between
            else "the Gram matrix does not match",
            expected=f"κ(x, x) of shape ({m}, {m})",
            got=f"{tuple(G.shape)}{', of a kernel between outputs' if between else ''}",
            hint='a kernel such as outputs="trace"' if between else None,
        )


def _first(source: SampleSource) -> SampleSource:
    return as_source(source.read(slice(0, min(2, len(source)))))
