"""Two spectra beside each other: Kolmogorov-Smirnov distance, Q-Q plot, and what lies beyond the first."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tangentkit.analysis.kolmogorov_smirnov import kolmogorov_smirnov
from tangentkit.analysis.spectra.bulk import eigenvalues_of
from tangentkit.core.errors import InputError
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Scatter, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class SpectraComparison:
    """How the eigenvalues of one spectrum differ from those of another."""

    ks: float
    """The largest difference of their distribution functions."""
    p_value: float
    """Of independent draws from one law. Eigenvalues repel each other, so that those of one law differ less."""
    quantiles: np.ndarray
    """Quantiles of both at the same levels, (q, 2), ascending."""
    beyond: float
    """The share of the second that lies above the largest of the first."""
    names: tuple[str, str]

    def table(self) -> Table:
        """What was measured, as a table."""
        first, second = self.names
        rows = (
            ("KS distance", self.ks),
            ("p-value", self.p_value),
            (f"share of {second} beyond {first}", self.beyond),
            (f"median of {first}", float(np.median(self.quantiles[:, 0]))),
            (f"median of {second}", float(np.median(self.quantiles[:, 1]))),
        )
        return Table(f"Spectra of {first} and {second}", ("measure", "value"), rows)

    def figure(self) -> Scatter:
        """The Q-Q plot as data of a figure."""
        first, second = self.names
        return Scatter(
            title=f"Q-Q plot, {first} and {second}",
            caption=f"On the line both are the same; above it the values of {second} are larger.",
            x_label=f"quantiles of {first}",
            y_label=f"quantiles of {second}",
            series={"eigenvalues": Series(self.quantiles[:, 0], self.quantiles[:, 1])},
            diagonal=True,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "names": list(self.names),
            "ks": self.ks,
            "p_value": self.p_value,
            "beyond": self.beyond,
            "quantiles": self.quantiles.tolist(),
        }


def compare_spectra(
    first: Any, second: Any, *, names: tuple[str, str] = ("first", "second")
) -> SpectraComparison:
    """Compares two spectra, such as those of a kernel before and after training.

    Args:
        first: a whole Spectrum, or values (r,).
        second: likewise; it may have another number of values.
        names: what they are, for tables and figures.

    Raises:
        InputError: a spectrum is partial, or has fewer than two values.
        NumericalError: a value is not finite.

    Example:
        >>> found = compare_spectra([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 8.0], names=("start", "end"))
        >>> found.ks, found.beyond
        (0.25, 0.25)
    """
    for one in (first, second):
        if getattr(one, "is_partial", False):
            raise InputError(
                "spectra are compared whole",
                expected="all values",
                got=repr(one),
                hint="spectrum(K) without top",
            )
    a, b = eigenvalues_of(first), eigenvalues_of(second)
    if min(len(a), len(b)) < 2:
        raise InputError("too few values", expected="at least 2 of each", got=f"{len(a)} and {len(b)}")
    count = min(len(a), len(b))
    levels = (np.arange(count) + 0.5) / count
    ks, p_value = kolmogorov_smirnov(a, b)
    return SpectraComparison(
        ks=ks,
        p_value=p_value,
        quantiles=np.stack([np.quantile(values, levels, method="hazen") for values in (a, b)], 1),
        beyond=float((b > a[0]).mean()),
        names=names,
    )
