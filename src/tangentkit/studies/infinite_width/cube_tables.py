"""Tables and figures of the study of the Boolean cube."""

from typing import Any

import numpy as np

from tangentkit.report import Column, Lines, Measured, Series, Table
from tangentkit.studies.infinite_width.cube_trials import NETWORKS, SHOWN, SMALL
from tangentkit.studies.trials.records import Records

PARTS = {
    "relu": {"": slice(1, None)},
    "erf": {", odd": slice(1, None, 2), ", even": slice(2, None, 2)},
}
"""Degrees that are drawn as one curve: odd and even ones go apart with erf, which is an odd function."""


def shares_table(records: Records) -> Table:
    """Shares by degree: exact, of random networks, of draws."""
    exact, networks, process = map(records.having, ("shares", "network_shares", "process_shares"))
    rows: list[tuple[Any, ...]] = []
    for row in exact:
        rows += [(name, *shares[:6]) for name, shares in row["shares"].items() if "depth 32" not in name]
    for kind, group in networks.by("kind").items():
        rows.append(
            (
                f"{kind}, depth 2, networks of width 40",
                *(Measured.over([r["network_shares"][k] for r in group]) for k in range(6)),
            )
        )
    if process:
        rows.append(
            (
                "ReLU(2, 2), depth 2, draws",
                *(Measured.over([r["process_shares"][k] for r in process]) for k in range(6)),
            )
        )
    return Table(
        "Share of the variance by degree, d = 7",
        ("kernel", *(Column(f"degree {k}", ".4f") for k in range(6))),
        tuple(rows),
        note="Published for the CK of ReLU(2, 2): more than 80 % in degree 0.",
        ours=tuple(range(len(rows))),
    )


def depth_table(records: Records, *, d: int, top: int) -> Table:
    """Best depths, and how often the NTK is above the CK, degree by degree."""
    rows: list[tuple[Any, ...]] = []
    for row in records.having("best_depth"):
        name = row["activation"]
        rows += [
            (f"{name}: best depth, {kernel}", *map(int, values))
            for kernel, values in row["best_depth"].items()
        ]
        rows += [
            (f"{name}: NTK above CK", *row["ntk_above"]),
            (f"{name}: the same without the filter", *row["ntk_above_unfiltered"]),
        ]
    return Table(
        f"Depths and degrees, d = {d}",
        ("quantity", *(Column(f"degree {k}", ".2f") for k in range(top + 1))),
        tuple(rows),
        note="Best depth: of the largest share of that degree over all variances. NTK above CK: share of settings.",
        ours=tuple(range(len(rows))),
    )


def space_table(records: Records) -> Table:
    """Eigenvalues on the cube and for Gaussian points over those on the sphere."""
    rows: list[tuple[Any, ...]] = []
    for row in records.having("sphere"):
        d, sphere = row["dimension"], row["sphere"]
        rows.append(
            (f"cube, d = {d}", *(ours / theirs for ours, theirs in zip(row["cube"], sphere, strict=True)))
        )
        group = records.having("gaussian").where(dimension=d)
        if group:
            rows.append(
                (
                    f"Gaussian, d = {d}",
                    *(Measured.over([r["gaussian"][k] / sphere[k] for r in group]) for k in (0, 1)),
                    None,
                    None,
                )
            )
    return Table(
        "Eigenvalues over those of the sphere, NTK of ReLU(2, 1), depth 2",
        ("points", *(Column(f"degree {k}", ".4f") for k in range(4))),
        tuple(rows),
        ours=tuple(range(len(rows))),
    )


def figures(records: Records, *, d: int, top: int) -> dict[str, Lines]:
    """Depths first: the picture of the index."""
    exact, networks = records.having("shares"), records.having("network_shares")
    depth_rows = records.having("best_depth")
    ranks = {
        kind: np.mean(
            [np.pad(row["frequencies"], (0, SHOWN - len(row["frequencies"]))) for row in group], axis=0
        )
        for kind, group in networks.by("kind").items()
    }
    return {
        "depths": Lines(
            title="Higher degrees ask for more depth",
            caption=f"The depth with the largest share of each degree, over all variances, d = {d}.",
            series={
                f"{row['activation']}, {kernel}{part}": Series(range(top + 1)[degrees], values[degrees])
                for row in depth_rows
                for kernel, values in row["best_depth"].items()
                for part, degrees in PARTS[row["activation"]].items()
            },
            x_label="degree",
            y_label="best depth",
            legend="beside",
        ),
        "shares": Lines(
            title="Share of the variance by degree, d = 7, CK of depth 2",
            caption="Exact, at infinite width. ReLU prefers constants; erf without biases has odd degrees only.",
            series={
                kind: Series(range(SMALL + 1), row["shares"][f"{kind}, depth 2, CK"])
                for row in exact
                for kind in NETWORKS
            },
            x_label="degree",
            y_label="share",
            legend="beside",
        ),
        "functions": Lines(
            title="Boolean functions of random networks by rank",
            caption="How often the most frequent functions come, mean over seeds, networks 7-40-40-1.",
            series={
                kind: Series(np.arange(1, SHOWN + 1)[values > 0], values[values > 0])
                for kind, values in ranks.items()
            },
            x_label="rank",
            y_label="frequency",
            x_scale="log",
            y_scale="log",
            legend="beside",
        ),
        "ntk-above-ck": Lines(
            title="Settings in which the NTK gives a degree more than the CK",
            caption="As published, with the filter of the eigenvalue above 1e-15 of the trace.",
            series={row["activation"]: Series(range(top + 1), row["ntk_above"]) for row in depth_rows},
            x_label="degree",
            y_label="share of settings",
            legend="beside",
        ),
    }
