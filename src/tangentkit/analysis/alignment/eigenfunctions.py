"""Eigenfunctions of a kernel on data, and their extension to new points."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.analysis.half_precision import at_least_float32
from tangentkit.compute.gram import gram
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource, sources_of
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError, NumericalError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.operator import MAX_SIDE, Memory
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.spectra.spectrum import Spectrum, spectrum
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOGETHER = 4
"""Tiles of the kernel that are there at once while functions are extended."""


@dataclass(frozen=True, eq=False, repr=False)
class Eigenfunctions:
    """The first eigenfunctions of a kernel on n samples; called on new points, their Nyström extension."""

    kernel: Kernel
    spectrum: Spectrum
    """Of the Gram matrix on the samples."""
    samples: SampleSource = field(repr=False)
    memory: Memory = None

    def __repr__(self) -> str:
        n, r = self.vectors.shape
        return f"Eigenfunctions({r} of {n:,}, eigenvalues {self.values[0]:.4g} to {self.values[-1]:.4g})"

    @property
    def values(self) -> Float[Tensor, " r"]:
        """The eigenvalues λ_j of the Gram matrix, falling."""
        return self.spectrum.values

    @property
    def vectors(self) -> Float[Tensor, "n r"]:
        """The eigenfunctions on the samples as columns of norm 1; √n times them has mean square 1."""
        return self.spectrum.vectors

    @property
    def mercer_values(self) -> Float[Tensor, " r"]:
        """λ_j / n, the eigenvalues of the kernel's integral operator on the samples: the alignment of √n v_j."""
        return self.values / len(self.vectors)

    def __call__(self, z: Batch) -> Float[Tensor, "m r"]:
        """Σ_i k(z, x_i) v_ij / λ_j at new points; at the samples themselves it gives `vectors`.

        The tiles of k(z, x) come and go. Columns have the scale of `vectors`, of n samples.

        Raises:
            NumericalError: an eigenvalue is within rounding of zero, so that its function is not known elsewhere.
        """
        noise, smallest = self.spectrum.noise, float(self.values[-1])
        if smallest <= noise:
            known = int((self.values > noise).sum())
            raise NumericalError(
                f"{len(self.values) - known} of {len(self.values)} eigenvalues are within rounding of zero",
                expected=f"eigenvalues above {noise:.2g}",
                got=f"{smallest:.2g}",
                hint=f"top={known}" if known else "another kernel",
            )
        points = sources_of(self.kernel, z)["x"]
        side = memory_budget(self.memory, device=self.vectors.device).side(
            self.vectors.element_size(), copies=TOGETHER, most=MAX_SIDE
        )
        out = self.vectors.new_zeros(len(points), self.vectors.shape[1])
        for rows in spans(len(points), side):
            row = self.kernel.row(points.read(rows))
            for some in spans(len(self.samples), side):
                out[rows] += row(self.samples.read(some)).to(out) @ self.vectors[some]
        return out / self.values

    def binarized(self) -> Int[Tensor, "n r"]:
        """Labels (sign v_j + 1) / 2 of every sample, 0 or 1: a classification task for each eigenfunction."""
        return (self.vectors >= 0).long()

    def sign_overlaps(self) -> Float[Tensor, " r"]:
        """v_j · sign(v_j) / √n, how much of an eigenfunction its binarized form keeps; √(2/π) of Gaussian values."""
        return self.vectors.abs().sum(0) / len(self.vectors) ** 0.5

    def table(self) -> Table:
        """One row for each eigenfunction."""
        share = self.values / self.spectrum.trace if self.spectrum.trace > 0 else self.values * 0
        columns = (self.values, self.mercer_values, share, self.sign_overlaps())
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return Table(
            "Eigenfunctions",
            ("j", "eigenvalue", "eigenvalue / n", "share of the trace", "overlap with its sign"),
            tuple((j, *row) for j, row in enumerate(rows, 1)),
            note=f"{len(self.vectors):,} samples",
        )

    def figure(self) -> Lines:
        """The eigenvalues over their number."""
        number = list(range(1, len(self.values) + 1))
        return Lines(
            title="Eigenvalues of the kernel",
            caption="How fast the eigenvalues fall: what stands first is learned first.",
            series={"eigenvalue / n": Series(number, self.mercer_values.tolist())},
            x_label="j",
            y_label="eigenvalue / n",
            x_scale="log",
            y_scale="log",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the eigenvalues."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        return {
            "values": self.values.tolist(),
            "mercer_values": self.mercer_values.tolist(),
            "vectors": self.vectors.tolist(),
            "sign_overlaps": self.sign_overlaps().tolist(),
        }


@briefly
def eigenfunctions(kernel: Kernel, x: Batch, top: int, *, memory: Memory = None) -> Eigenfunctions:
    """The first eigenfunctions of a kernel on some samples: K v_j = λ_j v_j for its Gram matrix K.

    Args:
        kernel: any kernel of one number for each pair.
        x: the samples: a batch or a data set.
        top: how many; a few of many are found by Lanczos.
        memory: working memory for tiles of the extension.

    Returns:
        `.values` (top,), `.vectors` (n, top); called on new points it gives (m, top), the Nyström extension.

    Raises:
        InputError: `top` is out of range, or a kernel between outputs.
        BudgetError: the Gram matrix does not fit in memory.

    Example:
        >>> import torch
        >>> from tangentkit import ConjugateKernel
        >>> kernel = ConjugateKernel(torch.nn.Linear(2, 1))  # k(x, y) = x · y
        >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-2.0, 0.0]])
        >>> phi = eigenfunctions(kernel, x, 2)
        >>> phi.values, phi(torch.tensor([[4.0, 0.0]])).abs()
        (tensor([8., 1.]), tensor([[1.4142, 0.0000]]))
    """
    if not isinstance(kernel, Kernel):
        raise InputError(
            "not a kernel",
            expected="a tangentkit kernel, such as TangentKernel(model)",
            got=type(kernel).__name__,
            hint="tk.spectrum(K, top) for a matrix, which no new point belongs to",
        )
    kernel = at_least_float32(kernel)
    samples = sources_of(kernel, x)["x"]
    operator = gram(kernel, x, progress=False)
    if operator.shape[0] != len(samples):
        raise InputError(
            "eigenfunctions need one number for each pair of samples",
            expected='a kernel such as outputs="trace"',
            got=f"a matrix {tuple(operator.shape)} of {len(samples)} samples: a kernel between outputs",
        )
    return Eigenfunctions(kernel, spectrum(operator, top), samples, memory)
