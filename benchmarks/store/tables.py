"""The section of the page."""

from benchmarks.store.simulation import assumptions, lines

WRITING, WORKERS, OVERHEAD = 1.5, 1.6, 0.020


def section(record: dict) -> str:
    """Markdown."""
    return "\n".join(
        [
            "## Gram matrices on disk",
            "",
            *_writing(record["writing"]),
            *_overhead(record["overhead"]),
            *_workers(record["workers"]),
            *_simulation(record),
        ]
    )


def _verdict(reached: bool) -> str:
    return "goal reached" if reached else "goal NOT reached"


def _writing(found: dict | str) -> list[str]:
    if isinstance(found, str):
        return [f"Writing: {found}.", ""]
    n, raw = found["n"], found["raw"]
    rows = [
        ("Serial", "serial", raw),
        ("Threads(2)", "threads", raw),
        ("symmetric: half of it", "half", raw / 2),
    ]
    out = [
        f"A {n:,} x {n:,} float32 kernel of {found['features']} features, {4 * n * n / 1e9:.1f} GB, against one",
        f"matrix product and one file of the same bytes ({raw:.2f} s); goal: within {WRITING}x. To hash the samples",
        "and to store the features are part of our time.",
        "",
        "| | seconds | ratio | |",
        "|---|---|---|---|",
    ]
    for words, name, against in rows:
        ratio = found[name] / against
        out.append(f"| {words} | {found[name]:.2f} | {ratio:.2f} | {_verdict(ratio <= WRITING)} |")
    return [*out, ""]


def _overhead(found: dict | str) -> list[str]:
    if isinstance(found, str):
        return [f"Overhead: {found}.", ""]
    cells = [
        f"{name} {found[name] * 1e3:.1f} ms ({_verdict(found[name] < OVERHEAD)})"
        for name in ("serial", "dask")
    ]
    return [
        f"Overhead of a tile ({found['tiles']} tiles that cost nothing to compute; goal: below "
        f"{OVERHEAD * 1e3:.0f} ms): {', '.join(cells)}.",
        "",
    ]


def _workers(found: dict | str) -> list[str]:
    if isinstance(found, str):
        return [f"Workers: {found}.", ""]
    one, two = found["1 workers"], found["2 workers"]
    peak = max(found["peak of 1"], found["peak of 2"])
    return [
        f"Trace kernel of LeNet, N = {found['n']}, tiles of {found['tile']}: one Dask worker {one:.1f} s, two "
        f"{two:.1f} s, {one / two:.2f}x ({_verdict(one / two >= WORKERS)}: {WORKERS}x), best of three in turns.",
        *([found["note"]] if "note" in found else []),
        f"Peak memory of a worker {peak / 1e9:.2f} GB of {found['limit'] / 1e9:.2f} GB allowed, "
        f"{max(found['idle of 1'], found['idle of 2']) / 1e9:.2f} GB of it before any work "
        f"({_verdict(peak <= found['limit'])}).",
        "",
    ]


def _simulation(record: dict) -> list[str]:
    if "simulation" not in record:
        return []
    return [
        "### Extrapolated: many workers",
        "",
        "Simulated, not run. Tile times are those of one core of this machine; the time of the scheduler for a tile",
        f"is the overhead above. Assumed: {assumptions()}. In brackets: the share of the ideal, and failures.",
        "",
        *lines(record["simulation"]),
        "",
    ]
