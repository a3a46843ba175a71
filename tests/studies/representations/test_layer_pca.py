"""The study of principal components: its claims on records made by hand, and its trial against plain numpy."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import is_here
from tangentkit.models import cifar_resnet
from tangentkit.models.checkpoints import CIFAR_RESNET_MEAN, CIFAR_RESNET_STD
from tangentkit.report import Ramp, image
from tangentkit.studies.representations import layer_pca
from tangentkit.studies.representations.layer_pca import Config, looked_at, probe, result, trained, trials
from tangentkit.studies.representations.layer_pca_claims import (
    collapse,
    half,
    hunch,
    late_gain,
    late_gap,
    neighbor_fall,
    svm_lead,
    svm_trend,
)
from tangentkit.studies.trials.data import drawn
from tangentkit.studies.trials.records import Records

DIMS = [1, 2, 10, 100, 200]
CONFIG = Config(train=20_000, most=200)
CHECKPOINTS = Path(os.environ.get("TANGENTKIT_DATA", "nowhere")) / "models" / "cifar10_resnet"


def curve(needed: int, best: float, last: float) -> list[float]:
    """Accuracies over DIMS: 90 % of the best from `needed` on, the best at 100 components, another at the last."""
    return [0.95 * best if d >= needed else 0.3 * best for d in DIMS[:-2]] + [best, last]


def layers(published: bool, shift: float) -> list[dict]:
    """Ten layers as the publication describes them, or the other way round."""
    found = []
    for i in range(10):
        late = i > 4
        middle = 3 <= i <= 6
        if published:
            svm, ncc = (10 if i < 5 else 2), (10 if middle else 2)
            ends = {"10-NN": 0.5, "nearest center": 0.7, "linear SVM": 0.95}
            best = {"10-NN": 0.7, "nearest center": 0.7, "linear SVM": 0.9}
        else:
            svm, ncc = (1 if i < 5 else 10), (1 if middle else 10)
            ends = {"10-NN": 0.5 if late else 0.85, "nearest center": 0.75, "linear SVM": 0.5}
            best = {"10-NN": 0.8, "nearest center": 0.7, "linear SVM": 0.6}
        if late and published:
            best = ends = dict.fromkeys(best, 0.93)
        needed = {
            "10-NN": svm,
            "nearest center": ncc,
            "linear SVM": svm + (i < 5 and published) * (90 - 10 * i),
        }
        found.append(
            {
                "name": f"block{i}",
                "depth": i / 9,
                "size": 4096,
                "dims": DIMS,
                "accuracy": {c: [a + shift for a in curve(needed[c], best[c], ends[c])] for c in best},
                "needed": needed,
                "variance": [0.1, 0.3, 0.5, 0.9, 1.0],
                "variance_needed": dict.fromkeys(best, 0.3 + shift if published else 0.6),
                "nc1": 1.0,
            }
        )
    return found


def records(published: bool) -> Records:
    return Records(
        [
            {
                "depth": depth,
                "seed": seed,
                "network_accuracy": 0.89 if published else 0.99,
                "collapse_depth": (0.7 if published else None),
                "layers_found": layers(published, 0.001 * seed),
            }
            for depth in CONFIG.depths
            for seed in CONFIG.seeds
        ]
    )


def verdicts(rows: Records, config: Config = CONFIG) -> set[str]:
    return {claim.verdict for claim in result(config, rows).claims}


def test_claims_hold_on_layers_as_published():
    failing = [c for c in result(CONFIG, records(True)).claims if c.verdict != "holds"]
    assert not failing, [c.evidence for c in failing]


def test_no_claim_holds_on_layers_the_other_way_round():
    assert verdicts(records(False)) == {"does not hold"}


def test_few_images_decide_nothing_about_hundreds_of_components():
    claims = result(Config(), records(True)).claims
    assert [c.verdict for c in claims if "beyond 100" in c.statement] == ["not decided"] * 2
    saturation = [c for c in claims if "saturates" in c.statement]
    assert [c.verdict for c in saturation] == ["not decided"] * 4
    assert "--most" in saturation[0].remedy


def test_quantities_are_what_they_say():
    found = layers(True, 0.0)
    assert [layer["depth"] > 0.5 for layer in half(found, second=True)] == [True] * 5
    assert svm_lead(found) == pytest.approx(0.0)  # all alike in the second half
    assert svm_trend(found) < -0.8
    assert svm_trend([dict(layer, needed={"linear SVM": 3}) for layer in found]) == 0.0
    assert hunch(found) == pytest.approx(np.log(10) - np.log(2), rel=0.3)
    assert late_gain(found, "10-NN") == pytest.approx(0.0)  # nothing is gained in the second half
    assert late_gain(found[:5], "10-NN") == pytest.approx(-0.2)
    assert neighbor_fall(found[4:6]) == pytest.approx(0.1)  # of 0.2 and 0
    assert late_gap(found, 0.95) == pytest.approx(0.95 - 0.95 * 0.93)


def test_no_collapse_counts_as_one_layer_too_deep():
    row = records(False)[0]
    assert collapse(row) == pytest.approx(1 + 1 / 9)
    assert collapse(records(True)[0]) == 0.7


@pytest.mark.parametrize(
    "rows", [Records([]), Records(list(records(True))[3:7], {"depth 20, seed 0": "lost"})]
)
def test_missing_trials_leave_a_page(rows):
    found = result(CONFIG, rows)
    assert len(found.claims) == 22
    assert all(image(figure) for figure in found.figures.values())
    assert ("No trial" in found.answer) == (not rows)


@pytest.mark.parametrize(
    ("first_half", "second_half", "refuted"), [(0.0, 0.0, "in the first"), (0.2, 0.2, "in the second")]
)
def test_neighbors_get_worse_in_the_first_half_and_not_in_the_second(first_half, second_half, refuted):
    rows = records(True)
    for row in rows:
        for layer in row["layers_found"]:
            fall = second_half if layer["depth"] > 0.5 else first_half
            layer["accuracy"]["10-NN"] = [0.5, 0.6, 0.7, 0.7, 0.7 - fall]
    claims = [
        c for c in result(CONFIG, rows).claims if "gets worse" in c.statement or "get worse" in c.statement
    ]
    assert len(claims) == 4
    assert {c.verdict for c in claims if refuted in c.statement} == {"does not hold"}
    assert {c.verdict for c in claims if refuted not in c.statement} == {"holds"}


@pytest.mark.parametrize(("classifier", "short"), [("10-NN", "10-NN"), ("nearest center", "NCC")])
def test_one_layer_that_gains_beyond_100_components_has_not_saturated(classifier, short):
    rows = records(True)
    for row in rows:
        row["layers_found"][7]["accuracy"][classifier][-1] += 0.05
    claims = {c.statement: c.verdict for c in result(CONFIG, rows).claims if "saturates" in c.statement}
    assert (
        claims["ResNet-20: 10-NN saturates by 100 components"]
        != claims["ResNet-20: NCC saturates by 100 components"]
    )
    assert claims[f"ResNet-56: {short} saturates by 100 components"] == "does not hold"


def test_both_networks_have_a_curve_for_every_layer():
    found = result(CONFIG, records(True)).figures
    assert list(found) == [
        f"{what}-resnet-{depth}"
        for depth in (20, 56)
        for what in ("components-needed", "variance", "accuracy-10-nn", "accuracy-ncc", "accuracy-svm")
    ]
    for figure in found.values():
        if isinstance(figure, Ramp):
            assert list(figure.curves) == [i / 9 for i in range(10)]
        else:
            assert [len(np.asarray(one.x)) for one in figure.series.values()] == [10] * 3
        image(figure)
    assert "At most 3" in found["components-needed-resnet-20"].caption


def test_layers_are_spread_over_depth():
    deep = looked_at(cifar_resnet(56), 10)
    assert [*deep][0::9] == ["act1", "layer3.8"]
    assert np.allclose(list(deep.values()), np.linspace(0, 1, 10))
    assert len(looked_at(cifar_resnet(20), 28)) == 10


def test_missing_networks_are_said_before_any_trial(monkeypatch, tmp_path):
    monkeypatch.setattr(layer_pca, "first_here", lambda names: names[0])
    monkeypatch.setenv("TANGENTKIT_DATA", str(tmp_path))
    with pytest.raises(InputError, match="no model for this study, the trained ResNet-20 is not here"):
        trials(Config())


@pytest.mark.parametrize("wrong", [{"layers": 3}, {"most": 600}, {"most": 5}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match="bad"):
        Config(**wrong)


@pytest.mark.skipif(
    not (CHECKPOINTS.is_dir() and is_here("cifar10")),
    reason="CIFAR-10 and ResNet-20 are not in TANGENTKIT_DATA",
)
def test_a_trial_is_standardization_components_and_the_nearest_center_by_hand():
    found = probe(depth=20, seed=3, train=60, test=40, most=8, layers=2)
    train, test = (
        one.standardized(CIFAR_RESNET_MEAN, CIFAR_RESNET_STD)
        for one in drawn("cifar10", 60, 40, key=Key(3).fold("layer-pca"))
    )
    network = trained(20)
    with torch.no_grad():
        h, g = (network[:6](one.inputs).flatten(1).double().numpy() for one in (train, test))
        right = (network(test.inputs).argmax(1) == test.targets).double().mean()
    mean, std = h.mean(0), h.std(0)
    varies = std > 0
    h, g = ((one[:, varies] - mean[varies]) / std[varies] for one in (h, g))
    _, s, V = np.linalg.svd(h, full_matrices=False)
    y, z = train.targets.numpy(), test.targets.numpy()
    last = found["layers_found"][-1]
    assert last["name"] == "layer3.2"
    assert last["dims"] == list(range(1, 9))
    for d in (2, 5, 8):
        H, G = h @ V[:d].T, g @ V[:d].T
        centers = np.stack([H[y == c].mean(0) for c in range(10)])
        answers = ((G[:, None] - centers[None]) ** 2).sum(2).argmin(1)
        assert last["accuracy"]["nearest center"][d - 1] == pytest.approx((answers == z).mean())
        assert last["variance"][d - 1] == pytest.approx((s[:d] ** 2).sum() / (s**2).sum(), rel=1e-4)
    assert found["network_accuracy"] == pytest.approx(float(right))
    assert {card["name"] for card in found["data_cards"]} == {"cifar10"}
