"""Infinite-width kernels: ours and neural-tangents', in time and memory, and the cost over the size of images."""

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.infinite.growth import draw, measure_growth
from benchmarks.measure import ROOT, better, peer_python, run

FIGURE = ROOT / "docs" / "figures" / "infinite-growth.png"
WORK = [
    # workload, samples, repeats, how many times faster we want to be, whether it takes minutes
    ("fc-relu", 2000, 7, 2.0, False),
    ("fc-erf", 2000, 7, 2.0, False),
    ("flatten", 16, 7, None, False),
    ("flatten", 256, 3, 2.0, False),
    ("gap", 4, 3, 10.0, False),
    ("gap", 16, 1, 10.0, True),
    ("gap", 64, 1, None, True),
]
ROUNDS = 3
"""Processes of each contender; the best counts."""
TOO_LARGE = {("gap", 64)}
"""Where neural-tangents would need more memory than the machine has: its 9.9 GB at N = 16 grow with N²."""
NAMES = {
    "fc-relu": "fully connected, depth 5, d = 784, ReLU",
    "fc-erf": "fully connected, depth 5, d = 784, erf",
    "flatten": "three 3x3 convolutions on 3x32x32, flatten",
    "gap": "three 3x3 convolutions on 3x32x32, global pooling",
}
ROOM = 200e6
"""Bytes beside the result that the fully connected kernel may use."""


def measure(quick: bool, console: Console) -> Iterator[dict]:
    """Every workload by both contenders; the growth with the size of images by ours."""
    record: dict = {"growth": measure_growth(console), "rows": []}
    draw(record["growth"], FIGURE)
    yield record
    for name, n, repeats, goal, long in WORK:
        if quick and long:
            continue
        row: dict = {"workload": name, "n": n, "goal": goal}
        for _ in range(1 if long else ROUNDS):
            # In turns, for the machine's rate changes by the minute.
            for contender, contest in (("ours", _ours), ("neural-tangents", _peer)):
                row[contender] = better(row.get(contender), contest(name, n, repeats))
        console.print(f"infinite, {name} N={n}: {row}")
        record["rows"].append(row)
        yield record


def section(record: dict) -> str:
    """The tables."""
    lines = [
        "## Infinite width",
        "",
        "The tangent kernel of N samples with themselves in float32, neural-tangents compiled (its first call is",
        "not counted, and neither is ours). Memory is what the process grows by during the calls: its peak minus",
        "what it holds after imports and inputs are there; the result is part of it.",
        "",
        "| network | N | ours | neural-tangents | faster | memory, ours | memory, neural-tangents |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(row) for row in record["rows"]]
    lines += [
        "",
        f"Beside the result the fully connected kernel is to use at most {ROOM / 1e6:.0f} MB.",
        "",
        "A flatten head needs pairs of equal positions only, O(P) for each pair of images; global pooling needs all",
        "pairs of positions, O(P²), taken offset by offset, so that memory stays O(P).",
        "",
        "![Seconds for each pair of images over the number of pixels: slope 1 for flatten, slope 2 for global"
        " pooling.](figures/infinite-growth.png)",
        "",
        "| pixels | flatten, ms a pair | global pooling, ms a pair |",
        "|---|---|---|",
    ]
    flat, gap = (record["growth"][head] for head in ("flatten", "gap"))
    for pixels in sorted({*flat, *gap}, key=int):
        cells = [f"{1e3 * part[pixels]:.3g}" if pixels in part else "–" for part in (flat, gap)]
        lines.append(f"| {pixels} | {cells[0]} | {cells[1]} |")
    return "\n".join([*lines, ""])


def _row(row: dict) -> str:
    ours, theirs = row["ours"], row["neural-tangents"]
    cells = [NAMES[row["workload"]], str(row["n"]), _seconds(ours), _seconds(theirs)]
    if isinstance(ours, str) or isinstance(theirs, str):
        cells.append("–")
    else:
        ratio = theirs["seconds"] / ours["seconds"]
        apart = abs(ours["checksum"] / theirs["checksum"] - 1)
        words = "" if row["goal"] is None else f" → goal {row['goal']:g}x {_reached(ratio >= row['goal'])}"
        cells.append(f"{ratio:.1f}x{words}" + ("" if apart < 1e-3 else f" (sums differ by {apart:.1e})"))
    cells += [_memory(ours, row), _memory(theirs, row, judged=False)]
    return "| " + " | ".join(cells) + " |"


def _seconds(found: dict | str) -> str:
    return found if isinstance(found, str) else f"{found['seconds']:.3g} s"


def _memory(found: dict | str, row: dict, *, judged: bool = True) -> str:
    if isinstance(found, str):
        return "–"
    grown = found["peak"] - found["before"]
    words = f"{grown / 1e6:.0f} MB"
    if judged and row["workload"].startswith("fc"):
        words += f" → goal {_reached(grown <= 4 * row['n'] ** 2 + ROOM)}"
    return words


def _reached(yes: bool) -> str:
    return "reached" if yes else "NOT reached"


def _ours(name: str, n: int, repeats: int) -> dict | str:
    return run([sys.executable, "-m", "benchmarks.infinite.contender", name, str(n), str(repeats)])


def _peer(name: str, n: int, repeats: int) -> dict | str:
    if (name, n) in TOO_LARGE:
        return "not run: by its growth about 160 GB"
    python = peer_python()
    script = Path(__file__).parent / "neural_tangents_contender.py"
    return run([python, script, name, str(n), str(repeats)]) if python else "not installed"
