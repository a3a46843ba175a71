"""Tangent kernels against the recipe and the peers."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.measure import better, gemm_rate
from benchmarks.tangent.contest import contest
from benchmarks.tangent.growth import draw_growth, measure_growth
from benchmarks.tangent.tables import section as section
from benchmarks.tangent.workloads import workload
from tangentkit import TangentKernel

FIGURES = Path(__file__).resolve().parent.parent.parent / "docs" / "figures"
WORK = [
    # workload, samples, outputs, repeats in a process, rounds of processes, contenders, whether it takes minutes
    ("mlp", 512, "trace", 25, 3, ("ours", "recipe", "neural-tangents"), False),
    ("mlp", 512, "pseudo", 25, 2, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("mlp", 128, "full", 25, 1, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("mlp", 512, "full", 7, 3, ("ours", "neural-tangents", "nngeometry"), False),
    ("lenet", 512, "trace", 9, 8, ("ours", "recipe", "neural-tangents"), False),
    ("lenet", 512, "pseudo", 15, 2, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("lenet", 512, "full", 5, 3, ("ours", "recipe", "neural-tangents"), False),
    ("transformer", 64, "trace", 7, 2, ("ours", "recipe"), False),
    ("resnet18", 64, "pseudo", 3, 1, ("ours", "recipe", "neural-tangents"), True),
    ("resnet18", 64, "trace", 2, 1, ("ours", "recipe", "neural-tangents"), True),
    ("resnet18", 256, "trace", 1, 1, ("ours", "recipe"), True),
]


def measure(quick: bool, console: Console) -> Iterator[dict]:
    """Records that grow round by round.

    Contenders take turns, for the machine's rate changes by the minute, and rounds go over all rows, for it changes
    by the hour, too. Each contender keeps its best; the times of single rounds are kept beside it.
    """
    work = [row for row in WORK if not (quick and row[-1])]
    record = {"rate": gemm_rate(), "rows": [], "growth": measure_growth(console)}
    draw_growth(record["growth"], FIGURES / "growth.png")
    for turn in range(1 if quick else max(rounds for *_, rounds, _, _ in work)):
        for k, (name, n, outputs, repeats, rounds, contenders, _) in enumerate(work):
            if turn == 0:
                record["rows"].append(_row(name, n, outputs))
            if turn < rounds:
                _round(record["rows"][k], contenders, repeats, console)
                record["rate"] = max(record["rate"], gemm_rate())
                yield record


def _row(name: str, n: int, outputs: str) -> dict:
    model, x = workload(name, n)
    flops = TangentKernel(model, outputs).plan(x).flops
    return {"workload": name, "n": n, "outputs": outputs, "flops": flops, "rounds": []}


def _round(row: dict, contenders: tuple[str, ...], repeats: int, console: Console) -> None:
    name, n, outputs = row["workload"], row["n"], row["outputs"]
    row["rounds"].append({})
    for contender in contenders:
        # Hundreds of times slower than ours: one call is enough.
        slow = contender == "recipe" and name == "mlp"
        found = contest(contender, name, n, outputs, 1 if slow else repeats)
        row[contender] = better(row.get(contender), found)
        if not isinstance(found, str):
            row["rounds"][-1][contender] = found["seconds"]
        console.print(f"{name} N={n} {outputs}: {contender} {found}")
