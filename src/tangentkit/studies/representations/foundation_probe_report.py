"""What the trials of the study of probes and fine-tuning say, beside the published numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np

from tangentkit.analysis.shift.figures import DensityContours, DensityCurves
from tangentkit.analysis.training_comparison import TrainingComparison
from tangentkit.report import Claim, Dots, Figure, Histogram, StandIn
from tangentkit.studies.representations.foundation_probe_notes import TERMS, notes
from tangentkit.studies.representations.foundation_probe_tables import (
    PUBLISHED,
    SIZES,
    accuracy_table,
    filter_table,
    ks_table,
    label_table,
    shift_table,
)
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

PUBLISHED_TWEETS, PUBLISHED_EPOCHS = 18_000, 10
"""Of P to fine-tune on, about the published numbers: with fewer of either no claim about that is decided."""
SEPARATED = 0.9
"""The AUC from which two samples count as clearly separated."""
SEPARATING = ("gpt2", "falcon-7b")
"""Models of which the publication says so, as Hugging Face names them."""
SIGNIFICANT = 0.05
"""The p-value below which accuracies count as different."""
NO_HELP = 0.02
NO_CHANGE = 0.05


def report(records: Records, settings: Mapping[str, Any]) -> Result:
    """Tables, figures and claims."""
    ways = {way: records.where(way=way) for way in PUBLISHED}
    of = {name: records.where(of=name) for name in ("pre-trained", "random")}
    compared = comparison(ways)
    return Result(
        answer=_answer(ways, of),
        claims=(*_probe_claims(ways, compared, settings), *_shift_claims(of, settings["model"])),
        tables={
            "accuracies": accuracy_table(ways, compared),
            "tests": ks_table(compared),
            "shift": shift_table(of),
            "filters": filter_table(of["pre-trained"]),
            "labels": label_table(records.having("conflicts")),
        },
        figures=_figures(compared, of["pre-trained"]),
        stand_ins=_stand_ins(settings),
        terms=TERMS,
        notes=notes(settings, ways["FT on P"], of["pre-trained"]),
    )


def comparison(ways: Mapping[str, Records]) -> TrainingComparison:
    """The accuracies of all ways that have any."""
    found = {way: rows for way, rows in ways.items() if rows}
    test, train = (
        {way: tuple(rows.column(part)) for way, rows in found.items()} for part in ("test", "train")
    )
    return TrainingComparison(test=test, train=train, seconds={}, sizes=SIZES)


def dependent(values: Sequence[float]) -> tuple[float, ...]:
    """Values of shuffles, spread about their mean so that Student's interval is that of Nadeau and Bengio.

    Of r shuffles the variance of the mean is (1/r + n_test/n_train) s², and not s²/r.

    Example:
        >>> [round(value, 3) for value in dependent([0.0, 1.0])], dependent([0.5])
        ([-0.09, 1.09], (0.5,))
    """
    mean = float(np.mean(values)) if values else math.nan
    wider = math.sqrt(1 + len(values) * SIZES[1] / SIZES[0])
    return tuple(mean + wider * (value - mean) for value in values)


def paired(ways: Mapping[str, Records], first: str, second: str, part: str = "test") -> list[float]:
    """Differences of an accuracy between two ways on the same shuffles; "gap" is train minus test."""

    def values(way: str) -> dict[int, float]:
        return {row["seed"]: row["train"] - row["test"] if part == "gap" else row[part] for row in ways[way]}

    ours, theirs = values(first), values(second)
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def _probe_claims(
    ways: Mapping[str, Records], compared: TrainingComparison, settings: Mapping[str, Any]
) -> tuple[Claim, ...]:
    longer = _longer_tuning_on_p(settings)
    claims = (
        Claim(
            "A linear probe of the pre-trained model is better than one of random features",
            "test accuracy of LP minus that of random features",
            dependent(paired(ways, "LP", "random")),
            low=0.0,
            published="86.3 against 57.8 %",
        ),
        Claim(
            "A linear probe is better on test than fine-tuning on the same tweets",
            "test accuracy of LP minus that of FT on M",
            dependent(paired(ways, "LP", "FT on M")),
            low=0.0,
            published="86.3 against 83.7 %",
        ),
        Claim(
            "Fine-tuning on M overfits more than the probe",
            "train minus test accuracy, FT on M minus LP",
            dependent(paired(ways, "FT on M", "LP", "gap")),
            low=0.0,
            published="a gap of 16.2 points against 9.0",
        ),
        Claim(
            "A probe on 300 tweets of M is better than fine-tuning on many tweets of P",
            "test accuracy of LP minus that of FT on P",
            dependent(paired(ways, "LP", "FT on P")),
            low=0.0,
            published="86.3 against 84.1 % with 20,000 tweets of P",
            needs=longer,
        ),
        Claim(
            "Test accuracies of the probe and of fine-tuning on P differ by the Kolmogorov-Smirnov test",
            f"p of one two-sided test between {_count(compared, 'LP')} shuffles of LP and "
            f"{_count(compared, 'FT on P')} of FT on P, taken for independent as published",
            _p_values(compared),
            high=SIGNIFICANT,
            published="p = 0.007 of 50 shuffles each; p below 0.05 counts as different",
            needs=longer,
        ),
    )
    more = (
        "more shuffles (--tuned 50, as published) or more hand-labeled tweets: shuffles of the same 359 depend on "
        "each other, and more of them help ever less"
    )
    return tuple(
        replace(claim, needs=more) if claim.verdict == "not decided" and not claim.needs else claim
        for claim in claims
    )


def _longer_tuning_on_p(settings: Mapping[str, Any]) -> str:
    """What fine-tuning on P lacks of the published one, as options; nothing if it has all."""
    asked = {"tweets": PUBLISHED_TWEETS, "tweet_epochs": PUBLISHED_EPOCHS}
    options = [
        f"--{name.replace('_', '-')} {value}" for name, value in asked.items() if settings[name] < value
    ]
    return f"fine-tuning on P for as long as published: {' '.join(options)}" if options else ""


def _count(compared: TrainingComparison, way: str) -> int:
    return len(compared.test.get(way, ()))


def _p_values(compared: TrainingComparison) -> tuple[float, ...]:
    """The p-value, once for each shuffle of the fewer: one number, which has no spread."""
    fewer = min(_count(compared, way) for way in ("LP", "FT on P"))
    return (compared.ks("LP", "FT on P").p_value,) * fewer if fewer else ()


def _shift_claims(of: Mapping[str, Records], model: str) -> tuple[Claim, ...]:
    ours, random = of["pre-trained"], of["random"]
    both = Records([*ours, *random])
    claims = (
        Claim(
            "The first two principal components of the pre-trained model separate P and M clearly",
            "AUC on two components",
            tuple(ours.column("auc_two")),
            low=SEPARATED,
            published="clearly separated contours (GPT-2 and Falcon-7B; BERT-base does not separate them)",
            needs="" if PurePath(model).name in SEPARATING else "GPT-2 or Falcon-7B: --model gpt2",
        ),
        Claim(
            "The first two principal components of random weights do not separate P and M",
            "AUC on two components of random weights, minus that of one half of P against the other",
            tuple(row["auc_two"] - row["auc_control"] for row in random),
            high=NO_CHANGE,
            published="random weights do not separate them",
        ),
        Claim(
            "The pre-trained model separates P and M better than random weights do",
            "AUC on two components, pre-trained minus random",
            tuple(both.paired("auc_two", "of", "pre-trained", "random")),
            low=0.0,
            published="random weights do not separate them",
        ),
        Claim(
            "Filtering unclear tweets out of P does not bring it nearer to M",
            "AUC of filtered P against M minus that of a random half of P, on the components of all of P and M",
            tuple(row["clear_auc"] - row["half_auc"] for row in ours),
            low=-NO_CHANGE,
            high=NO_CHANGE,
            published="no visible change of the densities",
        ),
        Claim(
            "Filtering unclear tweets out of P does not help a probe that is trained on it",
            "gain of test accuracy on M over as many random tweets of P",
            tuple(ours.column("clear_gain")),
            high=NO_HELP,
            published="training on filtered P does not help",
        ),
    )
    more = "more draws of P (--tuned), or more tweets in each (--compared)"
    return tuple(
        replace(claim, needs=more) if claim.verdict == "not decided" and not claim.needs else claim
        for claim in claims
    )


def _answer(ways: Mapping[str, Records], of: Mapping[str, Records]) -> str:
    accuracies = ", ".join(
        f"{PUBLISHED[way][0]} {rows.mean('test'):.1%}" for way, rows in ways.items() if rows
    )
    areas = " and ".join(f"{rows.mean('auc_two'):.2f} ({name})" for name, rows in of.items() if rows)
    return (
        f"Test accuracy on hand-labeled tweets: {accuracies or 'no trial was finished'}. The AUC of P against M on "
        f"two principal components is {areas or 'not known'}."
    )


def _figures(compared: TrainingComparison, shifted: Records) -> dict[str, Figure]:
    shown = shifted.having("scores")
    found: dict[str, Figure] = {}
    if shown:
        scores = {name: np.asarray(points, dtype=float) for name, points in shown[0]["scores"].items()}
        pair = {name: points for name, points in scores.items() if name != "P, clear"}
        found["contours"] = DensityContours(
            title="P and M on two principal components",
            caption="Kernel density estimates (Scott's rule) of tweets of P and of M as the pre-trained model embeds "
            "them, one draw (Figure 13a).",
            samples=pair,
            x_label="component 1",
            y_label="component 2",
        )
        found["density"] = DensityCurves(
            title="P, filtered P and M on the first component",
            caption="The same along the first component, and of the half of P that a judge is surest of (Figures 12 "
            "and 14).",
            samples={name: points[:, :1] for name, points in scores.items()},
            x_label="component 1",
        )
    found["accuracies"] = Dots(
        title="Test accuracy on hand-labeled tweets",
        caption="One dot for each shuffle; the mean with Student's interval, which takes shuffles for independent.",
        values=compared.test or {"none": ()},
        x_label="test accuracy",
    )
    if {"random", "LP", "FT on P"} & set(compared.test):
        found["histogram"] = _histogram(compared)
    if {"LP", "FT on P"} <= set(compared.test):
        found["qq"] = _quantiles(compared)
    return found


def _histogram(compared: TrainingComparison) -> Figure:
    """Figure 13b. A bin holds two of the accuracies that 59 tweets allow: edges are halfway between."""
    samples = {way: compared.test[way] for way in ("random", "LP", "FT on P") if way in compared.test}
    right = SIZES[1] * np.concatenate([*samples.values()])
    return Histogram(
        title="Test accuracy, as histograms",
        caption="Of all shuffles, each histogram of area 1; dashed lines are the published means (Figure 13b).",
        samples=samples,
        bins=(np.arange(np.floor(right.min()), right.max() + 2, 2) - 0.5) / SIZES[1],
        levels={way: PUBLISHED[way][2][0] for way in samples},
        x_label="test accuracy",
        y_label="density",
    )


def _quantiles(compared: TrainingComparison) -> Figure:
    """Q-Q of two ways that may differ in their number of shuffles, at as many probabilities as the fewer have."""
    both = {way: np.asarray(compared.test[way]) for way in ("LP", "FT on P")}
    fewer = min(map(len, both.values()))
    at = (np.arange(fewer) + 0.5) / fewer
    equal = {way: tuple(np.quantile(values, at, method="hazen").tolist()) for way, values in both.items()}
    return TrainingComparison(test=equal, train={}, seconds={}, sizes=SIZES).qq_figure("LP", "FT on P")


def _stand_ins(settings: Mapping[str, Any]) -> tuple[StandIn, ...]:
    model, layers, width = settings["model"], settings["random_layers"], settings["random_width"]
    published = PurePath(model).name == "gpt2"
    return (
        StandIn(
            "model",
            "GPT-2 (124 million parameters)",
            model,
            "" if published else "GPT-2 has to be downloaded: --model gpt2, or the folder that holds it",
        ),
        StandIn(
            "vector of a tweet",
            "final hidden vector (of which token is not said)",
            f"{settings['pooling']} over the last layer, of {settings['length']} tokens at most",
        ),
        StandIn(
            "random features",
            "GPT-2 (12 layers, 768 wide), weights from a truncated normal law of deviation 0.02",
            f"GPT-2 of {layers} layers, {width} wide, with the tokens of {model}; {settings['networks']} draws",
            "" if (layers, width) == (12, 768) else "time",
        ),
        StandIn(
            "fine-tuning",
            "10 epochs, 50 shuffles of M; 20,000 tweets of P",
            f"{settings['epochs']} epochs, {settings['tuned']} shuffles of M; {settings['tweets']:,} tweets of P, "
            f"epochs of these: {settings['tweet_epochs']}",
            "time; --scale full" if _longer_tuning_on_p(settings) else "",
        ),
        StandIn(
            "other models (Figure 15)",
            "BERT-base, RoBERTa-base, Falcon-1B, Falcon-7B",
            "none",
            "each takes a run of its own: tangentkit run foundation-probe --model NAME",
        ),
    )
