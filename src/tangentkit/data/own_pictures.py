"""Pictures of the user's own: one file decoded to numbers, without code of strangers or surprises in size."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import read_whole

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
PICTURE_BYTES = 2**27
"""More than any picture file has that is a sample."""
BITS_PER_SAMPLE = 258
"""The tag of TIFF files that says how many bits a value has."""


def read_picture(file: Path, size: int | None, crop: int | None) -> np.ndarray:
    """(h, w) of a gray picture, (h, w, 3) of others, from 0 to 255.

    Bytes, save for gray pictures of 16 bits: these keep all their values, as floats. What is transparent is seen on
    white, whatever color the file has hidden there.

    Args:
        file: of the picture.
        size: pixels a side to which it is scaled; with a crop, of the shorter side.
        crop: pixels a side of the middle square that is kept.

    Raises:
        DataError: the file is no picture, or nobody knows which of its values is white.
    """
    from PIL import Image

    content = read_whole(file, limit=PICTURE_BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of pictures that would unpack to very many pixels
            with Image.open(io.BytesIO(content or b"")) as opened:
                opened.load()
                white = _white(opened)
                shown = None if white is None else _as_seen(Image, opened)
    # Whatever bytes can do to a decoder.
    except Exception as error:
        raise DataError(
            f"cannot read the picture {file}", got=_trouble(error), hint="remove or replace it"
        ) from None
    if shown is None or white is None:
        raise DataError(
            f"cannot tell which value of {file} is white",
            expected="a picture of 8 or 16 bits",
            got=f"{'floats' if opened.mode == 'F' else 'whole numbers of 32 bits'}",
            hint="save it with 16 bits; or all as numbers: np.savez('data.npz', x=inputs, y=labels)",
        )
    if size is not None:
        shown = _scaled(Image, shown, size, crop)
    pixels = np.asarray(shown)
    pixels = pixels if white == 255 else pixels * np.float32(255 / white)
    return pixels if crop is None else _middle(pixels, crop)


def _white(opened: Any) -> int | None:
    """The value that is white; None where a file does not say it."""
    if opened.mode.startswith("I;16"):
        # TIFF has 12 bits, too, of microscopes.
        bits = getattr(opened, "tag_v2", {}).get(BITS_PER_SAMPLE, (16,))
        return 2 ** bits[0] - 1
    if opened.mode == "I":  # PNG has no more than 16 bits; Pillow before 11.3 gives them in 32
        return 2**16 - 1 if opened.format == "PNG" else None
    return None if opened.mode == "F" else 255


def _as_seen(image: Any, opened: Any) -> Any:
    """Gray as bytes or, of more than 8 bits, as floats; all others as red, green and blue, on white."""
    if opened.mode.startswith("I"):
        return opened.convert("F")
    kind = "L" if opened.mode in ("1", "L") else "RGB"
    if opened.mode in ("LA", "PA", "RGBA") or "transparency" in opened.info:
        colors = opened.convert("RGBA")
        opened = image.alpha_composite(image.new("RGBA", colors.size, "white"), colors)
    return opened.convert(kind)


def _scaled(image: Any, shown: Any, size: int, crop: int | None) -> Any:
    width, height = shown.size
    shorter = min(width, height)
    # Whole numbers: of 256 pixels exactly 256 stay.
    wanted = (size, size) if crop is None else (size * width // shorter, size * height // shorter)
    return shown.resize(wanted, image.Resampling.BILINEAR)


def _middle(picture: np.ndarray, side: int) -> np.ndarray:
    """The middle square of a picture (h, w, ...)."""
    top, left = ((length - side) // 2 for length in picture.shape[:2])
    return picture[top : top + side, left : left + side]


def _trouble(error: Exception) -> str:
    """What a decoder says; not the names that Python gives to bytes in memory."""
    kind = type(error).__name__
    return "no picture" if kind == "UnidentifiedImageError" else f"{kind}: {error}"
