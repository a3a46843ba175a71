"""Places of samples on a map: kernel PCA of the training samples, with the test samples among them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from sklearn.decomposition import KernelPCA

from tangentkit.core.seeds import Key
from tangentkit.surrogate.page.explanation import KernelView, row_blocks

LANDMARKS = 2000
"""Training samples whose kernel gives the axes; more would turn them little, and cost their square."""


@dataclass(frozen=True, eq=False)
class Positions:
    """The first two principal components of all samples in the kernel's feature space."""

    test: Float32[np.ndarray, "n two"]
    train: Float32[np.ndarray, "m two"]
    landmarks: int
    """Training samples that the axes come from."""


def positions(view: KernelView) -> Positions | None:
    """Kernel PCA of at most `LANDMARKS` training samples; all samples are projected onto its first two axes.

    Returns:
        None where the kernel has no training Gram matrix, or fewer than three training samples.

    Example:
        >>> t = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, -0.5]])
        >>> view = KernelView("linear", t @ t.T, np.ones((4, 1)), [0.0], gram=t @ t.T)
        >>> abs(positions(view).test).round(3).tolist()
        [[1.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 0.5]]
    """
    m = view.shape[1]
    if view.gram is None or m < 3:
        return None
    drawn = Key(0).fold("landmarks").numpy().permutation(m)[:LANDMARKS]
    landmarks = np.sort(drawn)
    train = np.concatenate([block[:, landmarks] for _, block in row_blocks(view.gram)])
    test = np.concatenate([block[:, landmarks] for _, block in view.rows()])
    axes = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit(train[landmarks])
    on_axes = [axes.transform(rows).astype(np.float32) for rows in (test, train)]
    return Positions(on_axes[0], on_axes[1], len(landmarks))
