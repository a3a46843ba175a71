"""The kernel of a module at infinite width."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, prod

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, as_batch, check_same_structure, describe, shapes
from tangentkit.core.data_sets import is_data_set
from tangentkit.core.errors import BudgetError, InputError, ModelError, NumericalError
from tangentkit.core.memory import Budget, format_bytes, memory_budget, parse_bytes
from tangentkit.infinite.duals.registry import Pointwise
from tangentkit.infinite.plan import InfinitePlan, estimated_seconds
from tangentkit.infinite.propagate.network import Nonlinear
from tangentkit.infinite.propagate.propagation import (
    Field,
    Propagation,
    gathers_many,
    largest_field,
    same_positions,
)
from tangentkit.infinite.propagate.sample_pairs import Listed, Pairing, Panel, Products, Selves
from tangentkit.infinite.reading.norms import NORMS
from tangentkit.infinite.reading.parameterization import Scales
from tangentkit.infinite.reading.reader import Reading, read
from tangentkit.infinite.reading.tracing import LAYERS, OURS, Prelude, is_layer, trace
from tangentkit.infinite.repeats import repeats
from tangentkit.linalg.operators.spans import spans
from tangentkit.nn import Stds, layer_stds

TILE = 2**18
"""Numbers in a field of a tile: few enough for the cache, so many that calls cost little beside the work."""

ROW = 64
"""Samples that should follow each other in memory."""

ALIVE = 24
"""Fields of the size of the largest that may be there at once: K and Θ of a few nodes, and the scratch of a dual."""


class InfiniteKernel(Kernel):
    """The kernel of a module's architecture as its widths go to infinity: NNGP covariance or tangent kernel.

    The module is read as a graph (torch.fx); its weights do not matter. With C outputs the limit is k(x, y) · I_C:
    given is k, so the trace of a finite network's kernel, divided by C, converges to it.

    Layers z = w_std / sqrt(fan_in) W x + b_std b with W, b ~ N(0, 1) turn K into w_std² K + b_std²; an activation
    turns it into E[φ(u) φ(v)] and multiplies Θ by E[φ'(u) φ'(v)]. `tangentkit.nn` layers bring their own scales,
    torch's are read with those given here. Parameters that do not require grad add nothing to Θ.

    Covered: linear and convolutional layers (stride, dilation, all paddings; groups = 1), scalar functions, average
    pooling of every kind, means, selections, flips, padding and nearest-neighbor interpolation of positions, flatten
    and other reshapes, sums of uncorrelated branches, scaled branches, concatenated and split channels, LayerNorm,
    RMSNorm, GroupNorm, BatchNorm and dropout in evaluation mode. Whatever happens before the first layer is done to
    the inputs as it stands.

    A module of your own that has an attribute `dual` (such as `Pointwise(function)`) counts as that scalar function,
    and so do several steps that act entry by entry on one Gaussian field, such as `h * torch.sigmoid(h)`.

    Gains and shifts of normalizations, and slopes of PReLU, count as constants: they must be equal for all channels
    (as at initialization), and where they are trained a warning says that their own part of the tangent kernel is
    not included. BatchNorm in evaluation mode is the affine map that its running statistics make of it.

    Args:
        model: a module whose forward pass takes one tensor and gives (n, c).
        kind: "ntk" for the tangent kernel, "nngp" for the covariance of the outputs.
        w_std: scale of the weights of torch's layers; one value, or a mapping from layer names.
        b_std: scale of their biases, likewise.
        parameterization: of torch's layers. In "ntk" the trained weights add w_std² K + b_std² to Θ. In "standard",
            W ~ N(0, w_std² / fan_in) and b ~ N(0, b_std²) unscaled, they add fan_in · K + 1: this part grows with the
            width, so the widths of the module itself count.
        memory: working memory beside the result, in bytes or as "2GB"; by default a quarter of what is free.

    Raises:
        ModelError: torch.fx cannot trace the module, or (with the first call) an operation has no such limit.
        InputError: a scale is negative, or an option unknown.
        UnknownNameError: a mapping names a layer that is not there.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 512), nn.ReLU(), nn.Linear(512, 1))
        >>> kernel = InfiniteKernel(model, w_std=2**0.5)
        >>> x = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]])
        >>> kernel(x).diagonal()  # both layers add w_std² |x|² / d
        tensor([4., 4.])
    """

    def __init__(
        self,
        model: nn.Module,
        kind: str = "ntk",
        *,
        w_std: Stds = 1.0,
        b_std: Stds = 0.0,
        parameterization: str = "ntk",
        memory: int | float | str | None = None,
    ):
        if kind not in ("ntk", "nngp"):
            raise InputError("bad kind of kernel", expected='"ntk" or "nngp"', got=repr(kind))
        if parameterization not in ("ntk", "standard"):
            raise InputError(
                "bad parameterization", expected='"ntk" or "standard"', got=repr(parameterization)
            )
        if not isinstance(model, nn.Module):
            raise InputError("not a model", expected="a torch module", got=type(model).__name__)
        self.kind, self.memory = kind, None if memory is None else parse_bytes(memory)
        plain = {
            name: layer
            for name, layer in model.named_modules()
            if isinstance(layer, LAYERS) and is_layer(layer) and not isinstance(layer, OURS)
        }
        self.scales = Scales(
            layer_stds(plain, w_std=w_std, b_std=b_std), standard=parameterization == "standard"
        )
        self.trace = trace(model)
        if kind == "ntk":
            _warn_of_constants(model)
        self._model = f"{type(model).__name__}, layers with weights: {sum(map(is_layer, model.modules()))}"
        self._readings: dict[str, Reading] = {}
        self._independent: set[str] = set()

    def __repr__(self) -> str:
        standard = ", parameterization='standard'" if self.scales.standard else ""
        return f"InfiniteKernel({self._model}; kind={self.kind!r}{standard})"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """k(x_i, y_j) as (n, m).

        Gradients flow to x and y where they require them.
        """
        x = self._checked(x)
        y = None if y is None else self._checked(y)
        if y is not None:
            check_same_structure(x, y)
            if x.device != y.device:
                raise InputError("batches differ in device", expected=x.device, got=y.device)
        work = self._work(x)
        with torch.inference_mode(False):
            return _finite(work.gram(x, y))

    def diag(self, x: Batch) -> Tensor:
        """k(x_i, x_i) as (n,), each exactly as if computed alone."""
        x = self._checked(x)
        with torch.inference_mode(False):
            return _finite(self._work(x).diag(x))

    def plan(self, x: Batch, y: Batch | None = None) -> InfinitePlan:
        """What a call will take: pairs, positions and an estimated time, from calls with few samples. It prints.

        Example:
            >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
            >>> print(InfiniteKernel(model).plan(torch.ones(100, 3)))
            100 x 100 entries, 5050 pairs of samples, 40.0 kB
            one covariance for each pair of samples and each layer
            about ... s
        """
        x = self._checked(x)
        other = None if y is None else self._checked(y)
        n, m = len(x), len(x if other is None else other)
        work, least = self._work(x), min(n, m)
        # So many that functions without a closed form are read from tables, as they are for more.
        begin = 2 if work.positions else 32
        seconds = estimated_seconds(
            lambda s: self(x[:s], None if other is None else other[:s]), least, begin=begin
        )
        return InfinitePlan(
            shape=(n, m),
            pairs=n * (n + 1) // 2 if other is None else n * m,
            positions=work.positions,
            all_positions=work.sums_offsets,
            nbytes=n * m * work.dtype.itemsize,
            seconds=seconds * max(n, m) / least,
        )

    def _checked(self, x: Batch) -> Tensor:
        pairs, x = is_data_set(x), as_batch(x)
        if isinstance(x, (tuple, list)) and (pairs or len(x) == 1):
            x = x[0]  # of samples with targets the samples
        if not isinstance(x, Tensor):
            raise InputError(
                "bad batch",
                expected="one tensor",
                got=shapes(x),
                hint="torch.stack(samples) of a list of samples, batch[0] where targets come along, or a module "
                "around the model that takes one tensor",
            )
        if x.dtype in (torch.float16, torch.bfloat16) or x.is_complex():
            raise InputError("bad dtype", expected="float32 or float64", got=x.dtype, hint="x.float()")
        if x.is_floating_point() and not x.sum().isfinite() and not x.isfinite().all():
            bad = (~x.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
            raise InputError(
                "inputs are not finite", got=f"nan or inf in samples {bad[:5]} ({len(bad)} in all)"
            )
        return x

    def _work(self, x: Tensor) -> "Computation":
        shape = f"{describe(x)} {x.device}"
        if shape not in self._readings:
            self._readings[shape] = read(self.trace, x, self.scales)
        work = Computation(self, self._readings[shape], x, memory_budget(self.memory, device=x.device))
        if len(x) > 1 and shape not in self._independent:
            work.check_independent(x)
            self._independent.add(shape)
        return work


@dataclass(frozen=True)
class Computation:
    """One call of a kernel: panels of samples that fit the memory, tiles that fit the cache.

    Args:
        kernel: whose call.
        reading: the network for inputs of this shape.
        like: a batch of that shape.
        budget: bytes beside the result.
    """

    kernel: InfiniteKernel
    reading: Reading
    like: Tensor
    budget: Budget

    def gram(self, x: Tensor, y: Tensor | None) -> Tensor:
        """All pairs; one of (i, j) and (j, i) where the batches are the same."""
        symmetric = y is None
        y = x if y is None else y
        out = x.new_empty(len(x), len(y), dtype=self.dtype)
        panel = self._panel_size()
        for i in range(0, len(x), panel):
            first = self._panel(x[i : i + panel])
            for j in range(i if symmetric else 0, len(y), panel):
                same = symmetric and i == j
                second = first if same else self._panel(y[j : j + panel])
                block = out[i : i + panel, j : j + panel]
                self._fill(block, first, second, symmetric=same)
                if symmetric and not same:
                    out[j : j + panel, i : i + panel] = block.mT
        if symmetric:
            # Samples that meet themselves are exact: no difference of nearly equal numbers is taken.
            out.diagonal().copy_(self.diag(x))
        if not out.requires_grad:
            self._settle_repeats(out, x, y)
        return out

    def _settle_repeats(self, out: Tensor, x: Tensor, y: Tensor) -> None:
        """Gives equal samples of both batches the value of a sample with itself."""
        found = [(i, j) for i, j in repeats(x, y) if x is not y or len(i) > 1]
        if found:
            values = self.diag(x[[i[0] for i, _ in found]])
            for (i, j), value in zip(found, values, strict=True):
                out[torch.tensor(i)[:, None], torch.tensor(j)] = value

    def _fill(self, out: Tensor, first: Panel, second: Panel, *, symmetric: bool) -> None:
        """The values of all pairs of two panels, tile by tile."""
        for rows, columns in self._steps(len(first), len(second), upper=symmetric):
            on_diagonal = symmetric and rows.start == columns.start
            values = self._tile(first[rows], second[columns], symmetric=on_diagonal and rows == columns)
            if on_diagonal:
                # Both triangles were computed there, and differ in rounding.
                corner, rest = values[:, : len(values)], values[:, len(values) :]
                values = torch.cat([corner.triu() + corner.triu(1).mT, rest], 1)
            out[rows, columns] = values
            if symmetric:
                out[columns, rows] = values.mT

    def _tile(self, first: Panel, second: Panel, *, symmetric: bool) -> Tensor:
        kind = Listed if self.sums_offsets else Products
        pairing = kind(first, second, symmetric=symmetric)
        return self._value(self._propagation(pairing).output()).reshape(len(first), len(second))

    def diag(self, x: Tensor) -> Tensor:
        """Every sample with itself."""
        parts = []
        for part in self._slices(len(x)):
            pairing = Selves(self._inputs(x[part]))
            parts.append(self._value(self._propagation(pairing).output()))
        return torch.cat(parts)

    def _panel(self, x: Tensor) -> Panel:
        """Samples with the variances of all their fields."""
        parts = []
        for part in self._slices(len(x)):
            panel = self._inputs(x[part])
            pairing = Selves(panel)
            # From the last to the first: what the last one needs includes most of the others.
            for node in reversed(self.reading.network.needs_variance):
                if node not in panel.variances:
                    goal = self.reading.network.nodes[node].inputs[0]
                    axes = same_positions(self.reading.network.nodes[goal])
                    field = self._propagation(pairing, tangent=False).field(goal, axes)
                    pairing.note_variance(node, field.k, axes)
            parts.append(panel)
        return Panel.concatenated(parts)

    def check_independent(self, x: Tensor) -> None:
        """Refuses models that let samples see each other before the first layer, by the first two of a batch.

        Raises:
            ModelError: they do.
        """
        alone, together = self._inputs(x[:1]), self._inputs(x[:2])
        for i, values in alone.inputs.items():
            if not torch.allclose(values, together.inputs[i][..., :1], rtol=1e-4, atol=1e-6):
                raise ModelError(
                    "what the model does before its first layer depends on the other samples of a batch",
                    hint="take statistics of the data out of the model, or keep them in buffers",
                )

    @cached_property
    def _prelude(self) -> Prelude:
        names = [node.name for node in self.reading.sources.values()]
        return Prelude(self.kernel.trace, self.like, names, self.reading.seen)

    def _inputs(self, x: Tensor) -> Panel:
        """What no weight touches, done to the samples; channels first, samples last."""
        values = self._prelude.values(x, self.reading.plain)
        return Panel(
            {
                i: values[node.name].permute(node.channel, *node.order, 0).contiguous()
                for i, node in self.reading.sources.items()
            }
        )

    def _propagation(self, pairing: Pairing, *, tangent: bool | None = None) -> Propagation:
        tangent = self.kernel.kind == "ntk" if tangent is None else tangent
        return Propagation(
            self.reading.network, pairing, tangent=tangent, limit=self.tile, whole=self.tabulates
        )

    def _value(self, field: Field) -> Tensor:
        if self.kernel.kind == "nngp":
            return field.k
        return torch.zeros_like(field.k) if field.t is None else field.t

    # Sizes ---------------------------------------------------------------------------------------------------

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of the result: that of the inputs, after whatever the model does to them before the first layer."""
        return self.reading.dtype

    @property
    def positions(self) -> tuple[int, ...]:
        """Of the first field."""
        return tuple(self.reading.network.nodes[next(iter(self.reading.sources))].positions)

    @cached_property
    def sums_offsets(self) -> bool:
        """Whether the network averages over positions, so that offsets are taken one after the other."""
        network = self.reading.network
        return any(gathers_many(node, same_positions(node)) for node in network.nodes)

    @cached_property
    def tabulates(self) -> bool:
        """Whether functions are tables of many terms, which are cheap as products of matrices."""
        duals = [node.dual for node in self.reading.network.nodes if isinstance(node, Nonlinear)]
        return self.sums_offsets and any(isinstance(dual, Pointwise) for dual in duals)

    @cached_property
    def one(self) -> int:
        """Numbers in the largest field of one pair of samples."""
        return largest_field(self.reading.network, whole=self.tabulates)

    @cached_property
    def tile(self) -> int:
        """Numbers in a field of a tile."""
        fits = self.budget // (2 * ALIVE * 8)
        if fits < self.one:
            raise BudgetError(
                "one pair of samples does not fit the memory budget",
                expected=f"at least {format_bytes(2 * ALIVE * 8 * self.one)}",
                got=format_bytes(self.budget),
                hint="a larger memory=, or smaller images",
            )
        return max(self.one, min(TILE, fits))

    def _steps(self, n: int, m: int, *, upper: bool) -> list[tuple[slice, slice]]:
        """Rows and columns of tiles; of a symmetric block those that cover its upper triangle."""
        pairs = max(1, self.tile // self.one)
        height = isqrt(pairs)
        if not self.sums_offsets:
            # Numbers of pairs that follow each other in memory should be many.
            height = max(1, min(height, pairs // ROW))
        width = pairs // height
        tiles = []
        for rows in spans(n, height):
            start = rows.start if upper else 0
            if upper and self.sums_offsets:
                # A square of its own, where half of the offsets is enough.
                tiles.append((rows, rows))
                start = rows.stop
            tiles += [(rows, slice(j, min(j + width, m))) for j in range(start, m, width)]
        return tiles

    def _slices(self, n: int) -> Iterator[slice]:
        return spans(n, max(1, self.tile // self.one))

    def _panel_size(self) -> int:
        nodes = self.reading.network.nodes
        numbers = sum(prod(nodes[i].positions) for i in self.reading.network.needs_variance)
        numbers += sum(prod(self.reading.seen[node.name][1:]) for node in self.reading.sources.values())
        # Two panels, and as much again while one is put together.
        return self.budget.rows(8 * numbers, copies=2 * 4)


def _warn_of_constants(model: nn.Module) -> None:
    named = {name: m for name, m in model.named_modules() if isinstance(m, (*NORMS, nn.PReLU))}
    trained = [name for name, module in named.items() if any(p.requires_grad for p in module.parameters())]
    if trained:
        warnings.warn(
            "gains and shifts of normalizations and slopes of PReLU "
            f"({', '.join(map(repr, trained))}) count as constants: their own part of the tangent kernel is left "
            "out. Freeze them (requires_grad_(False)) if that is what you mean, or tk.MonteCarloKernel includes it",
            stacklevel=3,
        )


def _finite(values: Tensor) -> Tensor:
    if not values.detach().sum().isfinite() and not values.isfinite().all():
        raise NumericalError(
            "the kernel is not finite", hint="smaller inputs or scales, or float64: some function overflows"
        )
    return values
