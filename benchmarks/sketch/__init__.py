"""Sketches: error over dim on trained models, CPU time and memory.

The sentences of CoLA are looked for where `tangentkit.data` looks (TANGENTKIT_DATA), the weights of MiniLM in the
package that `workloads.MINILM` names; a model whose data is missing has a row that says so.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from benchmarks.measure import run
from benchmarks.sketch.tables import section as section
from benchmarks.sketch.workloads import LARGE, TRAINED

TIMES = [
    # contender, workload, outputs, repeats, whether it takes minutes
    ("tensor", "linear", "pseudo", 7, False),
    ("dense", "linear", "pseudo", 1, True),
    ("passes", "resnet18", "pseudo", 3, False),
    ("auto", "resnet18", "pseudo", 3, False),
    ("passes", "resnet18", "trace", 1, True),
    ("auto", "resnet18", "trace", 1, True),
]
DIMS = (512, 2048, 8192)
SEEDS = 8
"""Where one eigenvalue dominates, the error of a seed is mostly one random number: means over 8 are good to 25 %."""


def measure(quick: bool, console: Console) -> Iterator[dict]:
    """Records that grow row by row."""
    record: dict = {"times": [], "errors": []}
    for contender, workload, outputs, repeats, long in TIMES:
        if quick and long:
            continue
        arguments = [contender, workload, outputs, str(repeats)]
        found = run([sys.executable, "-m", "benchmarks.sketch.contender", *arguments])
        console.print(f"{' '.join(arguments)}: {found}")
        record["times"].append(
            {"contender": contender, "workload": workload, "outputs": outputs, "found": found}
        )
        yield record
    cases = [(name, dim) for name in TRAINED for dim in DIMS if dim == DIMS[0] or name not in LARGE]
    cases, seeds = ([(name, DIMS[0]) for name in TRAINED[:2]], 2) if quick else (cases, SEEDS)
    # Errors are the same in company, and what is told of time is CPU seconds of one thread.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, dim), found in zip(
            cases, pool.map(lambda case: _errors(*case, seeds), cases), strict=True
        ):
            console.print(f"{name} {dim}: {found}")
            record["errors"].append({"model": name, "dim": dim, "found": found})
            yield record


def _errors(name: str, dim: int, seeds: int) -> dict | str:
    return run([sys.executable, "-m", "benchmarks.sketch.accuracy", name, str(dim), str(seeds)])
