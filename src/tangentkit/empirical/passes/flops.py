"""FLOPs of the passes through a model, as torch counts them: frozen layers and attention included."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from tangentkit.core.batches import Batch
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.passes.recording import record
from tangentkit.empirical.structure import Structure


def pass_flops(
    function: ModelFunction, batch: Batch, structure: Structure, generic: int
) -> tuple[float, float]:
    """FLOPs of one sample in a forward pass, and in a backward pass in one output direction.

    Args:
        function: the model.
        batch: a few samples.
        structure: where it uses its parameters.
        generic: how many entries the parameters without a rule have, whose gradients are passed down, too.
    """
    forward, backward = _Counter(), _Counter()
    try:
        with forward:
            recording = record(function, batch, structure)
        with backward:
            recording.backward(recording.outputs.new_ones(1, recording.outputs.shape[1]))
    except Exception:
        # Some models refuse to be watched; then every parameter is taken to be used once.
        entries = 2.0 * sum(p.numel() for p in function.params.values())
        return entries, entries
    n = len(recording.outputs)
    return forward.flops / n, backward.flops / n + 2.0 * generic


class _Counter(TorchDispatchMode):
    """Adds up the FLOPs of the operations that torch has a formula for: products and convolutions.

    torch.utils.flop_counter.FlopCounterMode, with the same formulas, would put hooks on all modules.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=out)
        return out
