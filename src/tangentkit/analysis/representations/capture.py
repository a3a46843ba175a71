"""Activations of layers, held as far as a memory budget allows: a few layers at a time, each for all samples."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError, ModelError
from tangentkit.core.memory import memory_budget
from tangentkit.core.model.functions import Forward
from tangentkit.empirical.activations.watching import SILENT, Activations, Calls, outputs_of

Pool = Callable[[Tensor], Tensor]
"""A layer's output (n, ...) -> what counts of it (n, ...)."""

COPIES = 6
"""Activations that are there at once: as they are, sorted for copies of points, in float64, and standardized."""


class LayerOutputs:
    """The outputs of some layers of a model for given samples.

    Args:
        model: in evaluation mode where that matters.
        batches: the samples, in one or several batches of one structure.
        layers: names of modules; None for the blocks of the model (see `blocks`).
        pool: what of an output counts; None for all of it, flattened.
        forward: (model, batch) -> output, for models with other inputs.
        memory: working memory, in bytes or as "2GB".
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        layers: Sequence[str] | None,
        *,
        pool: Pool | None,
        forward: Forward | None,
        memory: int | str | None,
    ):
        def pooled(name: str, inputs: tuple, output: object) -> Tensor:
            found = outputs_of(name, inputs, output)
            return found if pool is None else pool(found)

        self.activations = Activations(model, pooled, forward=forward, memory=memory)
        self.budget = memory_budget(memory, device=self.activations.function.device)
        # Passes run while a group is held once, of which there will be copies later.
        self.activations = self.activations.within(self.budget // 4)
        self.batches = [self.activations.checked(batch) for batch in batches]
        self.dtype = torch.promote_types(self.activations.function.dtype, torch.float32)
        self.elsewhere: tuple[str, ...] = ()
        """Blocks without the samples first, which are left out."""
        self.layers = self._chosen(layers)

    def groups(self) -> Iterator[list[tuple[str, list[Float[Tensor, "n d"]]]]]:
        """(name, outputs for each of the batches) of as many layers at a time as fit the budget, in their order.

        A layer that is called several times has a name for every call.

        Raises:
            BudgetError: one layer does not fit.
            ModelError: a layer is never called, or does not have the samples first.
        """
        for names in self._groups():
            parts = [self._outputs(batch, names) for batch in self.batches]
            yield [(name, [part.pop(name) for part in parts]) for name in list(parts[0])]

    def in_order(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names that `groups` gave, and those that are left out, in the order of the first calls."""
        if not self.elsewhere:
            return tuple(names)
        called = [*self.activations.called(self.batches[0]), ""]  # the model itself comes last
        every = [*names, *self.elsewhere]
        return tuple(sorted(every, key=lambda name: called.index(name.partition(" (call ")[0])))

    def network_classes(self, batch: int, outputs: int) -> Tensor | None:
        """The index of the largest output of every sample; None where there is no output for each class."""
        x, function = self.batches[batch], self.activations.function
        spans = self.activations.spans(x, self.activations.survey(x, []))
        try:
            with torch.no_grad():
                logits = torch.cat([function(function.params, take(x, samples)).cpu() for samples in spans])
        except ModelError:
            return None
        if logits.shape[1] == 1 and outputs == 2:
            return (logits[:, 0] > 0).long()
        return logits.argmax(1) if logits.shape[1] == outputs else None

    def _chosen(self, layers: Sequence[str] | None) -> list[str]:
        x, activations = self.batches[0], self.activations
        if layers is None:
            called = activations.called(x)
            names = sorted(set(blocks(activations.function.module)) & set(called), key=called.index) or [""]
            missing = activations.survey(x, names).elsewhere
            self.elsewhere = tuple(name for name in names if name in missing)
            names = [name for name in names if name not in missing]
            if not names:
                raise ModelError("no layer has the samples first", hint="layers=[...], names of modules")
            return names
        if isinstance(layers, str) or not layers:
            raise InputError("bad layers", expected="a list of names of modules", got=repr(layers))
        for layer in layers:
            activations.check_name(layer)
        return list(dict.fromkeys(layers))

    def _groups(self) -> list[list[str]]:
        few = take(self.batches[0], slice(0, 2))
        [(_, calls)] = list(self.activations.pieces(few, self.layers))
        samples = sum(map(batch_size, self.batches))
        sizes = {name: sum(h.shape[1] for n, h in calls if n == name) for name in self.layers}
        groups: list[list[str]] = [[]]
        held = 0
        for name, width in sizes.items():
            if not width:
                raise ModelError(
                    f"the model never calls layer {name!r}", hint="a layer that its forward calls"
                )
            nbytes = samples * width * self.dtype.itemsize
            self.budget.check(
                nbytes,
                f"the activations of layer {name!r} are",
                of=f"{samples} samples of {width} numbers",
                copies=COPIES,
                hint="pool=lambda h: h.flatten(2).mean(2) for images, fewer samples, or memory=...",
            )
            if groups[-1] and not self.budget.holds(held + nbytes, copies=COPIES):
                groups.append([])
                held = 0
            groups[-1].append(name)
            held += nbytes
        return groups

    def _outputs(self, x: Batch, names: list[str]) -> dict[str, Tensor]:
        """The outputs of every call, written piece by piece to where they stay."""
        held: dict[str, Tensor] = {}
        for samples, calls in self.activations.pieces(x, names):
            for name, h in _numbered(calls).items():
                if name not in held:
                    held[name] = torch.empty(batch_size(x), h.shape[1], dtype=self.dtype)
                held[name][samples] = h.to(held[name])
        return held


def blocks(module: nn.Module, prefix: str = "") -> list[str]:
    """The layers of a model as people name them: its children, sequences and lists of modules unfolded.

    A module that holds a list of modules somewhere, as the encoders of transformers do, is unfolded too; residual
    blocks stay whole. Modules that only pass on their input are left out.

    Example:
        >>> blocks(nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Flatten(), nn.Linear(3, 2)))
        ['0.0', '0.1', '2']
    """
    found = []
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        unfolds = any(isinstance(part, nn.ModuleList) for part in child.modules())
        if isinstance(child, nn.Sequential) or unfolds:
            found += blocks(child, f"{path}.")
        elif not isinstance(child, SILENT):
            found.append(path)
    return found


def _numbered(calls: Calls) -> dict[str, Tensor]:
    """Every call by the name of its layer, the second and later ones with their number."""
    found: dict[str, Tensor] = {}
    count: dict[str, int] = {}
    for name, h in calls:
        count[name] = count.get(name, 0) + 1
        found[name if count[name] == 1 else f"{name} (call {count[name]})"] = h
    return found
