"""What is known of a model: learned from the first samples, revised by what later batches show."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor

from tangentkit.core.batches import Batch, batch_size, describe
from tangentkit.core.errors import ModelError
from tangentkit.core.functions import ModelFunction
from tangentkit.empirical.batching import Footprint, footprint
from tangentkit.empirical.company import check_all, distinct, keeps_apart, spread
from tangentkit.empirical.costs import Size, size_of
from tangentkit.empirical.counting import pass_flops
from tangentkit.empirical.recording import AnotherGraphError, Recording, record
from tangentkit.empirical.routing import answers
from tangentkit.empirical.structure import Layer, Structure, learn_structure, trace
from tangentkit.empirical.verification import BATCH, prove, verified

Result = TypeVar("Result")


class UnusedParameterWarning(UserWarning):
    """A selected parameter does not reach the output: its gradient is zero."""


class WrongRuleError(Exception):
    """A batch has shown that the rules of some parameters are wrong."""

    def __init__(self, reasons: dict[str, str]):
        super().__init__(str(reasons))
        self.reasons = reasons


@dataclass(eq=False)
class Known:
    """A model's structure for samples of one shape, with its sizes."""

    structure: Structure
    outputs: int
    sizes: dict[Layer, Size]
    footprint: Footprint
    company: int
    """Samples of the largest batch that was seen to keep them apart."""
    latency: float
    """Seconds of a pass of two samples: what a pass takes, however small."""
    flops: tuple[float, float]
    """Of one sample in a forward and in a backward pass."""


class Knowledge:
    """What is known of a model, for every shape of samples that it has seen."""

    def __init__(self, function: ModelFunction):
        self.function = function
        self._known: dict[str, Known] = {}
        self._told: set[str] = set()

    def of(self, x: Batch) -> Known:
        """What is known for samples like these, learned and verified if they are the first.

        Raises:
            ModelError: samples see each other, or no parameter reaches the output.
        """
        if describe(x) not in self._known:
            # Saved tensors of checkpointed blocks are computed when they are looked at: all must see the snapshot.
            known = self.function.held(self._leaves(), lambda: self._learned(x))
            unused = known.structure.unused
            if unused and not known.structure.names() and not known.structure.generic:
                raise _no_gradient(self.function, spread(x, 2))
            self._known[describe(x)] = known
        return self._known[describe(x)]

    def record(self, batch: Batch, known: Known) -> Recording:
        """Runs a batch; rules that are unproven are compared with autograd on it.

        Raises:
            ModelError: its samples see each other.
            WrongRuleError: a rule disagrees.
        """
        structure, told = known.structure, known.structure.answers
        if structure.answers:
            recording, told = answers(lambda: record(self.function, batch, structure))
        else:
            recording = record(self.function, batch, structure)
        elsewhere = told != structure.answers
        self.check_company(batch, known, recording.outputs, every=elsewhere)
        wanted = set(structure.names() if structure.doubtful or elsewhere else structure.unproven)
        if wanted:
            proven, wrong = prove(recording, batch, wanted)
            if wrong:
                raise WrongRuleError(wrong)
            known.structure = replace(structure, unproven=structure.unproven - proven)
        return recording

    def check_company(
        self, batch: Batch, known: Known, outputs: Tensor | None = None, *, every: bool = False
    ) -> None:
        """Looks whether samples see each other: a few of a batch larger than all before, or every one.

        Args:
            batch: samples.
            known: what is known of them.
            outputs: of the batch, if they are at hand.
            every: whether to look at every sample, as is done anyway where some may be moved.

        Raises:
            ModelError: they do.
        """
        n = batch_size(batch)
        every = (every or known.structure.routed) and n > 1
        if not every and n <= known.company:
            return
        outputs = self.function(self.function.params, batch) if outputs is None else outputs
        if every:
            check_all(self.function, batch, outputs)
        elif keeps_apart(self.function, batch, outputs):
            known.company = n

    def computed(self, x: Batch, work: Callable[[], Result]) -> Result:
        """Does some work with all samples, revising; then warns, once, of parameters that none was seen to use.

        Not before: the expert that the first samples do not call may be that of later ones.
        """
        found = self.revising(x, work)
        unused = self.of(x).structure.unused
        if unused and describe(x) not in self._told:
            self._told.add(describe(x))
            shown = ", ".join(unused[:5]) + (", ..." if len(unused) > 5 else "")
            text = f"{len(unused)} parameter(s) do not reach the output: {shown}"
            warnings.warn(text, UnusedParameterWarning, stacklevel=4)
        return found

    def revising(self, x: Batch, work: Callable[[], Result]) -> Result:
        """Does some work; again, with fewer assumptions, where a batch shows one to be wrong."""
        leaves = self._leaves()
        while True:
            try:
                return self.function.within(leaves, work)
            except AnotherGraphError as error:
                structure = self.of(x).structure
                generic = structure.all_generic(str(error), hooked=error.hooked)
                self._known[describe(x)] = self._assess(x, generic)
            except WrongRuleError as error:
                structure = self.of(x).structure.without(error.reasons)
                self._known[describe(x)] = self._assess(x, replace(structure, vmap=False))

    def _leaves(self) -> dict[str, Tensor]:
        return {name: p.detach().requires_grad_() for name, p in self.function.params.items()}

    def _learned(self, x: Batch) -> Known:
        return self._assess(x, verified(self.function, x, learn_structure(self.function, x)))

    def _assess(self, x: Batch, structure: Structure) -> Known:
        function, trial, company = self.function, spread(x, 2), distinct(spread(x, BATCH))
        item = next(iter(function.params.values())).element_size()
        layers = dict.fromkeys(layer for view in structure.views for layer in view)
        sizes = {layer: Size(1, 1, 1, function.params[layer.weight].numel()) for layer in layers}
        generic = sum(function.params[name].numel() for name in structure.generic)
        start = time.perf_counter()
        outputs = function(function.params, trial).shape[1]
        latency = time.perf_counter() - start
        try:
            recording = record(function, trial, structure)
            sizes = {layer: size_of(recording, layer) for layer in layers}
            foot = footprint(recording, sizes, generic)
        except AnotherGraphError:
            foot = Footprint(0, generic * item, generic * item, generic * item)
        flops = pass_flops(function, trial, structure, generic)
        return Known(structure, outputs, sizes, foot, company, latency, flops)


def _no_gradient(function: ModelFunction, batch: Batch) -> ModelError:
    """None of the selected parameters reaches the output: because of the selection, or of the forward pass."""
    state = function.params | function.frozen
    everything = {name: p for name, p in state.items() if p.is_floating_point()}
    _, outputs, graph = trace(replace(function, params=everything, frozen=state), batch)
    reached = list(dict.fromkeys(graph.leaves.values()))
    if reached:
        shown = ", ".join(reached[:5]) + (", ..." if len(reached) > 5 else "")
        return ModelError(
            "none of the selected parameters reaches the output: the kernel would be zero",
            expected=f"one of those that do ({shown})",
            got=", ".join(list(function.params)[:5]) + (", ..." if len(function.params) > 5 else ""),
            hint="params=None for all that require grad",
        )
    cut = "inference mode" if outputs.is_inference() else "torch.no_grad, .detach() or NumPy"
    return ModelError(
        f"no parameter reaches the output: the forward pass runs under {cut}, so that the kernel would be zero",
        expected="outputs with a gradient, as a loss would need them",
        got="outputs without one",
        hint="remove it from the model's forward, or from forward=; what must stay fixed is left out by params=",
    )
