"""What the runs of tensor programs say about their law."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from tangentkit.report import Claim, Column, Dots, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

STATISTICS = ("variance", "covariance", "bounded", "growing")
WORDS = {
    "variance": "a²",
    "covariance": "ab",
    "bounded": "cos(a) / (1 + e⁻ᵇ)",
    "growing": "exp((a + b)/4)",
}
"""Name -> ψ(a, b), of entries a and b of the vectors of the two samples."""
CHANCE = 0.05
"""The probability that some ψ of some network is beyond the bound of `largest_allowed` although the law holds."""
TERMS = {
    "tensor program": "a list of lines that make random vectors of n entries: Gaussian inputs, products with random "
    "matrices, entrywise functions, sums",
    "ψ": "a function of the entries of two vectors whose average over the entries is watched",
    "law": "the Gaussian law of the entries at infinite width, from the recursion of covariances",
    "NNGP": "the covariance of the outputs of an infinitely wide network (a Gaussian process)",
    "distance": "root mean square over runs and ψ of the average minus its limit, in standard deviations of ψ",
}


def report(
    records: Records, widths: Sequence[int], networks: Sequence[str], *, lost_kernels: str = ""
) -> Result:
    """Claims, table and figures.

    Args:
        records: of all trials.
        widths: rising.
        networks: the programs.
        lost_kernels: which kernels are missing, in words.
    """
    runs, kernels, ties = (records.having(name) for name in ("deviations", "kernel_gap", "share"))
    rows = Records([{**row, "distance": _rms(row["deviations"])} for row in runs])
    slopes = {network: _slopes(rows.where(network=network)) for network in networks}
    scores = {network: _pooled_scores(rows.where(network=network, width=widths[-1])) for network in networks}
    shares = {kind: tuple(ties.where(weights=kind).column("share")) for kind in ("same", "fresh")}
    mean = Measured.over([slope for each in slopes.values() for slope in each])
    single = ", ".join(f"{name} {Measured.over(each).value:.2f}" for name, each in slopes.items())
    return Result(
        answer=(
            "The averages of four kinds of random networks go to the limit of the recursion like "
            f"width^{mean.value:.2f} ({single}). At width "
            f"{widths[-1]:,} the largest of their {len(STATISTICS) * len(networks)} deviations, over all seeds "
            f"together, is {max((max(map(abs, each)) for each in scores.values() if each), default=np.nan):.1f} "
            "standard errors."
        ),
        claims=(
            *_rate_claims(slopes),
            *_agreement_claims(scores, runs, widths[-1]),
            *_kernel_claims(kernels, shares, lost_kernels),
        ),
        tables={
            "distances": _distances(rows, widths, networks),
            "limits": _limits(rows, widths[-1], networks),
        },
        figures=_figures(rows, networks, shares),
        stand_ins=(
            StandIn("programs", "any without transposes", "four small networks on two samples", "a theorem"),
        ),
        terms=TERMS,
        notes=(
            "The publication states that the averages converge almost surely. The rate is ours: entries of the last "
            "vector are nearly independent, so that the root of the width is to be expected, and the layers before "
            "add fluctuations of the same order. ψ of a single Gaussian has the distance width^-0.5 exactly; the "
            "table has the distance in that unit.",
            "The distance of few runs is itself uncertain, most for the CNN, whose four ψ go together. With 200 runs "
            "(100 at width 1,024) and three other seeds its distance times √width is 1.43, 1.44 and 1.45 at widths "
            "64, 256 and 1,024: the rate is the root of the width.",
            "Whether averages agree with the recursion is judged by all seeds together: the deviation of a seed's "
            "mean, in standard errors (from the scatter of the runs within seeds), summed over seeds over the root "
            "of their number. The largest of four such numbers is claimed to be below "
            f"{largest_allowed(len(networks)):.2f}, the bound for {len(STATISTICS) * len(networks)} scores together "
            "(Bonferroni's, by which one run in twenty at most has a larger one where the law holds). It stands "
            "once for every seed, so that its interval has no width. The rule came after the evening run: before, "
            "the mean over seeds of each seed's largest had to be below 3, which a bias of 1.5 standard errors in "
            "every seed would have passed; these means were 1.39 (MLP), 1.15 (CNN), 1.38 (residual) and 1.50 "
            "(recurrent).",
        ),
    )


def _rms(deviations: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(deviations, dtype=float)))))


def _slopes(rows: Records) -> tuple[float, ...]:
    """For each seed with two widths and more, the slope of log distance over log width."""
    return tuple(
        float(np.polyfit(np.log(own.column("width")), np.log(own.column("distance")), 1)[0])
        for own in rows.by("seed").values()
        if len(own.by("width")) > 1
    )


def _pooled_scores(rows: Records) -> tuple[float, ...]:
    """For each ψ the deviations of all seeds in standard errors, Σ z / √seeds; nothing without rows."""
    if not rows:
        return ()
    groups = [np.asarray(row["deviations"], dtype=float) for row in rows]
    within = np.mean([group.var(0, ddof=1) for group in groups], axis=0)
    z = np.array([group.mean(0) / np.sqrt(within / len(group)) for group in groups])
    return tuple((z.sum(0) / len(z) ** 0.5).tolist())


def largest_allowed(networks: int) -> float:
    """The bound on the |scores| of all ψ of so many networks, which chance passes in one run of twenty at most.

    Example:
        >>> largest_allowed(4)
        2.96
    """
    return round(float(-ndtri(CHANCE / 2 / (networks * len(STATISTICS)))), 2)


def _rate_claims(slopes: dict[str, tuple[float, ...]]) -> list[Claim]:
    return [
        Claim(
            f"{network}: averages over entries converge, with the root of the width",
            "slope of log distance over log width",
            values,
            low=-0.6,
            high=-0.4,
            published="almost sure convergence; the rate is not stated",
        )
        for network, values in slopes.items()
    ]


def _agreement_claims(scores: dict[str, tuple[float, ...]], runs: Records, width: int) -> list[Claim]:
    """One number for all seeds, which stands once for each of them."""
    bound = largest_allowed(len(scores))
    return [
        Claim(
            f"{network}: the averages agree with the recursion at width {width:,}",
            "largest deviation of four ψ, one number of all seeds together, in standard errors",
            (max(map(abs, own)),) * len(runs.where(network=network, width=width)) if own else (),
            high=bound,
            published=f"(1/n) Σ ψ(g) -> E ψ(Z); within {bound:.2f} standard errors is our rule (see notes)",
        )
        for network, own in scores.items()
    ]


def _kernel_claims(kernels: Records, shares: dict[str, tuple[float, ...]], lost: str) -> list[Claim]:
    rounding = float(np.finfo(float).eps)
    gaps = [max(rounding, *own.column("kernel_gap")) for own in kernels.by("seed").values()]
    return [
        Claim(
            "The covariances of the recursion are the NNGP kernel of the same layers",
            "log10 of the largest relative difference over MLP, CNN and residual network",
            tuple(float(np.log10(gap)) for gap in gaps),
            high=-4.0,
            published="the recursion contains the known kernels of wide networks",
            needs=lost,
        ),
        Claim(
            "Products with the same matrix are correlated as the recursion says",
            "covariance of W φ(h) and W φ(h') in samples over σ² E[φ φ']",
            shares["same"],
            low=0.95,
            high=1.05,
            published="σ² E[f f'] with the same matrix",
        ),
        Claim(
            "Products with two matrices are not correlated",
            "covariance of W φ(h) and W' φ(h') in samples over σ² E[φ φ']",
            shares["fresh"],
            low=-0.05,
            high=0.05,
            published="0 otherwise",
        ),
    ]


def _distances(rows: Records, widths: Sequence[int], networks: Sequence[str]) -> Table:
    def cell(network: str, width: int) -> Measured | None:
        own = rows.where(network=network, width=width)
        return Measured.over([value * width**0.5 for value in own.column("distance")]) if own else None

    return Table(
        "Distance times √width",
        ("network", *(Column(f"width {width:,}", ".2f") for width in widths)),
        tuple((network, *(cell(network, width) for width in widths)) for network in networks),
        note="1 for averages of independent draws of the limit; constant along a row where the rate is the root of "
        "the width. ± is the standard error over seeds.",
        ours=tuple(range(len(networks))),
    )


def _limits(rows: Records, width: int, networks: Sequence[str]) -> Table:
    """Averages and limits of the first seed at the largest width."""
    found = []
    for network in networks:
        for row in list(rows.where(network=network, width=width))[:1]:
            runs = len(row["deviations"])
            for i, name in enumerate(STATISTICS):
                deviations = np.asarray(row["deviations"], dtype=float)[:, i]
                scale = deviations.std(ddof=1) / runs**0.5
                found.append(
                    (network, WORDS[name], row["limits"][i], row["averages"][i], deviations.mean() / scale)
                )
    return Table(
        f"Averages over the entries and their limits, width {width:,}, first seed",
        (
            "network",
            "ψ(a, b)",
            Column("limit", ".4f"),
            Column("average", ".4f"),
            Column("standard errors apart", "+.1f"),
        ),
        tuple(found),
        note="a and b are entries of the last vectors of two samples; the average is over entries and runs.",
        ours=tuple(range(len(found))),
    )


def _figures(
    rows: Records, networks: Sequence[str], shares: dict[str, tuple[float, ...]]
) -> dict[str, Figure]:
    widths = np.array(sorted(rows.by("width")), dtype=float)
    return {
        "rates": Lines(
            title="Random networks go to their law",
            caption="Distance of averages over entries from the limit of the recursion, mean over seeds with its "
            "standard error (a thin band); the last line is that of independent entries.",
            series={
                **{name: Series(*rows.where(network=name).curve("width", "distance")) for name in networks},
                "width^-0.5": Series(widths, widths**-0.5),
            },
            x_label="width",
            y_label="distance",
            x_scale="log",
            y_scale="log",
            legend="beside",
        ),
        "ties": Dots(
            title="Only a shared matrix correlates two products",
            caption="Covariance of two products in samples, over that of the recursion with the same matrix.",
            values={f"{kind} matrix": values for kind, values in shares.items() if values},
            x_label="share of σ² E[φ φ']",
            size=(4.8, 2.2),
        ),
    }
