"""Kernel regression on many samples: ours against scikit-learn's Nystroem and Ridge, in one run."""

import sys

from rich.console import Console

from benchmarks.machines.workloads import DIMENSION, NOISE, RIDGE
from benchmarks.measure import gemm_rate, run

SIZES = {True: (10_000, 1024), False: (50_000, 4096)}
"""Samples and landmarks or features: a quick trial, and the run."""
TITLES = {"landmarks": "{m} landmarks, RBF kernel", "features": "{m} features that are given"}
MOST_MEMORY = 2e9


def measure(quick: bool, console: Console) -> dict:
    """Times, peaks and errors of both contenders on both workloads."""
    n, m = SIZES[quick]
    record: dict = {"n": n, "m": m, "rate": gemm_rate(), "rows": []}
    for workload in TITLES:
        row: dict = {"workload": workload}
        for name in ("ours", "scikit-learn"):
            row[name] = _run(name, workload, n, m, repeats=2)
            console.print(f"{workload} N={n} M={m}: {name} {row[name]}")
        record["rows"].append(row)
    return record


def section(record: dict) -> str:
    """The section of the page, in markdown."""
    lines = [
        "## Kernel regression on many samples",
        "",
        f"{record['n']:,} samples of {DIMENSION} inputs in float32, ridge {RIDGE}; times of a fit, best of two; peak",
        "resident memory of the process, data and libraries included. Landmarks: `NystromRegression` against",
        '`Nystroem` and `Ridge` of scikit-learn, on the same landmarks. Features: `KernelRegression("features")`',
        f"against `Ridge`. Errors are root mean squares on 1,000 test samples, noise {NOISE} included.",
        "",
        "| workload | ours | scikit-learn | time | memory |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        ours, theirs = row["ours"], row["scikit-learn"]
        cells = [TITLES[row["workload"]].format(m=f"{record['m']:,}"), _cell(ours), _cell(theirs)]
        lines.append("| " + " | ".join(cells + _goals(ours, theirs)) + " |")
    return "\n".join([*lines, ""])


def _goals(ours: dict | str, theirs: dict | str) -> list[str]:
    if isinstance(ours, str) or isinstance(theirs, str):
        return ["not compared", "not compared"]
    faster = theirs["seconds"] / ours["seconds"]
    share = ours["peak"] / theirs["peak"]
    small = share < 1 and ours["peak"] <= MOST_MEMORY
    return [
        f"{faster:.1f}x as fast; goal not slower: {_judged(faster >= 1)}",
        f"{share:.2f} of it; goal less, and 2 GB: {_judged(small)}",
    ]


def _judged(reached: bool) -> str:
    return "goal reached" if reached else "NOT reached"


def _cell(found: dict | str) -> str:
    if isinstance(found, str):
        return found
    taken = f"{found['seconds']:.1f} s, {found['peak'] / 1e9:.2f} GB, error {found['error']:.3f}"
    return f"{taken} ({found['solver']})" if found["solver"] else taken


def _run(name: str, workload: str, n: int, m: int, *, repeats: int) -> dict | str:
    module = "benchmarks.machines.contender"
    return run([sys.executable, "-m", module, name, workload, *map(str, (n, m, repeats))], timeout=3600)
