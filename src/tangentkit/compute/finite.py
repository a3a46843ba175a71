"""Tiles that are not finite are refused, with the samples to blame."""

from collections.abc import Callable, Sequence

from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.terms import Given, Range
from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.functions import TURN

SHOWN = 5
HINT = "float64, or leave these samples out"


def check_tile(tile: Tensor, where: Sequence[Range]) -> None:
    """Refuses a tile with NaN or infinities.

    Args:
        tile: (n, m), or (n c, m c); of a part (n, width).
        where: the ranges of samples along its axes; a part has one.

    Raises:
        NumericalError: with the samples all of whose entries are bad, or else the first pair.
    """
    # The sum is finite only if all entries are, and needs no mask of the tile's size.
    if tile.sum().isfinite() or tile.isfinite().all():
        return
    bad = ~tile.isfinite()
    outputs = tile.shape[0] // _length(where[0])
    if len(where) == 1:
        found = [(where[0], bad.view(-1, bad.shape[1] * outputs).any(1))]
    else:
        pairs = bad.view(_length(where[0]), outputs, _length(where[1]), outputs).any(3).any(1)
        found = [(place, pairs.all(1 - axis)) for axis, place in enumerate(where)]
        if not any(mask.any() for _, mask in found):
            i, j = (int(index) for index in pairs.nonzero()[0])
            raise _refusal(
                f"samples {where[0].span.start + i} of {where[0].side} and "
                f"{where[1].span.start + j} of {where[1].side}"
            )
    raise _refusal(
        " and ".join(_words(place, mask.nonzero().flatten().tolist()) for place, mask in found if mask.any())
    )


def made(make: Callable[[], Tensor], kernel: Kernel, given: Given, *where: Range) -> Tensor:
    """A tile or a part, checked.

    Args:
        make: computes it.
        kernel: whose it is.
        given: has the samples.
        where: the ranges of samples along its axes; a part has one.

    Raises:
        NumericalError: it is not finite; with the samples.
        InputError: samples that the kernel refuses; with their range.
    """
    try:
        tile = make()
    except NumericalError as error:
        raise _explained(error, kernel, [(place, given.samples(place)) for place in where]) from error
    except InputError as error:
        ranges = " and ".join(f"{p.span.start} to {p.span.stop - 1} of {p.side}" for p in where)
        raise InputError(f"samples {ranges}, counted from the first of them: {error}") from error
    check_tile(tile, where)
    return tile


def _explained(
    error: NumericalError, kernel: Kernel, batches: Sequence[tuple[Range, Batch]]
) -> NumericalError:
    """The error of a kernel that would not give a tile, with the samples to blame."""
    if len(batches) > 1 and batches[0][0] == batches[1][0]:
        batches = batches[:1]
    found = [(place, _culprits(kernel, batch, 0)) for place, batch in batches]
    named = " and ".join(_words(place, rows) for place, rows in found if rows)
    if named:
        return NumericalError(
            error.problem, expected=error.expected, got=f"nan or inf for {named}", hint=error.hint or HINT
        )
    ranges = " and ".join(f"{p.span.start} to {p.span.stop - 1} of {p.side}" for p, _ in found)
    return NumericalError(f"samples {ranges}: {error}")


def _culprits(kernel: Kernel, batch: Batch, start: int) -> list[int]:
    """Samples for which k(x, x) is not finite, by halving."""
    n = batch_size(batch)
    try:
        with TURN:
            if kernel.diag(batch).isfinite().all():
                return []
    except NumericalError:
        pass
    if n == 1:
        return [start]
    half = n // 2
    first = _culprits(kernel, take(batch, slice(0, half)), start)
    return first + _culprits(kernel, take(batch, slice(half, n)), start + half)


def _refusal(samples: str) -> NumericalError:
    return NumericalError(
        "the kernel is not finite", expected="finite numbers", got=f"nan or inf for {samples}", hint=HINT
    )


def _words(place: Range, rows: list[int]) -> str:
    numbers = [place.span.start + row for row in rows]
    more = f" ({len(numbers)} in all)" if len(numbers) > SHOWN else ""
    return f"samples {numbers[:SHOWN]}{more} of {place.side}"


def _length(place: Range) -> int:
    return place.span.stop - place.span.start
