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
    ("mlp", 512, "trace", 25, 2, ("ours", "recipe", "neural-tangents"), False),
    ("mlp", 512, "pseudo", 25, 3, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("mlp", 128, "full", 25, 3, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("mlp", 512, "full", 9, 3, ("ours", "neural-tangents", "nngeometry"), False),
    ("lenet", 512, "trace", 15, 5, ("ours", "recipe", "neural-tangents"), False),
    ("lenet", 512, "pseudo", 15, 3, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("lenet", 512, "full", 5, 3, ("ours", "recipe", "neural-tangents"), False),
    ("transformer", 64, "trace", 7, 3, ("ours", "recipe"), False),
    ("resnet18", 64, "pseudo", 3, 2, ("ours", "recipe", "neural-tangents"), True),
    ("resnet18", 64, "trace", 2, 1, ("ours", "recipe", "neural-tangents"), True),
    ("resnet18", 256, "trace", 1, 1, ("ours", "recipe"), True),
]


def measure(quick: bool, console: Console) -> Iterator[dict]:
    """Records that grow row by row.

    Contenders take turns, for the machine's rate changes by the minute; each keeps its best, and the times of single
    rounds are kept beside it.
    """
    record = {"rate": gemm_rate(), "rows": [], "growth": measure_growth(console)}
    draw_growth(record["growth"], FIGURES / "growth.png")
    for name, n, outputs, repeats, rounds, contenders, long in WORK:
        if quick and long:
            continue
        model, x = workload(name, n)
        row = {
            "workload": name,
            "n": n,
            "outputs": outputs,
            "flops": TangentKernel(model, outputs).plan(x).flops,
            "rounds": [],
        }
        del model, x
        for _ in range(1 if quick else rounds):
            row["rounds"].append({})
            for contender in contenders:
                # Hundreds of times slower than ours: one call is enough.
                slow = contender == "recipe" and name == "mlp"
                found = contest(contender, name, n, outputs, 1 if slow else repeats)
                row[contender] = better(row.get(contender), found)
                if not isinstance(found, str):
                    row["rounds"][-1][contender] = found["seconds"]
                console.print(f"{name} N={n} {outputs}: {contender} {found}")
        record["rate"] = max(record["rate"], gemm_rate())
        record["rows"].append(row)
        yield record
