"""Flagged samples beside the samples that show why, where samples are pictures."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tangentkit.compute.sources import SampleSource
from tangentkit.report import Images
from tangentkit.surrogate.audit.kinds import KINDS, Flag

ROWS, COLUMNS = 8, 4
"""Flags that are shown, and pictures of each: the flagged one and its evidence."""
SIDE = 96
"""Pixels of a picture, at most."""


def pictures(
    source: SampleSource | None, kind: str, flags: Sequence[Flag], caption: Callable[[int], str]
) -> Images | None:
    """A grid with a row for each flag; None where samples are no pictures."""
    if source is None or not flags or picture(source, flags[0].sample) is None:
        return None
    grid, words = [], []
    for flag in flags[:ROWS]:
        row = [flag.sample, *flag.evidence[: COLUMNS - 1]]
        found = [picture(source, sample) for sample in row]
        shown = [one for one in found if one is not None]
        grid.append(shown + [np.ones_like(shown[0])] * (COLUMNS - len(shown)))
        words.append([caption(sample) for sample in row] + [""] * (COLUMNS - len(row)))
    return Images(
        title=kind,
        caption=f"{KINDS[kind]} The flagged sample first, then the samples that show it.",
        images=np.array(grid),
        labels=words,
        headings=["flagged", *["evidence"] * (COLUMNS - 1)],
        size=(1.3 * COLUMNS, 1.5 * len(grid)),
    )


def picture(source: SampleSource, sample: int) -> np.ndarray | None:
    """A sample as (h, w, 3), its least number black and its largest white; None if it is no picture."""
    x = source.read(slice(sample, sample + 1))
    x = x[0] if isinstance(x, (tuple, list)) and x else x
    if not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[2:]) < 2:
        return None
    step = max(1, max(x.shape[2:]) // SIDE)
    pixels = x[0, :, ::step, ::step].detach().cpu().float()
    low, high = pixels.min(), pixels.max()
    pixels = (pixels - low) / torch.where(high > low, high - low, torch.ones_like(high))
    return pixels.expand(3, -1, -1).permute(1, 2, 0).numpy()
