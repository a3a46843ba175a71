"""How many directions a network's tangent space has: the spectrum of its Jacobian over width.

LeNet×k at its initialization, m images, 10 outputs: the Jacobian J has 10 m rows, and the eigenvalues of
K = J Jᵀ are the squares of its singular values.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tangentkit import TangentKernel, gram, spectrum
from tangentkit.core.seeds import Key
from tangentkit.linalg import effective_rank
from tangentkit.models import lenet
from tangentkit.report import Claim, Column, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.linearization.images import drawn_images, in_words
from tangentkit.studies.trials.data import cards, first_here
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.per_seed import missing_trials, needing, whole_seeds
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

PUBLISHED_SAMPLES = 600
QUANTILES = np.linspace(0, 1, 41)
"""Where the distribution of singular values is kept."""
LOW = 0.5
"""A rank far below the full one: less than half of it."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of tangent ranks."""

    data: tuple[str, ...] = ("mnist", "fashion-mini")
    """The images, in order of preference."""
    samples: int = 60
    """Images m; the Jacobian has 10 m rows."""
    widths: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """The k of LeNet×k, rising."""
    shift: int = 7
    """How far shifted images are moved, in pixels, at least 1."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own images and its own initialization."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)


SCALES = {
    "quick": Config(),
    "evening": Config(samples=300, widths=(1.0, 2.0, 5.0, 10.0)),
    "full": Config(samples=PUBLISHED_SAMPLES, widths=(1.0, 2.0, 5.0, 10.0, 25.0, 60.0)),
}


def trials(config: Config) -> list[Trial]:
    """One for each width, data and seed."""
    over = {"width": config.widths, "shift": (0, config.shift), "seed": config.seeds}
    return sweep(measure, over, data=first_here(config.data), samples=config.samples)


def measure(*, width: float, shift: int, seed: int, data: str, samples: int) -> dict[str, Any]:
    """The singular values of the Jacobian of a network that was just initialized, in float64.

    In float32 rounding would stand at √ε, 3e-4 of the largest singular value, where the small ones are.
    """
    key = Key(seed).fold("tangent-rank")
    images, _ = drawn_images(data, samples, 1, shift, key.fold("images"))
    classes = len(images.classes)
    channels, size = images.inputs.shape[1:3]
    network = lenet(width, channels=channels, size=size, outputs=classes, seed=key.fold("network")).double()
    K = gram(TangentKernel(network, "full"), images.inputs.double(), progress=False)
    found = spectrum(K, of="jacobian")
    seen = found.values[found.values > math.sqrt(found.noise)]
    levels = torch.quantile(seen.log10(), torch.from_numpy(QUANTILES).to(seen))
    return {
        "rows": K.shape[0],
        "parameters": sum(p.numel() for p in network.parameters()),
        "rank": len(seen),
        "rank_jacobian": effective_rank(seen),
        "rank_kernel": effective_rank(seen.square()),
        "largest": float(seen[0]),
        "smallest": float(seen[-1]),
        "levels": levels.float().numpy(),
        "data_cards": cards(data, splits=("train",)),
    }


def result(config: Config, records: Records) -> Result:
    """Ranks and conditions over width."""
    data = records[0]["data"] if records else config.data[0]
    names = {shift: in_words(data, shift) for shift in (0, config.shift)}
    claims = _claims(config, records, names)
    return Result(
        answer=_answer(config, records, names),
        claims=claims,
        tables={"spectra": _table(records, names)},
        figures=_figures(config, records, names),
        stand_ins=_stand_ins(config, data),
        terms={
            "effective rank": "exp of the entropy of the singular values as shares of their sum: the number of "
            "directions that matter",
            "condition": "the largest singular value over the smallest that does not vanish",
        },
        notes=(
            "The publication does not say whether its effective rank is of the singular values of the Jacobian or of "
            "the kernel matrix J Jᵀ, whose eigenvalues are their squares; both are shown, and they differ much.",
            "The share of the full rank falls with the number of images, so that few images say nothing of the "
            "published 600. One try with 600 images of MNIST (6,000 rows), plain and shifted: effective rank of J "
            "2,620 and 3,021 at ×1, 3,662 and 4,024 at ×5; of J Jᵀ 75 and 123, 149 and 263. So the rank is far below "
            "the full one when it is read as that of J Jᵀ; as that of J it is above half of it from ×5 on.",
            "Shifted images had the higher rank in every try, also at 600 images: a higher rank of the tangent "
            "features does not make a task easier for the linearization (see width-gap).",
            "The publication prints no numbers for these figures. Its right-hand panel (AlexNet on snakes of "
            "ImageNet) is not run: the images are not to be had.",
        ),
    )


def _claims(config: Config, records: Records, names: dict[int, str]) -> tuple[Claim, ...]:
    first, last = config.widths[0], config.widths[-1]
    seeds = whole_seeds(records, tasks=len(config.widths) * len(names))
    missing = missing_trials(records, config.seeds, width=config.widths, shift=tuple(names))
    few = config.samples < PUBLISHED_SAMPLES
    claims = [
        needing(
            Claim(
                f"The effective rank of the {what} is far below the full rank at every width",
                f"largest share of the full rank over widths and data ({what})",
                tuple(max(row[rank] / row["rows"] for row in rows) for rows in seeds),
                high=LOW,
                published="far below 6,000 at all widths (no numbers printed)",
                needs=f"{PUBLISHED_SAMPLES} images, as published: --scale full" if few else "",
            ),
            missing,
        )
        for what, rank in (("Jacobian", "rank_jacobian"), ("kernel", "rank_kernel"))
    ]
    for shift, name in names.items():
        some = records.where(shift=shift)
        claims += [
            Claim(
                f"The effective rank grows with width ({name})",
                f"ln of the rank at ×{last:g} over that at ×{first:g}",
                _growth(some, "rank_jacobian", first, last),
                low=0.0,
                published="increases with width",
            ),
            Claim(
                f"A wider network has larger small singular values ({name})",
                f"ln of the smallest singular value at ×{last:g} over that at ×{first:g}",
                _growth(some, "smallest", first, last),
                low=0.0,
                published="larger width raises the smallest singular values",
            ),
            Claim(
                f"A wider network is better conditioned ({name})",
                f"ln of the condition at ×{last:g} over that at ×{first:g}",
                _growth(some, "condition", first, last),
                high=0.0,
                published="larger width lowers largest over smallest",
            ),
        ]
    return (*claims, _weaker(config, records, names))


def _weaker(config: Config, records: Records, names: dict[int, str]) -> Claim:
    first, last = config.widths[0], config.widths[-1]
    plain, moved = (
        dict(_growth_by_seed(records.where(shift=shift), "rank_jacobian", first, last)) for shift in names
    )
    return Claim(
        "The rank grows less with width where digits are shifted",
        "growth (ln) on plain images minus that on shifted ones",
        tuple(plain[seed] - moved[seed] for seed in plain if seed in moved),
        low=0.0,
        published="the increase is weaker for shifted digits",
    )


def _growth(records: Records, name: str, first: float, last: float) -> tuple[float, ...]:
    return tuple(growth for _, growth in _growth_by_seed(records, name, first, last))


def _growth_by_seed(records: Records, name: str, first: float, last: float) -> list[tuple[int, float]]:
    """Seed and ln of a value at the last width over that at the first, of the seeds that have both."""
    found = []
    for seed, rows in records.by("seed").items():
        at = {row["width"]: _value(row, name) for row in rows}
        if first in at and last in at:
            found.append((seed, math.log(at[last] / at[first])))
    return found


def _value(row: Any, name: str) -> float:
    return row["largest"] / row["smallest"] if name == "condition" else row[name]


def _answer(config: Config, records: Records, names: dict[int, str]) -> str:
    def at(shift: int, width: float) -> str:
        return f"{records.where(shift=shift, width=width).mean('rank_jacobian'):.0f}"

    first, last = config.widths[0], config.widths[-1]
    ranks = "; ".join(
        f"{name}: {at(shift, first)} at ×{first:g}, {at(shift, last)} at ×{last:g}"
        for shift, name in names.items()
    )
    return (
        f"With {config.samples} images and 10 outputs the Jacobian of LeNet×k has {10 * config.samples:,} rows, and "
        f"an effective rank of ({ranks})."
    )


def _table(records: Records, names: dict[int, str]) -> Table:
    rows = tuple(
        (
            names.get(shift, str(shift)),
            f"×{width:g}",
            some[0]["parameters"],
            some[0]["rows"],
            *(
                Measured.over(some.column(name))
                for name in ("rank_jacobian", "rank_kernel", "largest", "smallest")
            ),
            Measured.over([_value(row, "condition") for row in some]),
        )
        for shift, shifted in records.by("shift").items()
        for width, some in shifted.by("width").items()
    )
    return Table(
        "Singular values of the Jacobian (mean and standard error over seeds)",
        (
            "data",
            "width",
            "parameters",
            "full rank",
            Column("effective rank of J", ".1f"),
            Column("effective rank of J Jᵀ", ".1f"),
            Column("largest", ".1f"),
            Column("smallest", ".3f"),
            Column("condition", ".1f"),
        ),
        rows,
        note="The publication shows curves without numbers.",
    )


def _figures(config: Config, records: Records, names: dict[int, str]) -> dict[str, Figure]:
    ranks = {
        f"{names[shift]}, {what}": Series(*some.curve("width", rank))
        for what, rank in (("J", "rank_jacobian"), ("J Jᵀ", "rank_kernel"))
        for shift, some in records.by("shift").items()
    }
    levels = {
        f"×{width:g}{', shifted' * (shift > 0)}": Series(np.mean(some.column("levels"), 0), QUANTILES)
        for shift, shifted in records.by("shift").items()
        for width, some in shifted.by("width").items()
        if width in (config.widths[0], config.widths[-1])
    }
    return {
        "ranks": Lines(
            title="Effective rank over width",
            caption="The effective rank of J, and of J Jᵀ, over the width factor; bands are standard errors. The "
            f" full rank is {10 * config.samples:,} (dashed).",
            series=ranks,
            x_label="width factor k",
            y_label="effective rank",
            x_scale="log",
            level=10 * config.samples,
            legend="beside",
            size=(6.4, 3.2),
        ),
        "singular-values": Lines(
            title="Distribution of singular values",
            caption="The share of singular values of J below a value, for the narrowest and the widest network: "
            "how far width moves the small values and the large ones.",
            series=levels,
            x_label="log10 of the singular value",
            y_label="share of singular values below",
            markers=False,
            legend="beside",
            size=(6.4, 3.2),
        ),
    }


def _stand_ins(config: Config, data: str) -> tuple[StandIn, ...]:
    return (
        StandIn("data", "MNIST", data, "" if data == "mnist" else "MNIST is not on this machine"),
        StandIn(
            "size",
            f"{PUBLISHED_SAMPLES} images, LeNet×1 to ×60",
            f"{config.samples} images, LeNet×{config.widths[0]:g} to ×{config.widths[-1]:g}",
            "" if config.samples == PUBLISHED_SAMPLES else "time; --scale full is the published size",
        ),
        StandIn(
            "shift",
            "up to 7 pixels, either way and in both directions; its law is not said",
            f"whole pixels from -{config.shift} to {config.shift}, uniform, once for each image",
        ),
    )
