"""Tiles that are not finite are refused, with the samples to blame."""

from collections.abc import Callable, Sequence

from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.terms import Given, Range
from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.model.functions import TURN

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
    outputs = tile.shape[0] // len(where[0].numbers)
    if len(where) == 1:
        found = [(where[0], bad.view(-1, bad.shape[1] * outputs).any(1))]
    else:
        pairs = bad.view(len(where[0].numbers), outputs, len(where[1].numbers), outputs).any(3).any(1)
        found = [(place, pairs.all(1 - axis)) for axis, place in enumerate(where)]
        if not any(mask.any() for _, mask in found):
            i, j = (int(index) for index in pairs.nonzero()[0])
            raise _refusal(
                f"samples {where[0].numbers[i]} of {where[0].side} and {where[1].numbers[j]} of {where[1].side}"
            )
    raise _refusal(
        " and ".join(
            _words(place.side, [place.numbers[i] for i in mask.nonzero().flatten().tolist()])
            for place, mask in found
            if mask.any()
        )
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
        raise explained(error, kernel, [(place, given.samples(place)) for place in where]) from error
    except InputError as error:
        raise InputError(f"{in_words(where)}, counted from the first of them: {error}") from error
    check_tile(tile, where)
    return tile


def explained(
    error: NumericalError, kernel: Kernel, batches: Sequence[tuple[Range, Batch]]
) -> NumericalError:
    """The error of a kernel that would not give a tile, with the samples to blame."""
    if any(f" of {place.side}" in str(error.got) for place, _ in batches):
        return error  # it names them itself
    if len(batches) > 1 and batches[0][0] == batches[1][0]:
        batches = batches[:1]
    found: dict[str, list[int]] = {}
    for place, batch in batches:
        rows = [place.numbers[row] for row in _culprits(kernel, batch, 0)]
        found[place.side] = sorted({*found.get(place.side, []), *rows})
    named = " and ".join(_words(side, numbers) for side, numbers in found.items() if numbers)
    if named:
        return NumericalError(
            error.problem, expected=error.expected, got=f"nan or inf for {named}", hint=error.hint or HINT
        )
    return NumericalError(f"{in_words([place for place, _ in batches])}: {error}")


def in_words(where: Sequence[Range]) -> str:
    """The samples of some ranges, in words."""
    return "samples " + " and ".join(
        f"{list(p.picked)} of {p.side}" if p.picked else f"{p.span.start} to {p.span.stop - 1} of {p.side}"
        for p in where
    )


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


def _words(side: str, numbers: list[int]) -> str:
    more = f" ({len(numbers)} in all)" if len(numbers) > SHOWN else ""
    return f"samples {numbers[:SHOWN]}{more} of {side}"
