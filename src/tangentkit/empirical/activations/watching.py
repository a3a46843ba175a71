"""What the modules of a model take in and give out, some samples at a time."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tangentkit.compute.identity import Plain, identify
from tangentkit.core.batches import Batch, batch_size, copied, describe, take, tensors
from tangentkit.core.errors import ModelError, NumericalError, UnknownNameError
from tangentkit.core.memory import memory_budget
from tangentkit.core.model.functions import Forward, ModelFunction, snapshot
from tangentkit.core.model.refusals import accepted
from tangentkit.empirical.reading.independence import (
    HALVES,
    check_same,
    distinct,
    in_single_precision,
    spread,
)
from tangentkit.linalg.operators.spans import spans

SILENT = (nn.modules.dropout._DropoutNd, nn.Flatten, nn.Unflatten, nn.Identity)
"""Modules whose output is their input, rearranged: counting them would count the input twice."""
TOGETHER = 6
"""Pieces in memory at once: rows and columns of a tile, what passes and what layers need meanwhile; two more for the
copies that matrix products make and for gaps between freed blocks (with four, runs took 0.5 to 1.1 of the budget)."""
PAIRS = ((0, 1), (1, 2), (2, 0))

Pick = Callable[[str, tuple, object], Tensor]
"""(name of a layer, its inputs, its output) -> the activations that count."""
Calls = list[tuple[str, Tensor]]
"""(name of a layer, its activations) in the order of calls."""


class NoTensorError(ModelError):
    """A layer whose activations are no numbers."""


@dataclass(frozen=True)
class Survey:
    """What small batches say of samples of one shape."""

    elsewhere: frozenset[str]
    """Layers whose first axis does not count the samples, or that have no tensor of numbers."""
    bytes_each: int
    """Activations of one sample."""


class Activations:
    """Runs a snapshot of a model piece by piece and shows what some modules take in or give out.

    Args:
        model: in evaluation mode where that matters.
        pick: what of a call counts.
        forward: (model, batch) -> output, for models with other inputs.
        memory: working memory, in bytes or as "2GB".
    """

    def __init__(self, model: nn.Module, pick: Pick, *, forward: Forward | None, memory: int | str | None):
        self.function: ModelFunction = snapshot(model, params=lambda *_: True, forward=forward)
        self.modules = dict(self.function.module.named_modules())
        self.pick, self.memory = pick, memory
        self._surveys: dict[tuple[str, tuple[str, ...]], Survey] = {}

    def within(self, memory: int) -> "Activations":
        """The same with another working memory; what is known of the model is shared."""
        twin = copy.copy(self)
        twin.memory = memory
        return twin

    def identity(self) -> Plain:
        """The model, for the identity of kernels."""
        return identify(self.function)

    def check_name(self, layer: str) -> None:
        """Refuses a name that no module has.

        Raises:
            UnknownNameError: with the nearest ones.
        """
        if layer not in self.modules:
            raise UnknownNameError("layer", layer, self.modules)

    def of_kind(self, kinds: tuple[type, ...]) -> list[str]:
        """The modules of some classes."""
        return [name for name, module in self.modules.items() if isinstance(module, kinds)]

    def leaves(self) -> list[str]:
        """The modules without children, except those that only pass on or rearrange their input.

        Parametrizations are no activations, and a layer that has them is a layer as without.
        """
        owners = [m for m in self.modules.values() if parametrize.is_parametrized(m)]
        within = {id(part) for m in owners for part in m.get_submodule("parametrizations").modules()}
        return [
            name
            for name, m in self.modules.items()
            if id(m) not in within
            and all(id(part) in within for part in m.children())
            and not isinstance(m, SILENT)
        ]

    def checked(self, x: Batch) -> Batch:
        """A batch that the model takes."""
        return accepted(self.function, x)

    def pieces(self, x: Batch, layers: Iterable[str]) -> Iterator[tuple[slice, Calls]]:
        """(samples, activations (n, d) of some layers) for as many samples at a time as fit the memory budget.

        Raises:
            ModelError: a layer does not have the samples first, or samples see each other.
            BudgetError: not even one sample fits.
        """
        survey = self.survey(x, layers)
        for samples in self.spans(x, survey):
            yield samples, self._calls(take(x, samples), layers, survey)

    def spans(self, x: Batch, survey: Survey) -> list[slice]:
        """The batch in pieces that fit the memory budget."""
        return list(spans(batch_size(x), self.at_once(survey)))

    def at_once(self, survey: Survey) -> int:
        """How many samples fit the memory budget.

        Raises:
            BudgetError: not even one does.
        """
        each = TOGETHER * survey.bytes_each
        budget = memory_budget(self.memory, device=self.function.device)
        budget.check(each, "the activations of one sample are", hint="memory=..., or fewer layers")
        return budget.rows(survey.bytes_each, copies=TOGETHER)

    def called(self, x: Batch) -> list[str]:
        """The modules that the model calls, in the order of their first calls."""
        found: dict[str, None] = {}
        layers = [name for name in self._watchable() if name]
        self._watch(self.function, spread(x, 2), layers, lambda name, *_: found.setdefault(name))
        return list(found)

    def survey(self, x: Batch, layers: Iterable[str]) -> Survey:
        """Where samples stand in the activations of layers and how large they are, by runs of three and of two.

        Raises:
            ModelError: samples see each other.
        """
        trial, key = spread(x, 3), (describe(x), tuple(layers))
        if key not in self._surveys:
            found = self._survey(trial, key[1])
            if distinct(trial) < 3:  # copies of a sample agree in any batch
                return found
            self._surveys[key] = found
        return self._surveys[key]

    def _calls(self, x: Batch, layers: Iterable[str], survey: Survey) -> Calls:
        n, found = batch_size(x), []

        def keep(name: str, inputs: tuple, output: object) -> None:
            value = self.pick(name, inputs, output)
            if value.ndim == 0 or len(value) != n or name in survey.elsewhere:
                raise ModelError(
                    f"layer {name!r} does not have the samples first",
                    expected=f"({n}, ...)",
                    got=tuple(value.shape),
                    hint="another layer, or forward= with the samples first",
                )
            # In memory of its own: a later layer may write to it.
            found.append((name, value.reshape(n, -1).clone()))

        self._watch(self.function, x, layers, keep)
        return found

    def _survey(self, trial: Batch, layers: tuple[str, ...]) -> Survey:
        def elsewhere(function: ModelFunction, batch: Batch) -> frozenset[str]:
            three, found = self._picked(function, batch, layers), set()
            # In one of the pairs each sample is missing: whatever the others see of it, they see no more.
            for pair in PAIRS:
                two = self._picked(function, take(batch, list(pair)), layers)
                for (name, a), (other, b) in zip(two, three, strict=False):
                    if name == other and not _samples_first(a, b, pair):
                        found.add(name)
            return frozenset(found)

        def plainly() -> frozenset[str]:
            return elsewhere(self.function, trial)

        half = self.function.dtype in HALVES
        found = in_single_precision(self.function, trial, elsewhere, otherwise=plainly) if half else plainly()
        return Survey(found, self._bytes_each(trial, layers))

    def _picked(self, function: ModelFunction, batch: Batch, layers: tuple[str, ...]) -> Calls:
        found: Calls = []
        self._watch(
            function,
            batch,
            layers,
            lambda name, *seen: found.append((name, self._picked_of(name, *seen).clone())),
        )
        return found

    def _picked_of(self, name: str, inputs: tuple, output: object) -> Tensor:
        """What counts of a call; nothing of a layer without numbers."""
        try:
            return self.pick(name, inputs, output)
        except NoTensorError:
            return torch.empty(0)

    def _bytes_each(self, trial: Batch, layers: tuple[str, ...]) -> int:
        """Bytes of what a sample leaves behind at the given layers, or at all of them if that is more."""
        kept = passing = sum(leaf.numel() * leaf.element_size() for leaf in tensors(trial))

        def count(name: str, inputs: tuple, output: object) -> None:
            nonlocal kept, passing
            size = sum(leaf.numel() * leaf.element_size() for leaf in tensors(output))
            passing += size
            if name in layers:
                value = self._picked_of(name, inputs, output)
                kept += value.numel() * value.element_size()

        watchable = set(self._watchable())
        leaves = [name for name in self.leaves() if name in watchable]
        self._watch(self.function, trial, dict.fromkeys([*leaves, *layers]), count)
        return max(kept, passing, 1) // batch_size(trial) + 1

    def _watchable(self) -> list[str]:
        return [name for name, m in self.modules.items() if not isinstance(m, torch.jit.ScriptModule)]

    def _watch(
        self,
        function: ModelFunction,
        x: Batch,
        layers: Iterable[str],
        keep: Callable[[str, tuple, object], object],
    ) -> None:
        watch(function, x, {name: self.modules[name] for name in layers}, keep)


def _samples_first(two: Tensor, three: Tensor, pair: tuple[int, int]) -> bool:
    """Whether the first axis counts the samples, of which there was a pair, and three.

    Raises:
        ModelError: samples see each other.
    """
    if (two.shape[:1], three.shape[:1]) != ((2,), (3,)) or two.shape != three[:2].shape:
        return False
    check_same(two, three[list(pair)], (2, 3))
    return True


def watch(
    function: ModelFunction,
    x: Batch,
    modules: dict[str, nn.Module],
    keep: Callable[[str, tuple, object], object],
) -> None:
    """Runs a model and shows (name, inputs, output) of every call of some of its modules."""

    def look() -> None:
        # Some models differentiate themselves; what is kept of them hangs on no graph.
        with torch.inference_mode(False), torch.enable_grad(), watching(modules, torch.no_grad()(keep)):
            function.forward(function.module, copied(x))

    # Hooks must not see the runs of other threads.
    function.within(function.params, look)


@contextmanager
def watching(modules: dict[str, nn.Module], keep: Callable[[str, tuple, object], object]) -> Iterator[None]:
    """Shows (name, inputs, output) of every call of some modules.

    Raises:
        ModelError: a module is scripted, and cannot be watched.
    """

    def hook(name: str) -> Callable[[nn.Module, tuple, dict, object], None]:
        def show(_: nn.Module, inputs: tuple, named: dict, output: object) -> None:
            keep(name, (*inputs, *named.values()), output)

        return show

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


def inputs_of(name: str, inputs: tuple, _: object) -> Tensor:
    """The first tensor that a layer takes in."""
    return _first_tensor(name, inputs)


def outputs_of(name: str, _: tuple, output: object) -> Tensor:
    """The first tensor that a layer gives out."""
    return _first_tensor(name, output if isinstance(output, tuple) else (output,))


def _first_tensor(name: str, values: tuple) -> Tensor:
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            if not value.isfinite().all():
                raise NumericalError(
                    f"activations of {name!r} are not finite", hint="float64, or look at the inputs"
                )
            return value
    raise NoTensorError(f"layer {name!r} has no tensor to look at", hint="another layer")
