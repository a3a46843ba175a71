"""Directions of input space that a network's architecture prefers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.analysis.mixed_derivative import MixedDerivative
from tangentkit.compute.sources import as_source, first_part
from tangentkit.core.batches import Batch, shapes
from tangentkit.core.errors import InputError, NumericalError, TangentkitError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.core.model.functions import Forward, check_inputs, snapshot
from tangentkit.core.model.hooks import refuse_hooked_parameters
from tangentkit.core.model.parameters import Selection, count
from tangentkit.core.model.refusals import refusal
from tangentkit.core.model.swaps import outside_autograd
from tangentkit.core.seeds import Key
from tangentkit.core.whole_numbers import as_count
from tangentkit.data.dataset import Data
from tangentkit.data.synthetic import directional_data
from tangentkit.empirical.outputs import Outputs, directions
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.spectra.spectrum import LANCZOS_SHARE
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Figure, Images, Lines, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAMPLES = 256
"""Samples of one pass, where derivatives are averaged over data."""
DRAWN = 10
"""Directions in a picture."""
WIDTH = 5.2
"""Inches that the title of a picture needs, however few directions there are."""


@dataclass(frozen=True, eq=False, repr=False)
class AnisotropyDirections:
    """Right singular vectors of ∂²f / ∂θ ∂x: directions of input that a network's kernel prefers, first ones first.

    For x ~ N(0, I) the alignment of the linear function u · x is ‖E ∂²f/∂θ∂x u‖² (Ortiz-Jiménez et al. 2021, theorem
    1): of direction j it is `values[j]²`.
    """

    directions: Float[Tensor, "r ..."]
    """Orthonormal directions, each of the shape of a sample; their signs are arbitrary."""
    values: Float[Tensor, " r"]
    """The singular values, falling."""

    def __repr__(self) -> str:
        r, *shape = self.directions.shape
        ends = f"{float(self.values[0]):.4g} to {float(self.values[-1]):.4g}"
        return f"AnisotropyDirections({r} of shape {tuple(shape)}, singular values {ends})"

    @property
    def alignments(self) -> Float[Tensor, " r"]:
        """σ_j², the alignment of the function u_j · x."""
        return self.values.square()

    def fourier(self) -> Float[Tensor, "r ..."]:
        """The magnitudes of the Fourier transform of each direction, frequency 0 in the middle.

        Over the last two axes of images, over all of a vector.
        """
        axes = (-2, -1) if self.directions.ndim > 2 else (-1,)
        return torch.fft.fftshift(torch.fft.fftn(self.directions, dim=axes), dim=axes).abs()

    def data(
        self, j: int, n: int = 10_000, *, margin: float = 1.0, variance: float = 1.0, seed: int = 0
    ) -> Data:
        """D(u_j): two classes that differ along direction j only (`tk.data.directional_data`)."""
        if not 0 <= j < len(self.values):
            raise InputError("no such direction", expected=f"0 to {len(self.values) - 1}", got=j)
        key = Key(seed).fold("directions", j)
        return directional_data(self.directions[j], n, margin=margin, variance=variance, key=key)

    def table(self) -> Table:
        """One row for each direction: its singular value, and how few frequencies it has."""
        power = self.fourier().square().flatten(1)
        power = power / power.sum(1, keepdim=True)
        frequencies = 1 / power.square().sum(1)
        rows = zip(self.values.tolist(), self.alignments.tolist(), frequencies.tolist(), strict=True)
        return Table(
            "Anisotropy directions",
            ("j", "singular value", "alignment", "frequencies"),
            tuple((j, *row) for j, row in enumerate(rows, 1)),
            note="frequencies: (Σ power)² / Σ power², the number of Fourier components that a direction is made of",
        )

    def figure(self) -> Figure:
        """The first directions as images above their Fourier magnitudes; as curves, where samples are vectors."""
        r = min(DRAWN, len(self.values))
        if self.directions.ndim == 2:
            axis = list(range(self.directions.shape[1]))
            curves = {f"direction {j + 1}": Series(axis, self.directions[j].tolist()) for j in range(r)}
            return Lines(
                title="Anisotropy directions",
                caption="The directions of input that the kernel prefers, coordinate by coordinate.",
                series=curves,
                x_label="coordinate",
                legend="beside",
                size=(6.0, 3.2),
            )
        pictures = np.stack([_pictures(self.directions[:r]), _magnitudes(self.fourier()[:r])])
        return Images(
            title="Anisotropy directions and their Fourier magnitudes",
            caption="The first directions, and below each its frequencies: few bright points are a structured one.",
            images=pictures,
            headings=[f"{float(value):.3g}" for value in self.values[:r]],
            size=(max(WIDTH, 1.0 * r + 0.4), 2.6),
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the first directions and their Fourier magnitudes."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        return {"directions": self.directions.tolist(), "values": self.values.tolist()}


@briefly
@outside_autograd
def anisotropy_directions(
    model: nn.Module,
    shape: int | Sequence[int],
    top: int,
    *,
    x: Batch | None = None,
    outputs: Outputs = "trace",
    params: Selection = None,
    forward: Forward | None = None,
    memory: Memory = None,
) -> AnisotropyDirections:
    """The right singular vectors of M = ∂²f / ∂θ ∂x in the space of inputs, of the largest singular values.

    A few come from products Mᵀ M u, each of two passes forward and back, and M, of as many rows as parameters, is
    never formed; in float32, singular values below about 3e-4 of the largest are then rounding. More than a tenth of
    all come from the columns of M.

    Args:
        model: in evaluation mode where that matters; smooth, such as with GELU: at the origin a ReLU without bias has
            no derivative.
        shape: of one sample, such as (1, 28, 28); of vectors their length will do.
        top: how many directions.
        x: samples over which M is averaged, a batch or a data set; None takes M at the origin alone.
        outputs: of several outputs, "trace" takes the rows of all, or "pseudo", an index, a vector.
        params: None for all that require grad; names or patterns, or a predicate (name, parameter) -> bool.
        forward: (model, batch) -> (n, c), for models with other outputs.
        memory: the most bytes that M may take, where more than a tenth of all directions are asked for.

    Returns:
        `.directions` of shape `(top, *shape)` and `.values` of shape `(top,)`.

    Raises:
        InputError: `top` is out of range, or samples are of another shape.
        NumericalError: M is zero or not finite, as of a ReLU network without bias at the origin.
        ModelError: the model has no sound second derivatives.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 1))
        >>> found = anisotropy_directions(model, (3,), 2)
        >>> found.directions.shape, found.values.shape
        (torch.Size([2, 3]), torch.Size([2]))
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    shape = tuple(as_count(size, "shape of a sample") for size in shape)
    if not shape:
        raise InputError("bad shape of a sample", expected="such as (1, 28, 28)", got=shape)
    d = math.prod(shape)
    if isinstance(top, bool) or not 1 <= top <= d:
        raise InputError("bad number of directions", expected=f"1 to {d}, the size of a sample", got=top)
    if isinstance(outputs, str) and outputs == "full":
        raise InputError(
            'outputs="full" is that of "trace" here', expected='"trace", "pseudo", ...', got="full"
        )
    function = snapshot(model, params=params, forward=forward)
    refuse_hooked_parameters(model, function.params)
    like = next(iter(function.params.values()))
    source = as_source(like.new_zeros(1, *shape) if x is None else x)

    def pieces() -> Iterator[Tensor]:
        for samples in spans(len(source), SAMPLES):
            batch = source.read(samples)
            batch = first_part(batch) if isinstance(batch, (tuple, list)) else batch
            _check_samples(batch, shape)
            check_inputs(function, batch)
            yield batch

    first = next(pieces())[:2]
    try:
        c = function(function.params, first).shape[1]
        chosen = directions(outputs, c, like=like).vectors
        mixed = MixedDerivative(function, pieces, len(source), chosen, shape)
        mixed.check()
        values, vectors = _largest(mixed, top, memory)
    except TangentkitError:
        raise
    except Exception as error:
        raise refusal(function, error, first) or error from error
    return AnisotropyDirections(vectors.reshape(top, *shape), values)


