"""Gram matrices of any size: in memory, or on disk, by whatever workers there are."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tangentkit.compute.cost.tiling import known_tiling, largest_tiling, measured_tiling, one_tile
from tangentkit.compute.engines import Engine, EngineError, Serial
from tangentkit.compute.identity import renamed
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.probes import take_probe
from tangentkit.compute.sources import SampleSource, identify_samples, range_digests, sources_of
from tangentkit.compute.store.in_memory import InMemory
from tangentkit.compute.store.layout import GRAM, Layout, Tiling, look, make_layout
from tangentkit.compute.store.operator import StoredOperator
from tangentkit.compute.store.store import (
    ANOTHER_FOLDER,
    PROBES,
    Store,
    create,
    expect,
    is_store,
    read_manifest,
)
from tangentkit.compute.work import SampleSide, TileTarget, TileWork
from tangentkit.core.errors import DataError, InputError, briefly
from tangentkit.core.files.safe import as_path
from tangentkit.core.memory import memory_budget
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.text import counted
from tangentkit.linalg.operators.matrices import DenseOperator
from tangentkit.linalg.operators.operator import Operator


@briefly
def gram(
    kernel: Kernel,
    x: Any,
    y: Any = None,
    *,
    store: str | Path | None = None,
    engine: Engine | None = None,
    tile: int | Tiling | None = None,
    progress: bool | Progress = True,
    repair: bool = False,
) -> Operator:
    """The Gram matrix k(x_i, y_j) as an operator.

    Of a symmetric one (y left out) half is computed and stored. Kernels between outputs, (n, c, m, c), give the
    matrix (n c, m c). Kernels with features compute these once, then matrix products; normalized kernels compute
    their diagonal once.

    With a store, tiles are files: a run that was ended, by whatever, goes on where it stopped, and the result is
    read from disk when it is used.

    Args:
        kernel: any kernel.
        x: a tensor, a pytree of tensors, or a data set that is read by ranges (see `Samples`). Of a data set of pairs
            (input, target) the inputs are taken where the kernel refuses the pairs.
        y: likewise; None for the symmetric matrix.
        store: a folder, new or of the same matrix; None keeps the matrix in memory.
        engine: `Serial()` by default, `Threads(n)` or `Dask(...)`.
        tile: samples along the side of a tile. By default that of the store; for a new one, small tiles are timed,
            and the side is such that a tile takes about five seconds, but not so small that the whole takes more
            than 1.5 times as long (3 times, where a tile would take over a minute) as with the largest tiles: 2048
            rows, less where memory is short. Or `gram_cost(...).tiling`.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).
        repair: whether damaged tiles are computed again; without it they are an error.

    Returns:
        An operator, which can be multiplied, sliced, solved and decomposed, and made dense.

    Raises:
        BudgetError: in memory it would not fit; with the bytes.
        DataError: the store is of another matrix (saying what differs), is damaged, is being written, or full.
        NumericalError: a tile is not finite; with the samples.
        InputError: bad samples, or a bad tile size.
        EngineError: workers or their scheduler are gone; with what is stored.
        KeyboardInterrupt: with what is stored and what is left.

    Example:
        >>> from tangentkit import ConjugateKernel
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> G = gram(ConjugateKernel(model), torch.randn(50, 3))
        >>> G.shape, G[:2, 3].shape
        ((50, 50), torch.Size([2]))
    """
    engine = Serial() if engine is None else engine
    _check_kinds(kernel, engine)
    sources = sources_of(kernel, x, y)
    if store is None:
        return _in_memory(kernel, sources, engine, tile, progress)
    folder = as_path(store).absolute()
    try:
        return _on_disk(folder, kernel, sources, engine, tile, progress, repair=repair)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_what_is_stored(folder)) from None
    except EngineError as error:
        raise EngineError(f"{error}; {_what_is_stored(folder)}") from error


def _check_kinds(kernel: object, engine: object) -> None:
    if not isinstance(kernel, Kernel):
        raise InputError(
            "not a kernel",
            expected="a tangentkit kernel, such as TangentKernel(model)",
            got=type(kernel).__name__,
            hint="a class of your own: derive it from tangentkit.compute.Kernel",
        )
    if not isinstance(engine, Engine):
        raise InputError("not an engine", expected="Serial(), Threads(n) or Dask(...)", got=repr(engine))


def _check_parts(store: Store, layout: Layout) -> None:
    """Reads the parts that are there: tiles are checked whenever they are used, these may never be used again."""
    for name in layout.arrays:
        if name != GRAM:
            wanted = layout.indices(name)
            missing = set(store.missing(name, wanted))
            store.check(name, [index for index in wanted if index not in missing])


def _what_is_stored(folder: Path) -> str:
    """What a run that was ended leaves to the next."""
    if not is_store(folder):
        return f"nothing is stored in {folder} yet"
    store = read_manifest(folder)
    there = [store.has(name, index) for name in store.arrays for index in store.indices(name)]
    tiles, left = counted(len(there), "tile"), len(there) - sum(there)
    return f"{sum(there)} of {tiles} stored in {folder}, {left} left: run again to go on"


def _on_disk(
    folder: Path,
    kernel: Kernel,
    sources: Mapping[str, SampleSource],
    engine: Engine,
    tile: int | Tiling | None,
    progress: bool | Progress,
    *,
    repair: bool,
) -> Operator:
    sizes = {side: len(source) for side, source in sources.items()}
    tiling = known_tiling(tile, read_manifest(folder) if is_store(folder) else None, sizes)
    form = look(kernel, sources)
    layout = make_layout(form, sizes, tiling or measured_tiling(kernel, sources["x"], form, sizes))
    store, hashes = _opened(folder, kernel, sources, layout)
    if not repair:
        store.check_descriptions()
        _check_parts(store, layout)
    if repair or any(store.missing(name, layout.indices(name)) for name in layout.arrays):
        with store.writing():
            if repair:
                store.mend_descriptions()
                store.remove_damaged({name: layout.indices(name) for name in layout.arrays})
            store.check_room({name: store.missing(name, layout.indices(name)) for name in layout.arrays})
            _fill(store, kernel, sources, layout, engine, progress, hashes)
    return StoredOperator(store, device=layout.device)


def _in_memory(
    kernel: Kernel,
    sources: Mapping[str, SampleSource],
    engine: Engine,
    tile: int | Tiling | None,
    progress: bool | Progress,
) -> Operator:
    sizes = {side: len(source) for side, source in sources.items()}
    tiling, form = known_tiling(tile, None, sizes), look(kernel, sources)
    shape = sizes["x"] * form.outputs, sizes.get("y", sizes["x"]) * form.outputs
    memory_budget(device=form.device).check(
        math.prod(shape) * form.dtype.itemsize,
        f"a Gram matrix of {shape[0]} x {shape[1]} is",
        hint="store=a folder keeps it on disk",
    )
    working = memory_budget(kernel.working_memory(), device=form.device)
    kept = working.holds(sum(sizes.values()) * form.part_bytes, copies=2)
    if tiling is None and kept and isinstance(engine, Serial) and not any(s.lazy for s in sources.values()):
        tiling = one_tile(working, form, sizes)
    layout = make_layout(form, sizes, tiling or largest_tiling(working, form, sizes, kept=kept), kept=kept)
    target = InMemory(layout.arrays, layout.device)
    lazy = {side: source.hashes() for side, source in sources.items() if source.lazy}
    _fill(target, kernel, sources, layout, engine, progress, lazy)
    if layout.symmetric:
        target.mirror(GRAM)
    return DenseOperator(target.matrices[GRAM], symmetric=layout.symmetric)


def _fill(
    target: TileTarget,
    kernel: Kernel,
    sources: Mapping[str, SampleSource],
    layout: Layout,
    engine: Engine,
    progress: bool | Progress,
    hashes: Mapping[str, list[bytes]],
) -> None:
    """Computes what is missing: parts first, then the tiles that need them. Sides with hashes are checked."""
    sides = {
        side: SampleSide(source, range_digests(hashes[side], layout.tiling.piece) if side in hashes else None)
        for side, source in sources.items()
    }
    work = TileWork(kernel, sides, layout.tiling, target, layout.device, kernel.working_memory())
    # An engine that starts processes keeps them from stage to stage.
    with engine if isinstance(engine, AbstractContextManager) else nullcontext():
        for name in layout.arrays:
            wanted = layout.indices(name)
            items = [(name, index) for index in target.missing(name, wanted)]
            with counted_off(progress, name, len(wanted), done=len(wanted) - len(items)) as advance:
                for receipt in engine.map(work, items) if items else ():
                    target.accept(receipt)
                    advance()
            if isinstance(target, InMemory):
                work = replace(work)  # workers must see what is in memory now


def _opened(
    folder: Path, kernel: Kernel, sources: Mapping[str, SampleSource], layout: Layout
) -> tuple[Store, dict[str, list[bytes]]]:
    """The store of a matrix, new or known to be its own by its manifest; and the hashes of the samples.

    Raises:
        DataError: the store is of another matrix; with what differs.
    """
    hashes = {side: source.hashes() for side, source in sources.items()}
    identity = _identity(kernel, sources, hashes, layout)
    # Before the kernel is tried: what can be named says more than numbers.
    found = expect(folder, identity) if is_store(folder) else None
    probe = take_probe(kernel, sources, hashes, outputs=layout.outputs)
    store = found or create(folder, identity | {PROBES: probe.plain()}, layout.arrays)
    if (gap := probe.gap(store.identity.get(PROBES))) is not None:
        names = ", ".join(renamed(store.identity, identity))
        raise DataError(
            f"{folder} holds another Gram matrix: same weights, but the model computes something else: probe entries "
            f"differ by {gap:.2g} of sqrt(k(x, x) k(y, y)){names and f' ({names})'}",
            hint=ANOTHER_FOLDER,
        )
    return store, hashes


def _identity(
    kernel: Kernel, sources: Mapping[str, SampleSource], hashes: Mapping[str, list[bytes]], layout: Layout
) -> dict[str, Any]:
    return {
        "kernel": kernel.identity(),
        "parts": {name: array.shape[1] for name, array in layout.arrays.items() if name != GRAM},
        "data": {side: identify_samples(source, hashes[side]) for side, source in sources.items()},
        "dtype": str(layout.dtype).removeprefix("torch."),
        "outputs": layout.outputs,
        "symmetric": layout.symmetric,
        "tile": layout.tiling.side,
        # Not by an import statement: the package would depend on all that the package offers.
        "library": {
            "tangentkit": import_module("tangentkit").__version__,
            "torch": torch.__version__.partition("+")[0],
        },
    }
