"""The sketch of a whole model: independent sketches of all parameters, summed in the same coordinates."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.seeds import Key
from tangentkit.empirical.passes.layer_gradients import LayerGradients, lookup_gradients, matrix_gradients
from tangentkit.empirical.passes.parameter_gradients import (
    Explicit,
    Orders,
    Products,
    Rows,
    parameter_gradients,
)
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.methods.coordinates import Coordinates
from tangentkit.sketch.methods.explicit import CountSketch, ExplicitSketch, GaussianSketch, RademacherSketch
from tangentkit.sketch.methods.tensor import TensorSketch

KINDS: dict[str, type[ExplicitSketch]] = {
    "count": CountSketch,
    "gaussian": GaussianSketch,
    "rademacher": RademacherSketch,
}


@dataclass(frozen=True)
class Half:
    """One of two independent sketches of a sample."""

    key: Key
    dim: int
    directions: slice
    """The output directions that it sees."""

    def seen(self, first: int, r: int) -> slice:
        """Which of the directions first ... first + r - 1 it sees, counted from the first of them."""
        start, stop = max(first, self.directions.start), min(first + r, self.directions.stop)
        return slice(start - first, max(start, stop) - first)


def pieces(n: int, buffer: int, entries: int) -> Iterator[slice]:
    """Parts of n things of so many entries each, within a buffer."""
    return spans(n, max(1, buffer // max(1, entries)))


class ModelSketch:
    """Independent sketches of all parameters, in every output direction, for each half.

    The address of every random number is (seed, half, parameter, method, output direction, ...): no two parameters,
    directions, blocks or halves share one.

    Args:
        halves: the two halves.
        methods: parameter -> "tensor", "count", "gaussian" or "rademacher".
        shapes: weight -> (h, q, p) of its factors, for "tensor".
        orders: of the parameters.
        buffer: entries of factors or gradients that are worked on at a time.
        most_signs: random signs that may stay in memory for the next samples.
    """

    def __init__(
        self,
        halves: list[Half],
        methods: dict[str, str],
        shapes: dict[str, tuple[int, int, int]],
        orders: Orders,
        *,
        buffer: int,
        most_signs: int,
    ):
        self.halves, self.methods, self.shapes, self.orders = halves, methods, shapes, orders
        self.buffer, self.most_signs = buffer, most_signs
        self._explicit: dict[tuple[int, str, int], ExplicitSketch] = {}
        self._tensor: dict[tuple[int, str], TensorSketch] = {}
        self._signs = 0

    def coordinates(self, n: int, *, like: Tensor) -> list[Coordinates]:
        """Zeros for n samples, for each half."""
        return [Coordinates(n, half.dim, like=like) for half in self.halves]

    def add_side(self, out: list[Coordinates], side: LayerGradients, first: int) -> None:
        """Adds all parameters of recorded samples, in the directions that they have gradients for."""
        for found in parameter_gradients(side, self.orders):
            if isinstance(found, Explicit):
                self.add_explicit(out, found.name, found.gradients(), first)
            elif isinstance(found, Rows):
                self._add_lookups(out, found, first)
            else:
                self._add_factors(out, found, first)

    def _add_lookups(self, out: list[Coordinates], found: Rows, first: int) -> None:
        n, _, r, s, q = found.outgoing.sizes
        entries = r * q * (found.count if self._is_dense(found.name) else s)
        for samples in pieces(n, self.buffer, entries):
            g, some = found.outgoing[samples][:, 0], [half.rows(samples) for half in out]
            self.add_rows(some, found.name, found.indices[samples], g, first, found.count)

    def _add_factors(self, out: list[Coordinates], found: Products, first: int) -> None:
        (n, h, r, s, q), p = found.outgoing.sizes, found.p
        # A tied weight is sketched by its entries, so that lookups and products meet.
        explicit = h * q * p * self._is_explicit(found.name)
        for samples in pieces(n, self.buffer, max(h * s * p, h * r * s * q, explicit)):
            g, a = found.outgoing[samples], found.inputs(samples)
            self.add_products([half.rows(samples) for half in out], found.name, g, a, first)

    def add_products(self, out: list[Coordinates], name: str, g: Tensor, a: Tensor, first: int) -> None:
        """Adds Σ_s g_s ⊗ a_s, from g (n, h, r, s, q) and a (n, h, s, p)."""
        n, h, r, _, q = g.shape
        if self._is_explicit(name):
            size = h * q * a.shape[-1]
            for some in pieces(r, self.buffer, n * size):
                gradients = matrix_gradients(g[:, :, some], a).flatten(2)
                self.add_explicit(out, name, self.orders.restore(name, gradients), first + some.start)
            return
        for i, half in enumerate(self.halves):
            seen = half.seen(first, r)
            if seen.start < seen.stop:
                sketch = self._tensor_sketch(i, name, a.shape[-1], q)
                sketch.add(out[i], g[:, :, seen], a, first=first + seen.start)

    def add_core(self, out: list[Coordinates], name: str, g: Tensor, a: Tensor, core: Tensor) -> None:
        """Adds Σ_ij core_ij g_i ⊗ a_j, from g (k, r, q) in all directions, a (l, p) and core (n, k, l)."""
        if self._is_explicit(name):
            for some in pieces(len(core), self.buffer, g.shape[0] * a.shape[1] + g[0].numel() * a.shape[1]):
                rows = [half.rows(some) for half in out]
                positions = g.transpose(0, 1)[None, None].expand(some.stop - some.start, -1, -1, -1, -1)
                self.add_products(rows, name, positions, (core[some] @ a)[:, None], 0)
            return
        for i in range(len(self.halves)):
            self._tensor_sketch(i, name, a.shape[1], g.shape[2]).add_core(out[i], g, a, core)

    def _tensor_sketch(self, i: int, name: str, p: int, q: int) -> TensorSketch:
        if (i, name) not in self._tensor:
            half = self.halves[i]
            self._tensor[i, name] = TensorSketch(half.key.fold(name, "tensor"), half.dim, p=p, q=q)
        return self._tensor[i, name]

    def add_explicit(self, out: list[Coordinates], name: str, gradients: Tensor, first: int) -> None:
        """Adds gradients (n, r, size) in the parameter's own order."""
        if not self._is_explicit(name):
            self._add_matrices(out, name, gradients, first)
            return
        for i, k, sketch in self._sketches(name, gradients.shape[2], first, gradients.shape[1]):
            sketch.add(out[i], gradients[:, k])

    def _add_matrices(self, out: list[Coordinates], name: str, gradients: Tensor, first: int) -> None:
        """Adds gradients whose factors are not at hand for once, as Σ_j e_j ⊗ (row j)."""
        rows = self.orders.matrices(name, gradients, self.shapes[name])
        h, q, _ = self.shapes[name]
        unit = torch.eye(q, dtype=gradients.dtype, device=gradients.device).expand(len(gradients), h, 1, q, q)
        for k in range(gradients.shape[1]):
            self.add_products(out, name, unit, rows[:, k], first + k)

    def add_rows(
        self, out: list[Coordinates], name: str, rows: Tensor, g: Tensor, first: int, table: int
    ) -> None:
        """Adds the gradients g (n, r, s, q) of rows (n, s) of a table with so many rows."""
        if self._is_dense(name):
            self.add_explicit(out, name, lookup_gradients(rows, g[:, None], table).flatten(2), first)
            return
        for i, k, sketch in self._sketches(name, table * g.shape[-1], first, g.shape[1]):
            assert isinstance(sketch, CountSketch)
            sketch.add_rows(out[i], rows, g[:, k])

    def _sketches(
        self, name: str, size: int, first: int, r: int
    ) -> Iterator[tuple[int, int, ExplicitSketch]]:
        """(number of the half, number of the direction from the first, sketch)."""
        method = self.methods[name]
        for i, half in enumerate(self.halves):
            seen = half.seen(first, r)
            for k in range(seen.start, seen.stop):
                address = (i, name, first + k)
                sketch = self._explicit.get(address)
                if sketch is None:
                    key = half.key.fold(name, method, first + k)
                    sketch = KINDS[method](key, size, half.dim)
                    # What does not fit is drawn again for the next samples.
                    if self._signs + size <= self.most_signs:
                        self._explicit[address] = sketch
                        self._signs += size
                yield i, k, sketch

    def _is_explicit(self, name: str) -> bool:
        return self.methods[name] != "tensor"

    def _is_dense(self, name: str) -> bool:
        return self.methods[name] in ("gaussian", "rademacher")
