"""What each layer of a network knows of the classes."""

import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import Dataset

from tangentkit.analysis.representations.capture import LayerOutputs, Pool
from tangentkit.analysis.representations.collapse import NeuralCollapse, neural_collapse, read_classes
from tangentkit.analysis.representations.components import ConstantActivationsError, principal_components
from tangentkit.analysis.representations.dimension import participation_ratio, two_nn
from tangentkit.analysis.representations.probes import (
    CLASSIFIERS,
    GRID,
    NEIGHBORS,
    LayerProbe,
    ProbeWarning,
    accuracies,
    checked_dims,
    dims_of,
)
from tangentkit.core.batches import Batch, batch_size
from tangentkit.core.callers import users_level
from tangentkit.core.errors import (
    InputError,
    ModelError,
    NumericalError,
    TangentkitError,
    UnknownNameError,
    briefly,
)
from tangentkit.core.model.functions import Forward
from tangentkit.empirical.activations.kernels import ConjugateKernel
from tangentkit.linearized.labeled import labeled
from tangentkit.machines.estimators.labels import check_one_label_each
from tangentkit.report import Column, Lines, Series, Table, drawn
from tangentkit.report.ticks import apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTHING = "and nothing can be told from it"
COLLAPSED = 3
"""Components within which all classifiers must do for a layer to count as collapsed."""


