"""Probe, fine-tune, random features, linearized: compared over repeated splits."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch import nn

import tangentkit as tk
from tangentkit.analysis import TrainingComparison
from tangentkit.analysis.training_ways import redrawn
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train

SETTINGS = Training(3, 0.02, optimizer="adam", batch=16, loss="cross-entropy")


@pytest.fixture(scope="module")
def task():
    """A network that was trained on x0 x1 > 0 before, and data of that kind."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(520, 6, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
    train(
        model,
        x[:400],
        y[:400],
        Training(60, 0.02, optimizer="adam", batch=100, loss="cross-entropy"),
        key=Key(1),
    )
    return model, (x[400:], y[400:])


@pytest.fixture(scope="module")
def found(task):
    return tk.compare_training(*task, repeats=3, training=SETTINGS)


def test_features_that_were_learned_beat_random_ones(found):
    assert found.ways == ["probe", "fine-tune", "random-features", "linearized"]
    means = {way: np.mean(runs) for way, runs in found.test.items()}
    assert min(means["probe"], means["fine-tune"], means["linearized"]) > means["random-features"] + 0.05


def test_splits_are_the_same_for_all_ways_and_repeats_of_the_call(task, found):
    seen = []

    def look(given):
        seen.append(given.x)
        return given.model

    twice = tk.compare_training(*task, {"a": look, "b": look}, repeats=2)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert twice.test["a"] == twice.test["b"]
    again = tk.compare_training(*task, ["fine-tune", "random-features"], repeats=1, training=SETTINGS)
    assert again.test["fine-tune"] == found.test["fine-tune"][:1]
    assert again.test["random-features"] == found.test["random-features"][:1]


def test_the_model_is_left_as_it_is(task):
    model, data = task
    before, mode = nn.utils.parameters_to_vector(model.parameters()).clone(), model.train().training
    tk.compare_training(model, data, repeats=1, training=SETTINGS)
    assert model.training is mode
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), before)
    model.eval()


def test_accuracies_are_those_of_the_trained_networks(task):
    model, (x, y) = task
    found = tk.compare_training(model, (x, y), {"as it is": lambda task: task.model}, repeats=30)
    right = float((model(x).argmax(1) == y).double().mean())
    n, m = found.sizes
    for inside, outside in zip(found.train["as it is"], found.test["as it is"], strict=True):
        assert (n * inside + m * outside) / (n + m) == pytest.approx(right)


def test_tests_and_quantiles_follow_their_definitions():
    a, b = (0.7, 0.9, 0.8, 0.85), (0.6, 0.65, 0.62, 0.8)
    found = TrainingComparison({"a": a, "b": b}, {"a": a, "b": b}, {"a": a, "b": b}, (30, 10))
    assert found.ks("a", "b").p_value == pytest.approx(ks_2samp(a, b).pvalue)
    assert found.qq("a", "b")[0].tolist() == sorted(a)
    spread = np.std(a, ddof=1)
    assert found.corrected_error("a") == pytest.approx(spread * np.sqrt(1 / 4 + 1 / 3))
    assert found.table().rows[0][2].error == pytest.approx(spread / 2)
    assert found.tests_table().rows[0][2].value == pytest.approx(np.mean(a) - np.mean(b))


def test_results_show_themselves(found, tmp_path):
    assert json.loads(json.dumps(found.to_dict()))["sizes"] == [90, 30]
    page = found.report(tmp_path / "page.html").read_text()
    assert "Kolmogorov" in page
    assert "fine-tune against random-features" in page
    assert found.plot().get_xlabel().startswith("test accuracy")


def test_bad_input_is_refused(task):
    model, (x, y) = task
    with pytest.raises(UnknownNameError, match="'probe'"):
        tk.compare_training(model, (x, y), ["prob"])
    with pytest.raises(InputError, match="no classes"):
        tk.compare_training(model, (x, y.double()))
    with pytest.raises(InputError, match="two classes"):
        tk.compare_training(model, (x, torch.zeros_like(y)))
    with pytest.raises(InputError, match="repeats"):
        tk.compare_training(model, (x, y), repeats=0)
    with pytest.raises(InputError, match="train_share"):
        tk.compare_training(model, (x, y), train_share=0.999)

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, x):
            return self.scale * x

    own = nn.Sequential(Scale(), nn.Linear(6, 2))
    with pytest.raises(InputError, match="random_model"):
        tk.compare_training(own, (x, y), ["random-features"], repeats=1)
    tk.compare_training(own, (x, y), ["random-features"], repeats=1, random_model=lambda: own)


