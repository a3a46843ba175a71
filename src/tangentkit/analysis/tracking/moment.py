"""A network at one step of its training, seen on a fixed probe: what measures are functions of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from tangentkit.analysis.half_precision import float32_batch
from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, as_batch, batch_size, move, take, tensors
from tangentkit.core.errors import InputError
from tangentkit.core.files.fingerprints import fingerprint
from tangentkit.core.model.calls import call, read_outputs
from tangentkit.core.model.functions import Forward, snapshot_to_call
from tangentkit.core.model.refusals import refusal
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.spectra.spectrum import Spectrum, spectrum
from tangentkit.linearized.labeled import AT_ONCE, Labeled, labeled
from tangentkit.sketch import SketchedTangentKernel

MakeKernel = Callable[[nn.Module], Kernel]
"""model -> the kernel that is followed as its tangent kernel."""
EXACT_FLOPS = 2e12
"""Beyond this work a tangent kernel of the probe is sketched."""
SKETCH_DIM, SKETCH_SIGNS = 2048, 8
"""Features of such a sketch, and the most random output signs that stand for all outputs."""
LABELS = "labels"
"""Under which name the batches and items of Hugging Face have their targets."""
WHOLE = 1024
"""Up to so many samples all eigenvalues are computed; beyond, the top ones alone."""


@dataclass(frozen=True, eq=False)
class Probe:
    """The samples on which a network is watched, and how: the same at every step."""

    x: Batch
    y: Tensor | None = None
    """Classes, or numbers; None where there are none."""
    test: Labeled | None = None
    """A set of its own for the test error."""
    forward: Forward = call
    make_kernel: MakeKernel | None = None
    """Of the tangent kernel; None takes the exact trace kernel, or a sketch where that is too much work."""
    top: int = 20
    """Eigenvalues of a spectrum that are kept."""
    _cheap: dict[str, bool] = field(default_factory=dict)
    """Whether the exact kernel is cheap enough, by the outline of a network: found out once."""
    _latest: dict[str, TangentKernel] = field(default_factory=dict)
    """The exact kernel of the latest step, by the outline of a network: the next one has the same layers."""

    def __len__(self) -> int:
        return batch_size(self.x)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all samples of the probe, and of the test set if there is one."""
        return fingerprint([self.x, self.y, self.test.fingerprint if self.test else None])

    @property
    def are_classes(self) -> bool:
        """Whether the targets name classes."""
        return self.y is not None and not self.y.is_floating_point()

    def target_rows(self) -> Float[Tensor, "n c"]:
        """The targets as rows Y: numbers as they are, classes one-hot less their mean, which names no class.

        Raises:
            InputError: there are none, or they say nothing: all zero, or of one class.
        """
        if self.y is None:
            raise InputError(
                "the probe has no targets", expected="probe=(x, y) for this measure", got="x alone"
            )
        y = F.one_hot(self.y.unique(return_inverse=True)[1]).double() if self.are_classes else self.y.double()
        rows = y.flatten(1) if y.ndim > 1 else y[:, None]
        rows = rows - rows.mean(0) if self.are_classes else rows
        if not rows.any():
            raise InputError("the targets of the probe are all alike", expected="two classes, or numbers")
        return rows

    def tangent_kernel(self, model: nn.Module) -> Kernel:
        """The tangent kernel of the model: the caller's own, the exact one, or a sketch of it where it is large."""
        if self.make_kernel is not None:
            return self.make_kernel(model)
        shape, x = outline(model), move(self.x, device_of(model))
        exact = TangentKernel(model, forward=self.forward)
        if shape in self._latest:
            exact.take_profiles(self._latest[shape])
        if shape not in self._cheap:
            self._cheap[shape] = exact.plan(x).flops <= EXACT_FLOPS
        if self._cheap[shape]:
            self._latest[shape] = exact
            return exact
        outputs = outputs_of(model, take(x, slice(1)), self.forward).shape[1]
        signs = SKETCH_SIGNS if outputs > SKETCH_SIGNS else None
        return SketchedTangentKernel(model, SKETCH_DIM, forward=self.forward, probes=signs)


def as_probe(given: Any, *, samples: int, test: Any, seed: int, **options: Any) -> Probe:
    """A probe of at most `samples` samples, drawn by the seed from what the user gives.

    Args:
        given: inputs, or a pair (inputs, targets), or labeled data, or a data set of pairs.
        samples: the most.
        test: likewise, a set for the test error; None for none.
        seed: of the choice.
        options: fields of `Probe`.

    Raises:
        InputError: there are fewer than two samples, or inputs and targets do not go together.
    """
    held = _labeled(given)
    batch = None if held else as_batch(given)
    n = len(held) if held else batch_size(batch)
    if n < 2 or samples < 2:
        raise InputError("a probe is too small", expected="at least 2 samples", got=min(n, samples))
    chosen: Any = slice(None)
    if n > samples:
        order = torch.randperm(n, generator=Key(seed).fold("probe").torch())
        chosen = order[:samples].sort().values
    x, y = held.take(chosen) if held else (take(batch, chosen), None)
    return Probe(float32_batch(x), y, _labeled(test), **options)


def _labeled(given: Any) -> Labeled | None:
    """Labeled samples; None where there are no targets."""
    if isinstance(given, Mapping) and LABELS in given:
        return labeled({name: part for name, part in given.items() if name != LABELS}, given[LABELS])
    if given is None or isinstance(given, (Tensor, Mapping)):
        return None
    if isinstance(given, (tuple, list)) and not all(isinstance(one, Mapping) for one in given):
        return labeled(*given) if len(given) == 2 else None
    if _has_labels(given):
        return labeled(Separated(given), None)
    return None if isinstance(given, (tuple, list)) else labeled(given, None)


