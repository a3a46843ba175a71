"""The networks of the surrogate study and the published numbers of each, and its kernels."""

from dataclasses import dataclass

from tangentkit.report import Measured

KERNELS = {
    "trNTK": "trace of the neural tangent kernel over the outputs, as a cosine: k(x, y) / √(k(x, x) k(y, y))",
    "trNTK0": "the same, not normalized to a cosine",
    "proj-trNTK": "trNTK from random projections of the gradients",
    "proj-pNTK": "the same of the sum of the outputs (pseudo-NTK)",
    "Em": "embedding kernel, as a cosine: inner product of the activations of all layers",
    "CK": "conjugate kernel, as a cosine: inner product of the activations of the last hidden layer",
}
"""The kernels of Table 2, and what they are."""

SMALL_DIFFERENCE = 2.5
"""Percentage points of accuracy that we call small: the published ones are at most 2.2."""


@dataclass(frozen=True)
class Case:
    """A row of Table 1 and what stands for it."""

    published: str
    data: tuple[str, ...]
    """Data sets, the best first."""
    classes: tuple[int, ...] | None
    networks: int
    accuracy: Measured
    difference: Measured
    tau: Measured


CASES = {
    "mlp-mnist2": Case(
        "MLP (MNIST, 2 classes)", ("mnist", "fashion-mini"), (0, 1), 100,
        Measured(99.64, 0.01), Measured(0.03, 0.05), Measured(0.708, 0.003),
    ),
    "cnn-mnist2": Case(
        "CNN (MNIST, 2 classes)", ("mnist", "fashion-mini"), (0, 1), 100,
        Measured(98.4, 0.1), Measured(-0.2, 0.2), Measured(0.857, 0.007),
    ),
    "cnn-fashion2": Case(
        "CNN (Fashion-MNIST, 2 classes)", ("fashion-mnist", "fashion-mini"), (0, 1), 100,
        Measured(97.95, 0.04), Measured(-2.2, 0.2), Measured(0.882, 0.003),
    ),
    "cnn-cifar2": Case(
        "CNN (CIFAR-10, 2 classes)", ("cifar10", "fashion-mini"), (0, 1), 100,
        Measured(94.94, 0.05), Measured(-2.1, 0.5), Measured(0.711, 0.003),
    ),
    "lenet": Case(
        "ResNet18 (CIFAR-10)", ("fashion-mnist", "fashion-mini"), None, 1,
        Measured(93.07), Measured(-0.28), Measured(0.776),
    ),
}  # fmt: skip
"""The networks of Table 1 that are trained here; LeNet on ten classes stands for the ResNets."""

OTHERS = (
    ("ResNet34 (CIFAR-10)", 1, 93.33, -0.29, 0.786),
    ("MobileNetV2 (CIFAR-10)", 1, 93.91, -0.4, 0.700),
    ("BERT-base (CoLA)", 4, Measured(83.4, 0.1), Measured(-0.1, 0.3), Measured(0.78, 0.02)),
)
"""Rows of Table 1 for which nothing stands here."""

TABLE_2 = {
    "trNTK": ((0.776, Measured(0.809, 0.009)), (-0.30, Measured(0.1, 0.3))),
    "trNTK0": ((0.658, Measured(0.5, 0.1)), (-0.52, Measured(0.6, 0.2))),
    "proj-trNTK": ((0.737, Measured(0.800, 0.009)), (-0.20, Measured(0.1, 0.2))),
    "proj-pNTK": ((0.407, Measured(0.72, 0.02)), (-0.30, Measured(0.5, 0.2))),
    "Em": ((0.768, Measured(0.65, 0.02)), (-0.32, Measured(-0.3, 0.5))),
    "CK": ((0.630, Measured(0.52, 0.04)), (-0.20, Measured(-0.1, 0.1))),
}
"""Kernel -> tau and TAD of ResNet18 and BERT-base as published."""
