"""The alignment of functions with the tangent kernel of a network, without the kernel."""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.analysis.alignment.averages import WeightedGradients
from tangentkit.compute.kernel import explaining
from tangentkit.compute.sources import SampleSource, sources_of
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError, NumericalError, briefly
from tangentkit.core.memory import Budget, memory_budget
from tangentkit.core.model.functions import Forward, check_inputs
from tangentkit.core.model.parameters import Selection, count
from tangentkit.core.model.swaps import outside_autograd
from tangentkit.empirical.outputs import Outputs, directions
from tangentkit.empirical.passes.layer_gradients import LayerGradients
from tangentkit.empirical.passes.parameter_gradients import COPIES, Orders
from tangentkit.empirical.passes.routes import FLOPS_PER_BYTE, Workload
from tangentkit.empirical.plan import make_plan
from tangentkit.empirical.tangent import TangentKernel
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.spectra.labels import as_columns
from tangentkit.sketch.methods.coordinates import working_dtype

PASS_SAMPLES = 256
"""Samples that pass together at most: more make no matrix product faster."""
PASS_BYTES = 2**26
"""What passes of these samples may take, beyond eight of them."""
LEAST_PASS = 8
BUFFER_ENTRIES = 2**22
"""Entries of gradients that are built at a time, if the budget allows."""


@briefly
@outside_autograd
def target_alignment(
    model: nn.Module,
    x: Batch,
    f: Any,
    *,
    outputs: Outputs = "trace",
    params: Selection = None,
    forward: Forward | None = None,
    memory: int | str | None = None,
) -> Float[Tensor, "..."]:
    """α(f) = fᵀ K f / n² = ‖(1/n) Σ_i f_i J_i‖²: how strongly the tangent kernel K of a network responds to f.

    It is the average gradient that is computed, over samples that are read and go through the model a few at a time,
    and never the kernel. All functions go together, in one pass over the data, where their averages fit the memory
    budget (one number for each function, output and parameter); else in as few passes as the budget allows. Where
    these would be more work than tiles of the kernel, fᵀ K f is summed over such tiles, one after the other.

    Of an eigenfunction √n v_j it is λ_j / n. The quotient α(f) n / ‖f‖² is that of a function of mean square 1.

    Args:
        model: any module that autograd can differentiate, in evaluation mode where that matters.
        x: n samples: a batch, or a `Dataset` or `DataLoader` that need not fit in memory.
        f: values (n,) of a function on the samples, such as labels of -1 and 1; or (n, k), a column for each.
        outputs: which kernel, for a model of several outputs: "trace", "pseudo", an index, or a vector.
        params: None for all that require grad; names or patterns, or a predicate (name, parameter) -> bool.
        forward: (model, batch) -> (n, c), for models with other inputs.
        memory: working memory, in bytes or as "2GB"; by default a quarter of what is free.

    Returns:
        A number, or (k,) for k functions, in float64.

    Raises:
        InputError: f does not have a value for each sample, or is zero.
        NumericalError: f or a gradient is not finite.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model, x, f = nn.Linear(3, 1, bias=False), torch.randn(8, 3), torch.randn(8)
        >>> K = x @ x.T
        >>> torch.allclose(target_alignment(model, x, f).float(), f @ K @ f / 64)
        True
    """
    if isinstance(outputs, str) and outputs == "full":
        raise InputError(
            'outputs="full" has no single alignment', expected='"trace", "pseudo", an index or a vector'
        )
    kernel = TangentKernel(model, outputs, params=params, forward=forward, memory=memory)
    found = _aligned(kernel, x, f)
    if not found.isfinite().all():
        raise NumericalError(
            "the average gradient is not finite",
            got="nan or inf",
            hint="float64, or look for an operation with an infinite derivative (sqrt at 0, say)",
        )
    return found[0] if getattr(f, "ndim", 2) == 1 else found


@explaining
def _aligned(kernel: TangentKernel, x: Batch, f: Any) -> Float[Tensor, " k"]:
    source = sources_of(kernel, x)["x"]
    columns = as_columns(f, len(source), what="functions")
    budget = memory_budget(kernel.memory, device=kernel.function.device)
    return _Alignment(kernel, source, budget).of(columns)


