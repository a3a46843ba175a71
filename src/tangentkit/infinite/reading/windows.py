"""What pooling layers do to the positions of an image, axis by axis."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from tangentkit.infinite.propagate.position_pairs import Geometry, adaptive, average
from tangentkit.infinite.reading.calls import per_axis
from tangentkit.infinite.reading.fields import Refusal

POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def pool_windows(pool: Any, sizes: Sequence[int]) -> list[Geometry]:
    """The windows of an average pooling layer along each axis of positions."""
    rank = len(sizes)
    if isinstance(pool, ADAPTIVE):
        targets = per_axis(pool.output_size, rank)
        return [
            adaptive(s, s if target is None else target) for s, target in zip(sizes, targets, strict=True)
        ]
    if getattr(pool, "divisor_override", None):
        raise Refusal("divisor_override is not covered")
    options = (per_axis(value, rank) for value in (pool.kernel_size, pool.stride, pool.padding))
    return [
        average(size, *numbers, ceil=pool.ceil_mode, count_padding=pool.count_include_pad)
        for size, *numbers in zip(sizes, *options, strict=True)
    ]
