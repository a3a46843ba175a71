"""What a page must show, computed anew from its explanation, and numbers as the page writes them."""

import numpy as np

from surrogate.page.sample_explanation import M
from tangentkit.surrogate.page.rounded import rounded


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("±", "").replace("+", "").rstrip(" %"))


def softmax(logits: np.ndarray) -> np.ndarray:
    sizes = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return sizes / sizes.sum(axis=-1, keepdims=True)


def margins(explanation) -> np.ndarray:
    ordered = np.sort(softmax(explanation.logits), axis=1)
    return ordered[:, -1] - ordered[:, -2]


def scores(view, i: int, output: int) -> np.ndarray:
    """Scores as the page has them, from the rounded kernel."""
    kappa = rounded(block for _, block in view.rows()).values()[i]
    return view.coefficients[:, output].astype(np.float32) * kappa + view.offsets[output] / M
