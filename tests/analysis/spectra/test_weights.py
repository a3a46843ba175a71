"""Weight spectra of modules, number by number against their definitions."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.analysis import compare_spectra
from tangentkit.core.errors import InputError, ModelError, NumericalError, UnknownNameError
from tangentkit.linalg import Hill, spectrum


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.Flatten(), nn.Linear(64, 48), nn.Linear(48, 2)
    )


def test_every_number_is_that_of_its_definition():
    model = network()
    found = tk.weight_spectra(model, seed=1)
    assert [one.name for one in found] == ["0.weight", "3.weight", "4.weight"]
    one, W = found["3.weight"], model[3].weight.detach().double()
    values = torch.linalg.eigvalsh(W @ W.T).flip(0).numpy()
    row = one.row
    np.testing.assert_allclose(one.values, values, rtol=1e-8, atol=1e-12)
    assert (row["N"], row["M"]) == (64, 48)
    assert row["alpha"] == pytest.approx(Hill().fit(values).alpha)
    assert row["log_spectral_norm"] == pytest.approx(math.log10(float(torch.linalg.matrix_norm(W, 2)) ** 2))
    assert row["log_norm"] == pytest.approx(math.log10(float(W.square().sum())))
    assert row["stable_rank"] == pytest.approx(values.sum() / values[0])
    assert row["alpha_weighted"] == pytest.approx(row["alpha"] * math.log10(values[0]))
    assert row["log_alpha_norm"] == pytest.approx(math.log10((values ** row["alpha"]).sum()))
    assert row["mp_softrank"] == pytest.approx(
        tk.bulk_edge(64, 48, float(W.square().mean()))[1] * 64 / values[0], rel=0.05
    )
    assert row["stable_rank_null"] == pytest.approx(row["stable_rank"], rel=0.2)
    assert 0 < row["rand_distance"] < 1


def test_convolutions_are_the_matrices_that_multiply_patches():
    model = network()
    assert tk.weight_spectra(model)["0.weight"].shape == (32, 27)


def test_fresh_weights_have_neither_spikes_nor_heavy_tails_and_planted_ones_are_found():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(120, 80), nn.Linear(80, 80), nn.Linear(80, 60))
    fresh = tk.weight_spectra(model)
    assert [one.num_spikes for one in fresh] == [0, 0, 0]
    assert not any(one.tail.is_heavy for one in fresh)
    with torch.no_grad():
        model[1].weight += torch.outer(torch.ones(80), torch.ones(80)) / 40
        U, _, V = torch.linalg.svd(model[2].weight, full_matrices=False)
        model[2].weight.copy_((U * torch.arange(1.0, 61.0) ** -0.5) @ V)
    planted = tk.weight_spectra(model)
    assert planted["1.weight"].num_spikes == 1
    assert planted["1.weight"].mp_softrank < 0.5
    assert planted["2.weight"].tail.is_heavy
    assert planted["2.weight"].rand_distance > 2 * fresh["2.weight"].rand_distance


def test_missing_numbers_have_a_remark_and_a_dash():
    model = network()
    nn.init.zeros_(model[3].weight)
    table = tk.weight_spectra(model).table()
    columns = [column.name for column in table.headings]
    zero, small = (dict(zip(columns, table.texts()[i], strict=True)) for i in (1, 2))
    assert zero["alpha"] == zero["stable_rank"] == zero["log_norm"] == zero["num_spikes"] == "–"
    assert zero["remark"] == "no tail: 0 singular values, fewer than 20"
    assert small["alpha"] == "–"
    assert small["stable_rank"] != "–"
    assert "nan" not in table.to_csv()


def test_half_precision_weights_and_shared_ones_count_once():
    model = nn.ModuleDict({"a": nn.Linear(40, 30, bias=False)})
    model["b"] = nn.Linear(40, 30, bias=False)
    model["b"].weight = model["a"].weight
    whole, half = tk.weight_spectra(model), tk.weight_spectra(model.to(torch.bfloat16))
    assert len(whole) == len(half) == 1
    assert half["a.weight"].stable_rank == pytest.approx(whole["a.weight"].stable_rank, rel=0.01)


def test_models_without_spectra_are_refused():
    with pytest.raises(ModelError, match="no weights"):
        tk.weight_spectra(nn.LayerNorm(5))
    with pytest.raises(ModelError, match="run the model"):
        tk.weight_spectra(nn.LazyLinear(3))
    model = network()
    with torch.no_grad():
        model[3].weight[0, 0] = torch.nan
    with pytest.raises(NumericalError, match=r"parameter 3\.weight"):
        tk.weight_spectra(model)
    with pytest.raises(InputError, match="nothing to draw"):
        tk.weight_spectra(nn.Linear(3, 2)).plot()


def test_results_are_plain_and_the_same_every_time():
    one, two = (tk.weight_spectra(network(), draws=19).to_dict() for _ in range(2))
    assert one == two
    assert {"alpha", "alpha_weighted", "log_alpha_norm", "rand_distance", "xmin", "D"} <= set(
        one["weights"][0]
    )


# Comparison ---------------------------------------------------------------------------------------------


def test_equal_spectra_lie_on_the_diagonal_and_shifted_ones_off_it():
    values = torch.arange(1.0, 51.0)
    same = compare_spectra(values, spectrum(torch.diag(values)))
    assert (same.ks, same.beyond) == (0, 0)
    np.testing.assert_allclose(same.quantiles[:, 0], same.quantiles[:, 1])
    moved = compare_spectra(values, 10 + torch.arange(1.0, 101.0), names=("start", "end"))
    assert moved.ks == pytest.approx(0.6)
    assert moved.beyond == pytest.approx(0.6)
    assert moved.p_value < 1e-3
    assert (moved.quantiles[:, 1] > moved.quantiles[:, 0]).all()
    assert moved.plot().get_ylabel() == "quantiles of end"


def test_spectra_are_compared_whole():
    with pytest.raises(InputError, match="without top"):
        compare_spectra(spectrum(torch.eye(30), 2), torch.ones(30))
    with pytest.raises(InputError, match="at least 2"):
        compare_spectra([1.0], [1.0, 2.0])


def test_a_weight_that_there_is_not_is_said_with_those_that_there_are():
    with pytest.raises(UnknownNameError, match="'weight'"):
        tk.weight_spectra(nn.Linear(30, 30))["wieght"]


def test_a_missing_alpha_has_a_remark():
    layer = nn.Linear(40, 40)
    nn.init.eye_(layer.weight)
    found = tk.weight_spectra(layer)["weight"]
    assert found.alpha is None
    assert found.remark == "no alpha: the largest singular values are all equal"


def test_a_weight_draws_its_spectrum_with_the_law_of_noise_its_tail_and_its_spikes():
    torch.manual_seed(0)
    layer = nn.Linear(200, 120)
    with torch.no_grad():
        layer.weight.add_(torch.outer(torch.randn(120), torch.randn(200)) * 0.05)
    found = tk.weight_spectra(layer)["weight"]
    axes = found.plot()
    names = axes.get_legend_handles_labels()[1]
    assert set(names) == {"eigenvalues", "Marchenko-Pastur", "xmin of the tail", "spikes begin"}
    threshold = next(line for line in axes.lines if line.get_label() == "spikes begin").get_xdata()[0]
    assert sum(found.values > threshold) == found.num_spikes == 1
    curve = next(line for line in axes.lines if line.get_label() == "Marchenko-Pastur")
    area = np.trapezoid(curve.get_ydata(), np.log10(curve.get_xdata()))
    assert area == pytest.approx(119 / 120, abs=0.01)
    assert dict(found.table().rows)["num_spikes"] == 1
    assert found.to_dict()["values"] == found.values.tolist()


def holding(weight: torch.Tensor) -> nn.Module:
    """A module of one weight."""
    module = nn.Module()
    module.weight = nn.Parameter(weight)
    return module


def test_every_dash_has_a_remark():
    low = torch.randn(60, 25) @ torch.randn(25, 60)
    found = tk.weight_spectra(holding(low))["weight"]
    assert (found.mp_softrank, found.num_spikes) == (None, None)
    assert found.remark == "no bulk: rank 25 of 60, no more than half"
    both = tk.weight_spectra(holding(low[:, :5] @ low[:5]))["weight"]
    assert (
        both.remark == "no tail: 5 singular values, fewer than 20; no bulk: rank 5 of 60, no more than half"
    )


def test_shuffled_matrices_of_low_rank_are_a_null_model_without_warnings():
    found = tk.weight_spectra(holding(torch.eye(40)), null="shuffled", draws=19)["weight"]
    assert np.isfinite(found.tail.null_alphas).all()
    assert np.isfinite(found.tail.null_range).all()


@pytest.mark.parametrize(
    ("model", "options", "error", "match"),
    [
        (torch.randn(5, 5), {}, InputError, r"no module: .*matrix_tail"),
        (nn.Linear(5, 5), {"draws": 0}, InputError, r"number of draws: expected an integer >= 19, got 0"),
    ],
    ids=["a tensor", "no draws"],
)
def test_what_has_no_spectra_is_refused(model, options, error, match):
    with pytest.raises(error, match=match):
        tk.weight_spectra(model, **options)


def test_empty_weights_are_refused_by_name():
    with pytest.raises(ModelError, match=r"weight is empty: .*\(5, 0\)"):
        tk.weight_spectra(holding(torch.ones(5, 0)))
