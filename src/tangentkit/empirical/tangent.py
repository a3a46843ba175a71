"""The tangent kernel of a module, exactly."""

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, as_batch, batch_size, check_same_structure, describe, take
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.functions import Forward, check_inputs, snapshot
from tangentkit.core.memory import memory_budget, parse_bytes
from tangentkit.core.parameters import Selection, count
from tangentkit.empirical import contraction
from tangentkit.empirical.contraction import Side, Tile
from tangentkit.empirical.generic import loop_gradients, vmap_gradients
from tangentkit.empirical.outputs import Directions, Outputs, check_outputs_name, directions, random_signs
from tangentkit.empirical.plan import (
    Batching,
    Cost,
    Footprint,
    Plan,
    PlanRow,
    Size,
    Work,
    batching,
    buffer_entries,
    cheapest,
    footprint,
    measured_rate,
    size_of,
)
from tangentkit.empirical.product import kernel_product
from tangentkit.empirical.recording import AnotherGraphError, Recording, record
from tangentkit.empirical.structure import Layer, Structure, learn_structure, spread
from tangentkit.empirical.verification import prove, verified

P = ParamSpec("P")
T = TypeVar("T")


def outside_autograd(method: Callable[P, T]) -> Callable[P, T]:
    """Runs a method as if the caller had switched nothing on or off: neither gradients nor inference mode."""

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.inference_mode(False), torch.no_grad():
            return method(*args, **kwargs)

    return run


class WrongRuleError(Exception):
    """A batch has shown that the rules of some parameters are wrong."""

    def __init__(self, reasons: dict[str, str]):
        super().__init__(str(reasons))
        self.reasons = reasons


class UnusedParameterWarning(UserWarning):
    """A selected parameter does not reach the output: its gradient is zero."""


