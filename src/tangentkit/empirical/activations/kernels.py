"""Kernels of activations: the conjugate kernel of the last layer's input, the embedding kernel of all layers."""

import warnings
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, batch_size, check_same_structure, describe, take
from tangentkit.core.buffer_pool import zeros
from tangentkit.core.errors import InputError, ModelError, TangentkitError
from tangentkit.core.model.functions import Forward, ModelFunction
from tangentkit.core.model.refusals import refusal
from tangentkit.empirical.activations.heads import HeadProduct, last_product
from tangentkit.empirical.activations.watching import Activations, inputs_of, outputs_of
from tangentkit.linalg.operators.symmetry import mirrored

LINEAR = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)


class LeftOutWarning(UserWarning):
    """Layers do not count in a kernel of all layers, since their activations do not have the samples first."""


class PositionsWarning(UserWarning):
    """The last layer is applied at several positions of a sample, so that its input is more than what is put out."""


class ActivationKernel(Kernel):
    """What kernels of activations share: whose they are, and the memory that the passes may take."""

    activations: Activations

    @property
    def memory(self) -> int | str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bytes that the user gave it to work with; None leaves it open."""
        return self.activations.memory

    def within(self, memory: int) -> "ActivationKernel":
        """The kernel with this working memory in bytes, if its own was left open."""
        if self.memory is not None:
            return self
        return self._replaced(activations=self.activations.within(memory))


class ConjugateKernel(ActivationKernel):
    """The Gram of the last layer's input: k(x, y) = h(x) · h(y) (+ 1 with bias).

    It is the tangent kernel of the last layer of a network with one output. Where that layer is applied at several
    positions of a sample, as in Hugging Face's classifiers on decoders (Llama, GPT-2), h(x) is all positions in a
    row, padding too, and a warning says so; `TangentKernel(model, 0, params=["score.weight"])` is then the kernel
    of what reaches the output.

    Args:
        model: in evaluation mode where that matters.
        layer: name of the layer whose input is h; by default the last linear layer that the model calls, or the last
            product with a weight (`F.linear(h, w)`, `h @ w`) where that comes after it.
        bias: whether to add 1, for the layer's bias.
        forward: (model, batch) -> output, for models with other inputs.
        memory: working memory, in bytes or as "2GB".

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> ConjugateKernel(model).features(torch.randn(5, 3)).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str | None = None,
        *,
        bias: bool = False,
        forward: Forward | None = None,
        memory: int | str | None = None,
    ):
        self.activations = Activations(model, inputs_of, forward=forward, memory=memory)
        if not isinstance(layer, (str, NoneType)):
            raise InputError(
                "layer is no name",
                expected="one name",
                got=repr(layer),
                hint="EmbeddingKernel for several layers",
            )
        if layer is not None:
            self.activations.check_name(layer)
        self.layer, self.bias = layer, bias
        self._heads: dict[str, str | HeadProduct] = {}
        self._told = False

    def __repr__(self) -> str:
        layer = "last product with a weight" if self.layer is None else f"layer={self.layer!r}"
        return f"ConjugateKernel({self.activations.function!r}; {layer}, bias={self.bias})"

    def features(self, x: Batch) -> Tensor:
        """h(x) (n, d), with a column of ones if there is a bias."""
        return self._features(self.activations.checked(x))

    def _features(self, x: Batch) -> Tensor:
        head = self._head(x)
        h = torch.cat(
            list(self._of_product(x, head) if isinstance(head, HeadProduct) else self._of_layer(x, head))
        )
        return torch.cat([h, h.new_ones(len(h), 1)], 1) if self.bias else h

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """h(x) h(y)ᵀ."""
        x = self.activations.checked(x)
        if y is not None:
            y = self.activations.checked(y)
            check_same_structure(x, y)
        hx = self._features(x)
        return mirrored(hx @ hx.T) if y is None else hx @ self._features(y).T

    def diag(self, x: Batch) -> Tensor:
        """‖h(x)‖²."""
        return self.features(x).square().sum(1)

    def layer_of(self, x: Batch) -> str | None:
        """The name of the layer whose input the features of these samples are; None where no module makes it."""
        head = self._head(self.activations.checked(x))
        return head if isinstance(head, str) else None

    def functions(self) -> tuple[ModelFunction, ...]:
        """The network at its snapshot."""
        return (self.activations.function,)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """The dtype and device of the model."""
        return self.activations.function.dtype, self.activations.function.device

    def _of_layer(self, x: Batch, layer: str) -> Iterator[Tensor]:
        for _, calls in self.activations.pieces(x, [layer]):
            if not calls:
                raise _not_called(f"the model never calls layer {layer!r}", self.activations, x)
            h = calls[-1][1]  # the last call counts
            self._tell_positions(layer, h.shape[1])
            yield h

    def _tell_positions(self, name: str, width: int) -> None:
        """Warns, once, of a last layer that was found, not asked for, and has the input of many positions."""
        layer = self.activations.modules[name]
        if self._told or self.layer is not None or not isinstance(layer, nn.Linear):
            return
        if width > layer.in_features:
            self._told = True
            text = (
                f"layer {name!r} is applied at {width // layer.in_features} positions of a sample, padding too, "
                f"and all of them count; TangentKernel(model, 0, params=['{name}.weight']) counts what reaches the "
                f"output, layer={name!r} says that all are meant"
            )
            warnings.warn(text, PositionsWarning, stacklevel=7)

    def _of_product(self, x: Batch, product: HeadProduct) -> Iterator[Tensor]:
        for samples in self.activations.spans(x, self.activations.survey(x, [])):
            yield product.inputs(take(x, samples))

    def _refusal(self, error: Exception, *data: Any) -> TangentkitError | None:
        return refusal(self.activations.function, error, *data)

    def _head(self, x: Batch) -> str | HeadProduct:
        if self.layer is not None:
            return self.layer
        if describe(x) not in self._heads:
            activations = self.activations
            linear = {name: activations.modules[name] for name in activations.of_kind(LINEAR)}
            head = last_product(activations.function, x, linear)
            if head is None:
                raise _not_called("the model never calls a linear layer", activations, x)
            self._heads[describe(x)] = head
        return self._heads[describe(x)]


