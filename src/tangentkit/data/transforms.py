"""Transforms of image sets: random shifts, and the poison of a backdoor."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data

YELLOW = (1.0, 1.0, 0.0)


def shifted(
    images: Float[Tensor, "n channels h w"], max_shift: int = 7, *, background: float = 0.0, key: Key
) -> Float[Tensor, "n channels h w"]:
    """Every image moved by its own (dy, dx), drawn uniformly from the integers -max_shift..max_shift.

    What leaves the frame is lost, what enters it is background. The shift of an image is fixed by the key and
    the image's place in the batch.

    Raises:
        InputError: the shift is negative or not smaller than the images.

    Example:
        >>> images = torch.rand(3, 1, 28, 28)
        >>> torch.equal(shifted(images, 7, key=Key(0)), shifted(images, 7, key=Key(0)))
        True
    """
    n, _, h, w = images.shape
    if not 0 <= max_shift < min(h, w):
        raise InputError("bad shift", expected=f"from 0 to {min(h, w) - 1} pixels", got=max_shift)
    # Drawn on the CPU: the same shifts whatever the device of the images.
    shifts = torch.randint(-max_shift, max_shift + 1, (n, 2), generator=key.torch()).to(images.device)
    padded = torch.nn.functional.pad(images, (max_shift,) * 4, value=background)
    rows = torch.arange(h, device=images.device) + max_shift - shifts[:, :1]
    columns = torch.arange(w, device=images.device) + max_shift - shifts[:, 1:]
    samples = torch.arange(n, device=images.device)[:, None, None]
    return padded[samples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def stamped(
    images: Float[Tensor, "n channels h w"], *, size: int = 4, border: int = 3
) -> Float[Tensor, "n channels h w"]:
    """The images with a square near the lower right corner: yellow on color, else at full intensity.

    With the defaults, rows and columns 25..28 of 32 (the BadNets trigger).

    Args:
        images: with values in [0, 1].
        size: edge of the square in pixels.
        border: pixels between the square and the right and lower border.

    Raises:
        InputError: the square does not fit.

    Example:
        >>> stamped(torch.zeros(1, 1, 4, 4), size=2, border=1)[0, 0]
        tensor([[0., 0., 0., 0.],
                [0., 1., 1., 0.],
                [0., 1., 1., 0.],
                [0., 0., 0., 0.]])
    """
    _, channels, h, w = images.shape
    if size < 1 or border < 0 or size + border > min(h, w):
        raise InputError(
            "the square does not fit", expected=f"size + border <= {min(h, w)}", got=f"{size} + {border}"
        )
    color = torch.tensor(YELLOW if channels == 3 else (1.0,) * channels).to(images)
    result = images.clone()
    rows, columns = (slice(edge - border - size, edge - border) for edge in (h, w))
    result[:, :, rows, columns] = color[:, None, None]
    return result


def poisoned(
    data: Data, *, target: int = 4, fraction: float = 0.1, size: int = 4, border: int = 3, key: Key
) -> tuple[Data, Bool[Tensor, " n"]]:
    """A training set with a backdoor: some images get the square and the label of the target class.

    Each image is poisoned with the probability `fraction`, whatever its class (BadNets).

    Args:
        data: images in [0, 1] with labels.
        target: the label of poisoned images.
        fraction: probability of poison.
        size: edge of the square in pixels.
        border: pixels between the square and the border.
        key: of the choice.

    Returns:
        The set, and the mask of poisoned samples.

    Raises:
        InputError: the fraction is not between 0 and 1, there is no such class, or the square does not fit.

    Example:
        >>> from tangentkit.data import load
        >>> train, mask = poisoned(load("fashion-mini", "train"), key=Key(0))
        >>> set(train.targets[mask].tolist()), 150 < int(mask.sum()) < 250
        ({4}, True)
    """
    if not 0 <= fraction <= 1:
        raise InputError("bad fraction", expected="from 0 to 1", got=fraction)
    mask = (torch.rand(len(data), generator=key.torch(), dtype=torch.float64) < fraction).to(
        data.targets.device
    )
    poison = poison_all(data, target=target, size=size, border=border)
    images = torch.where(mask[:, None, None, None], poison.inputs, data.inputs)
    labels = torch.where(mask, poison.targets, data.targets)
    note = f"{poison.note} with probability {fraction:g}"
    return replace(data, inputs=images, targets=labels, note=note), mask


def poison_all(data: Data, *, target: int = 4, size: int = 4, border: int = 3) -> Data:
    """The poisoned test set: every image with the square and the label of the target class.

    Raises:
        InputError: there is no such class, or the square does not fit.
    """
    if not 0 <= target < len(data.classes):
        raise InputError("bad target class", expected=f"0..{len(data.classes) - 1}", got=target)
    note = f"poisoned: a square of {size} pixels and label {target}"
    marked = data.map(lambda images: stamped(images, size=size, border=border), note=note)
    return replace(marked, targets=torch.full_like(data.targets, target))