class TangentKernel(Kernel):
    """The neural tangent kernel of a module at its present parameters, J_ic = ∇_θ f_c(x_i).

    | outputs           | shape          | value                                  |
    |-------------------|----------------|----------------------------------------|
    | "trace"           | (n, m)         | Σ_c <J_ic, J_jc>                       |
    | "full"            | (n, c, m, c)   | <J_ic, J_jd>                           |
    | "pseudo"          | (n, m)         | (1/C) <Σ_c J_ic, Σ_c J_jc>             |
    | index c, vector v | (n, m)         | kernel of the output f_c, of v · f     |

    It is a snapshot: training the module later does not change it, and the module is never left changed.

    Args:
        model: any module that autograd can differentiate, in evaluation mode where that matters.
        outputs: which kernel.
        params: None for all that require grad; names, or a predicate (name, parameter) -> bool.
        forward: (model, batch) -> (n, c), for models with other inputs or outputs.
        memory: working memory beside the result, in bytes or as "2GB"; by default a quarter of what is free.
        probes: for "trace" with many outputs: the number of random output signs that estimate it, without bias.
        seed: of the probes.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> kernel = TangentKernel(model)
        >>> kernel(torch.randn(5, 3), torch.randn(4, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        model: nn.Module,
        outputs: Outputs = "trace",
        *,
        params: Selection = None,
        forward: Forward | None = None,
        memory: int | str | None = None,
        probes: int | None = None,
        seed: int = 0,
    ):
        check_outputs_name(outputs)
        if probes is not None and (outputs != "trace" or probes < 1):
            raise InputError(
                "bad probes", expected='a number >= 1, with outputs="trace"', got=f"{probes}, {outputs!r}"
            )
        self.function = snapshot(model, params=params, forward=forward)
        self.outputs, self.probes, self.seed = outputs, probes, seed
        self.memory = None if memory is None else parse_bytes(memory)
        self._known: dict[str, _Known] = {}

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The kernel of two batches, or of one with itself (half the work).

        Raises:
            NumericalError: the result is not finite.
        """
        return self._compute(x, y, names=None)[""]

    def by_parameter(self, x: Batch, y: Batch | None = None) -> dict[str, Tensor]:
        """Name of a parameter -> its part of the kernel; they sum to the kernel."""
        return self._compute(x, y, names=list(self.function.params))

    @outside_autograd
    def diag(self, x: Batch) -> Tensor:
        """k(x_i, x_i): (n,), or (n, c) for outputs="full"."""
        x = self._checked(x)
        return self._learning(x, lambda: self._diag(x))

    def _diag(self, x: Batch) -> Tensor:
        known = self._learn(x)
        spans = self._directions(known)
        work = Work(batch_size(x), 1, len(spans.vectors), full=False, symmetric=False)
        size = batching(known.footprint, work, self._budget(), self._item)
        parts = []
        for samples in _spans(batch_size(x), size.samples):
            piece = self._piece(take(x, samples), known)
            norms = [self._norms(side) for side in self._sides(piece, spans, size.directions)]
            parts.append(torch.cat(norms, 1))
        norms = torch.cat(parts)
        return self._finite(norms if spans.full else norms.sum(1))

    @outside_autograd
    def plan(self, x: Batch, y: Batch | None = None) -> Plan:
        """Route, FLOPs, bytes and share of every parameter, counted before any work. Prints as a table."""
        x, y = self._checked(x), None if y is None else self._checked(y)
        known = self._learn(x)
        work = self._work(x, y, known)
        total, rows = count(self.function.params), []
        for layer in known.structure.layers:
            cost = cheapest(layer, known.sizes[layer.weight], work, self._item)
            rows.append(self._row(layer.weight, layer.uses, cost, total))
            if layer.bias is not None:
                route = "elementwise" if cost.route == "gradient" else f"with {layer.weight}"
                extra = cheapest(Layer("vector", layer.bias, ()), known.sizes[layer.bias], work, self._item)
                rows.append(
                    self._row(layer.bias, layer.bias_uses, Cost(route, extra.flops, extra.bytes), total)
                )
        for name, reason in known.structure.generic.items():
            extra = cheapest(Layer("vector", name, ()), known.sizes[name], work, self._item)
            kind = "fallback (vmap)" if known.structure.vmap else "fallback (loop)"
            rows.append(self._row(name, (), Cost(kind, extra.flops, extra.bytes), total, reason))
        rows += [
            self._row(n, (), Cost("none", 0, 0), total, "does not reach the output")
            for n in known.structure.unused
        ]
        order = list(self.function.params)
        passes = known.pass_flops * work.samples * (1 + work.r)
        size = batching(known.footprint, work, self._budget(), self._item)
        rate = measured_rate(next(iter(self.function.params.values())))
        return Plan(
            tuple(sorted(rows, key=lambda r: order.index(r.parameter))), passes, size, self._budget(), rate
        )

    @outside_autograd
    def product(self, x: Batch, v: Tensor) -> Tensor:
        """The full kernel times v (n, c), as J (Jᵀ v) by one vjp and one jvp: the kernel is never formed."""
        x = self._checked(x)
        self._learn(x)
        return self._finite(kernel_product(self.function, x, v))

    # -- how ---------------------------------------------------------------------------------------------------

    @outside_autograd
    def _compute(self, x: Batch, y: Batch | None, names: list[str] | None) -> dict[str, Tensor]:
        x, y = self._checked(x), None if y is None else self._checked(y)
        if y is not None:
            check_same_structure(x, y)
        return self._learning(x, lambda: self._matrices(x, y, names))

    def _matrices(self, x: Batch, y: Batch | None, names: list[str] | None) -> dict[str, Tensor]:
        known = self._learn(x)
        spans, work = self._directions(known), self._work(x, y, known)
        size = batching(known.footprint, work, self._budget(), self._item)
        copies = work.r if spans.full else 1
        like = next(iter(self.function.params.values()))
        result = {name: like.new_zeros(work.n * copies, work.m * copies) for name in names or [""]}
        for i, j, x_side, y_side in self._pairs(x, y, known, size):
            where = slice(i.start * copies, i.stop * copies), slice(j.start * copies, j.stop * copies)
            blocks = {name: total[where] for name, total in result.items()}
            sums = blocks if names else dict.fromkeys(self.function.params, blocks[""])
            self._fill(x_side, y_side, sums, known, spans, size)
            for name, block in blocks.items() if y is None else ():
                if i == j:
                    _mirror(block)
                else:
                    result[name][where[::-1]] = block.T
        if spans.full:
            result = {name: total.view(work.n, copies, work.m, copies) for name, total in result.items()}
        return {name: self._finite(total) for name, total in result.items()}

    def _learning(self, x: Batch, work: Callable[[], T]) -> T:
        """Does the work; again, with fewer assumptions, where a batch shows one to be wrong."""
        # Saved tensors of checkpointed blocks are computed when they are looked at: all must see the snapshot.
        leaves = {name: p.detach().requires_grad_() for name, p in self.function.params.items()}
        while True:
            try:
                return self.function.within(leaves, work)
            except AnotherGraphError:
                structure = self._learn(x).structure
                generic = structure.all_generic(self.function.params, "the graph depends on the data")
                self._known[describe(x)] = _Known(self, x, replace(generic, vmap=False))
            except WrongRuleError as error:
                structure = self._learn(x).structure.without(error.reasons)
                self._known[describe(x)] = _Known(self, x, replace(structure, vmap=False))

    def _pairs(
        self, x: Batch, y: Batch | None, known: "_Known", size: Batching
    ) -> Iterator[tuple[slice, slice, "_Piece", "_Piece"]]:
        """Pairs of pieces that cover the kernel, or its lower triangle, each piece of x recorded once."""
        for i in _spans(batch_size(x), size.samples):
            left = self._piece(take(x, i), known)
            for j in _spans(i.stop if y is None else batch_size(y), size.samples):
                same = y is None and i == j
                yield i, j, left, left if same else self._piece(take(x if y is None else y, j), known)

    def _piece(self, batch: Batch, known: "_Known") -> "_Piece":
        recording = record(self.function, batch, known.structure)
        if known.structure.unproven or known.structure.routed:
            proven, wrong = prove(recording, batch)
            if wrong:
                raise WrongRuleError(wrong)
            known.structure = replace(known.structure, unproven=known.structure.unproven - proven)
        return _Piece(batch, recording)

    def _fill(
        self,
        x: "_Piece",
        y: "_Piece",
        sums: dict[str, Tensor],
        known: "_Known",
        spans: Directions,
        size: Batching,
    ) -> None:
        grams: dict = {}
        work = Work(x.recording.n, y.recording.n, size.directions, spans.full, x is y)
        buffer = x.recording.outputs.new_empty(buffer_entries(known.sizes.values(), work))
        sides = zip(
            *(self._sides(piece, spans, size.directions) for piece in ([x] if x is y else [x, y])),
            strict=True,
        )
        for group in sides:
            tile = Tile(group[0], group[-1], spans.full, sums, buffer, grams)
            for layer in known.structure.layers:
                cost = cheapest(layer, known.sizes[layer.weight], work, self._item)
                self._add(tile, layer, cost, size.directions < len(spans.vectors))
            for name in known.structure.generic:
                contraction.add_vectors(tile, name, lambda side, name=name: side.generic[name])

    def _add(self, tile: Tile, layer: Layer, cost: Cost, again: bool) -> None:
        if cost.route in ("pairwise", "factored", "lookup (pairs)"):
            # The Gram of the inputs serves all groups of directions, if there are several and it is small.
            pairs = cost.bytes < self._budget() / 32
            contraction.add_pairwise(tile, layer, keep_grams=again and pairs)
            return
        if cost.route == "gradient":
            contraction.add_gradients(tile, layer)
        elif cost.route == "lookup (rows)":
            contraction.add_lookup_gradients(tile, layer)
        elif layer.kind == "vector":
            contraction.add_vectors(tile, layer.weight, lambda side: side.vectors(layer.uses))
        else:
            contraction.add_vectors(tile, layer.weight, lambda side: side.assembled(layer))
        if layer.bias is not None:
            contraction.add_vectors(tile, layer.bias, lambda side: side.vectors(layer.bias_uses))

    def _sides(self, piece: "_Piece", spans: Directions, group: int) -> Iterator[Side]:
        recording = piece.recording
        structure = recording.structure
        for start in range(0, len(spans.vectors), group):
            vectors = spans.vectors[start : start + group]
            generic = {}
            if structure.generic:
                generic = self._generic(structure, piece.batch, vectors)
            yield Side(recording, recording.backward(vectors), generic)

    def _generic(self, structure: Structure, batch: Batch, vectors: Tensor) -> dict[str, Tensor]:
        names = list(structure.generic)
        if structure.vmap:
            try:
                return vmap_gradients(self.function, names, batch, vectors)
            except RuntimeError:
                # What vmap managed for two samples it may refuse for others (control flow on values, say).
                return loop_gradients(self.function, names, batch, vectors)
        return loop_gradients(self.function, names, batch, vectors)

    def _norms(self, side: Side) -> Tensor:
        """|v_r · J_i|² as (n, r)."""
        total = side.recording.outputs.new_zeros(side.n, side.r)
        for layer in side.recording.structure.layers:
            for norms in contraction.square_norms(side, layer).values():
                total += norms
        for gradients in side.generic.values():
            total += gradients.square().sum(2)
        return total

    # -- what is known of the model ----------------------------------------------------------------------------

    def _learn(self, x: Batch) -> "_Known":
        shape = describe(x)
        if shape not in self._known:
            structure = verified(self.function, x, learn_structure(self.function, x))
            if structure.unused:
                shown = ", ".join(structure.unused[:5]) + (", ..." if len(structure.unused) > 5 else "")
                warnings.warn(
                    f"{len(structure.unused)} parameter(s) do not reach the output: {shown}",
                    UnusedParameterWarning,
                    stacklevel=4,
                )
            self._known[shape] = _Known(self, x, structure)
        return self._known[shape]

    def _directions(self, known: "_Known") -> Directions:
        like = next(iter(self.function.params.values()))
        if self.probes is not None:
            return random_signs(self.probes, known.c, seed=self.seed, like=like)
        return directions(self.outputs, known.c, like=like)

    def _work(self, x: Batch, y: Batch | None, known: "_Known") -> Work:
        spans, n = self._directions(known), batch_size(x)
        return Work(n, n if y is None else batch_size(y), len(spans.vectors), spans.full, y is None)

    def _row(self, name: str, uses: Sequence, cost: Cost, total: int, note: str = "") -> PlanRow:
        p = self.function.params[name]
        return PlanRow(
            name, tuple(p.shape), len(uses), cost.route, cost.flops, cost.bytes, p.numel() / total, note
        )

    def _checked(self, x: Batch) -> Batch:
        x = as_batch(x)
        check_inputs(self.function, x)
        return x

    def _budget(self) -> int:
        return memory_budget(self.memory, device=self.function.device)

    @property
    def _item(self) -> int:
        return next(iter(self.function.params.values())).element_size()

    def _finite(self, result: Tensor) -> Tensor:
        # The sum is finite if all entries are, and needs no mask of the result's size.
        if not result.sum().isfinite() and not result.isfinite().all():
            raise NumericalError(
                "the kernel is not finite",
                expected="finite gradients",
                got="nan or inf in the result",
                hint="float64, or look for an operation with an infinite derivative (sqrt at 0, say)",
            )
        return result


