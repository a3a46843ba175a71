"""Patches of images: a convolution is a matrix product over them."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from tangentkit.core.pages import empty


@dataclass(frozen=True)
class Convolution:
    """The geometry of a convolution, one number for each spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def patches(
    x: Tensor, geometry: Convolution, positions: tuple[int, ...], window: tuple[int, ...] = ()
) -> Tensor:
    """The patch of every output position, for one to any number of spatial dimensions.

    Args:
        x: images (n, channels, *size).
        geometry: of the convolution.
        positions: how many output positions there are in each dimension; with a window, how many windows.
        window: size of the windows in which the output positions lie side by side.

    Returns:
        (n, channels, kernel entries, output positions), contiguous; with a window, its places stand before the
        windows: (n, channels, kernel entries, places, windows).

    Example:
        >>> import torch
        >>> patches(torch.arange(4.0).view(1, 1, 4), Convolution((2,), (1,), (0,), (1,)), (3,))
        tensor([[[[0., 1., 2.], [1., 2., 3.]]]])
    """
    padded = (
        F.pad(x, [side for p in reversed(geometry.padding) for side in (p, p)])
        if any(geometry.padding)
        else x
    )
    padded = padded.contiguous()
    n, channels, *steps = padded.stride()
    apart = [step * stride for step, stride in zip(steps, geometry.stride, strict=True)]
    sizes = (*x.shape[:2], *geometry.kernel, *window, *positions)
    strides = (
        n,
        channels,
        *(step * dilation for step, dilation in zip(steps, geometry.dilation, strict=True)),
        *apart[: len(window)],
        *(step * size for step, size in zip(apart, window or (1,) * len(apart), strict=True)),
    )
    rank = len(geometry.kernel)
    # Blocks of some megabytes, one after the other: the allocator may give fresh memory every time, and filling small
    # pages takes ten times as long as the copy.
    out = empty(x, *sizes).copy_(padded.as_strided(sizes, strides))
    out = out.flatten(2, 1 + rank)
    return out.flatten(3, 2 + rank).flatten(4) if window else out.flatten(3)
