"""`make bench`: every suite against the obvious version and the peers, in one run.

`python -m benchmarks [SUITE ...] [quick]` writes docs/benchmarks/SUITE.json for each suite, and the page
docs/benchmarks.md from all records that are there. `quick` leaves out what takes minutes.
"""

import json
import platform
import sys
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.measure import gemm_rate

DOCS = Path(__file__).resolve().parent.parent / "docs"
SUITES = ("tangent", "infinite", "sketch", "linearized", "machines", "classifiers", "store", "analysis")
HEAD = """# Benchmarks

Made by `make bench`; every contender runs in a process of its own. Times are the best of the repeats, memory is the
peak resident memory of the process. In brackets: how many times faster ours is; an arrow marks the goal we set
ourselves, reached or not.
"""


def records(suite: str, quick: bool, console: Console) -> Iterator[dict]:
    """What a suite measures, as it grows: what was measured stays, whatever happens next."""
    found = import_module(f"benchmarks.{suite}").measure(quick, console)
    yield from [found] if isinstance(found, dict) else found


def page() -> str:
    """The page, from all records that are there."""
    sections = [HEAD]
    for suite in SUITES:
        path = DOCS / "benchmarks" / f"{suite}.json"
        if path.exists():
            record = json.loads(path.read_text())
            made = "Measured on {date}, {threads} threads, a matrix product at {gemm:.0f} GFLOP/s.".format(
                **record["machine"]
            )
            sections += [import_module(f"benchmarks.{suite}").section(record).strip(), "", made, ""]
    return "\n".join(sections)


def main(suites: list[str], quick: bool) -> None:
    """Measures the suites and writes the page."""
    console = Console(stderr=True, width=200)
    for suite in suites:
        machine = {
            "date": date.today().isoformat(),
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "gemm": gemm_rate() / 1e9,
        }
        for record in records(suite, quick, console):
            machine["gemm"] = max(machine["gemm"], record.get("rate", 0) / 1e9)
            (DOCS / "benchmarks").mkdir(exist_ok=True)
            (DOCS / "benchmarks" / f"{suite}.json").write_text(
                json.dumps(record | {"machine": machine}, indent=1) + "\n"
            )
            (DOCS / "benchmarks.md").write_text(page())
    console.print(f"wrote {DOCS / 'benchmarks.md'}")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "quick"]
    if unknown := set(words) - set(SUITES):
        sys.exit(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    here = [suite for suite in SUITES if (Path(__file__).parent / suite / "__init__.py").exists()]
    main(words or here, "quick" in sys.argv[1:])
