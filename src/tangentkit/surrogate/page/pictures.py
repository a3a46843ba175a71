"""Pictures made small and put side by side on sheets: thousands of them in a few files of WebP."""

import io
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tangentkit.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 64
"""The longest side of a thumbnail in pixels; smaller pictures stay as they are."""
SHEET = 2048
"""The longest side of a sheet in pixels, which a phone decodes without trouble."""
QUALITY = 75
"""Of WebP: 10,000 pictures of CIFAR take 2.6 MB (3.5 MB in base64), and at three times their size show no blocks."""
LISTED = (list, tuple)


@dataclass(frozen=True, eq=False)
class Sheets:
    """Thumbnails in reading order on sheets that hold `per_row` × `rows` cells of width × height pixels each."""

    files: tuple[bytes, ...]
    media: str
    """The kind of the files, "image/webp", or "image/png" where Pillow was built without WebP."""
    width: int
    height: int
    per_row: int
    rows: int
    count: int


def sheets(pictures: Any, *, count: int, what: str) -> Sheets:
    """The pictures of samples on sheets.

    Args:
        pictures: (n, h, w), (n, h, w, 3) or (n, 3, h, w), floats from 0 to 1 or bytes; or paths of n files.
        count: how many there must be.
        what: whose they are, for messages.

    Raises:
        InputError: there are more or fewer, they are no pictures, or a file cannot be read; with its name.

    Example:
        >>> small = sheets(np.zeros((5, 8, 8)), count=5, what="test")
        >>> small.media, small.width, small.per_row, len(small.files)
        ('image/webp', 8, 256, 1)
    """
    from PIL import features

    read, number, (width, height) = _reader(pictures, what)
    if number != count:
        raise InputError(f"bad pictures of the {what} samples", expected=f"{count} pictures", got=number)
    scale = min(1.0, LARGEST / max(width, height))
    cell = max(1, round(width * scale)), max(1, round(height * scale))
    per_row, rows = SHEET // cell[0], SHEET // cell[1]
    kind = "webp" if features.check("webp") else "png"
    files = []
    for start in range(0, count, per_row * rows):
        some = range(start, min(start + per_row * rows, count))
        files.append(_sheet((read(i) for i in some), len(some), cell, per_row, kind))
    return Sheets(tuple(files), f"image/{kind}", *cell, per_row, rows, count)


def _sheet(pictures: "Iterator[Image]", count: int, cell: tuple[int, int], per_row: int, kind: str) -> bytes:
    from PIL import Image

    width, height = cell
    size = min(count, per_row) * width, -(-count // per_row) * height
    sheet = Image.new("RGB", size)
    for i, picture in enumerate(pictures):
        if picture.size != cell:
            picture.thumbnail(cell, Image.Resampling.LANCZOS)
        # One of another form stands in the middle of its cell.
        left = i % per_row * width + (width - picture.width) // 2
        top = i // per_row * height + (height - picture.height) // 2
        sheet.paste(picture, (left, top))
    file = io.BytesIO()
    options: dict[str, Any] = {"quality": QUALITY, "method": 4} if kind == "webp" else {"optimize": True}
    sheet.save(file, kind, **options)
    return file.getvalue()


def _reader(pictures: Any, what: str) -> "tuple[Callable[[int], Image], int, tuple[int, int]]":
    """How to read a picture, how many there are, and the width and height of a cell before it is made small."""
    from PIL import Image

    if isinstance(pictures, LISTED) and all(isinstance(one, str | os.PathLike) for one in pictures):
        return lambda i: _opened(pictures[i]), len(pictures), (LARGEST, LARGEST)
    pixels = _pixels(pictures, what)
    return (
        lambda i: Image.fromarray(_bytes(pixels[i])).convert("RGB"),
        len(pixels),
        (pixels.shape[2], pixels.shape[1]),
    )


def _opened(path: Any) -> "Image":
    from PIL import Image, UnidentifiedImageError

    from tangentkit.core.files.safe import as_path, open_file

    try:
        with warnings.catch_warnings():
            # A small file may claim to be a picture of gigabytes.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_file(as_path(path)) as file, Image.open(file) as picture:
                picture.draft("RGB", (LARGEST, LARGEST))
                return picture.convert("RGB")
    except (
        OSError,
        ValueError,
        SyntaxError,
        UnidentifiedImageError,
        Image.DecompressionBombError,
        Warning,
    ) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"the picture {os.fspath(path)!r} cannot be read",
            expected="a picture file such as PNG, JPEG or WebP",
            got=reason,
            hint="leave the sample out, or give pictures as an array",
        ) from error


def _pixels(pictures: Any, what: str) -> NDArray:
    """Pictures as (n, h, w) or (n, h, w, 3)."""
    expected = "(n, h, w), (n, h, w, 3) or (n, 3, h, w), floats from 0 to 1 or bytes, or paths of files"
    pixels = pictures.detach().cpu().numpy() if isinstance(pictures, Tensor) else np.asarray(pictures)
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3) and pixels.shape[3] not in (1, 3):
        pixels = np.moveaxis(pixels, 1, 3)
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        pixels = pixels[..., 0]
    is_form = pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] == 3)
    if not is_form or 0 in pixels.shape or not (pixels.dtype.kind == "f" or pixels.dtype == np.uint8):
        got = f"{pixels.dtype} of shape {pixels.shape}"
        raise InputError(f"bad pictures of the {what} samples", expected=expected, got=got)
    if pixels.dtype.kind == "f":
        low, high = float(pixels.min()), float(pixels.max())
        # A little beyond is the rounding of whoever scaled them; nan fails every comparison.
        if not (low >= -1e-3 and high <= 1 + 1e-3):
            raise InputError(
                f"bad pictures of the {what} samples",
                expected="floats from 0 to 1",
                got=f"{low:.3g} to {high:.3g}",
                hint="undo the normalization: pictures * std + mean",
            )
    return pixels


def _bytes(picture: NDArray) -> NDArray[np.uint8]:
    return picture if picture.dtype == np.uint8 else np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)
