"""Convolutional networks at infinite width: how well does the exact kernel classify, and what does a finite one lose?

Kernel regression on the targets 0.9 / -0.1 with the exact tangent kernel of a convolutional network (CNTK; vanilla,
or with global average pooling, GAP), with that of a perceptron (FC-NTK), and with the tangent kernel of finite
convolutional networks at their random weights, which is the linearized network trained to the end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, one_hot

from tangentkit import nn as ntk
from tangentkit.compute import gram
from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel
from tangentkit.infinite import InfiniteKernel
from tangentkit.machines import KernelRegression
from tangentkit.models.inits import standard_normal
from tangentkit.studies.infinite_width.cntk_result import KINDS
from tangentkit.studies.infinite_width.cntk_result import result as result
from tangentkit.studies.trials.data import cards, drawn, first_here
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.kept_folder import kept_folder
from tangentkit.studies.trials.trial import Trial, same_records, sweep

NARROW = 64
"""Channels of a finite network up to which its kernel is computed in float64, which takes four times as long."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of convolutional kernels."""

    digits: tuple[str, ...] = ("mnist", "digits")
    """Data sets of digits; the first that is here is used."""
    images: tuple[str, ...] = ("cifar10", "fashion-mini")
    """Data sets of pictures; the first that is here is used."""
    pixels: int = 8
    """Side of the images, after means over patches: a kernel with GAP takes pixels⁴ numbers for a pair of images."""
    train: int = 150
    """Training images, balanced, drawn anew for each seed."""
    test: int = 150
    """Test images, likewise."""
    depths: tuple[int, ...] = (1, 3)
    """Convolutional layers, or hidden layers of the perceptron."""
    widths: tuple[int, ...] = (16, 64)
    """Channels of the finite networks."""
    compared: tuple[int, ...] = ()
    """More training images of `pixels`, of pictures: with these, too, all kinds of kernels are compared, and with the
    most of them claims are judged."""
    compared_depth: int = 3
    """Layers of these."""
    compared_widths: tuple[int, ...] = (16, 64)
    """Channels of their finite networks."""
    many: tuple[int, ...] = (100, 300)
    """Training images of their own size for the kernels without pooling."""
    most: tuple[int, ...] = ()
    """More of them than `many`, with the first `most_seeds` seeds alone: the work goes with their square."""
    most_seeds: int = 3
    """Seeds of these."""
    many_depth: int = 2
    """Layers of these."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One choice of images and one draw of finite networks for each."""

    @property
    def own_sizes(self) -> tuple[int, ...]:
        """All numbers of training images of their own size."""
        return (*self.many, *self.most)

    def __post_init__(self) -> None:
        if set(self.many) & set(self.most):
            raise InputError("bad most", expected=f"other numbers than in many: {self.many}", got=self.most)
        check_rising("widths", self.widths, least=1)
        if self.train in self.compared:
            raise InputError(
                "bad number of images to compare with", expected="others than train", got=self.train
            )


SCALES = {
    "quick": Config(),
    "evening": Config(
        train=400,
        test=400,
        depths=(1, 2, 3),
        widths=(16, 64, 256),
        compared=(1_000, 2_000),
        many=(300, 1_000, 2_000, 5_000),
        most=(10_000,),
    ),
    "full": Config(
        pixels=32,
        train=10_000,
        test=10_000,
        depths=(2, 3, 5),
        widths=(16, 64, 256),
        many=(1_000, 2_000, 5_000, 10_000),
    ),
}


def trials(config: Config) -> list[Trial]:
    """Exact kernels and finite networks on small images, on more of them, and exact kernels on larger ones."""
    names = (first_here(config.digits), first_here(config.images))
    small = {"data": names, "depth": config.depths, "seed": config.seeds}
    fixed = {"pixels": config.pixels, "test": config.test}
    many = {"kind": KINDS[:2], "data": names, "train": config.many, "seed": config.seeds}
    most = {**many, "train": config.most, "seed": config.seeds[: config.most_seeds]}
    compared = {"data": names[1:], "train": config.compared, "seed": config.seeds}
    deep = {"depth": config.compared_depth, **fixed}
    more = (
        [
            *sweep(exact, {"kind": KINDS, **compared}, **deep),
            *_finite(config.compared_widths, compared, **deep),
        ]
        if config.compared
        else []
    )
    return [
        *sweep(exact, {"kind": KINDS, **small}, train=config.train, **fixed),
        *_finite(config.widths, small, train=config.train, **fixed),
        *more,
        *sweep(exact, many, depth=config.many_depth, pixels=0, test=config.test),
        *(sweep(exact, most, depth=config.many_depth, pixels=0, test=config.test) if config.most else []),
    ]