class Named(nn.Module):
    """A network of dict batches, as those of Hugging Face."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, inputs):
        return {"logits": self.layers(inputs)}


def test_batches_of_names_are_trained_in_every_way_as_plain_ones_are(task):
    x, y = task[1]
    torch.manual_seed(0)
    named = Named()
    plain = tk.compare_training(named.layers, (x, y), repeats=2, training=SETTINGS)
    found = tk.compare_training(
        named, ({"inputs": x}, y), repeats=2, training=SETTINGS, forward=lambda m, b: m(**b)["logits"]
    )
    for way in ("probe", "fine-tune", "linearized"):  # random features draw by the names of layers
        assert found.test[way] == plain.test[way], way
    assert len(found.test["random-features"]) == 2


def test_one_logit_is_trained_by_the_binary_loss_in_every_way(task):
    x, _ = task[1]
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    found = tk.compare_training(model, (x, y), repeats=2)
    assert found.training.loss == "bce"
    assert set(found.test) == {"probe", "fine-tune", "random-features", "linearized"}
    with pytest.raises(InputError, match="two classes"):
        tk.compare_training(model, (x, torch.arange(len(y)) % 3), repeats=2)


def test_ways_that_were_not_trained_to_the_end_are_named(task):
    x, _ = task[1]
    torch.manual_seed(0)
    model, data = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), (x, (x[:, 0] > 0).long())
    short = tk.compare_training(model, data, ["probe", "fine-tune"], repeats=2)
    long = tk.compare_training(
        model,
        data,
        ["probe", "fine-tune"],
        repeats=2,
        training=Training(200, 0.02, optimizer="adam", loss="cross-entropy"),
    )
    assert (short.unfinished, long.unfinished) == (["fine-tune"], [])
    assert short.loss["fine-tune"][0] > short.loss["probe"][0]
    assert "10 epochs of adam at a rate of 0.001" in short.table().note
    page = short.page().render()
    assert "fine-tune was not trained to the end" in page
    assert "not trained to the end" not in long.page().render()


def test_losses_are_those_of_the_networks_on_the_training_samples(task):
    x, y = task[1]
    kept = []

    def way(given):
        kept.append((given.model, given.x, given.y))
        return given.model

    found = tk.compare_training(task[0], (x, y), {"as it is": way}, repeats=2)
    for (model, inputs, classes), loss in zip(kept, found.loss["as it is"], strict=True):
        with torch.no_grad():
            assert loss == pytest.approx(float(nn.functional.cross_entropy(model(inputs), classes)), rel=1e-5)


class Scaled(nn.Linear):
    """A layer that draws all but one of its parameters."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gain = nn.Parameter(torch.full((sizes[1],), 7.0))


class OnlyBias(nn.Module):
    """A layer that draws its bias alone."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.eye(6)), nn.Parameter(torch.ones(6))

    def reset_parameters(self):
        nn.init.zeros_(self.bias)


def spectrally_normed():
    layer = nn.utils.spectral_norm(nn.Linear(6, 6)).eval()
    with torch.no_grad():
        layer(torch.zeros(1, 6))
    return layer


@pytest.mark.parametrize(
    ("make", "kept"),
    [(lambda: Scaled(6, 6), "gain"), (OnlyBias, "weight"), (spectrally_normed, "weight_orig")],
    ids=["another parameter", "bias alone", "spectral_norm"],
)
def test_layers_that_keep_some_parameters_are_not_taken_for_random_ones(make, kept):
    layer = make()
    before = [p.clone() for p in layer.parameters()]
    with pytest.raises(InputError, match=f"layer '0' cannot draw .* keeps {kept}.*random_model"):
        redrawn(nn.Sequential(layer), Key(0))
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), before, strict=True))


def test_models_that_cannot_be_copied_are_refused_with_the_way_out():
    layer = nn.Linear(6, 6)
    layer.scaled = 2 * layer.weight  # part of a graph, as what the older weight_norm computes
    with pytest.raises(InputError, match=r"cannot be copied.*parametrizations"):
        redrawn(layer, Key(0))


@pytest.mark.parametrize(
    "layer",
    [
        nn.MultiheadAttention(4, 2),
        nn.TransformerEncoderLayer(4, 2),
        nn.GRU(3, 3),
        nn.BatchNorm2d(3),
        nn.Embedding(4, 3, padding_idx=0),
        nn.PReLU(),
        nn.Linear(2, 2).requires_grad_(False),
        tk.nn.Linear(2, 3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_draw_all_of_their_parameters_are_redrawn(layer):
    found = redrawn(layer, Key(0))
    assert not any(p.isnan().any() for p in found.parameters())
    assert [p.requires_grad for p in found.parameters()] == [p.requires_grad for p in layer.parameters()]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_gradients_of_the_data_and_the_callers_mode_have_no_part_in_it(task, mode):
    model, (x, y) = task
    expected = tk.compare_training(model, (x, y), repeats=1, training=SETTINGS).test
    leaf = x.clone().requires_grad_()
    with mode():
        for inputs in (leaf, leaf * 1):
            assert tk.compare_training(model, (inputs, y), repeats=1, training=SETTINGS).test == expected
    assert leaf.grad is None


def test_classes_and_options_that_do_not_fit_are_refused_with_a_hint_that_helps(task):
    model, (x, y) = task
    wide = nn.Linear(6, 3)
    with pytest.raises(InputError, match=r"all of 0 to 2, got \[0, 1\].*fine-tune"):
        tk.compare_training(wide, (x, y), repeats=1)
    tk.compare_training(wide, (x, y), ["fine-tune", "linearized"], repeats=1, training=SETTINGS)
    with pytest.raises(InputError, match="all of 0 to 1"):
        tk.compare_training(model, (x, torch.arange(len(y)) % 3), ["fine-tune"], training=SETTINGS)
    with pytest.raises(InputError, match="classes 0 and 1, got 1 to 2"):
        tk.compare_training(nn.Linear(6, 1), (x, y + 1), repeats=1)
    with pytest.raises(InputError, match=r"bad repeats: expected an integer >= 1, got 1\.5"):
        tk.compare_training(model, (x, y), repeats=1.5)
    with pytest.raises(InputError, match=r"no numbers.*np\.unique"):
        tk.compare_training(model, (x, ["cat", "dog"] * (len(y) // 2)), repeats=1)