def _largest(mixed: MixedDerivative, top: int, memory: Memory) -> tuple[Tensor, Tensor]:
    """The largest singular values of M and their right singular vectors, as rows (top, d).

    Raises:
        NumericalError: M is zero or not finite, or Lanczos fails.
        BudgetError: so many are asked for that M is needed, which does not fit.
    """
    d = math.prod(mixed.shape)
    if top > LANCZOS_SHARE * d:
        values, vectors = _decomposed(mixed, d, memory)
    else:
        values, vectors = _lanczos(mixed, d, top)
    if not float(values[0]) > 0:
        raise NumericalError(
            "the derivative of the model in parameters and input is zero",
            expected="a network that is smooth at the origin, with GELU say",
            got="zero, as of ReLU without bias, whose slope there is taken for zero",
            hint="x=samples, to average over data",
        )
    return values[:top], vectors[:top]


def _decomposed(mixed: MixedDerivative, d: int, memory: Memory) -> tuple[Tensor, Tensor]:
    """All of them, from M column by column."""
    like = mixed.directions
    size = len(like) * count(mixed.function.params)
    working = torch.promote_types(like.dtype, torch.float32)  # half precision has no decompositions
    memory_budget(memory, device=like.device).check(
        size * d * working.itemsize,
        "the derivative in parameters and input is",
        hint=f"top={int(LANCZOS_SHARE * d)} or less, by products alone; or memory=...",
        copies=2,
    )
    matrix = like.new_empty(size, d, dtype=working)
    for j, unit in enumerate(torch.eye(d, dtype=like.dtype, device=like.device)):
        parts = [part.flatten() for one in mixed.times(unit.reshape(mixed.shape)) for part in one.values()]
        matrix[:, j] = torch.cat(parts)
    check_finite(matrix, "derivative in parameters and input")
    _, values, rows = torch.linalg.svd(torch.linalg.qr(matrix, mode="r").R)
    # Of fewer parameters than inputs, the directions that are left have singular value zero.
    return torch.cat([values, values.new_zeros(d - len(values))]).to(like), rows.to(like)


