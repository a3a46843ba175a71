"""What pooling layers and indices do to the positions of an image, axis by axis."""

from collections.abc import Sequence
from typing import Any

from torch import fx, nn

from tangentkit.infinite.calls import per_axis
from tangentkit.infinite.fields import Refusal
from tangentkit.infinite.pairs import Geometry, adaptive, average, selection

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


def selections(index: Any, shape: Sequence[int]) -> tuple[dict[int, Geometry], list[int]]:
    """What `x[index]` keeps of each axis (where not all of it), and the axes that stay."""
    index = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, fx.Node) or i is None for i in index):
        raise Refusal("it selects by a tensor or adds an axis")
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = (*index[:at], *(slice(None),) * (len(shape) - len(index) + 1), *index[at + 1 :])
    geometries, kept = {}, []
    for a, (i, size) in enumerate(zip(index, shape, strict=False)):
        chosen = range(size)[i]
        if not isinstance(chosen, int):
            kept.append(a)
        places = [chosen] if isinstance(chosen, int) else list(chosen)
        if places != list(range(size)):
            geometries[a] = selection(size, places)
    return geometries, [*kept, *range(len(index), len(shape))]
