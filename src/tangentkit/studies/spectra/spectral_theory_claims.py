"""The claims of the theory of spectra: how they are judged."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tangentkit.report import Claim
from tangentkit.studies.trials.records import Records

NAMES = {"W": "‖W_t - W_0‖_F/√d", "CK": "‖CK_t - CK_0‖_F", "NTK": "‖NTK_t - NTK_0‖"}
"""What drifts -> how its distance is written."""
LARGE, FLAT = 200, 0.1
"""n from which on the slope of n times a distance is judged, and what it must stay below: O(1/n) is 0 or less, in the
limit of large n."""
PER_STEP = 20
"""n for each step of training from which on a larger slope speaks against O(1/n); at smaller n it may be that the
network has learned, and has slowed down."""
CONVERGED = 1e-5
"""The loss at which training ends."""


def large(rows: Records, least: int = LARGE) -> Records:
    """The networks on which slopes are judged."""
    return Records([row for row in rows if row["samples"] >= least])


def slopes(rows: Records, name: str, place: int = 0) -> tuple[float, ...]:
    """For each seed with two sizes and more, the slope of log distance over log n."""
    found = []
    for own in rows.by("seed").values():
        if len(own.by("samples")) > 1:
            distances = [row["distances"][place][name] for row in own]
            found.append(float(np.polyfit(np.log(own.column("samples")), np.log(distances), 1)[0]))
    return tuple(found)


def largest_converged(rows: Records) -> float | None:
    """The largest rate at which every seed reached the loss at which training ends."""

    def converged(row: Any) -> bool:
        return not row["diverged"] and row["loss"] <= CONVERGED

    return max((rate for rate, own in rows.by("rate").items() if all(map(converged, own))), default=None)


def lemma_claim(rows: Records, name: str, moments: tuple[int, int], place: int) -> Claim:
    """That a distance is O(1/n) at a moment; n that are small beside t may show that it holds, and refute nothing."""
    t = moments[place]
    limit = max(LARGE, PER_STEP * t)
    least = limit if len(large(rows, limit).by("samples")) > 1 else LARGE
    claim = Claim(
        f"Lemma 4.1{' after more steps' if place else ''}: {NAMES[name]} is O(1/n)",
        f"slope of the logarithm of n times the distance over that of n, t = {t}, n at least {least}",
        tuple(slope + 1 for slope in slopes(large(rows, least), name, place)),
        high=FLAT,
        published="O(1/n), of which the slope is 0 or less",
    )
    is_judged = claim.values and (least == limit or claim.verdict == "holds")
    return claim if is_judged else replace(claim, needs=f"two n of {limit} or more: --samples")


def theory_claims(rows: Records, bound: float, largest: int, lost: Sequence[str]) -> list[Claim]:
    """That the residual falls, and that the smallest eigenvalue is large, as guaranteed.

    Args:
        rows: of all networks.
        bound: of the smallest eigenvalue.
        largest: n at which it is judged.
        lost: which networks are missing, of all sizes and of the largest, in words.
    """
    return [
        Claim(
            "Theorem 4.2: the residual falls at least as fast as guaranteed, at every step and size",
            "least ratio of log(‖r_0‖/‖r_t‖) to -t log(1 - η α²/(2n))",
            tuple(_per_seed(rows, "decay")),
            low=1.0,
            published="‖y - f_t‖ ≤ (1 - η α²/(2n))^t ‖y - f_0‖",
            needs=lost[0],
        ),
        Claim(
            f"The smallest eigenvalue of the initial NTK is above its bound at n = {largest}",
            "least ratio of the eigenvalue to a_σ - η_0² - η_1² - η_2² over networks",
            tuple(value / bound for value in _per_seed(rows.where(samples=largest), "smallest")),
            low=1.0,
            published="λ_min ≥ a_σ - Σ η_k², k = 0, 1, 2, as n grows",
            needs=lost[1],
        ),
    ]


def tail_claims(adagrad: Records, tails: Records, rate: float | None) -> list[Claim]:
    """That AdaGrad makes heavy tails, here at one rate, and that those of Cauchy weights do not suffice."""
    words = "no rate converged" if rate is None else f"at rate {rate:g}, the largest that converged"
    return [
        *(
            Claim(
                f"AdaGrad makes a heavy tail of {name}: more than one eigenvalue leaves the edge",
                f"eigenvalues of {name} beyond the edge, {words}",
                tuple(map(float, adagrad.column(f"beyond_{name}"))),
                low=1.0,
                published="heavy tails with adaptive optimizers, AdaGrad too; a spike would be one",
            )
            for name in ("W", "CK")
        ),
        Claim(
            "Cauchy weights give the CK a heavier tail than Gaussian ones",
            "Hill exponent of the initial CK, Gaussian minus Cauchy",
            tuple(tails.paired("initial_hill_CK", "weights", "Gaussian", "Cauchy")),
            low=0.0,
            published="both spectra are shown in Figure 21 c, without numbers; the rule is our reading",
        ),
        Claim(
            "Heavy tails do not suffice: SGD from Cauchy weights generalizes worse than from Gaussian ones",
            "test error, Cauchy minus Gaussian",
            tuple(tails.paired("error", "weights", "Cauchy", "Gaussian")),
            low=0.0,
            published="test error 1.47504, R² -0.48 (Figure 21 d)",
        ),
        Claim(
            "... although the weights still have their heavy tail after training",
            "Hill exponent of the trained W, Gaussian minus Cauchy",
            tuple(tails.paired("final_hill_W", "weights", "Gaussian", "Cauchy")),
            low=0.0,
            published="heavy-tailed W after SGD (Figure 21 d)",
        ),
    ]


def _per_seed(rows: Records, name: str) -> list[float]:
    """For each seed the least value over its trials."""
    return [min(own.column(name)) for own in rows.by("seed").values()]
