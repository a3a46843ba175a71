"""The trials of the study of probes and fine-tuning: linear heads, tuned networks, and two sources compared."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor, nn

from tangentkit.analysis.shift.comparison import DistributionComparison, compare_distributions
from tangentkit.analysis.training_comparison import compare_training
from tangentkit.analysis.training_ways import redrawn
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train
from tangentkit.machines import refit_last_layer
from tangentkit.studies.trials.data import cards, whole
from tangentkit.studies.trials.text_models import (
    Pooling,
    TextClassifier,
    embeddings,
    pretrained,
    random_gpt2,
    share_cut,
    tokens,
    vocabulary,
)
from tangentkit.studies.trials.trial import revision

DATA = "sentiment140"
TRAINED = 300
"""Tweets of M that are trained on; the other 59 are the test."""
TEN_EPOCHS = Training(10, 1e-3, optimizer="adam", batch=16, loss="cross-entropy")
"""Logistic regression as published, by ten epochs; its rate is not stated."""
CLEAR = 0.5
"""The share of P whose sentiment a judge is surest of."""
SPLITS = 10
"""Of M, for the judges of one draw of P."""
PERMUTATIONS = 199
HELD = 2
"""Networks, and vectors of theirs, that a process holds at a time."""
SHOWN = 400
"""Points of either sample that a record keeps for the figures."""


@revision(4)
def probe(*, seed: int, model: str, pooling: Pooling, length: int) -> dict[str, Any]:
    """LP on the pre-trained model, on one shuffle of M."""
    found = _probes(_vectors_of_m(model, pooling, length), seed)
    return {"way": "LP", **found, "data_cards": cards(DATA, splits=("P", "M"))}


@revision(4)
def random_probe(
    *, seed: int, network: int, layers: int, width: int, model: str, pooling: Pooling, length: int
) -> dict[str, Any]:
    """LP on a GPT-2 with random weights, on one shuffle of M."""
    gpt2 = _random_network(network, layers, width, model, pooling, length)
    return {"way": "random", **_probes(_vectors(gpt2, model, "M", length), seed)}


def tune_on_m(
    *, seed: int, epochs: int, rate: float, model: str, pooling: Pooling, length: int
) -> dict[str, Any]:
    """FT on the same shuffle of M as the probe of this seed."""
    M = whole(DATA, "M")
    network = TextClassifier(pretrained(model), pooling, _key(seed).fold("head"))
    found = compare_training(
        network,
        (tokens(model, M.inputs, length), M.targets),
        ["fine-tune"],
        repeats=1,
        seed=seed,
        train_share=TRAINED / len(M),
        training=Training(epochs, rate, optimizer="adam", batch=16, loss="cross-entropy"),
    )
    return {"way": "FT on M", "train": found.train["fine-tune"][0], "test": found.test["fine-tune"][0]}


def tune_on_p(
    *, seed: int, tweets: int, epochs: int, rate: float, model: str, pooling: Pooling, length: int
) -> dict[str, Any]:
    """FT on tweets of P, tested on all of M; the epoch is the best on other tweets of P."""
    key = _key(seed).fold("P")
    ours, rest = whole(DATA, "P").partition(tweets, key=key.fold("train"))
    held, _ = rest.partition(max(2, tweets // 10), key=key.fold("held out"))
    sets = {
        name: (tokens(model, part.inputs, length), part.targets)
        for name, part in {"ours": ours, "held": held, "M": whole(DATA, "M")}.items()
    }
    network = TextClassifier(pretrained(model), pooling, _key(seed).fold("head"))
    settings = Training(epochs, rate, optimizer="adam", batch=16, loss="cross-entropy")
    watch = {name: sets[name] for name in ("held", "M")}
    history = train(network, *sets["ours"], settings, key=key.fold("order"), watch=watch)
    best = max(history.rows, key=lambda row: row["held accuracy"])
    return {
        "way": "FT on P",
        "train": best["train accuracy"],
        "held": best["held accuracy"],
        "test": best["M accuracy"],
    }


@revision(4)
def shift(
    *, seed: int, compared: int, shown: int, model: str, pooling: Pooling, length: int
) -> dict[str, Any]:
    """P against M by the pre-trained model; P filtered; and probes that are trained on P."""
    network = _pretrained_network(model, pooling)
    P, P_labels = _drawn_of_p(network, seed, compared, model, length)
    M, M_labels = _vectors_of_m(model, pooling, length), whole(DATA, "M").targets
    two = compare_distributions(P, M, seed=seed, components=2, permutations=PERMUTATIONS)
    clear, gain = _judged(P, P_labels, M, M_labels, seed)
    half = torch.randperm(compared, generator=_key(seed).fold("random half").torch())[: len(clear)]
    dense = torch.from_numpy(two.filtered(share=0.8))
    both_labels = len(P_labels[dense].unique()) == 2
    draw = _key(seed).fold("as many").torch()
    scores = {
        "P": two.scores[:compared],
        "P, clear": two.scores[:compared][clear.numpy()],
        "M": two.scores[compared:],
    }
    return {
        "of": "pre-trained",
        **_told_apart(P, M, two, seed),
        "probe_of_p": _right(_head(P, P_labels), M, M_labels),
        "clear_gain": gain,
        "clear_auc": _auc_of(clear, two, seed),
        "half_auc": _auc_of(half, two, seed),
        "dense_share": len(dense) / len(P),
        "dense_gain": _gain(dense, P, P_labels, M, M_labels, draw) if both_labels else None,
        "cut": {name: share_cut(model, whole(DATA, name).inputs, length) for name in ("P", "M")},
        **({"scores": {name: _some(points) for name, points in scores.items()}} if seed == shown else {}),
    }


@revision(2)
def random_shift(
    *,
    seed: int,
    network: int,
    compared: int,
    layers: int,
    width: int,
    model: str,
    pooling: Pooling,
    length: int,
) -> dict[str, Any]:
    """P against M by a GPT-2 with random weights."""
    gpt2 = _random_network(network, layers, width, model, pooling, length)
    P, _ = _drawn_of_p(gpt2, seed, compared, model, length)
    M = _vectors(gpt2, model, "M", length)
    two = compare_distributions(P, M, seed=seed, components=2, permutations=PERMUTATIONS)
    return {"of": "random", **_told_apart(P, M, two, seed)}


def _key(seed: int) -> Key:
    return Key(seed).fold("foundation-probe")


@lru_cache(HELD)
def _pretrained_network(model: str, pooling: Pooling) -> TextClassifier:
    return TextClassifier(pretrained(model), pooling, Key(0))


@lru_cache(HELD)
def _random_network(
    network: int, layers: int, width: int, model: str, pooling: Pooling, length: int
) -> TextClassifier:
    key = _key(network).fold("random")
    gpt2 = random_gpt2(vocabulary(model), layers=layers, width=width, length=length, key=key)
    return TextClassifier(gpt2, pooling, key)


@lru_cache(HELD)
def _vectors(network: TextClassifier, model: str, split: str, length: int) -> Tensor:
    return embeddings(network, tokens(model, whole(DATA, split).inputs, length))


def _vectors_of_m(model: str, pooling: Pooling, length: int) -> Tensor:
    return _vectors(_pretrained_network(model, pooling), model, "M", length)


def _drawn_of_p(
    network: TextClassifier, seed: int, compared: int, model: str, length: int
) -> tuple[Tensor, Tensor]:
    """Vectors and labels of tweets of P, as many of either label."""
    P, _ = whole(DATA, "P").partition(compared, key=_key(seed).fold("compared"))
    return embeddings(network, tokens(model, P.inputs, length)), P.targets


def _probes(vectors: Tensor, seed: int) -> dict[str, float]:
    """Accuracies of the best linear head, and of one trained for ten epochs, on one shuffle of M."""
    y = whole(DATA, "M").targets
    head = nn.Sequential(redrawn(nn.Linear(vectors.shape[1], 2), _key(seed).fold("head")))
    found = compare_training(
        head,
        (vectors, y),
        ["probe", "fine-tune"],
        repeats=1,
        seed=seed,
        train_share=TRAINED / len(y),
        training=TEN_EPOCHS,
    )
    return {
        "train": found.train["probe"][0],
        "test": found.test["probe"][0],
        "train_ten_epochs": found.train["fine-tune"][0],
        "test_ten_epochs": found.test["fine-tune"][0],
    }


def _told_apart(P: Tensor, M: Tensor, two: DistributionComparison, seed: int) -> dict[str, float]:
    """How well two, 20 and all components tell P from M; and, for comparison, one half of P from the other."""
    many = compare_distributions(P, M, seed=seed, permutations=19)
    order = torch.randperm(len(P), generator=_key(seed).fold("halves").torch())
    halves = order.tensor_split(2)
    control = compare_distributions(P[halves[0]], P[halves[1]], seed=seed, components=2, permutations=19)
    return {
        "auc_two": two.auc.value,
        "auc_many": many.auc.value,
        "auc_control": control.auc.value,
        "p_value": two.p_value,
        "ks_first": two.components[0].statistic,
        "ks_second": two.components[1].statistic if len(two.components) > 1 else 0.0,
        **_told_apart_by_all(P, M, seed),
    }


def _told_apart_by_all(P: Tensor, M: Tensor, seed: int) -> dict[str, float]:
    """AUC and accuracy, the mean of those on P and on M, of a linear classifier on whole vectors, cross-validated.

    It is Fisher's discriminant with the covariance of Ledoit and Wolf, which leaves nothing to choose.
    """
    x, is_P = torch.cat([P, M]).double().numpy(), np.repeat([True, False], [len(P), len(M)])
    machine = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])
    folds = StratifiedKFold(5, shuffle=True, random_state=_key(seed).fold("folds").entropy % 2**32)
    found = np.asarray(cross_val_predict(machine, x, is_P, cv=folds, method="decision_function"))
    return {
        "auc_all": float(roc_auc_score(is_P, found)),
        "accuracy_all": float(balanced_accuracy_score(is_P, found > 0)),
    }


def _auc_of(rows: Tensor, two: DistributionComparison, seed: int) -> float:
    """The AUC of some tweets of P against M on the two components of all of P and M.

    Components of the few tweets and M alone would be others, and AUC on them differ for that.
    """
    P, M = np.split(two.scores, two.sizes[:1])
    return compare_distributions(P[rows.numpy()], M, seed=seed, components=2, permutations=19).auc.value


def _some(points: np.ndarray) -> np.ndarray:
    """At most so many points as a record keeps, spread over all: labels come one after the other."""
    return points[:: -(-len(points) // SHOWN)].astype(np.float32)


def _head(x: Tensor, y: Tensor) -> nn.Module:
    """The best linear head for some vectors."""
    return refit_last_layer(nn.Sequential(nn.Linear(x.shape[1], 2)), x, y)


@torch.no_grad()
def _right(head: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((head(x).argmax(1) == y).double().mean())


def _gain(
    rows: Tensor, P: Tensor, P_labels: Tensor, M: Tensor, M_labels: Tensor, draw: torch.Generator
) -> float:
    """What a probe of some tweets of P is better by on M than one of as many random tweets."""
    others = torch.randperm(len(P), generator=draw)[: len(rows)]
    ours, theirs = (_right(_head(P[some], P_labels[some]), M, M_labels) for some in (rows, others))
    return ours - theirs


def _judged(P: Tensor, P_labels: Tensor, M: Tensor, M_labels: Tensor, seed: int) -> tuple[Tensor, float]:
    """Filters P by judges, each a probe of 300 tweets of M, to the tweets that it is surest of.

    Returns:
        the rows of these tweets for the first judge; and what probes of them gain on the tweets of M that the judge
        has not seen, in the mean over judges.
    """
    clear, gains = [], []
    for split in range(SPLITS):
        draw = _key(seed).fold("judge", split).torch()
        inside, outside = torch.randperm(len(M), generator=draw).split([TRAINED, len(M) - TRAINED])
        with torch.no_grad():
            sure = _head(M[inside], M_labels[inside])(P).softmax(1).amax(1)
        clear.append(sure.topk(int(CLEAR * len(P))).indices)
        gains.append(_gain(clear[-1], P, P_labels, M[outside], M_labels[outside], draw))
    return clear[0], float(np.mean(gains))
