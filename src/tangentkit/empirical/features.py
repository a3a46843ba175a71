"""Kernels of activations: the conjugate kernel of the last layer's input, the embedding kernel of all layers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit.compute.identity import Plain, identify
from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import (
    Batch,
    as_batch,
    batch_size,
    check_same_structure,
    describe,
    split,
    take,
    tensors,
)
from tangentkit.core.errors import InputError, ModelError, NumericalError, UnknownNameError
from tangentkit.core.functions import Forward, ModelFunction, check_inputs, snapshot
from tangentkit.core.memory import memory_budget
from tangentkit.empirical.structure import check_same_outputs, spread
from tangentkit.empirical.verification import distinct

LINEAR = (nn.Linear, nn.Bilinear, nn.modules.linear.NonDynamicallyQuantizableLinear)
SILENT = (nn.modules.dropout._DropoutNd, nn.Flatten, nn.Unflatten, nn.Identity)
"""Modules whose output is their input, rearranged: counting them would count the input twice."""


class ConjugateKernel(Kernel):
    """The Gram of the last layer's input: k(x, y) = h(x) · h(y) (+ 1 with bias).

    It is the tangent kernel of the last layer of a network with one output.

    Args:
        model: in evaluation mode where that matters.
        layer: name of the layer whose input is h; by default the last linear layer that the model calls.
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
        self.activations = _Activations(model, forward, memory)
        if not isinstance(layer, (str, NoneType)):
            raise InputError(
                "layer is no name",
                expected="one name",
                got=repr(layer),
                hint="EmbeddingKernel for several layers",
            )
        if layer is not None and layer not in self.activations.modules:
            raise UnknownNameError("layer", layer, self.activations.modules)
        self.layer, self.bias = layer, bias

    def features(self, x: Batch) -> Tensor:
        """h(x) (n, d), with a column of ones if there is a bias."""
        seen: dict[str, Tensor] = {}

        def keep(name: str, h: Tensor) -> None:
            seen.pop(name, None)  # the last call counts, and the order of calls
            seen[name] = h

        def last() -> Tensor:
            if not seen:
                what = f"layer {self.layer!r}" if self.layer else "a linear layer"
                raise ModelError(
                    f"the model never calls {what}", hint="layer=name of a layer that its forward calls"
                )
            return next(reversed(seen.values()))

        wanted = [self.layer] if self.layer is not None else self.activations.names(LINEAR)
        h = torch.cat([last() for _ in self.activations.run(x, wanted, _input, keep, seen.clear)])
        return torch.cat([h, h.new_ones(len(h), 1)], 1) if self.bias else h

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """h(x) h(y)ᵀ."""
        if y is not None:
            check_same_structure(as_batch(x), as_batch(y))
        hx = self.features(x)
        return hx @ (hx if y is None else self.features(y)).T

    def diag(self, x: Batch) -> Tensor:
        """‖h(x)‖²."""
        return self.features(x).square().sum(1)