def _has_labels(given: Any) -> bool:
    indexed = hasattr(given, "__len__") and hasattr(given, "__getitem__")
    return indexed and len(given) > 0 and isinstance(given[0], Mapping) and LABELS in given[0]


class Separated(Dataset):
    """Items {..., "labels": y}, as those of Hugging Face, as pairs (the rest, y).

    Example:
        >>> Separated([{"input_ids": 5, "labels": 1}])[0]
        ({'input_ids': tensor(5)}, 1)
    """

    def __init__(self, items: Any):
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> tuple[dict[str, Any], Any]:
        item = dict(self.items[i])
        y = item.pop(LABELS)
        return {name: torch.as_tensor(part) for name, part in item.items()}, y


class Moment:
    """A network at one step: what is computed of it is computed once, for all measures.

    Attributes:
        model: the network, in evaluation mode while it is measured; None of moments that were read from disk.
        probe: the samples.
        step: of the training.
        start: the moment of the first step; itself at the first.
        before: the last moment that was measured; None at the first. It has kernels alone.
    """

    def __init__(
        self,
        step: int,
        model: nn.Module | None,
        probe: Probe,
        start: "Moment | None" = None,
        before: "Moment | None" = None,
        known: Mapping[str, Any] | None = None,
    ):
        self.step, self.model, self.probe = step, model, probe
        self.start, self.before = start or self, before
        self._known: dict[str, Any] = dict(known or {})

    @property
    def ntk(self) -> Float[Tensor, "n n"]:
        """The tangent kernel of the probe."""
        return self._once("ntk", lambda: self._gram(self.probe.tangent_kernel(self._model)))

    @property
    def ck(self) -> Float[Tensor, "n n"]:
        """The conjugate kernel of the probe."""
        return self._once("ck", lambda: self._gram(ConjugateKernel(self._model, forward=self.probe.forward)))

    def kernel(self, name: str) -> Float[Tensor, "n n"]:
        """A kernel of the probe by its name, "ntk" or "ck".

        Raises:
            NumericalError: it is not finite.
        """
        K = {"ntk": lambda: self.ntk, "ck": lambda: self.ck}[name]()
        check_finite(K, f"{name} of step {self.step}")
        return K

    def spectrum(self, name: str) -> Spectrum:
        """The spectrum of a kernel: all of it for up to 1,024 samples, else the top eigenvalues."""
        n = len(self.probe)
        top = None if n <= WHOLE else min(self.probe.top, n)
        return self._once(f"{name} spectrum", lambda: spectrum(self.kernel(name), top))

    @property
    def weights(self) -> dict[str, Tensor]:
        """The parameters by name, as they are at this moment."""
        return self._once("weights", lambda: {n: p.detach() for n, p in self._model.named_parameters()})

    @property
    def trained_weights(self) -> dict[str, Tensor]:
        """Those of them that require grad: frozen ones, such as a copy of the start, have no course."""
        trained = {n for n, p in self._model.named_parameters() if p.requires_grad}
        return {n: w for n, w in self.weights.items() if n in trained}

    @property
    def outputs(self) -> Tensor:
        """The outputs of the network on the probe."""
        return self._once("outputs", lambda: outputs_of(self._model, self.probe.x, self.probe.forward))

    @property
    def is_start(self) -> bool:
        """Whether this is the first moment."""
        return self.start is self

    def held(self) -> dict[str, Any]:
        """What later moments are compared with: kernels, and of the start the parameters, if measures took them."""
        kernels = {name: self._known[name].cpu() for name in ("ntk", "ck") if name in self._known}
        if self.is_start and "weights" in self._known:
            return kernels | {"weights": {n: w.cpu().clone() for n, w in self.weights.items()}}
        return kernels

    @property
    def _model(self) -> nn.Module:
        if self.model is None:
            raise InputError(
                f"nothing of this kind was kept of step {self.step}",
                expected="what its measures took of it at that step",
                hint="a measure that compares with the start must also read it at the start",
            )
        return self.model

    def _gram(self, kernel: Kernel) -> Float[Tensor, "n n"]:
        return kernel(move(self.probe.x, device_of(self._model))).cpu()

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]


@torch.no_grad()
def outputs_of(model: nn.Module, x: Batch, forward: Forward) -> Tensor:
    """The outputs of a model on a batch, (n, c), some samples at a time.

    Raises:
        InputError: the model does not take these samples.
    """
    x = move(x, device_of(model))
    try:
        pieces = [
            read_outputs(forward(model, take(x, slice(i, i + AT_ONCE))))
            for i in range(0, batch_size(x), AT_ONCE)
        ]
    except Exception as error:
        raise refusal(snapshot_to_call(model, forward=forward), error, x) or error from error
    outputs = torch.cat(pieces)
    return outputs if outputs.ndim > 1 else outputs[:, None]


def outline(model: nn.Module) -> str:
    """What a network is, but for its values: layers, and which parameters require grad."""
    parameters = [(n, p.shape, p.dtype, p.requires_grad) for n, p in model.named_parameters()]
    return f"{model} {parameters}"


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's first parameter."""
    return next((p.device for p in tensors(list(model.parameters()))), torch.device("cpu"))
