"""CKA between all layers of a network, or of two, as a heat map."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.analysis.alignment.cka import ROUNDING, are_constant, check_count, cka_matrix
from tangentkit.analysis.alignment.sums import KernelSums
from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError, ModelError, TangentkitError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.core.model.functions import Forward
from tangentkit.core.model.refusals import refusal
from tangentkit.empirical.activations.kernels import LeftOutWarning
from tangentkit.empirical.activations.watching import Activations, outputs_of
from tangentkit.linalg.operators.spans import spans
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Heatmap, short
from tangentkit.report.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TILE_SIDE = 1024
"""Samples along the side of a tile at most: beyond it products gain nothing."""
NAMES = 20
"""Names that have room along a side of the map; of more layers every second or third is named."""
FIRST = 64
"""Samples by whose mean layers are shifted."""
TILES = 4
"""Tiles of every layer that are there at once, in float64: its own, without the diagonal, flat, and what makes it."""

Layers = dict[str, Tensor]
"""Name of a layer, with the number of its call where it has several -> its outputs (n, d)."""


@dataclass(frozen=True, eq=False, repr=False)
class LayerCKA:
    """The CKA of layers of one network with layers of another, or with its own."""

    values: Float[Tensor, "k l"]
    """CKA of each layer of the first network with each of the second."""
    rows: tuple[str, ...]
    """Layers of the first network, in the order of its calls."""
    columns: tuple[str, ...]
    """Layers of the second; those of the first where there is one network."""
    samples: int
    debiased: bool
    left_out: tuple[str, ...] = ()
    """Layers whose outputs are the same for all samples, which CKA compares nothing of."""
    of_two: bool = False
    """Whether rows and columns are layers of two networks."""

    def __repr__(self) -> str:
        return f"LayerCKA({len(self.rows)} x {len(self.columns)} layers, {self.samples:,} samples)"

    def best(self) -> list[tuple[str, str, float]]:
        """(layer of the first network, the layer of the second that is most like it, their CKA)."""
        values, places = self.values.max(1)
        found = zip(self.rows, places.tolist(), values.tolist(), strict=True)
        return [(row, self.columns[place], value) for row, place, value in found]

    def table(self) -> Table:
        """One row for each layer of the first network."""
        rows = zip(self.rows, self.values.tolist(), strict=True)
        return Table(
            "CKA of layers",
            ("layer", *(Column(name, ".3f") for name in self.columns)),
            tuple((name, *values) for name, values in rows),
            note=f"{'debiased' if self.debiased else 'biased'}, {self.samples:,} samples"
            + (f"; the same for all samples: {', '.join(self.left_out)}" if self.left_out else ""),
        )

    def figure(self) -> Heatmap:
        """The heat map, the first layer at the top."""
        side = max(3.2, 0.32 * max(len(self.rows), len(self.columns)) + 1.8)
        return Heatmap(
            title="CKA of layers",
            caption="Bright squares are layers that represent the samples alike.",
            matrix=self.values.tolist(),
            value_label="CKA",
            x_label="layers of the other network" if self.of_two else "",
            y_label="layers of the first network" if self.of_two else "",
            size=(side + 0.8, side),
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the heat map, with the names of the layers, or of every second or third where they are many."""
        ax = drawn(self.figure(), ax)
        ax.set_aspect("auto")  # networks of unequal depth fill the axes, too
        for axis, names in ((ax.xaxis, self.columns), (ax.yaxis, self.rows)):
            shown = range(0, len(names), -(-len(names) // NAMES))
            axis.set_ticks(list(shown), [short(names[i]) for i in shown])
        ax.tick_params(axis="x", rotation=90)
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and names."""
        return {
            "values": self.values.tolist(),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "samples": self.samples,
            "debiased": self.debiased,
            "left_out": list(self.left_out),
        }


@briefly
def layer_cka(
    model: nn.Module,
    x: Batch,
    other: nn.Module | None = None,
    *,
    layers: Sequence[str] | None = None,
    other_layers: Sequence[str] | None = None,
    debiased: bool = True,
    forward: Forward | None = None,
    memory: int | str | None = None,
) -> LayerCKA:
    """The CKA of all pairs of layers on some samples, of one network or between two.

    Kernels of layers are summed over tiles of pairs of samples; activations are held for as many samples as fit the
    memory budget, and made again for each tile beyond that. The result does not depend on the budget.

    Args:
        model: in evaluation mode where that matters.
        x: the samples, which both networks take.
        other: another network; None compares the layers of `model` with each other.
        layers: names of modules whose outputs count; by default every module without children, except those that
            only pass on or rearrange their input, and those whose outputs do not have the samples first, which a
            warning names.
        other_layers: likewise of `other`; by default all that count.
        debiased: see `cka`.
        forward: (model, batch) -> output, for networks with other inputs.
        memory: working memory, in bytes or as "2GB".

    Raises:
        InputError: too few samples, or all layers of a network are the same for all samples; some that are, such as
            dead ones, are left out with a warning.
        UnknownNameError: there is no such layer.
        BudgetError: not even one sample fits.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> found = layer_cka(model, torch.randn(40, 3))
        >>> found, found.rows, float(found.values[0, 0])
        (LayerCKA(3 x 3 layers, 40 samples), ('0', '1', '2'), 1.0)
    """
    if other is None and other_layers is not None:
        raise InputError("other_layers without another network", expected="other=", got=f"{other_layers}")
    networks = [_Network(model, layers, forward, memory)]
    if other is not None:
        networks.append(_Network(other, other_layers, forward, memory))
    x = networks[0].activations.checked(x)
    check_count(batch_size(x), debiased)
    try:
        return _compared(networks, x, debiased=debiased)
    except TangentkitError:
        raise
    except Exception as error:
        refusals = (refusal(network.activations.function, error, x) for network in networks)
        found = next((one for one in refusals if one is not None), None)
        raise found or error from error


def _compared(networks: "list[_Network]", x: Batch, *, debiased: bool) -> LayerCKA:
    n = batch_size(x)
    counted = [network.counting(x) for network in networks]
    side = min(network.at_once(x, names) for network, names in zip(networks, counted, strict=True))
    runs = _Runs(networks, counted, x)
    first = runs.of(slice(0, min(side, n, FIRST)))
    side = min(side, networks[0].budget.side(8, copies=TILES * len(first), most=TILE_SIDE))
    sums, floors = _sums(runs, first, n, side)
    every, flat = list(first), are_constant(sums, floors)
    kept = [k for k, constant in enumerate(flat) if not constant]
    # A network of which nothing is left has an error of its own.
    if len({every[k][0] for k in kept}) == len(networks):
        sums, floors = sums.only(kept), floors[kept]
    else:
        kept = list(range(len(every)))
    names = [every[k] for k in kept]
    left_out = tuple(name for k, (_, name) in enumerate(every) if k not in kept)
    if left_out:
        text = f"{len(left_out)} layer(s) that are the same for all samples are left out"
        warnings.warn(f"{text}: {', '.join(map(repr, left_out))}", LeftOutWarning, stacklevel=4)
    values = cka_matrix(sums, floors, debiased=debiased, names=[repr(name) for _, name in names])
    rows = [name for which, name in names if which == 0]
    columns = [name for which, name in names if which == len(networks) - 1]
    shown = values[: len(rows), -len(columns) :]
    return LayerCKA(shown, tuple(rows), tuple(columns), n, debiased, left_out, of_two=len(networks) > 1)


class _Network:
    """A network whose layers are looked at."""

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str] | None,
        forward: Forward | None,
        memory: int | str | None,
    ):
        if isinstance(layers, str):
            raise InputError(
                "layers is one string", expected="a list of names", got=repr(layers), hint=f"[{layers!r}]"
            )
        activations = Activations(model, outputs_of, forward=forward, memory=memory)
        # Said once: what is free changes from piece to piece.
        self.budget = memory_budget(memory, device=activations.function.device)
        self.activations = activations.within(self.budget)
        for layer in layers or ():
            self.activations.check_name(layer)
        self.layers = layers

    def counting(self, x: Batch) -> list[str]:
        """The layers that are compared: those that were asked for, or those that have the samples first."""
        if self.layers is not None:
            return list(self.layers)
        leaves = self.activations.leaves()
        called = [name for name in self.activations.called(x) if name in leaves]
        elsewhere = self.activations.survey(x, called).elsewhere
        if elsewhere:
            names = ", ".join(repr(name) for name in called if name in elsewhere)
            text = f"{len(elsewhere)} layer(s) without the samples first are left out: {names}"
            warnings.warn(f"{text}; layers=[...] chooses others", LeftOutWarning, stacklevel=4)
        return [name for name in called if name not in elsewhere]

    def at_once(self, x: Batch, layers: list[str]) -> int:
        """How many samples fit the memory budget."""
        return self.activations.at_once(self.activations.survey(x, layers))

    def run(self, x: Batch, layers: list[str]) -> Layers:
        """The outputs of the layers."""
        found: Layers = {}
        ((_, calls),) = self.activations.pieces(x, layers)  # no more samples than fit: one piece
        for name, h in calls:
            times = sum(name == key.partition(" (call ")[0] for key in found)
            found[f"{name} (call {times + 1})" if times else name] = h
        missing = [name for name in layers if name not in found]
        if missing or not found:
            raise ModelError(
                f"the model never calls layer {missing[0]!r}" if missing else "the model calls no layer",
                expected="layers that its forward calls",
                got=", ".join(map(repr, self.activations.called(x)[:10])),
            )
        return found


@dataclass(frozen=True, eq=False)
class _Runs:
    """Activations of all networks on some of the samples."""

    networks: list[_Network]
    layers: list[list[str]]
    x: Batch

    def of(self, samples: slice) -> dict[tuple[int, str], Tensor]:
        """(number of the network, layer) -> its outputs (n, d)."""
        batch = take(self.x, samples)
        pairs = enumerate(zip(self.networks, self.layers, strict=True))
        return {
            (k, name): h for k, (network, layers) in pairs for name, h in network.run(batch, layers).items()
        }


def _sums(
    runs: _Runs, first: dict[tuple[int, str], Tensor], n: int, side: int
) -> tuple[KernelSums, Float[Tensor, " k"]]:
    """The sums over the kernels of all layers, and what of their HSIC may be rounding.

    Layers are shifted by their mean over the first samples, which changes no CKA and saves digits.
    """
    shifts = {key: h.mean(0) for key, h in first.items()}
    sizes = torch.zeros(len(first), dtype=torch.float64)
    like = next(iter(first.values()))
    first.update(dict.fromkeys(first, like[:0]))  # the names stay, the activations go
    sums = KernelSums(len(shifts), n, like=like)

    def shifted(samples: slice) -> list[Tensor]:
        found = runs.of(samples)
        if list(found) != list(shifts):
            raise ModelError(
                "layers are called for some samples and not for others",
                expected="the same calls for all samples",
                got=f"{len(found)} calls where the first samples had {len(shifts)}",
                hint="layers=[...] that all samples go through",
            )
        for k, h in enumerate(found.values()):
            sizes[k] = max(float(sizes[k]), float(h.double().square().sum(1).max()))
        return [found.pop(key) - shifts[key] for key in shifts]

    for rows, cols, a, b in _pairs(n, side, shifted):
        sums.add(rows, cols, torch.stack([(u @ v.T).double() for u, v in zip(a, b, strict=True)]))
    noise = (ROUNDING * torch.finfo(like.dtype).eps) ** 2 * sizes
    return sums, (n * noise).square()


def _pairs(n: int, side: int, read: Any) -> Iterator[tuple[slice, slice, list[Tensor], list[Tensor]]]:
    """Tiles of one triangle, each with what its samples read as."""
    for cols in spans(n, side):
        b = read(cols)
        yield cols, cols, b, b
        for rows in spans(cols.start, side):
            yield rows, cols, read(rows), b
