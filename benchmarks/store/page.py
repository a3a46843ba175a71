"""The measured part of docs/scaling.md, written by each full run: the page holds no number from another."""

from pathlib import Path

from benchmarks.store.simulation import ASSUMED, SIZES, TILES, WORKERS, lines

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
BEGIN = "<!-- measured: written by `python -m benchmarks store` -->"
END = "<!-- end of what was measured -->"


def renew(record: dict, page: Path = PAGE) -> None:
    """Puts the numbers of a run between the two marks of the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    assert rest, f"{page} has no mark {BEGIN}"
    page.write_text("\n".join([before + BEGIN, "", *_measured(record), "", END]) + after)


def _measured(record: dict) -> list[str]:
    rates, overhead = record["rates"], record["overhead"]
    trace = rates["trace"]
    rows = [
        f"| exact trace kernel | {trace['measured']} x {trace['measured']} samples | "
        f"{_time(trace['seconds'])} | {TILES['trace']} samples a side: {_time(trace['tile'])} (by FLOPs) |"
    ]
    for name, rate in rates.items():
        if rate["width"]:
            rows.append(
                f"| {name}, {rate['width']} features | {rate['measured']} samples, one product | "
                f"{_time(rate['part'])} a sample | {TILES[name]} samples a side: {_time(rate['tile'])} |"
            )
    return [
        "Measured, by one core of the machine of the [benchmarks](benchmarks.md), in the same run as these:",
        "",
        "| kernel of ResNet-18 | what was run | time | a tile of the table below |",
        "|---|---|---|---|",
        *rows,
        "",
        f"and {overhead['dask'] * 1e3:.1f} ms of Dask for a tile that costs nothing: one scheduler hands out at most",
        f"{1 / overhead['dask']:.0f} tiles a second.",
        "",
        f"Extrapolated, and not run: everything in the table for N = {' and '.join(f'{n:,}' for n in SIZES)}, and",
        f"{WORKERS[0]} to {WORKERS[-1]:,} workers. Exact tiles of {TILES['trace']} samples by their counted FLOPs",
        "at the rate of the small tile; a file",
        f"system of {ASSUMED['file system, bytes/s'] / 1e9:g} GB/s for all; failures of each worker once in "
        f"{ASSUMED['hours between failures of a worker']:g} hours on average, which lose the tile in hand and",
        f"{ASSUMED['seconds to come back']:g} seconds. No network, no slow machines, no queue are in it.",
        "",
        *lines(record["simulation"]),
    ]


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"
