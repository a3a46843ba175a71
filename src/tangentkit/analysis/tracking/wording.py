"""What the page of a tracker calls its measures, and what it says below their figures."""

from collections.abc import Sequence

KERNELS = {"ntk": "tangent kernel", "ck": "conjugate kernel"}

SAID = {
    "loss": ("Loss", "In evaluation mode."),
    "error": ("Error", "The share of samples that are put into a wrong class."),
    "trace": ("Trace of the kernels", "tr K, the sum of the eigenvalues."),
    "effective rank": (
        "Effective rank",
        "exp of the entropy of λ / Σλ: how many eigenvalues count, the small ones included.",
    ),
    "participation ratio": ("Participation ratio", "(Σλ)² / Σλ²: how many large eigenvalues there are."),
    "spikes": (
        "Spikes",
        "Of kernels, eigenvalues beyond the bulk of their first spectrum; of weights, squared singular values beyond "
        "the law of Marchenko and Pastur. At 5 % for noise.",
    ),
    "values": ("Largest singular values", "σ₁ of each weight as a matrix."),
    "stable rank": ("Stable rank", "‖W‖² / σ₁² of each weight as a matrix."),
    "plain": ("Kernel-target alignment", "cos(K, Y Yᵀ): 1 where the kernel is that of the targets."),
    "centered": (
        "Centered kernel-target alignment",
        "cos(H K H, Y Yᵀ): without what all samples have in common.",
    ),
    "target": ("Target alignment", "tr(Yᵀ K Y) / n²: how strongly the kernel responds to the targets."),
    "energy in the first": (
        "Targets along the first eigenvector",
        "‖v₁ᵀ Y‖ / ‖Y‖: 1 where it is all of the targets.",
    ),
    "energy in the top": (
        "Targets in the top eigenvectors",
        "‖Vᵀ Y‖ / ‖Y‖ with the eigenvectors that the tracker keeps.",
    ),
    "to the start": ("Distance from the start", "1 - cos(K, K₀): 0 while training is lazy."),
    "velocity": ("Velocity of the kernels", "1 - cos(K, K before), for each step between the two."),
    "weight change": ("Change of the weights", "‖w - w₀‖ / ‖w₀‖."),
    "kernel change": (
        "Change of the tangent kernel",
        "‖K - K₀‖ / ‖K₀‖: beside the turn of the kernel its growth counts here.",
    ),
}
"""Last part of a measure's name -> (title, caption)."""


def heading(kind: str) -> str:
    """The title of a figure of measures that end so; of others than tangentkit's their name.

    Example:
        >>> heading("plain"), heading("ntk/values"), heading("rotation")
        ('Kernel-target alignment', 'Eigenvalues of the tangent kernel', 'rotation')
    """
    first, _, last = kind.partition("/")
    if last == "values" and first in KERNELS:
        return f"Eigenvalues of the {KERNELS[first]}"
    return SAID[kind][0] if kind in SAID else kind


def explanation(kind: str) -> str:
    """What the measures are, in a sentence; nothing of others than tangentkit's."""
    return SAID[kind][1] if kind in SAID else ""


def labels(names: Sequence[str]) -> list[str]:
    """The names of curves of one figure: without the parts that all of them share, and kernels in words.

    Example:
        >>> labels(["distance/ntk/velocity", "distance/ck/velocity"]), labels(["loss", "test loss"])
        (['tangent kernel', 'conjugate kernel'], ['loss', 'test loss'])
        >>> labels(["weights/0.weight/spikes", "ntk/spikes"]), labels(["lazy/weight change"])
        (['weights/0.weight', 'tangent kernel'], ['lazy/weight change'])
    """
    parts = [name.split("/") for name in names]
    if len(parts) < 2:
        return list(names)
    for end in (-1, 0):
        if len({part[end] for part in parts}) == 1 and all(len(part) > 1 for part in parts):
            parts = [part[:-1] if end else part[1:] for part in parts]
    return [KERNELS.get(name, name) for name in map("/".join, parts)]
