"""Samples that come more than once.

Rounding turns equal samples by a small angle: sqrt(ε), or 5e-4 in float32. A deep network adds such angles up, over
a hundred layers of ReLU to some percent of the tangent kernel. Equal samples are therefore found before any rounding,
and their entries are those of a sample with itself.
"""

import hashlib
from collections import defaultdict

from jaxtyping import Float
from torch import Tensor


def repeats(x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."]) -> list[tuple[list[int], list[int]]]:
    """Samples of x and of y that are equal to the last bit: two lists of indices for each sample in both.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
        >>> repeats(x, x[1:])
        [([1], [0]), ([0, 2], [1])]
    """
    right = defaultdict(list)
    for j, digest in enumerate(_digests(y)):
        right[digest].append(j)
    left = defaultdict(list)
    for i, digest in enumerate(_digests(x)):
        left[digest].append(i)
    return [(left[digest], j) for digest, j in right.items() if digest in left]


def _digests(x: Tensor) -> list[bytes]:
    return [
        hashlib.blake2b(row.numpy().tobytes(), digest_size=16).digest()
        for row in x.detach().cpu().contiguous()
    ]
