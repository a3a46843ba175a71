"""The scales of a layer's weights, in the NTK and in the standard parameterization."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tangentkit.infinite.propagate.network import Weights
from tangentkit.infinite.reading.tracing import OURS


@dataclass(frozen=True)
class Scales:
    """How layers are parameterized."""

    stds: Mapping[str, tuple[float, float]]
    """(w_std, b_std) of plain layers by name."""
    standard: bool
    """Whether plain layers are in the standard parameterization."""

    def weights(self, name: str, layer: Any, inputs: tuple[int, ...], positions: tuple[int, ...]) -> Weights:
        """The node of a layer's weights."""
        ours = isinstance(layer, OURS)
        w, b = (layer.w_std, layer.b_std) if ours else self.stds[name]
        fan_in = prod(layer.weight.shape[1:])
        trained = layer.bias is not None and layer.bias.requires_grad
        standard = self.standard and not ours
        return Weights(
            inputs,
            positions,
            name,
            weight=w**2,
            bias=b**2 if layer.bias is not None else 0.0,
            weight_gain=(fan_in if standard else w**2) if layer.weight.requires_grad else 0.0,
            bias_gain=(1.0 if standard else b**2) if trained else 0.0,
        )