class EmbeddingKernel(Kernel):
    """The sum of the Grams of activations: k(x, y) = Σ_l a_l(x) · a_l(y).

    Args:
        model: in evaluation mode where that matters.
        layers: names of modules whose outputs count; by default every module without children, except those that
            only pass on or rearrange their input (dropout, flatten, identity).
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
        self.activations = _Activations(model, forward, memory)
        if isinstance(layers, str):
            raise InputError(
                "layers is one string", expected="a list of names", got=repr(layers), hint=f"[{layers!r}]"
            )
        for layer in layers or ():
            if layer not in self.activations.modules:
                raise UnknownNameError("layer", layer, self.activations.modules)
        self.layers = list(layers) if layers is not None else self.activations.leaves()

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """Σ_l a_l(x) a_l(y)ᵀ."""
        if y is not None:
            check_same_structure(as_batch(x), as_batch(y))
        rows = list(self._pieces(x))
        columns = rows if y is None else list(self._pieces(y))
        return torch.cat([torch.cat([_sum_of_grams(a, b) for b in columns], 1) for a in rows])

    def diag(self, x: Batch) -> Tensor:
        """Σ_l ‖a_l(x)‖²."""
        parts = [sum(h.square().sum(1) for h in calls.values()) for calls in self._pieces(x)]
        return torch.cat([part for part in parts if isinstance(part, Tensor)])

    def _pieces(self, x: Batch) -> Iterator[dict[tuple[str, int], Tensor]]:
        """For each piece of the batch: (layer, number of its call) -> flattened output."""
        seen: dict[tuple[str, int], Tensor] = {}

        def keep(name: str, h: Tensor) -> None:
            seen[name, sum(layer == name for layer, _ in seen)] = h

        for _ in self.activations.run(x, self.layers, _output, keep, seen.clear):
            yield dict(seen)


def _sum_of_grams(a: dict[tuple[str, int], Tensor], b: dict[tuple[str, int], Tensor]) -> Tensor:
    total = sum(a[key] @ b[key].T for key in a if key in b)
    if not isinstance(total, Tensor):
        raise ModelError(
            "the model calls none of the layers", hint="layers=names of modules that its forward calls"
        )
    return total


class _Activations:
    """Runs a snapshot of a model piece by piece and shows what modules take in and give out."""

    def __init__(self, model: nn.Module, forward: Forward | None, memory: int | str | None):
        self.function: ModelFunction = snapshot(model, params=lambda *_: True, forward=forward)
        self.modules = dict(model.named_modules())
        self.memory = memory
        self._samples = 0
        self._elsewhere: set[str] = set()
        self._known_elsewhere: dict[str, set[str]] = {}

    def identity(self) -> Plain:
        """The model, for the identity of kernels."""
        return identify(self.function)

    def names(self, kinds: tuple[type, ...]) -> list[str]:
        return [name for name, module in self.modules.items() if isinstance(module, kinds)]

    def leaves(self) -> list[str]:
        return [
            name for name, m in self.modules.items() if not any(m.children()) and not isinstance(m, SILENT)
        ]

    def run(
        self,
        x: Batch,
        layers: Sequence[str],
        pick: "Pick",
        keep: Callable[[str, Tensor], None],
        clear: Callable[[], None],
    ) -> Iterator[Batch]:
        x = as_batch(x)
        check_inputs(self.function, x)
        self._find_samples(x, layers, pick)
        for piece in split(x, self._piece_size(x)):
            clear()
            self._samples = batch_size(piece)
            self._watch(
                piece, layers, lambda name, *seen: keep(name, self.by_sample(name, pick(name, *seen)))
            )
            yield piece

    def _find_samples(self, x: Batch, layers: Sequence[str], pick: "Pick") -> None:
        """Notes layers whose first axis does not count the samples, by runs of two and three of them.

        Raises:
            ModelError: samples see each other.
        """
        if (shape := describe(x)) in self._known_elsewhere:
            self._elsewhere = self._known_elsewhere[shape]
            return
        trial, (two, three) = spread(x, 3), ({}, {})
        for n, calls in ((2, two), (3, three)):

            def keep(name: str, *seen: Any, calls: dict[str, list[Tensor]] = calls) -> None:
                calls.setdefault(name, []).append(pick(name, *seen).clone())

            self._watch(take(trial, slice(0, n)), layers, keep)
        self._elsewhere = set()
        for name, calls in two.items():
            for a, b in zip(calls, three.get(name, []), strict=False):
                if (a.shape[:1], b.shape[:1]) != ((2,), (3,)) or a.shape != b[:2].shape:
                    self._elsewhere.add(name)
                else:
                    check_same_outputs(a, b[:2], (2, 3))
        if distinct(trial) == 3:  # copies of a sample would agree in any company
            self._known_elsewhere[shape] = self._elsewhere

    def _watch(self, piece: Batch, layers: Sequence[str], keep: Callable[[str, tuple, object], None]) -> None:
        with torch.no_grad(), _watching({name: self.modules[name] for name in layers}, keep):
            self.function.run(self.function.params, piece)

    def by_sample(self, name: str, value: Tensor) -> Tensor:
        """The activations as (n, d), in memory of their own: a later layer may write to them."""
        if value.ndim == 0 or value.shape[0] != self._samples or name in self._elsewhere:
            raise ModelError(
                f"layer {name!r} does not have the samples first",
                expected=f"({self._samples}, ...)",
                got=tuple(value.shape),
                hint="another layer, or forward= with the samples first",
            )
        return value.reshape(self._samples, -1).clone()

    def _piece_size(self, x: Batch) -> int:
        bytes_each = sum(leaf[:1].numel() * leaf.element_size() for leaf in tensors(x))
        # Activations of a few dozen layers, each perhaps some times the size of the input.
        return max(
            1,
            min(batch_size(x), memory_budget(self.memory, device=self.function.device) // (400 * bytes_each)),
        )


@contextmanager
def _watching(modules: dict[str, nn.Module], keep: Callable[[str, tuple, object], None]) -> Iterator[None]:
    def hook(name: str) -> Callable[[nn.Module, tuple, dict, object], None]:
        return lambda _, inputs, named, output: keep(name, (*inputs, *named.values()), output)

    for name, module in modules.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"layer {name or 'model'!r} is scripted",
                expected="a module that can be watched",
                hint="the module itself",
            )
    handles = [module.register_forward_hook(hook(name), with_kwargs=True) for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


Pick = Callable[[str, tuple, object], Tensor]
"""(name of a layer, its inputs, its output) -> the activations that count."""


def _input(name: str, inputs: tuple, _: object) -> Tensor:
    return _first_tensor(name, inputs)


def _output(name: str, _: tuple, output: object) -> Tensor:
    return _first_tensor(name, output if isinstance(output, tuple) else (output,))


def _first_tensor(name: str, values: tuple) -> Tensor:
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            if not value.isfinite().all():
                raise NumericalError(
                    f"activations of {name!r} are not finite", hint="float64, or look at the inputs"
                )
            return value
    raise ModelError(f"layer {name!r} has no tensor to look at", hint="another layer")
