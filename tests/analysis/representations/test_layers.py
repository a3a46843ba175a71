"""Layers probed: accuracies of plain scikit-learn pipelines, the 90 % rule, where a network collapses."""

import itertools
import json

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.analysis import LayerProbe, LayerProbes
from tangentkit.analysis.representations.probes import CLASSIFIERS, ProbeWarning
from tangentkit.core import InputError, NumericalError

DIMS = [1, 2, 3, 5, 10, 20, 30]
LAYERS = ["0", "1", "2"]


@pytest.fixture(scope="module")
def quadrants():
    """Four classes: the signs of two of thirty hidden coordinates that all have the same variance."""
    torch.manual_seed(0)
    x = torch.randn(500, 30)
    y = 2 * (x[:, 0] > 0) + (x[:, 1] > 0)
    return x[:300], y[:300], x[300:], y[300:]


@pytest.fixture(scope="module")
def network():
    """Layer 0 rotates, 1 keeps the two coordinates that count, 2 takes their signs, 3 reads the classes off."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(30, 30, bias=False) for _ in range(2)), nn.Tanh(), nn.Linear(30, 4))
    rotation = torch.linalg.qr(torch.randn(30, 30)).Q
    corners = torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]])
    units = torch.eye(2).repeat(15, 1)
    with torch.no_grad():
        model[0].weight.copy_(rotation)
        model[1].weight.copy_(100 * units @ rotation[:, :2].T)
        model[3].weight.copy_(corners @ torch.linalg.pinv(units))
        model[3].bias.zero_()
    return model


@pytest.fixture(scope="module")
def probes(network, quadrants):
    return tk.probe_layers(network, *quadrants, layers=LAYERS, dims=DIMS)


def test_accuracies_are_those_of_plain_pipelines(probes, network, quadrants):
    x, y, x_test, y_test = quadrants
    h, h_test = (network[:1](samples).detach().numpy() for samples in (x, x_test))
    machines = {
        "10-NN": KNeighborsClassifier(10),
        "nearest center": NearestCentroid(),
        "linear SVM": LinearSVC(C=1, dual=False, max_iter=10_000),
    }
    for name, machine in machines.items():
        for d in (2, 20):
            pipeline = make_pipeline(StandardScaler(), PCA(d, svd_solver="full"), machine).fit(h, y)
            got = probes["0"].accuracy[name][DIMS.index(d)]
            assert got == pytest.approx(pipeline.score(h_test, y_test), abs=2 / len(y_test))


def test_the_layer_where_the_network_collapses_is_found(probes):
    assert probes.collapse_layer == "1"
    before, flat, done = probes
    assert all(before.needed(c) > 3 for c in CLASSIFIERS)
    assert all(done.best(c) > 0.95 for c in CLASSIFIERS)
    assert before.collapse.nc1 > 20 * done.collapse.nc1
    assert done.collapse.nc4 <= 0.02 < before.collapse.nc4
    assert flat.participation_ratio == pytest.approx(2, abs=0.05)
    assert flat.two_nn == pytest.approx(2, abs=5 * 2 / 300**0.5)
    assert flat.dims == (1, 2)
    assert flat.variance[-1] == pytest.approx(1)


def test_the_head_has_all_four_numbers(probes, network, quadrants):
    x, y = quadrants[:2]
    expected = tk.neural_collapse(network[:3](x), y, network[3].weight, bias=network[3].bias)
    assert probes.head.nc1 == pytest.approx(expected.nc1, rel=1e-4)
    assert probes.head.nc3 == pytest.approx(expected.nc3, rel=1e-4)
    assert probes.head.nc4 == expected.nc4 == probes["2"].collapse.nc4


def test_memory_does_not_change_the_answer(probes, network, quadrants):
    again = tk.probe_layers(network, *quadrants, layers=LAYERS, dims=DIMS, memory="1MB")
    for one, other in zip(probes, again, strict=True):
        assert one.accuracy == other.accuracy
        assert one.collapse == other.collapse


def layer(name, *accuracy, collapse=None):
    curves = dict(zip(CLASSIFIERS, accuracy, strict=True))
    return LayerProbe(name, 9, (1, 2, 5), curves, (0.2, 0.3, 1.0), collapse, 1.0, 1.0)


def test_the_90_percent_rule_takes_the_fewest_components():
    probe = layer("a", (0.5, 0.864, 0.96), (0.863, 0.863, 0.96), (0.9, 0.8, 0.7))
    assert [probe.needed(c) for c in CLASSIFIERS] == [2, 5, 1]
    assert [probe.variance_needed(c) for c in CLASSIFIERS] == [0.3, 1.0, 0.2]


def test_the_collapse_layer_is_the_first_that_is_better_than_chance_with_three_components():
    at_chance, slow, done = (0.3, 0.3, 0.3), (0.3, 0.5, 0.9), (0.9, 0.9, 0.9)
    layers = (
        layer("chance", at_chance, at_chance, at_chance),
        layer("slow", done, done, slow),
        layer("done", done, done, done),
        layer("later", done, done, done),
    )
    assert LayerProbes(layers, None, 0.3, 100).collapse_layer == "done"
    assert LayerProbes(layers[:2], None, 0.3, 100).collapse_layer is None


def test_results_are_tables_figures_and_plain_numbers(probes):
    table = probes.table()
    assert [row[0] for row in table.rows] == LAYERS
    assert all(np.isfinite(cell) for row in table.rows for cell in row[1:])
    assert repr(probes.collapse_layer) in table.note
    assert json.loads(json.dumps(probes.to_dict()))["layers"][2]["name"] == "2"
    assert len(probes.plot().lines) == len(CLASSIFIERS)
    assert len(probes.plot_accuracy("10-NN").lines) == len(probes) + 1
    with pytest.raises(tk.TangentkitError, match="unknown classifier"):
        probes["0"].best("svm")
    with pytest.raises(tk.TangentkitError, match="unknown layer"):
        probes["3"]


def test_models_without_an_output_for_each_class_have_no_nc3_and_nc4(quadrants):
    x, y, x_test, y_test = (part[:60] for part in quadrants)
    model = nn.Sequential(nn.Linear(30, 8), nn.Tanh(), nn.Linear(8, 7))
    found = tk.probe_layers(model, x, y, x_test, y_test, dims=[1, 2])
    assert found.head is None
    assert found["1"].collapse.nc4 is None


def test_a_model_without_a_linear_layer_is_probed_all_the_same():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x, y = torch.randn(60, 1, 6, 6), torch.arange(60) % 4
    found = tk.probe_layers(model, x[:40], y[:40], x[40:], y[40:], dims=[1, 2])
    assert [layer.size for layer in found] == [64, 64, 4]
    assert found.head is None
    assert found["2"].collapse.nc4 is not None


def test_an_svm_that_stops_early_is_said(quadrants, monkeypatch):
    monkeypatch.setitem(CLASSIFIERS, "linear SVM", lambda: LinearSVC(dual=False, max_iter=1))
    x, y, x_test, y_test = (part[:60] for part in quadrants)
    with pytest.warns(ProbeWarning, match="layer '0': the linear SVM did not converge"):
        tk.probe_layers(nn.Sequential(nn.Linear(30, 8)), x, y, x_test, y_test, dims=[2])


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (InputError, "one class", {"y": torch.zeros(40)}),
        (InputError, "expected 40 labels, got 39", {"y": torch.arange(39) % 2}),
        (InputError, "too few training samples", {"x": torch.randn(12, 3), "y": torch.arange(12) % 2}),
        (InputError, r"without training samples.*got \[7\]", {"y_test": torch.tensor([0, 7] * 5)}),
        (InputError, "bad numbers of components", {"dims": [0, 3]}),
        (InputError, "bad numbers of components", {"dims": [0]}),
        (InputError, "labels name no classes", {"y": (torch.arange(40) % 2) + 0.5}),
        (InputError, "not finite", {"x_test": torch.full((10, 3), torch.nan)}),
        (NumericalError, "layer '0': activations are constant", {"x": torch.ones(40, 3)}),
    ],
)
def test_what_cannot_be_probed_is_refused(error, match, change):
    given = {
        "x": torch.randn(40, 3),
        "y": torch.arange(40) % 2,
        "x_test": torch.randn(10, 3),
        "y_test": torch.arange(10) % 2,
    } | change
    with pytest.raises(error, match=match):
        tk.probe_layers(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), **given)


def test_a_constant_layer_has_a_remark_and_keeps_the_rest(quadrants):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    with torch.no_grad():
        model[2].bias.fill_(-1e3)
    given = [part[:60] for part in quadrants]
    with pytest.warns(ProbeWarning, match="left out: '3', '4'"):
        found = tk.probe_layers(model, *given, dims=[2])
    alive = tk.probe_layers(model[:3], *given, dims=[2])
    assert [layer.accuracy for layer in found] == [layer.accuracy for layer in alive]
    assert [row[0] for row in found.table().rows] == ["0", "1", "2", "3", "4"]
    assert "activations are constant" in found.table().rows[3][-1]
    assert found.table().rows[0][-1] == ""
    with pytest.raises(InputError, match="left out"):
        found["4"]


def test_data_sets_of_pairs_are_probed_as_their_samples_are(quadrants):
    x, y, x_test, y_test = (part[:60] for part in quadrants)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 8))
    plain = tk.probe_layers(model, x, y, x_test, y_test, dims=[2])
    found = tk.probe_layers(model, TensorDataset(x, y), x_test=TensorDataset(x_test, y_test), dims=[2])
    assert found.to_dict() == plain.to_dict()
    with pytest.raises(InputError, match="x alone"):
        tk.probe_layers(model, x, x_test=x_test)


def test_a_layer_has_a_table_and_plain_numbers_and_its_collapse_a_picture(probes):
    one = probes["3" if "3" in [p.name for p in probes] else probes.layers[0].name]
    assert [row[0] for row in one.table().rows] == list(one.dims)
    assert [row[2] for row in one.table().rows] == list(one.accuracy["10-NN"])
    assert one.to_dict() in probes.to_dict()["layers"]
    shown = {text.get_text() for text in one.collapse.plot().get_yticklabels()}
    assert {"NC1, within", "NC2, norms", "NC2, angles"} <= shown
    assert one.collapse.figure().values["NC1, within"] == [one.collapse.nc1]


def test_numpys_random_numbers_go_on_as_if_nothing_had_been(quadrants):
    given = [part[:60] for part in quadrants]
    np.random.seed(0)  # noqa: NPY002 - the state that must not change
    before = np.random.get_state()[1:3]  # noqa: NPY002
    tk.probe_layers(nn.Sequential(nn.Linear(30, 8)), *given, dims=[2])
    after = np.random.get_state()[1:3]  # noqa: NPY002
    assert np.array_equal(before[0], after[0])
    assert before[1] == after[1]


class Rounded(nn.Module):
    """Puts out one of few values."""

    def forward(self, x):
        return torch.sign(x[:, :2])


def test_a_layer_of_few_different_outputs_has_a_dash_and_a_remark_in_the_place_of_twonn(quadrants):
    x, y, x_test, y_test = (part[:60] for part in quadrants)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 8), Rounded(), nn.Linear(2, 3))
    with pytest.warns(ProbeWarning, match=r"too few different points for TwoNN: '1', '2'") as warned:
        found = tk.probe_layers(model, x, y, x_test, y_test, dims=[1, 2])
    assert warned[0].filename == __file__
    assert [layer.two_nn is None for layer in found] == [False, True, True]
    assert found["1"].best("10-NN") > 0.2
    table = found.table()
    column = [heading.name for heading in table.headings].index("TwoNN")
    assert [row[column] for row in table.texts()][1:] == ["–", "–"]
    assert [row[-1] for row in table.rows] == ["", *["too few points for TwoNN: 4 that differ"] * 2]
    assert json.loads(json.dumps(found.to_dict()))["layers"][1]["two_nn"] is None


class Turned(nn.Module):
    """Blocks that see the tokens first, between blocks that see the samples first."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(5, 8)
        self.mixed = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=False)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.mixed(self.into(x).movedim(0, 1)).mean(0))


