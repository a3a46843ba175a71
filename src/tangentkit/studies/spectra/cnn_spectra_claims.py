"""The claims about the spectra of a CNN: which networks they are about, and by what a tail is measured."""

from dataclasses import replace
from typing import Any

import numpy as np

from tangentkit.linalg.spectra.tails import Hill
from tangentkit.report import Claim
from tangentkit.studies.trials.records import Records

PUBLISHED = {"GD": 79.0, "SGD": 84.0, "Adam": 86.4}
"""Way of training -> published test accuracy in percent."""
PUBLISHED_DATA = "CIFAR-10"
ORDER = (("SGD", "GD"), ("Adam", "SGD"))
"""Of which the first is said to be ahead of the second."""
LEARNED = 2.0
"""A network has learned whose training loss is at most this many times the one that is asked for."""
TAILS = {
    "rescaled": "eigenvalues beyond the initial edge at the initial trace",
    "rest": "eigenvalues beyond the initial edge at the initial trace without the first eigenvalue",
    "exponent": "Hill exponent",
}
"""What measures a tail -> what it is in words; the smaller the exponent, the heavier."""


def with_tails(rows: Records) -> Records:
    """The rows with all measures of their tails."""
    return Records([{**row, **_tail(row)} for row in rows])


def _tail(row: Any) -> dict[str, float]:
    before, after = np.asarray(row["spectra"], dtype=float)
    return {
        "rescaled": beyond_rescaled(row),
        "rest": beyond_rescaled(row, first=1),
        "exponent": row["hill"][1],
        "lighter": row["hill"][1] - row["hill"][0],
        "lighter_rest": Hill().alpha(after[1:]) - Hill().alpha(before[1:]),
    }


def beyond_rescaled(row: Any, first: int = 0) -> int:
    """Eigenvalues beyond the initial edge after the trained spectrum is scaled to the initial trace.

    Args:
        row: with the spectra before and after.
        first: how many of the largest eigenvalues both traces leave out.

    Example:
        >>> beyond_rescaled({"spectra": [[9.0, 2.0, 1.0], [90.0, 20.0, 10.0]]})
        0
        >>> row = {"spectra": [[9.0, 2.0, 1.0], [6.0, 4.0, 2.0]]}
        >>> beyond_rescaled(row), beyond_rescaled(row, first=1)
        (1, 0)
    """
    before, after = np.asarray(row["spectra"], dtype=float)
    scale = before[first:].sum() / after[first:].sum()
    return int((after[1:] * scale > before[1]).sum())


def learned(rows: Records, limit: float) -> Records:
    """The networks that claims are about."""
    return Records([row for row in rows if row["train_loss"] <= limit])


def spectra_claims(rows: Records, limit: float) -> tuple[Claim, ...]:
    """Better, heavier and further beyond the edge from GD to SGD to Adam, and a power law after Adam."""
    return (
        *(
            _ahead(
                rows,
                limit,
                Claim(
                    f"The network generalizes better after {one} than after {other}",
                    "test accuracy in percentage points",
                    (),
                    low=0.0,
                    published=f"{PUBLISHED[one]:g} % against {PUBLISHED[other]:g} %",
                ),
                ("accuracy", one, other),
            )
            for one, other in ORDER
        ),
        *(_agreed(tail_claims(rows, limit, one, other)) for one, other in ORDER),
        *(
            _ahead(
                rows,
                limit,
                Claim(
                    f"More eigenvalues pass the initial edge after {one} than after {other}",
                    "eigenvalues beyond the initial edge",
                    (),
                    low=0.0,
                    published="raw eigenvalues are shown, whose tail is heavier from GD to SGD to Adam",
                ),
                ("beyond", one, other),
            )
            for one, other in ORDER
        ),
        _power_law(learned(rows, limit).where(way="Adam"), limit),
    )


def tail_claims(rows: Records, limit: float, one: str, other: str) -> list[Claim]:
    """That the tail is heavier after one way of training than after another, by each measure."""
    return [
        _ahead(
            rows,
            limit,
            Claim(
                f"The tail of the NTK is heavier after {one} than after {other}",
                words,
                (),
                low=0.0,
                published="heavier from GD to SGD to Adam",
            ),
            (name, other, one) if name == "exponent" else (name, one, other),
        )
        for name, words in TAILS.items()
    ]


def _ahead(rows: Records, limit: float, claim: Claim, difference: tuple[str, str, str]) -> Claim:
    """The claim, of seeds with which both ways have learned; with too few of all seeds, and not decided.

    Args:
        rows: of all networks.
        limit: the training loss of a network that has learned.
        claim: without values, its quantity what is compared.
        difference: a number of a row, and the ways of which the second is subtracted from the first.
    """
    name, first, second = difference
    words = f"{claim.quantity}, {first} minus {second}"
    compared = learned(rows, limit).paired(name, "way", first, second)
    if len(compared) > 1:
        return replace(claim, quantity=f"{words}, seeds with which both have learned", values=tuple(compared))
    more = "--gd-epochs" if "GD" in (first, second) else "--epochs, or a larger --width"
    return replace(
        claim,
        quantity=f"{words}, all seeds",
        values=tuple(rows.paired(name, "way", first, second)),
        needs=f"networks of both that learn, to a training loss of {limit:g} or less: more {more}",
    )


def _power_law(rows: Records, limit: float) -> Claim:
    """That the tail after Adam fits a heavier power law than before, with and without the first eigenvalue."""
    claims = [
        Claim(
            "After Adam the largest tenth of the eigenvalues fits a heavier power law than before",
            f"Hill exponent{without}, before minus after, networks that have learned",
            tuple(-value for value in rows.column(name)),
            low=0.0,
            published="a heavy tail after Adam; no exponent is given",
            needs=""
            if len(rows) > 1
            else f"networks that learn, to a training loss of {limit:g}: more --epochs",
        )
        for name, without in (("lighter", ""), ("lighter_rest", " without the first eigenvalue"))
    ]
    return _agreed(claims)


def _agreed(claims: list[Claim]) -> Claim:
    """The first of claims that say the same by several measures; not decided where their verdicts differ."""
    if len({claim.verdict for claim in claims}) == 1:
        return claims[0]
    says = {"not decided": "is not decided"}
    words = "; ".join(
        f"by {claim.quantity.split(',')[0]} it {says.get(claim.verdict, claim.verdict)}" for claim in claims
    )
    return replace(claims[0], needs=f"measures that agree, or one that is published: {words}")