def _finite(widths: Iterable[int], over: Mapping[str, Iterable[Any]], **fixed: Any) -> list[Trial]:
    """A trial for every finite network."""
    return [
        trial
        for width in widths
        for trial in sweep(
            narrow_linearized if width <= NARROW else linearized,
            {"kind": KINDS[1:], **over},
            width=width,
            **fixed,
        )
    ]


def exact(
    *, kind: str, data: str, pixels: int, depth: int, train: int, test: int, seed: int
) -> dict[str, Any]:
    """Accuracy of kernel regression with the kernel at infinite width."""
    key = Key(seed).fold("cntk")
    known, new = images(data, pixels, train, test, key)
    kernel = InfiniteKernel(network(kind, known[0][0].shape, depth, 4))
    return {"accuracy": accuracy(kernel, known, new), "data_cards": cards(data)}


@same_records("140ee629fdeb363ea4e54f7169d51a36a0d98f75d3c8ffc245694334dc2c613b")
def linearized(**settings: Any) -> dict[str, Any]:
    """Accuracy of kernel regression with the tangent kernel of a random network of finite width."""
    return _linearized(torch.float32, **settings)


def narrow_linearized(**settings: Any) -> dict[str, Any]:
    """The same of a network of few channels, in float64.

    With fewer parameters than images, or nearly so, the kernel is singular, and the fit is that of least norm: what
    is zero is told from rounding there alone.
    """
    return _linearized(torch.float64, **settings)


def _linearized(
    dtype: torch.dtype,
    *,
    kind: str,
    width: int,
    data: str,
    pixels: int,
    depth: int,
    train: int,
    test: int,
    seed: int,
) -> dict[str, Any]:
    key = Key(seed).fold("cntk")
    known, new = ((x.to(dtype), y) for x, y in images(data, pixels, train, test, key))
    model = standard_normal(network(kind, known[0][0].shape, depth, width), key.fold("weights", kind, width))
    kernel = TangentKernel(model.to(dtype))
    return {"accuracy": accuracy(kernel, known, new, "eigh"), "data_cards": cards(data)}


Labeled = tuple[Tensor, Tensor]


def images(data: str, pixels: int, train: int, test: int, key: Key) -> tuple[Labeled, Labeled]:
    """Training and test images in float32, standardized by channel, of a side of `pixels`, or their own if 0."""
    parts = drawn(data, train, test, key=key, standardized=True)
    side = pixels or parts[0].inputs.shape[-1]
    known, new = ((adaptive_avg_pool2d(part.inputs.float(), side), part.targets) for part in parts)
    return known, new


def network(kind: str, shape: torch.Size, depth: int, width: int) -> nn.Sequential:
    """One output; ReLU, weights N(0, 1) scaled by √(2 / fan-in), 3 x 3 filters, zero padding, no biases."""
    channels, side, _ = shape
    scale = sqrt(2)
    if kind == "FC-NTK":
        sizes = [channels * side * side, *[width] * depth]
        hidden = [ntk.Linear(a, b, bias=False, w_std=scale) for a, b in pairwise(sizes)]
        body, head, out = [nn.Flatten()], [], width
    else:
        sizes = [channels, *[width] * depth]
        hidden = [ntk.Conv2d(a, b, 3, padding=1, bias=False, w_std=scale) for a, b in pairwise(sizes)]
        pooled = kind == "CNTK-GAP"
        body, head = [], [*([nn.AdaptiveAvgPool2d(1)] if pooled else []), nn.Flatten()]
        out = width if pooled else width * side * side
    layers = [part for layer in hidden for part in (layer, nn.ReLU())]
    return nn.Sequential(*body, *layers, *head, ntk.Linear(out, 1, bias=False))


def accuracy(kernel: Kernel, known: Labeled, new: Labeled, solver: str = "cholesky") -> float:
    """Percent of new images that kernel regression on targets 0.9 / -0.1 has right, from stored matrices."""
    (x, y), (z, truth) = known, new
    targets = one_hot(y, int(max(y.max(), truth.max())) + 1).double() - 0.1
    with kept_folder() as folder:
        K = gram(kernel, x, store=folder / "train", progress=False).dense().double()
        k = gram(kernel, z, x, store=folder / "test", progress=False).dense().double()
    said = KernelRegression(solver=solver).fit(K, targets).predict(k)
    return 100 * float((said.argmax(1) == truth).double().mean())