@dataclass(frozen=True, eq=False)
class _Piece:
    """Some samples, and their recording."""

    batch: Batch
    recording: Recording


class _Known:
    """A model's structure for samples of one shape, with its sizes."""

    def __init__(self, kernel: TangentKernel, x: Batch, structure: Structure):
        self.structure = structure
        trial = spread(x, 2)
        function = kernel.function
        self.c = function(function.params, trial).shape[1]
        self.sizes = {name: Size(1, 1, 1, p.numel()) for name, p in function.params.items()}
        generic = sum(function.params[name].numel() for name in structure.generic)
        try:
            recording = record(function, trial, structure)
        except AnotherGraphError:
            recording = None
        if recording is None:
            self.footprint = Footprint(0, 0, generic * kernel._item)
            return
        self.footprint = footprint(recording, generic)
        self.sizes |= {layer.weight: size_of(recording, layer) for layer in structure.layers}

    @property
    def pass_flops(self) -> float:
        """FLOPs of one pass of one sample through the layers with weights."""
        return sum(2.0 * z.h * z.s * z.p * z.q for z in self.sizes.values())


def _spans(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _mirror(block: Tensor, size: int = 1024) -> None:
    """Copies the lower triangle to the upper one."""
    for start in range(0, len(block), size):
        rows = slice(start, min(start + size, len(block)))
        block[: rows.start, rows] = block[rows, : rows.start].T
        corner = block[rows, rows]
        corner.copy_(corner.tril() + corner.tril(-1).T)