def _lanczos(mixed: MixedDerivative, d: int, top: int) -> tuple[Tensor, Tensor]:
    """The largest few, by products with Mᵀ M."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    like = mixed.directions

    class Gram(LinearOperator):
        def _matvec(self, x: np.ndarray) -> np.ndarray:
            return product(x)

    def product(v: np.ndarray) -> np.ndarray:
        out = mixed.gram_times(torch.from_numpy(v.reshape(mixed.shape).copy()).to(like)).flatten()
        check_finite(out, "derivative in parameters and input")
        return out.to(working).cpu().numpy()

    working = torch.float64 if like.dtype == torch.float64 else torch.float32
    start = Key(0).fold("lanczos").numpy().standard_normal(d).astype(str(working).removeprefix("torch."))
    if not product(start).any():
        return torch.zeros(top), torch.eye(top, d)  # Lanczos cannot begin
    try:
        values, vectors = eigsh(Gram(start.dtype, (d, d)), k=top, which="LA", v0=start)
    except ArpackError as error:
        raise NumericalError(
            f"Lanczos found no {top} largest directions ({error})",
            hint="ask for fewer, or a model in float64",
        ) from error
    order = np.argsort(values)[::-1].copy()
    found = torch.from_numpy(values[order]).clamp(min=0).sqrt(), torch.from_numpy(vectors.T[order].copy())
    return found[0].to(like), found[1].to(like)


def _check_samples(batch: Batch, shape: tuple[int, ...]) -> None:
    fits = isinstance(batch, Tensor) and batch.is_floating_point() and tuple(batch.shape[1:]) == shape
    if not fits:
        raise InputError(
            "samples of another shape",
            expected=f"a floating-point tensor (n, {', '.join(map(str, shape))})",
            got=shapes(batch),
        )


def _pictures(images: Tensor) -> np.ndarray:
    """Directions (r, h, w) or (r, c, h, w) as pictures (r, h, w, 3) in [0, 1], zero being gray."""
    if images.ndim == 3:
        images = images[:, None]
    channels = images.flatten(1, -3)
    shown = channels if channels.shape[1] == 3 else channels.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    scale = shown.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(shown.dtype).tiny)
    return (0.5 + 0.5 * shown / scale).movedim(1, -1).cpu().numpy()


def _magnitudes(fourier: Tensor) -> np.ndarray:
    """Fourier magnitudes as gray pictures (r, h, w, 3), the largest being white."""
    if fourier.ndim == 3:
        fourier = fourier[:, None]
    shown = torch.linalg.vector_norm(fourier.flatten(1, -3), dim=1)
    shown = shown / shown.amax((1, 2), keepdim=True).clamp(min=torch.finfo(shown.dtype).tiny)
    return shown[..., None].expand(-1, -1, -1, 3).cpu().numpy()
