"""`make bench`: tangent kernels against the recipe and the peers, in one run.

Writes docs/benchmarks.md, docs/benchmarks.json and docs/figures/growth.png. `python -m benchmarks quick` leaves out
what takes minutes.
"""

import json
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.growth import draw_growth, measure_growth
from benchmarks.measure import gemm_rate, measure
from benchmarks.tables import page
from benchmarks.workloads import workload
from tangentkit import TangentKernel

DOCS = Path(__file__).resolve().parent.parent / "docs"
WORK = [
    # workload, samples, outputs, repeats, contenders, whether it takes minutes
    ("mlp", 512, "trace", 5, ("ours", "recipe", "neural-tangents"), False),
    ("mlp", 512, "pseudo", 5, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("mlp", 128, "full", 5, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("mlp", 512, "full", 5, ("ours", "neural-tangents", "nngeometry"), False),
    ("lenet", 512, "trace", 5, ("ours", "recipe", "neural-tangents"), False),
    ("lenet", 512, "pseudo", 5, ("ours", "recipe", "neural-tangents", "nngeometry"), False),
    ("lenet", 512, "full", 3, ("ours", "recipe", "neural-tangents"), False),
    ("transformer", 64, "trace", 5, ("ours", "recipe"), False),
    ("resnet18", 64, "pseudo", 3, ("ours", "recipe", "neural-tangents"), True),
    ("resnet18", 64, "trace", 2, ("ours", "recipe", "neural-tangents"), True),
    ("resnet18", 256, "trace", 1, ("ours", "recipe"), True),
]


def main(quick: bool) -> None:
    """Measures everything and writes the page."""
    console = Console(stderr=True, width=200)
    record = {"rate": gemm_rate(), "rows": [], "growth": measure_growth(console)}
    draw_growth(record["growth"], DOCS / "figures" / "growth.png")
    for name, n, outputs, repeats, contenders, long in WORK:
        if quick and long:
            continue
        model, x = workload(name, n)
        row = {
            "workload": name,
            "n": n,
            "outputs": outputs,
            "flops": TangentKernel(model, outputs).plan(x).flops,
        }
        del model, x
        for contender in contenders:
            slow = contender == "recipe" and name in ("mlp", "resnet18")
            row[contender] = measure(contender, name, n, outputs, 1 if slow else repeats)
            console.print(f"{name} N={n} {outputs}: {contender} {row[contender]}")
        record["rate"] = max(record["rate"], gemm_rate())
        record["rows"].append(row)
        # After every row: what was measured stays, whatever happens next.
        (DOCS / "benchmarks.json").write_text(json.dumps(record, indent=1) + "\n")
        (DOCS / "benchmarks.md").write_text(page(record))
    console.print(f"wrote {DOCS / 'benchmarks.md'}")


if __name__ == "__main__":
    main("quick" in sys.argv[1:])