@dataclass(frozen=True)
class LayerProbes:
    """The layers of a network, from input to output."""

    layers: tuple[LayerProbe, ...]
    head: NeuralCollapse | None
    """NC1 to NC4 of the input of the last linear layer, with its weight; None where that layer has no row a class."""
    chance: float
    """The accuracy of the most frequent class, on the test samples."""
    test_samples: int
    left_out: dict[str, str] = field(default_factory=dict)
    """Layer -> why there is nothing to measure of it: it is constant over samples, as a dead one is, or does not
    have the samples first."""
    order: tuple[str, ...] = ()
    """The names of all layers, those left out too, from input to output."""

    def __getitem__(self, name: str) -> LayerProbe:
        for layer in self.layers:
            if layer.name == name:
                return layer
        if name in self.left_out:
            raise InputError(f"layer {name!r} is left out", got=self.left_out[name])
        raise UnknownNameError("layer", name, [layer.name for layer in self.layers])

    def __iter__(self) -> Iterator[LayerProbe]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def collapse_layer(self) -> str | None:
        """The first layer where every classifier reaches 0.9 of its best with at most three components.

        A layer on which a classifier is no better than chance, by three standard errors, does not count: there any
        number of components does.
        """
        above = self.chance + 3 * math.sqrt(self.chance * (1 - self.chance) / self.test_samples)
        for layer in self.layers:
            if all(layer.needed(c) <= COLLAPSED and layer.best(c) > above for c in CLASSIFIERS):
                return layer.name
        return None

    def table(self) -> Table:
        """A row for each layer."""
        remarks = self.left_out | {layer.name: layer.remark for layer in self.layers if layer.remark}
        columns = (
            "layer",
            "size",
            *(Column(f"best {c}", ".3f") for c in CLASSIFIERS),
            *(f"d90 {c}" for c in CLASSIFIERS),
            *(Column(f"variance {c}", ".0%") for c in CLASSIFIERS),
            *(Column(name, ".3g") for name in ("NC1", "NC2", "NC4", "TwoNN", "participation ratio")),
            *(["remark"] if remarks else []),
        )
        note = (
            "d90: components needed for 0.9 of the best accuracy; variance: what these explain. "
            "NC4 needs a network with an output for each class. "
            f"Collapse layer: {'none' if self.collapse_layer is None else self.collapse_layer!r}."
        )
        found = {layer.name: layer for layer in self.layers}
        rows = tuple(
            (*_row(found[name]), *([found[name].remark] if remarks else []))
            if name in found
            else (name or "model", *[None] * (len(columns) - 2), self.left_out[name])
            for name in self.order or found
        )
        return Table("Layers", columns, rows, note=note)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Components needed for 0.9 of the best accuracy, over depth."""
        depth = range(1, len(self.layers) + 1)
        series = {c: Series(depth, [layer.needed(c) for layer in self.layers]) for c in CLASSIFIERS}
        figure = Lines(
            title="Components needed",
            caption="The fewest principal components with 0.9 of each classifier's best accuracy, layer by layer.",
            series=series,
            x_label="layer",
            y_label="components for 90 %",
            y_scale="log",
        )
        ax = drawn(figure, ax)
        needed = apart([layer.needed(c) for layer in self.layers for c in CLASSIFIERS])
        ax.set_yticks(needed, [f"{d:g}" for d in needed])
        ax.minorticks_off()
        ax.set_xticks(list(depth), [layer.name for layer in self.layers], rotation=45, ha="right")
        return ax

    def plot_accuracy(self, classifier: str, ax: "Axes | None" = None) -> "Axes":
        """Accuracy of a classifier over the number of components, a line for each layer."""
        series = {
            layer.name or "model": Series(layer.dims, layer.accuracy[classifier]) for layer in self.layers
        }
        figure = Lines(
            title=f"Accuracy of {classifier}",
            caption="Test accuracy on the first principal components of each layer.",
            series=series,
            x_label="principal components",
            y_label="test accuracy",
            x_scale="log",
            level=self.chance,
        )
        return drawn(figure, ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "layers": [layer.to_dict() for layer in self.layers],
            "left_out": self.left_out,
            "head": None if self.head is None else self.head.to_dict(),
            "collapse_layer": self.collapse_layer,
            "chance": self.chance,
            "test_samples": self.test_samples,
        }


@briefly
def probe_layers(
    model: nn.Module,
    x: Batch | Dataset,
    y: Any = None,
    x_test: Batch | Dataset | None = None,
    y_test: Any = None,
    *,
    layers: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
    pool: Pool | None = None,
    forward: Forward | None = None,
    memory: int | str | None = None,
) -> LayerProbes:
    """How well classes can be told from the first principal components of each layer, and how far it has collapsed.

    For every layer: activations, standardized by the training samples; their principal components; and on the first d
    of these, for several d, test accuracies of 10 nearest neighbors, nearest class center and a linear
    support vector machine. By the 90 % rule a classifier needs the fewest components with 0.9 of its best accuracy.
    Neural collapse and intrinsic dimensions (TwoNN, participation ratio) are those of the raw training activations.

    Layers are held as far as memory allows: the network runs as often as there are groups of layers that fit.

    Args:
        model: in evaluation mode where that matters.
        x: training samples, n of them; or a map-style data set of pairs (input, label) that fits in memory.
        y: their labels (n,); None where they come with x.
        x_test: test samples, likewise.
        y_test: their labels, of the same classes.
        layers: names of modules whose outputs count; by default the blocks of the model, in the order of their calls.
        dims: numbers of components to try; by default 1 to 20, then coarser to 500, and all of smaller layers.
        pool: what of a layer's output counts, such as `lambda h: h.flatten(2).mean(2)` for the mean over pixels;
            by default everything, flattened.
        forward: (model, batch) -> output, for models with other inputs.
        memory: working memory, in bytes or as "2GB".

    Raises:
        InputError: too few samples, one class only, labels that do not match.
        NumericalError: a layer is not finite, or all are constant. One that is, such as a dead one, is left out with
            a warning, and the table says so; as it does of blocks without the samples first.
        BudgetError: one layer does not fit the memory.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> y = torch.arange(60) % 2
        >>> x = torch.randn(60, 4) + 3 * y[:, None]
        >>> found = probe_layers(model, x[:40], y[:40], x[40:], y[40:])
        >>> [layer.name for layer in found], found["1"].best("nearest center") > 0.8
        (['0', '1', '2'], True)
    """
    x, y = _pairs(x, y, "training")
    x_test, y_test = _pairs(x_test, y_test, "test")
    names, train, test = _labels(y, y_test)
    dims = checked_dims(dims)
    outputs = LayerOutputs(model, (x, x_test), layers, pool=pool, forward=forward, memory=memory)
    for batch, labels in zip(outputs.batches, (train, test), strict=True):
        check_one_label_each(labels, batch_size(batch))
    network = outputs.network_classes(0, len(names))
    most = GRID[-1] if dims is None else max(dims)
    found: list[LayerProbe] = []
    order: list[str] = []
    constant: dict[str, ConstantActivationsError] = {}
    for group in outputs.groups():
        while group:
            name, activations = group.pop(0)
            order.append(name)
            try:
                found.append(_probed(name, activations, (train, test), network, dims, most))
            except ConstantActivationsError as error:
                constant[name] = error
    if not found:
        raise next(iter(constant.values()))
    dead = {
        name: f"{error.problem.removeprefix(f'layer {name!r}: ')}, {NOTHING}"
        for name, error in constant.items()
    }
    left_out = dead | dict.fromkeys(outputs.elsewhere, "its first axis is not that of the samples")
    _warn_of("constant over all training samples, and left out", dead)
    _warn_of("without the samples first, and left out; layers=[...] chooses others", outputs.elsewhere)
    _warn_of("too few different points for TwoNN", [layer.name for layer in found if layer.two_nn is None])
    try:
        head = _head(model, outputs.batches[0], train, len(names), forward, memory)
    except NumericalError:
        if not dead:
            raise
        head = None  # what comes to the last layer is constant too
    chance = int(torch.bincount(test).max()) / len(test)
    return LayerProbes(tuple(found), head, chance, len(test), left_out, outputs.in_order(order))


def _warn_of(what: str, layers: Collection[str]) -> None:
    if layers:
        warnings.warn(f"{what}: {', '.join(map(repr, layers))}", ProbeWarning, stacklevel=users_level())


def _pairs(x: Any, y: Any, which: str) -> tuple[Batch, Any]:
    if x is None or (y is None and isinstance(x, (Tensor, np.ndarray))):
        raise InputError(
            f"no {which} samples with labels",
            expected="x and y, or a data set of pairs (input, label)",
            got="nothing" if x is None else "x alone",
        )
    return (x, y) if y is not None else labeled(x, None).take(slice(None))


def _probed(
    name: str,
    activations: list[Float[Tensor, "n d"]],
    labels: tuple[Int[Tensor, " n"], Int[Tensor, " m"]],
    network: Tensor | None,
    dims: Sequence[int] | None,
    most: int,
) -> LayerProbe:
    h, h_test = activations
    y, y_test = labels
    try:
        components = principal_components(h, h_test, most)
        tried = dims_of(dims, components.train.shape[1])
        dimension, remark = _two_nn(h)
        return LayerProbe(
            name=name,
            size=h.shape[1],
            dims=tried,
            accuracy=accuracies(components, y.numpy(), y_test.numpy(), tried, name),
            variance=tuple(float(components.variance[d - 1]) for d in tried),
            collapse=neural_collapse(h, y, predictions=network),
            two_nn=dimension,
            participation_ratio=participation_ratio(h),
            remark=remark,
        )
    except TangentkitError as error:
        raise type(error)(
            f"layer {name!r}: {error.problem}", expected=error.expected, got=error.got, hint=error.hint
        ) from error


def _two_nn(h: Float[Tensor, "n d"]) -> tuple[float | None, str]:
    """The dimension by nearest neighbors; or none, and why there is none."""
    try:
        return two_nn(h), ""
    except TangentkitError as error:
        return None, f"{error.problem}: {error.got}" + (
            " that differ" if isinstance(error, InputError) else ""
        )


def _labels(y: Any, y_test: Any) -> tuple[np.ndarray, Int[Tensor, " n"], Int[Tensor, " m"]]:
    names, train = read_classes(y, name="probe_layers")
    if len(train) < 2 * NEIGHBORS:
        raise InputError(
            "too few training samples",
            expected=f"{2 * NEIGHBORS} or more, for {NEIGHBORS}-NN",
            got=len(train),
        )
    # One class may be all there is in a test set: together with the others it is read.
    everything, index = read_classes(np.concatenate([_array(y), _array(y_test)]), name="probe_layers")
    if len(everything) > len(names):
        new = sorted(set(everything.tolist()) - set(names.tolist()))
        raise InputError(
            "test labels of a class without training samples", expected=names.tolist(), got=new[:5]
        )
    return names, train, index[len(train) :]


def _array(labels: Any) -> np.ndarray:
    return np.ravel(labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels))


def _head(
    model: nn.Module, x: Batch, y: Tensor, classes: int, forward: Forward | None, memory: int | str | None
) -> NeuralCollapse | None:
    """Neural collapse before the last linear layer, where that has a row of weights for each class."""
    try:
        layer = ConjugateKernel(model, forward=forward, memory=memory).layer_of(x)
    except ModelError:
        return None  # a model without a linear layer
    head = None if layer is None else model.get_submodule(layer)
    if not isinstance(head, nn.Linear) or head.out_features != classes:
        return None
    h = ConjugateKernel(model, layer, forward=forward, memory=memory).features(x)
    if h.shape[1] != head.in_features:
        return None  # applied at several positions of a sample
    return neural_collapse(h, y, head.weight, bias=head.bias)


def _row(layer: LayerProbe) -> tuple:
    return (
        layer.name or "model",
        layer.size,
        *(layer.best(c) for c in CLASSIFIERS),
        *(layer.needed(c) for c in CLASSIFIERS),
        *(layer.variance_needed(c) for c in CLASSIFIERS),
        layer.collapse.nc1,
        layer.collapse.nc2,
        layer.collapse.nc4,
        layer.two_nn,
        layer.participation_ratio,
    )