class _Alignment:
    """The passes over the data of one call."""

    def __init__(self, kernel: TangentKernel, source: SampleSource, budget: Budget):
        self.kernel, self.function, self.source, self.budget = kernel, kernel.function, source, budget
        self.profiles = kernel._profiles
        like = next(iter(self.function.params.values()))
        self.profile = self.profiles.of(self._read(slice(0, min(len(source), PASS_SAMPLES))))
        self.directions = directions(kernel.outputs, self.profile.outputs, like=like).vectors
        self.dtype = working_dtype(like.dtype)
        self.item = self.dtype.itemsize
        self.orders = Orders()

    def of(self, columns: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
        """α of every column."""
        n, k = columns.shape
        together, group = self._together(k)
        if self._tiles_are_less_work(k, together, group):
            return self._by_tiles(columns) / n**2
        found = torch.zeros(k, dtype=torch.float64, device=self.function.device)
        for some in self.directions.split(group):
            for functions in spans(k, together):
                found[functions] += self._square_norms(columns[:, functions], some)
        return found / n**2

    def _tiles_are_less_work(self, functions: int, together: int, group: int) -> bool:
        """Whether to sum over tiles of the kernel takes fewer operations than the averages of the functions."""
        rounds = -(-functions // together)
        return rounds * len(self.directions) > group and self._work_of_tiles(
            functions
        ) < self._work_of_averages(functions, rounds, -(-len(self.directions) // group))

    def _work_of_averages(self, functions: int, rounds: int, groups: int) -> float:
        """Passes over all samples, gradients that are built in every round, and their products with functions."""
        (forward, backward), r = self.profile.flops, len(self.directions)
        gradients = r * count(self.function.params)
        passes = rounds * (groups * forward + r * backward + FLOPS_PER_BYTE * self.item * gradients)
        return len(self.source) * (passes + 2 * functions * gradients)

    def _work_of_tiles(self, functions: int) -> float:
        """Tiles of half of the matrix, with the passes that each of them takes within the budget."""
        side = self._side(functions)
        rows = -(-len(self.source) // side)
        tile = Workload(side, side, len(self.directions), full=False, symmetric=False)
        plan = make_plan(self.function, self.profile, tile, int(self.budget / 2))
        return rows * (rows + 1) / 2 * (plan.flops + FLOPS_PER_BYTE * plan.bytes)

    def _side(self, functions: int) -> int:
        """Of tiles that take a quarter of the budget, with the functions on the samples of both sides."""
        room = self.budget / 4 / torch.float64.itemsize
        return max(1, min(len(self.source), int((functions**2 + room) ** 0.5 - functions)))

    def _by_tiles(self, columns: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
        """fᵀ K f of every column, a tile of K at a time."""
        kernel = copy.copy(self.kernel)
        kernel.memory = int(self.budget / 2)
        found = torch.zeros(columns.shape[1], dtype=torch.float64, device=self.function.device)
        ranges = list(spans(len(self.source), self._side(columns.shape[1])))
        for i, rows in enumerate(ranges):
            tile, left = kernel.row(self._read(rows)), columns[rows].to(found)
            found += (left * (tile().double() @ left)).sum(0)
            for others in ranges[i + 1 :]:
                right = columns[others].to(found)
                found += 2 * (left * (tile(self._read(others)).double() @ right)).sum(0)
        return found

    def _together(self, functions: int) -> tuple[int, int]:
        """Functions and output directions of one pass over the data.

        Their averages take half of what is left of the budget where the order of the largest weight is learned.
        """
        each = self.item * count(self.function.params)
        learning = COPIES * self.item * max(p.numel() for p in self.function.params.values())
        self.budget.check(
            2 * each + learning,
            "the average gradient of one function, and the order of its entries, are",
            hint="memory=..., or fewer params=",
        )
        averages = Budget(self.budget - learning).rows(each, copies=2)
        together = min(
            functions, averages
        )  # another direction repeats forward passes, another function all passes
        return together, min(len(self.directions), averages // together)

    def _square_norms(self, columns: Tensor, some: Tensor) -> Float[Tensor, " k"]:
        k = columns.shape[1]
        buffer = self.budget.rows(self.item, copies=12, most=BUFFER_ENTRIES)
        averages = WeightedGradients(k, self.function.params, len(some), orders=self.orders, buffer=buffer)
        for samples in spans(len(self.source), self._at_once(k, len(some))):
            batch = self._read(samples)
            values = columns[samples].to(dtype=self.dtype, device=self.function.device)

            def add(batch: Batch = batch, values: Tensor = values) -> None:
                # Nothing is added before the batch has shown whether it fits what is known of the model.
                averages.add(self._recorded(batch, some), values)

            self.profiles.computed(batch, add)
        return averages.square_norms()

    def _recorded(self, batch: Batch, some: Tensor) -> LayerGradients:
        recording = self.profiles.record(batch, self.profiles.of(batch))
        return LayerGradients.of(recording, batch, some)

    def _at_once(self, functions: int, r: int) -> int:
        """Samples that pass together, in a quarter of the budget."""
        foot = self.profile.footprint
        each = int(foot.saved + (r + 1) * foot.passing + r * foot.stacked + functions * self.item) + 1
        share = Budget(min(self.budget // 4, max(PASS_BYTES, LEAST_PASS * each)))
        return share.rows(each, copies=1, most=PASS_SAMPLES)

    def _read(self, samples: slice) -> Batch:
        batch = self.source.read(samples)
        check_inputs(self.function, batch)
        return batch
