"""Classifiers on kernels: ours against scikit-learn's LogisticRegression at the same optimum, in one run."""

import sys

from rich.console import Console

from benchmarks.measure import run

SIZES = {True: (1_000, 500, 2_000), False: (5_000, 2_000, 10_000)}
"""Samples on features, of the kernel matrix, and of the large one: a quick trial, and the run."""
ROUNDS = {True: 1, False: 3}
MOST_MEMORY = 2e9


def measure(quick: bool, console: Console) -> dict:
    """Medians of both in turns on features and on a kernel matrix; the memory of a large one."""
    features, kernel, large = SIZES[quick]
    record: dict = {"features": features, "kernel": kernel, "large": large, "rounds": ROUNDS[quick]}
    for workload, n in (("on_features", features), ("on_kernel", kernel), ("memory", large)):
        module = "benchmarks.classifiers.contest"
        command = [sys.executable, "-m", module, workload, str(n), str(ROUNDS[quick])]
        record[workload] = run(command, timeout=3600)
        console.print(f"{workload} N={n}: {record[workload]}")
    return record


def section(record: dict) -> str:
    """The section of the page, in markdown."""
    lines = [
        "## Classifiers",
        "",
        f"Ten classes in float64; ours and scikit-learn's `LogisticRegression` (L-BFGS) in turns, medians of "
        f"{record['rounds']} rounds. The gap",
        "is how far the objective ends above the lowest that was found, relative to it; the gradient is relative to",
        "that at zero. `KernelLogistic` on 33 features that are given, and `KernelGLM` on the tangent kernel of an",
        "MLP, against `LogisticRegression` on the same features, and on the rows of the same matrix.",
        "",
        "| workload | ours | scikit-learn | time |",
        "|---|---|---|---|",
        _row(record, "on_features", f"33 features, {record['features']:,} samples", 1 / 1.5),
        _row(record, "on_kernel", f"kernel matrix, {record['kernel']:,} samples", 3.0),
        "",
    ]
    found = record["memory"]
    if isinstance(found, str):
        return "\n".join([*lines, f"{record['large']:,} samples: {found}.", ""])
    reached = "reached" if found["beside"] <= MOST_MEMORY and found["converged"] else "NOT reached"
    return "\n".join(
        [
            *lines,
            f"{record['large']:,} samples take {found['beside'] / 1e9:.2f} GB beside a kernel matrix of "
            f"{found['matrix'] / 1e9:.2f} GB → 2 GB {reached},",
            f"{found['seconds']:.0f} s to a relative gradient of {found['gradient']:.0e}.",
            "",
        ]
    )


def _row(record: dict, workload: str, title: str, goal: float) -> str:
    found = record[workload]
    if isinstance(found, str):
        return f"| {title} | {found} | | not compared |"
    ours, theirs = (
        f"{side['seconds']:.2f} s, gap {side['gap']:.0e}, gradient {side['gradient']:.0e}, {side['steps']} steps"
        for side in (found["ours"], found["scikit-learn"])
    )
    faster = found["scikit-learn"]["seconds"] / found["ours"]["seconds"]
    reached = "reached" if faster >= goal else "NOT reached"
    return f"| {title} | {ours} | {theirs} | {faster:.1f}x as fast → {goal:.2g}x {reached} |"
