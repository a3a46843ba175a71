"""Patches of images: a convolution is a matrix product over them."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from tangentkit.core.buffer_pool import empty


@dataclass(frozen=True)
class Convolution:
    """The geometry of a convolution, one number for each spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def patches(x: Tensor, geometry: Convolution, positions: tuple[int, ...]) -> Tensor:
    """The patch of every output position, for one to any number of spatial dimensions.

    Args:
        x: images (n, channels, *size).
        geometry: of the convolution.
        positions: how many output positions there are in each dimension.

    Returns:
        (n, channels, kernel entries, output positions), contiguous.

    Example:
        >>> import torch
        >>> patches(torch.arange(4.0).view(1, 1, 4), Convolution((2,), (1,), (0,), (1,)), (3,))
        tensor([[[[0., 1., 2.], [1., 2., 3.]]]])
    """
    padded = _padded(x, geometry)
    n, channels, *steps = padded.stride()
    sizes = (*x.shape[:2], *geometry.kernel, *positions)
    strides = (
        n,
        channels,
        *(step * dilation for step, dilation in zip(steps, geometry.dilation, strict=True)),
        *(step * stride for step, stride in zip(steps, geometry.stride, strict=True)),
    )
    rank = len(geometry.kernel)
    # Blocks of some megabytes, one after the other: the allocator may give fresh memory every time, and its first
    # use takes ten times as long as the copy.
    out = empty(x, *sizes).copy_(padded.as_strided(sizes, strides))
    return out.flatten(2, 1 + rank).flatten(3)


def window_patches(
    x: Tensor, geometry: Convolution, window: tuple[int, ...], windows: tuple[int, ...]
) -> Tensor:
    """The patches of output positions that lie side by side in windows.

    Entry k of the patch at place w of window u is x[u W s + w s + k d], with the window's size W, stride s and
    dilation d: it depends on k and w by their offset w s + k d only. So every offset is copied once, and patches are
    views of that.

    Args:
        x: images (n, channels, *size).
        geometry: of the convolution.
        window: size of a window in each dimension.
        windows: how many there are in each dimension.

    Returns:
        (n, channels, *kernel, *window, windows), a view whose entries share memory.

    Example:
        >>> import torch
        >>> one = Convolution((2,), (1,), (0,), (1,))
        >>> window_patches(torch.arange(5.0).view(1, 1, 5), one, (2,), (2,))[0, 0, :, 1]
        tensor([[1., 3.], [2., 4.]])
    """
    padded = _padded(x, geometry)
    n, channels, *steps = padded.stride()
    each = list(zip(geometry.kernel, geometry.stride, geometry.dilation, window, strict=True))
    offsets = [(w - 1) * s + (k - 1) * d + 1 for k, s, d, w in each]
    apart = [step * s * w for step, (_, s, _, w) in zip(steps, each, strict=True)]
    sizes, strides = (*x.shape[:2], *offsets, *windows), (n, channels, *steps, *apart)
    copied = empty(x, *sizes).copy_(padded.as_strided(sizes, strides)).flatten(2 + len(offsets))
    n, channels, *moves, last = copied.stride()
    by_entry = [move * d for move, (_, _, d, _) in zip(moves, each, strict=True)]
    by_place = [move * s for move, (_, s, _, _) in zip(moves, each, strict=True)]
    shape = (*x.shape[:2], *geometry.kernel, *window, copied.shape[-1])
    return copied.as_strided(shape, (n, channels, *by_entry, *by_place, last))


def _padded(x: Tensor, geometry: Convolution) -> Tensor:
    sides = [side for p in reversed(geometry.padding) for side in (p, p)]
    return (F.pad(x, sides) if any(sides) else x).contiguous()
