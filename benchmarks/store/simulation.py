"""A simulation of 2 to 1,024 workers that fail now and then: `python -m benchmarks.store.simulation RECORD.json`.

Every tile takes its turn at the scheduler (one at a time), is computed by a worker, and is written to a file system
that all share (one stream of a given rate). A worker fails at random, loses the tile it has in hand, and comes back
after a while. What is measured: seconds of a tile, of a sample, and of the scheduler, on the machine of the
benchmark. What is assumed: the rest, see `ASSUMED`.
"""

import heapq
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

ASSUMED = {
    "hours between failures of a worker": 24.0,
    "seconds to come back": 120.0,
    "file system, bytes/s": 2e9,
}
WORKERS = (2, 8, 32, 128, 512, 1024)
SIZES = (50_000, 1_000_000)
TILES = {"trace": 512, "conjugate": 2048, "sketched": 2048}
"""Samples along the side of a tile: what a failure loses should be minutes, not hours."""
ITEM = 4


def simulate(rates: dict, overhead: dict) -> list[dict]:
    """A row for each kernel and size: tiles, bytes, hours of one worker, and hours of many."""
    return [_row(kernel, rate, n, overhead["dask"]) for kernel, rate in rates.items() for n in SIZES]


def _row(kernel: str, rate: dict, n: int, dispatch: float) -> dict:
    tile = TILES[kernel]
    side = -(-n // tile)
    # Features first, if there are any; then tiles. For each: how many, seconds, bytes.
    features = (side if rate["width"] else 0, rate["part"] * tile, ITEM * tile * rate["width"])
    tiles = (side * (side + 1) // 2, rate["tile"], ITEM * tile**2)
    row: dict = {
        "kernel": kernel,
        "n": n,
        "tile": tile,
        "tiles": tiles[0],
        "bytes": sum(count * size for count, _, size in (features, tiles)),
        "hours": sum(count * seconds for count, seconds, _ in (features, tiles)) / 3600,
    }
    for workers in WORKERS:
        stages = [makespan(workers, *stage, dispatch) for stage in (features, tiles)]
        row[str(workers)] = {"hours": sum(s for s, _ in stages) / 3600, "failures": sum(f for _, f in stages)}
    return row


def makespan(
    workers: int, tiles: int, compute: float, size: float, dispatch: float, seed: int = 0
) -> tuple[float, int]:
    """Seconds until all tiles are written, and how many failures there were.

    Example:
        >>> seconds, failures = makespan(4, 100, 10.0, 0.0, 0.0)
        >>> 250 <= seconds < 300
        True
    """
    chance = random.Random(seed)
    mean = ASSUMED["hours between failures of a worker"] * 3600
    back, bandwidth = ASSUMED["seconds to come back"], ASSUMED["file system, bytes/s"]
    free = [(0.0, worker) for worker in range(workers)]
    heapq.heapify(free)
    fails = [chance.expovariate(1 / mean) for _ in range(workers)]
    scheduler = disk = end = 0.0
    left, failures = tiles, 0
    while left:
        now, worker = heapq.heappop(free)
        scheduler = max(scheduler, now) + dispatch
        ready = scheduler + compute
        if fails[worker] < ready:
            # The tile in hand is lost, and somebody else's from now on.
            failures += 1
            again = max(fails[worker], now) + back
            fails[worker] = again + chance.expovariate(1 / mean)
            heapq.heappush(free, (again, worker))
            continue
        disk = max(disk, ready) + size / bandwidth
        end = max(end, disk)
        left -= 1
        heapq.heappush(free, (disk, worker))
    return end, failures


def lines(rows: list[dict]) -> Iterator[str]:
    """The table in markdown."""
    yield (
        "| kernel of ResNet-18 | N | tiles | on disk | one worker | "
        + " | ".join(f"{w} workers" for w in WORKERS)
        + " |"
    )
    yield "|---" * (5 + len(WORKERS)) + "|"
    for row in rows:
        cells = [
            row["kernel"],
            f"{row['n']:,}",
            f"{row['tiles']:,} of {row['tile']}",
            f"{row['bytes'] / 1e9:,.0f} GB",
            _hours(row["hours"]),
        ]
        for workers in WORKERS:
            found = row[str(workers)]
            share = row["hours"] / workers / found["hours"]
            cells.append(f"{_hours(found['hours'])} ({share:.0%}, {found['failures']} failures)")
        yield "| " + " | ".join(cells) + " |"


def _hours(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.1f} min"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:,.0f} days"


def assumptions() -> str:
    """What the simulation takes for granted, in words."""
    return ", ".join(f"{name} {value:g}" for name, value in ASSUMED.items())


if __name__ == "__main__":
    record = json.loads(Path(sys.argv[1]).read_text())
    print("\n".join(lines(simulate(record["rates"], record["overhead"]))))
