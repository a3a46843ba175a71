"""Spectra, alignment, tracking and attribution: what they cost beside the dense or obvious way, in one run."""

import sys
from statistics import median

from rich.console import Console

from benchmarks.measure import run

ROUNDS = 3
SIZES = {
    True: {"eigenvalues": 2_000, "alignment": 1_000, "tracker": 10_000, "attribution": 2_000, "overlap": 500},
    False: {
        "eigenvalues": 5_000,
        "alignment": 10_000,
        "tracker": 10_000,
        "attribution": 10_000,
        "overlap": 1_000,
    },
}
"""Samples of each work: a quick trial, and the run."""
PAIRS = {
    "eigenvalues-float32": ("ours-falling", "eigh-falling", "ours-flat", "eigh-flat"),
    "eigenvalues-float64": ("ours-falling", "eigh-falling", "ours-flat", "eigh-flat"),
    "alignment": ("ours", "matrix", "jacobian"),
    "tracker": ("tracker", "training"),
    "attribution": ("fit", "ours", "trak"),
    "overlap": ("256", "1024", "4096"),
}
"""Work -> who does it, in turns."""
ONCE = ("alignment", "overlap")
"""Works of which memory or accuracy is asked: one round says it."""


def measure(quick: bool, console: Console):
    """Yields the record after each work."""
    sizes, record = SIZES[quick], {"sizes": SIZES[quick], "works": {}}
    for work, names in PAIRS.items():
        found: dict = {name: [] for name in names}
        for _ in range(1 if work in ONCE else ROUNDS):
            for name in names:
                command = [sys.executable, "-m", "benchmarks.analysis.contender", work, name]
                got = run([*command, str(sizes[work.split("-")[0]])])
                console.print(f"{work} {name}: {got}")
                if isinstance(got, dict):
                    found[name].append(got)
        record["works"][work] = found
        yield record


def section(record: dict) -> str:
    """The section of the page, in markdown."""
    sizes, works = record["sizes"], record["works"]
    rows = [row for work, found in works.items() for row in ROWS[work.split("-")[0]](work, found, sizes)]
    return "\n".join(
        [
            "## Analysis and attribution",
            "",
            "Medians of rounds in turns, each in a process of its own. Times are those of the processor, since the",
            "machine had other work; both sides of a ratio have the same number of threads.",
            "",
            "| work | ours | beside | ratio |",
            "|---|---|---|---|",
            *rows,
            "",
            "Flat is the spectrum of a Gaussian matrix (Marchenko-Pastur), the hardest for an iteration. The tracker",
            "is beside an epoch in batches of 64; its first three measurements, which also plan the work, are",
            "not counted. TRAK's scores are its formula in plain matrix products, with the inverse made before.",
            "Alignments have one thread; their memory is what the process grows by, beside samples and functions.",
            "",
        ]
    )


def _middle(runs: list[dict], what: str = "processor") -> float:
    return median(one[what] for one in runs) if runs else float("nan")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _judged(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


def _eigenvalues(work: str, found: dict, sizes: dict) -> list[str]:
    n, rows = sizes["eigenvalues"], []
    for kind in ("falling", "flat"):
        ours, full = found[f"ours-{kind}"], found[f"eigh-{kind}"]
        if not ours or not full:
            continue
        ratio = _middle(full) / _middle(ours)
        goal = f" → 10x {_judged(ratio >= 10)}" if kind == "falling" else ""
        cells = [
            f"{_middle(side):.2f} s, residual {_middle(side, 'residual'):.0e} λ₁" for side in (ours, full)
        ]
        what = f"top 50 eigenpairs of {n:,} x {n:,}, {work.split('-')[1]}, {kind} spectrum"
        rows.append(_row(what, cells[0], f"`eigh`: {cells[1]}", f"{ratio:.1f}x as fast{goal}"))
    return rows


def _alignment(work: str, found: dict, sizes: dict) -> list[str]:  # noqa: ARG001
    n, ours = sizes["alignment"], found["ours"]
    what = f"target alignment of {n // 10:,} functions on {n:,} samples, LeNet of one output"
    rows = []
    for name, words in (("matrix", "by the matrix"), ("jacobian", "by Jacobian rows")):
        cells = [
            f"{_middle(side):.0f} s, {_middle(side, 'grown') / 1e6:,.0f} MB" for side in (ours, found[name])
        ]
        ratio = _middle(found[name], "grown") / _middle(ours, "grown")
        rows.append(
            _row(
                what,
                cells[0],
                f"{words}: {cells[1]}",
                f"{ratio:.1f}x less memory → 10x {_judged(ratio >= 10)}",
            )
        )
    return rows


def _tracker(work: str, found: dict, sizes: dict) -> list[str]:  # noqa: ARG001
    ours, training = _middle(found["tracker"]), _middle(found["training"])
    share = ours / training
    what = f"tracker, top 20 of 256 samples every epoch, LeNet on {sizes['tracker']:,} images"
    return [
        _row(
            what, f"{ours:.2f} s", f"an epoch: {training:.2f} s", f"{share:.1%} → 10 % {_judged(share < 0.1)}"
        )
    ]


def _attribution(work: str, found: dict, sizes: dict) -> list[str]:  # noqa: ARG001
    n, fit = f"{sizes['attribution']:,}", found["fit"]
    seconds, peak = _middle(fit, "seconds"), _middle(fit, "peak")
    within = f"60 s {_judged(seconds <= 60)}, 2 GB {_judged(peak <= 2e9)}"
    first = (
        [
            _row(
                f"fit and top 50, {n} x 1,000 x 10, 4,096 features",
                f"{seconds:.0f} s (wall), {peak / 1e9:.2f} GB",
                "",
                within,
            )
        ]
        if fit
        else []
    )
    rates = [found[name][0]["scores"] / _middle(found[name]) / 1e6 for name in ("ours", "trak")]
    cells = [f"{rate:.0f} million scores a second" for rate in rates]
    ratio = rates[0] / rates[1]
    return [
        *first,
        _row(
            "scores from these features",
            cells[0],
            f"TRAK: {cells[1]}",
            f"{ratio:.2f} → 1 {_judged(ratio >= 1)}",
        ),
    ]


def _overlap(work: str, found: dict, sizes: dict) -> list[str]:  # noqa: ARG001
    shares = [f"{name}: {one['overlap']:.0%} ± {one['error']:.0%}" for name, (one, *_) in found.items()]
    what = f"top 10 of the exact kernel that a sketch has, an MLP on {sizes['overlap']:,} images, by features"
    return [_row(what, ", ".join(shares), "", "")]


ROWS = {
    "eigenvalues": _eigenvalues,
    "alignment": _alignment,
    "tracker": _tracker,
    "attribution": _attribution,
    "overlap": _overlap,
}
