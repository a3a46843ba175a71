"""Kernels compared as surrogates of one network: how faithful each is, and what it costs."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch import nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError, briefly
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress, counted_off
from tangentkit.linearized.labeled import labeled
from tangentkit.machines import KernelGLM
from tangentkit.report import Column, Dots, Table
from tangentkit.report.drawing import drawn
from tangentkit.surrogate.faithfulness import Faithfulness
from tangentkit.surrogate.surrogate import Surrogate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BETWEEN_LOOKS = 0.01
"""Seconds between two looks at the memory of the process."""


@dataclass
class Cost:
    """Time, and memory beyond what the process had before."""

    seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True, eq=False)
class KernelComparison:
    """Faithfulness and cost of each kernel on the same training and test samples."""

    faithfulness: dict[str, Faithfulness]
    """By the name of the kernel."""
    costs: dict[str, Cost]
    """Of kernel matrix, fit and test, together."""
    sizes: tuple[int, int]
    """Training and test samples."""
    surrogates: dict[str, Surrogate] = field(default_factory=dict, repr=False)
    """The fitted surrogates; empty over several networks."""

    @classmethod
    def over(cls, repeats: "Sequence[KernelComparison]") -> "KernelComparison":
        """The mean over networks (seeds), with standard errors from their scatter; costs are means too.

        Raises:
            InputError: fewer than two, or not of the same kernels.
        """
        names = [set(one.faithfulness) for one in repeats]
        if len(repeats) < 2 or any(known != names[0] for known in names):
            raise InputError(
                "comparisons do not match", expected="two or more, of the same kernels", got=len(repeats)
            )
        return cls(
            {
                name: Faithfulness.over([one.faithfulness[name] for one in repeats])
                for name in repeats[0].costs
            },
            {name: _mean_cost([one.costs[name] for one in repeats]) for name in repeats[0].costs},
            repeats[0].sizes,
        )

    def table(self) -> Table:
        """One row a kernel."""
        columns = (
            "kernel", Column("τ", ".3f"), Column("TAD (points)", "+z.2f"), Column("agreement (%)", ".1f"),
            Column("R²", ".3f"), Column("seconds", ".2f"), Column("memory (MB)", ".0f"),
        )  # fmt: skip
        rows = tuple(
            (
                name,
                f.kendall_tau,
                f.accuracy_difference,
                f.agreement,
                f.r2,
                cost.seconds,
                cost.peak_bytes / 1e6,
            )
            for (name, f), cost in zip(self.faithfulness.items(), self.costs.values(), strict=True)
        )
        accuracy = next(iter(self.faithfulness.values())).network_accuracy
        note = (
            f"{self.sizes[0]:,} training and {self.sizes[1]:,} test samples; network {accuracy:.2f} % right. "
            "Memory is by how much the process grew meanwhile: blocks that were free before do not show."
        )
        return Table("Kernels as surrogates of the network", columns, rows, note=note)

    def figure(self) -> Dots:
        """τ of each kernel."""
        return Dots(
            title="Kendall's τ of each kernel",
            caption="Kendall's τ between surrogate and network, with its standard error.",
            values={name: (f.kendall_tau.value,) for name, f in self.faithfulness.items()},
            x_label="Kendall's τ",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws τ of each kernel on axes, its own where none are given."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Kernel -> its numbers."""
        return {
            name: f.to_dict()
            | {"seconds": self.costs[name].seconds, "peak_bytes": self.costs[name].peak_bytes}
            for name, f in self.faithfulness.items()
        }

    def __str__(self) -> str:
        return str(self.table())


@briefly
def compare_kernels(
    model: nn.Module,
    kernels: Kernel | Mapping[str, Kernel] | Sequence[Kernel],
    train: Any,
    test: Any,
    *,
    machine: KernelGLM | None = None,
    forward: Forward | None = None,
    progress: bool | Progress = True,
    **options: Any,
) -> KernelComparison:
    """Fits a surrogate on each kernel, and compares each with the network: Table 2 of the surrogate paper.

    Args:
        model: the network.
        kernels: its kernels by name, or a list of them, which are numbered where they print alike; or one.
        train: (x, y), labeled data, or a data set of pairs: what the network was trained on.
        test: likewise, samples that it was not trained on.
        machine: what is fitted; by default `KernelGLM()`.
        forward: how the model is called.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).
        options: of `measure_faithfulness`.

    Raises:
        InputError: no kernels, or samples that do not go together.

    Example:
        >>> import torch, tangentkit as tk
        >>> model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        >>> x, y = torch.randn(40, 2), torch.arange(40) % 2
        >>> kernels = {"trNTK": tk.TangentKernel(model).normalized(), "CK": tk.ConjugateKernel(model)}
        >>> compare_kernels(model, kernels, (x, y), (x[:20], y[:20])).table().headings[1].name
        'τ'
    """
    named = _named(kernels)
    (x, y), (z, targets) = _samples(train, "train"), _samples(test, "test")
    found, costs, surrogates = {}, {}, {}
    with counted_off(progress, "kernels", len(named)) as advance:
        for name, kernel in named.items():
            with cost_of() as cost:
                surrogate = Surrogate(model, kernel, machine=machine, forward=forward).fit(
                    x, y, progress=False
                )
                found[name] = surrogate.faithfulness(z, targets, **options)
            costs[name], surrogates[name] = cost, surrogate
            advance()
    first = next(iter(found.values()))
    return KernelComparison(
        found, costs, (len(next(iter(surrogates.values())).labels_), first.points), surrogates
    )


@contextmanager
def cost_of() -> Iterator[Cost]:
    """Measures what is done inside.

    Example:
        >>> with cost_of() as cost:
        ...     time.sleep(0.02)
        >>> cost.seconds >= 0.02
        True
    """
    process, cost, done = psutil.Process(), Cost(), threading.Event()
    before, begun = process.memory_info().rss, time.perf_counter()

    def look() -> None:
        while not done.wait(BETWEEN_LOOKS):
            cost.peak_bytes = max(cost.peak_bytes, process.memory_info().rss - before)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield cost
    finally:
        cost.seconds = time.perf_counter() - begun
        cost.peak_bytes = max(cost.peak_bytes, process.memory_info().rss - before, 0)
        done.set()
        watcher.join()


def _named(kernels: Kernel | Mapping[str, Kernel] | Sequence[Kernel]) -> dict[str, Kernel]:
    if isinstance(kernels, Kernel):
        named = {repr(kernels): kernels}
    elif isinstance(kernels, Mapping):
        named = dict(kernels)
    else:
        named, times = {}, Counter()
        for kernel in kernels:
            name = repr(kernel)
            times[name] += 1
            # Kernels may look alike in print: of other seeds, or of other parameters.
            named[name if times[name] == 1 else f"{name} ({times[name]})"] = kernel
    if not named:
        raise InputError("no kernels", expected="kernels of the model, by name", got="none")
    return named


def _samples(given: Any, what: str) -> tuple[Any, Any]:
    """Inputs, and labels or None where the inputs hold them."""
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise InputError(f"bad {what} samples", expected="(inputs, labels)", got=f"{len(given)} parts")
        return given[0], given[1]
    pairs = labeled(given, None)
    if hasattr(given, "inputs"):
        return given.inputs, given.targets
    return given, torch.cat([torch.as_tensor(targets) for _, targets in pairs])


def _mean_cost(costs: Sequence[Cost]) -> Cost:
    def mean(of: Callable[[Cost], float]) -> float:
        return sum(map(of, costs)) / len(costs)

    return Cost(mean(lambda c: c.seconds), round(mean(lambda c: c.peak_bytes)))