class EmbeddingKernel(ActivationKernel):
    """The sum of the Grams of activations: k(x, y) = Σ_l a_l(x) · a_l(y).

    Activations are kept for as many samples as fit the memory budget, and made again for each tile of the kernel.

    Args:
        model: in evaluation mode where that matters.
        layers: names of modules whose outputs count; by default every module without children, except those that
            only pass on or rearrange their input (dropout, flatten, identity), and those whose outputs do not have
            the samples first (embeddings of positions, say), which a warning names.
        forward: (model, batch) -> output, for models with other inputs.
        memory: working memory, in bytes or as "2GB".

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> EmbeddingKernel(model)(torch.randn(5, 3)).shape
        torch.Size([5, 5])
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str] | None = None,
        *,
        forward: Forward | None = None,
        memory: int | str | None = None,
    ):
        self.activations = Activations(model, outputs_of, forward=forward, memory=memory)
        if isinstance(layers, str):
            raise InputError(
                "layers is one string", expected="a list of names", got=repr(layers), hint=f"[{layers!r}]"
            )
        for layer in layers or ():
            self.activations.check_name(layer)
        self.layers = list(layers) if layers is not None else self.activations.leaves()
        self._all, self._told = layers is None, False

    def __repr__(self) -> str:
        which = f"layers: all {len(self.layers)}" if self._all else f"layers={self.layers}"
        return f"EmbeddingKernel({self.activations.function!r}; {which})"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """Σ_l a_l(x) a_l(y)ᵀ."""
        x = self.activations.checked(x)
        if y is None:
            return self._symmetric(x)
        y = self.activations.checked(y)
        check_same_structure(x, y)
        total = self._zeros(batch_size(x), batch_size(y))
        for rows, a in self._pieces(x):
            for columns, b in self._pieces(y):
                _add_grams(total[rows, columns], a, b)
                b.clear()  # before the next piece is made
            a.clear()
        return total

    def diag(self, x: Batch) -> Tensor:
        """Σ_l ‖a_l(x)‖²."""
        x = self.activations.checked(x)
        norms = self._zeros(batch_size(x), 1)[:, 0]
        for samples, a in self._pieces(x):
            for h in a.values():
                norms[samples] += h.square().sum(1)
        return norms

    def functions(self) -> tuple[ModelFunction, ...]:
        """The network at its snapshot."""
        return (self.activations.function,)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """The dtype and device of the model."""
        return self.activations.function.dtype, self.activations.function.device

    def growth(self, x: Batch, small: int, large: int) -> float:
        """How many times as much work a tile of `large` samples a side is, by its passes, for each piece of rows."""
        x = self.activations.checked(x)
        together = self.activations.at_once(self.activations.survey(x, self.layers))
        return (large * max(large, together)) / (small * max(small, together))

    def _symmetric(self, x: Batch) -> Tensor:
        total = self._zeros(batch_size(x), batch_size(x))
        for rows, a in self._pieces(x):
            _add_grams(total[rows, rows], a, a)
            mirrored(total[rows, rows])
            for columns, b in self._pieces(take(x, slice(0, rows.start))) if rows.start else ():
                _add_grams(total[rows, columns], a, b)
                total[columns, rows] = total[rows, columns].T
                b.clear()  # before the next piece is made
            a.clear()
        return total

    def _refusal(self, error: Exception, *data: Any) -> TangentkitError | None:
        return refusal(self.activations.function, error, *data)

    def _zeros(self, n: int, m: int) -> Tensor:
        return zeros(next(iter(self.activations.function.params.values())), n, m)

    def _counting(self, x: Batch) -> list[str]:
        """The layers whose activations have the samples first; the others are named, once."""
        elsewhere = self.activations.survey(x, self.layers).elsewhere
        if len(elsewhere) == len(self.layers):
            return self.layers  # which is refused, as if they had been asked for
        if elsewhere and not self._told:
            self._told = True
            names = ", ".join(repr(layer) for layer in self.layers if layer in elsewhere)
            text = f"{len(elsewhere)} layer(s) without the samples first are left out: {names}"
            warnings.warn(f"{text}; layers=[...] chooses others", LeftOutWarning, stacklevel=6)
        return [layer for layer in self.layers if layer not in elsewhere]

    def _pieces(self, x: Batch) -> Iterator[tuple[slice, dict[tuple[str, int], Tensor]]]:
        """(samples, {(layer, number of its call): output (n, d)}) for each piece of the batch."""
        for samples, calls in self.activations.pieces(x, self._counting(x) if self._all else self.layers):
            if not calls:
                raise _not_called("the model calls none of the layers", self.activations, x)
            found: dict[tuple[str, int], Tensor] = {}
            for name, h in calls:
                found[name, sum(layer == name for layer, _ in found)] = h
            calls.clear()
            del h
            yield samples, found


def _add_grams(total: Tensor, a: dict[tuple[str, int], Tensor], b: dict[tuple[str, int], Tensor]) -> None:
    """Adds the Grams of all calls that both have: what one of them does not call counts as zero."""
    for key in (key for key in a if key in b):
        total.addmm_(a[key].to(total), b[key].to(total).T)


def _not_called(problem: str, activations: Activations, x: Batch) -> ModelError:
    called = activations.called(x)
    shown = ", ".join(f"{name!r} ({type(activations.modules[name]).__name__})" for name in called[:10])
    more = f", ... ({len(called)} in all)" if len(called) > 10 else ""
    return ModelError(
        problem,
        expected="a layer that its forward calls",
        got=f"calls of {shown}{more}" if called else "no call of any module",
        hint="the name of one of these" if called else "a module of its own for the layer that is meant",
    )