def test_blocks_without_the_samples_first_are_left_out_with_a_warning_and_a_remark(quadrants):
    x, y, x_test, y_test = (part[:60] for part in quadrants)
    x, x_test = (part.reshape(-1, 6, 5) for part in (x, x_test))
    torch.manual_seed(0)
    with pytest.warns(ProbeWarning, match="without the samples first, and left out.*: 'mixed'"):
        found = tk.probe_layers(Turned().eval(), x, y, x_test, y_test, dims=[2])
    assert [layer.name for layer in found] == ["into", "out"]
    assert [row[0] for row in found.table().rows] == ["into", "mixed", "out"]
    assert "first axis is not that of the samples" in found.table().rows[1][-1]
    assert list(found.left_out) == ["mixed"]


def test_numbers_of_components_at_the_axis_do_not_overlap():
    curves = [tuple(float(i >= k) for i in range(20)) for k in range(20)]
    layers = tuple(
        LayerProbe(
            str(k), 20, tuple(range(1, 21)), dict.fromkeys(CLASSIFIERS, curve), (1.0,) * 20, None, 1.0, 1.0
        )
        for k, curve in enumerate(curves)
    )
    ax = LayerProbes(layers, None, 0.1, 100).plot()
    ax.figure.draw_without_rendering()
    ends = sorted((box.y0, box.y1) for box in (label.get_window_extent() for label in ax.get_yticklabels()))
    assert len(ends) > 3
    assert all(below[1] < above[0] for below, above in itertools.pairwise(ends))
