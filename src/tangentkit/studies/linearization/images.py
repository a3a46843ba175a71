"""The images of these studies: digits at their places or moved about, standardized by channel."""

from functools import cache

from tangentkit.core.seeds import Key
from tangentkit.data import shifted
from tangentkit.data.dataset import Data
from tangentkit.studies.trials.data import drawn


@cache
def drawn_images(name: str, train: int, test: int, shift: int, key: Key) -> tuple[Data, Data]:
    """Random training and test images, balanced over the classes, each moved by up to `shift` pixels either way.

    They are standardized by the mean and the standard deviation of each channel of the training images, after the
    move, whose background is 0. An image stays where it was put: there is no other move in another epoch.

    Args:
        name: of a data set of images.
        train: number of training images.
        test: number of test images.
        shift: the largest move, in pixels; 0 leaves the images where they are.
        key: of the choice and of the moves.

    Example:
        >>> train, test = drawn_images("fashion-mini", 20, 10, 7, Key(0))
        >>> train.inputs.shape, abs(float(train.inputs.mean())) < 1e-5
        (torch.Size([20, 1, 28, 28]), True)
    """
    sets = drawn(name, train, test, key=key)
    if shift:
        note = f"each image moved by up to {shift} pixels"
        sets = tuple(
            one.map(
                lambda images, split=one.split: shifted(images, shift, key=key.fold("move", split)), note=note
            )
            for one in sets
        )
    moments = sets[0].moments()
    first, second = (one.standardized(*moments) for one in sets)
    return first, second


def in_words(data: str, shift: int) -> str:
    """The name of a data set as tables and figures show it."""
    return f"{data}, shifted" if shift else data
