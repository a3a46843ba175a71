"""A training step of the linearized network beside a step of the network, ours and neural-tangents'."""

import sys
from pathlib import Path

from rich.console import Console

from benchmarks.measure import peer_python, run

GOAL = 3.0
"""A step of the linearization costs at most so many steps of the network, on LeNet."""
WORK = [
    # workload, samples of a step, whether it takes minutes
    ("lenet", 32, False),
    ("lenet", 128, False),
    ("lenet", 512, False),
    ("mlp", 128, False),
    ("transformer", 64, False),
    ("resnet18", 32, True),
]
PEER = ("lenet", "mlp")
"""Workloads that neural-tangents has too."""
RECIPE = (("lenet", 32), ("lenet", 128))
"""Steps of which a whole Jacobian fits in memory."""


def measure(quick: bool, console: Console) -> dict:
    """Times of steps, taken in turn in one process for each library, and memory of each kind of step alone."""
    repeats = "7" if quick else "25"
    rows = []
    for name, n, long in WORK:
        if quick and long:
            continue
        kinds = ["network", "linearized", *(["recipe"] if (name, n) in RECIPE else [])]
        row: dict = {"workload": name, "n": n, "ours": _torch(kinds, name, n, repeats)}
        row["peak"] = {kind: _peak(_torch([kind], name, n, "3")) for kind in kinds}
        if name in PEER:
            python = peer_python()
            script = Path(__file__).parent / "neural_tangents_contender.py"
            row["neural-tangents"] = (
                run([python, script, name, str(n), repeats]) if python else "not installed"
            )
        console.print(f"linearized, {name} N={n}: {row}")
        rows.append(row)
    return {"rows": rows}


def section(record: dict) -> str:
    """The table."""
    lines = [
        "## Training the linearized network",
        "",
        "One step of SGD on the mean cross-entropy, of the network and of its linearization, taken in turn in one",
        f"process. The goal is a linearized step of at most {GOAL:g} network steps on LeNet. The recipe builds the",
        "Jacobian by `vmap(jacrev)`: one backward pass for each output.",
        "",
        "| model | batch | network | linearized | ratio | recipe | neural-tangents |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        ours, peak = row["ours"], row["peak"]
        cells = [row["workload"], str(row["n"])]
        if isinstance(ours, str):
            cells += [ours, "", "", ""]
        else:
            ratio = ours["linearized"] / ours["network"]
            goal = (
                f" → {'goal reached' if ratio <= GOAL else 'goal NOT reached'}"
                if row["workload"] == "lenet"
                else ""
            )
            cells += [_cell(ours["network"], peak["network"]), _cell(ours["linearized"], peak["linearized"])]
            cells.append(f"{ratio:.2f}x{goal}")
            cells.append(
                f"{_cell(ours['recipe'], peak['recipe'])} ({ours['recipe'] / ours['linearized']:.1f}x)"
                if "recipe" in ours
                else "–"
            )
        cells.append(_peer(row.get("neural-tangents", "–")))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _torch(kinds: list[str], name: str, n: int, repeats: str) -> dict | str:
    command = [
        sys.executable,
        "-m",
        "benchmarks.linearized.contender",
        ",".join(kinds),
        name,
        str(n),
        repeats,
    ]
    return run(command)


def _peak(found: dict | str) -> float | None:
    return found["peak"] if isinstance(found, dict) else None


def _cell(seconds: float, peak: float | None) -> str:
    return f"{1e3 * seconds:.1f} ms" + (f", {peak / 1e9:.2f} GB" if peak else "")


def _peer(found: dict | str) -> str:
    if isinstance(found, str):
        return found
    ratio = found["linearized"] / found["network"]
    return f"{1e3 * found['network']:.1f} ms and {1e3 * found['linearized']:.1f} ms: {ratio:.2f}x"
