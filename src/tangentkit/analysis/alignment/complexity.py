"""How hard labels are for a kernel: how much of them lies in its first eigenvectors, and how large their norm is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.analysis.alignment.kernel_target import eigenvector_alignments
from tangentkit.core.errors import NumericalError
from tangentkit.linalg.operators.matrices import as_operator
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.spectra.labels import as_columns
from tangentkit.linalg.spectra.spectrum import Spectrum, spectrum
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class TaskComplexity:
    """What a kernel has to do for labels y on n samples: the smaller the norm, the easier the task.

    Lemma 1 of Ortiz-Jiménez et al. (2021): ‖y‖_K² >= ‖y‖₂⁴ / α(y), with ‖y‖₂² the mean square and α the alignment.
    """

    spectrum: Spectrum
    alignments: Float[Tensor, " r"]
    """|v_jᵀ y| / ‖y‖ for each eigenvector."""
    alignment: float
    """α(y) = yᵀ K y / n²."""
    mean_square: float
    """‖y‖₂² = Σ y_i² / n."""

    def __repr__(self) -> str:
        share = f"{float(self.energy[-1]):.1%} of the labels in {len(self.alignments)} eigenvectors"
        return f"TaskComplexity({share}, norm² at least {self.bound:.4g})"

    @property
    def energy(self) -> Float[Tensor, " r"]:
        """‖V_jᵀ y‖ / ‖y‖ over the first j eigenvectors, j = 1, 2, ...: a ratio of norms, whose square is a share."""
        return self.alignments.square().cumsum(0).sqrt()

    @property
    def bound(self) -> float:
        """‖y‖₂⁴ / α(y), which ‖y‖_K² cannot be below; no eigenvector is needed for it."""
        return self.mean_square**2 / self.alignment

    @property
    def partial_norm(self) -> float:
        """Σ_j (v_jᵀ y)² / λ_j over the eigenvalues that are held and above rounding: part of ‖y‖_K² = yᵀ K⁻¹ y.

        It is all of it where the spectrum is whole and nothing of the labels lies elsewhere.
        """
        values = self.spectrum.values
        known = values > self.spectrum.noise
        parts = self.alignments[known].double().square() / values[known].double()
        return float(parts.sum()) * self.mean_square * len(self.spectrum.vectors)

    def table(self) -> Table:
        """One row for each eigenvector."""
        columns = (self.spectrum.values, self.alignments, self.energy)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return Table(
            "Labels along the eigenvectors of a kernel",
            ("j", "eigenvalue", "alignment with eigenvector", "energy of the first j"),
            tuple((j, *row) for j, row in enumerate(rows, 1)),
            note=f"alignment {self.alignment:.4g}; squared kernel norm at least {self.bound:.4g}",
        )

    def figure(self) -> Lines:
        """The energy over the number of eigenvectors."""
        number = list(range(1, len(self.alignments) + 1))
        return Lines(
            title="Labels in the first eigenvectors",
            caption="How soon the first eigenvectors hold the labels: the sooner, the easier the task.",
            series={
                "energy of the first j": Series(number, self.energy.tolist()),
                "eigenvector j alone": Series(number, self.alignments.tolist()),
            },
            x_label="j",
            y_label="share of the norm",
            x_scale="log",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the energy over the number of eigenvectors."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        return {
            "values": self.spectrum.values.tolist(),
            "alignments": self.alignments.tolist(),
            "energy": self.energy.tolist(),
            "alignment": self.alignment,
            "mean_square": self.mean_square,
            "bound": self.bound,
            "partial_norm": self.partial_norm,
        }


def task_complexity(K: Any, y: Any, top: int | None = None, *, memory: Memory = None) -> TaskComplexity:
    """How hard labels are for a kernel.

    Args:
        K: an operator, a tensor or an array (n, n).
        y: labels (n,), such as -1 and 1; or (n, c), whose columns count together.
        top: how many eigenvectors, by Lanczos where they are few; None takes all.
        memory: working memory for tiles of an operator.

    Raises:
        InputError: labels of another length or zero, or `top` is out of range.
        NumericalError: K is not symmetric, or the labels have no alignment with it at all.

    Example:
        >>> K = torch.diag(torch.tensor([4.0, 2.0, 1.0]))
        >>> found = task_complexity(K, torch.tensor([1.0, 1.0, 0.0]))
        >>> found.alignment, found.energy
        (0.666..., tensor([0.7071, 1.0000, 1.0000]))
        >>> round(found.bound, 4), round(found.partial_norm, 4)
        (0.6667, 0.75)
    """
    operator = as_operator(K)
    found = spectrum(operator, top, memory=memory)
    n = operator.shape[0]
    columns = as_columns(y, n).to(dtype=operator.dtype, device=operator.device)
    along = float((columns.double() * operator.product(columns, memory=memory).double()).sum())
    square = float(columns.double().square().sum())
    if along <= torch.finfo(operator.dtype).eps * float(found.values[0]) * square:
        raise NumericalError(
            "the labels have no alignment with the kernel, so that their norm has no bound",
            expected="yᵀ K y > 0 beyond rounding",
            got=f"{along:.3g}",
        )
    return TaskComplexity(found, eigenvector_alignments(found, columns), along / n**2, square / n)
