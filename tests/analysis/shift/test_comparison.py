"""Two samples compared: p-values uniform without a shift, small with one, and what drives it found."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.core import BudgetError, InputError, NumericalError


def p_values(repeats, draw, **options):
    found = []
    for i in range(repeats):
        chance = np.random.default_rng(i)
        found.append(tk.compare_distributions(*draw(chance), seed=i, **options))
    return np.array([[c.p_value, *(test.p_value for test in c.tests.values())] for c in found])


def no_shift(chance):
    return chance.standard_t(4, (24, 3)), chance.standard_t(4, (16, 3))


def check_uniform(p, repeats):
    """Never too small; and as a whole uniform, up to the steps of permutations and of KS statistics."""
    for level in (0.05, 0.1, 0.25):
        rates = (p <= level).mean(0)
        assert (rates <= level + 4 * np.sqrt(level * (1 - level) / repeats)).all()
    assert stats.kstest(p[:, 0], "uniform").pvalue > 1e-3
    assert (np.abs(p.mean(0) - 0.5) < 4 * np.sqrt(1 / 12 / repeats) + 0.03).all()


def test_p_values_are_uniform_without_a_shift():
    check_uniform(p_values(200, no_shift, permutations=59), 200)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 40])
def test_p_values_are_uniform_without_a_shift_at_larger_sizes(d):
    draw = lambda chance: (chance.standard_t(4, (120, d)), chance.standard_t(4, (60, d)))  # noqa: E731
    check_uniform(p_values(200, draw, permutations=199), 200)


def test_p_values_of_a_networks_own_kernel_are_uniform_without_a_shift():
    kernel = tk.ConjugateKernel(nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1)))

    def draw(chance):
        return tuple(torch.from_numpy(part).float() for part in no_shift(chance))

    check_uniform(p_values(40, draw, kernel=kernel, permutations=39), 40)


def some_far_away(x, chance):
    return np.where(chance.random((len(x), 1)) < 0.2, x + 6, x)


SHIFTS = {
    "mean": (lambda x, _: x + 0.7, "classifier"),
    "scale": (lambda x, _: 2 * x, "energy"),
    "a fifth far away": (some_far_away, "MMD"),
    "one component bent": (lambda x, _: np.concatenate([x[:, :3], np.abs(x[:, 3:])], 1), "KS"),
}


@pytest.mark.parametrize("shift", SHIFTS)
def test_planted_shifts_are_seen_by_the_whole_and_by_the_test_made_for_them(shift):
    move, test = SHIFTS[shift]

    def draw(chance):
        scales = np.array([1, 1, 1, 3.0])
        return move(chance.normal(size=(80, 4)) * scales, chance), chance.normal(size=(80, 4)) * scales

    found = p_values(10, draw, permutations=99)
    assert (found[:, 0] <= 0.05).mean() >= 0.9
    assert (found[:, 1 + ["KS", "energy", "MMD", "classifier"].index(test)] <= 0.05).mean() >= 0.8


def test_the_tangent_kernel_sees_what_the_network_sees():
    """A direction that the network ignores is no shift to its kernel; one that it uses is."""
    model = nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 2))
    with torch.no_grad():
        model[0].weight[:, 0] = 0
    kernel = tk.TangentKernel(model, params=["2.weight", "2.bias", "0.bias"])
    P, M = torch.randn(60, 5), torch.randn(50, 5)
    ignored, used = torch.eye(5)[0], torch.eye(5)[1]
    assert tk.compare_distributions(P, M + 3 * ignored).p_value <= 0.01
    plain = tk.compare_distributions(P, M, kernel=kernel)
    assert tk.compare_distributions(P, M + 3 * ignored, kernel=kernel).p_value == plain.p_value
    assert tk.compare_distributions(P, M + 3 * used, kernel=kernel).p_value <= 0.01


def test_a_linear_kernel_has_the_components_of_its_features():
    P, M = torch.randn(30, 6).double(), torch.randn(25, 6).double() + 0.3
    kernel = tk.ConjugateKernel(nn.Sequential(nn.Linear(6, 2)).double())
    by_kernel, by_features = tk.compare_distributions(P, M, kernel=kernel), tk.compare_distributions(P, M)
    np.testing.assert_allclose(np.abs(by_kernel.scores), np.abs(by_features.scores), atol=1e-8)
    assert by_kernel.tests["KS"] == by_features.tests["KS"]
    assert by_kernel.tests["energy"].statistic == pytest.approx(by_features.tests["energy"].statistic)
    assert by_kernel.auc.value == pytest.approx(by_features.auc.value)


def test_drivers_are_the_planted_points():
    chance = np.random.default_rng(0)
    P, M = chance.normal(size=(90, 4)), chance.normal(size=(70, 4))
    odd = [3, 14, 15, 65, 80]
    P[odd] += 5
    found = tk.compare_distributions(P, M).drivers(5)
    assert sorted(found.P) == odd
    assert (np.diff(found.P_scores) <= 0).all()
    assert len(found.M) == len(found.M_scores) == 5


def test_filtering_moves_p_towards_m():
    chance = np.random.default_rng(0)
    P = np.concatenate([chance.normal(size=(100, 3)), chance.normal([8, 0, 0], size=(100, 3))])
    M = chance.normal(size=(80, 3))
    found = tk.compare_distributions(P, M)
    kept = found.filtered()
    assert set(kept) <= set(range(100))
    assert len(kept) > 80
    assert len(found.filtered(0.5)) < len(kept)
    assert found.p_value <= 0.01 < tk.compare_distributions(P[kept], M).p_value


def test_false_discoveries_are_controlled_over_components():
    chance = np.random.default_rng(0)
    P, M = (
        chance.normal(size=(100, 6)) * [9, 1, 1, 1, 1, 1],
        chance.normal(size=(100, 6)) * [9, 1, 1, 1, 1, 1],
    )
    M[:, 0] += 9
    found = tk.compare_distributions(P, M)
    p = [c.p_value for c in found.components]
    np.testing.assert_allclose(
        [c.false_discovery for c in found.components], stats.false_discovery_control(p)
    )
    assert [c.false_discovery <= 0.05 for c in found.components] == [True] + [False] * 5
    assert sum(c.variance for c in found.components) == pytest.approx(1)


def test_memory_and_the_order_of_samples_do_not_change_the_answer():
    P, M = torch.randn(40, 5), torch.randn(30, 5) + 0.4
    found = tk.compare_distributions(P, M, seed=7)
    small = tk.compare_distributions(P, M, seed=7, memory="1.3MB")
    assert small.p_value == found.p_value
    for name, test in found.tests.items():
        assert small.tests[name].statistic == pytest.approx(test.statistic)
    assert tk.compare_distributions(P, M, seed=7).to_dict() == found.to_dict()
    swapped = tk.compare_distributions(M, P, seed=7)
    for name in ("KS", "energy", "MMD"):
        assert swapped.tests[name].statistic == pytest.approx(found.tests[name].statistic)
    with pytest.raises(BudgetError, match="permutations of 70 points"):
        tk.compare_distributions(P, M, memory="100kB")


def test_results_are_tables_figures_and_plain_numbers():
    found = tk.compare_distributions(torch.randn(40, 5), torch.randn(30, 5) + 1)
    assert [row[0] for row in found.table().rows] == ["KS", "energy", "MMD", "classifier", "all"]
    assert found.table().rows[-1][-1] == found.p_value
    assert len(found.component_table().rows) == 5
    assert json.loads(json.dumps(found.to_dict()))["p_value"] == found.p_value
    assert {text.get_text() for text in found.plot().get_legend().get_texts()} == {"P", "M"}
    assert found.plot(components=(2,)).get_ylabel() == "density"
    with pytest.raises(InputError, match="one or two numbers from 0 to 4"):
        found.plot(components=(5,))


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (InputError, "10 or more of either sample, got 30 of P, 9 of M", {"M": torch.randn(9, 3)}),
        (InputError, r"expected \(m, 3\)", {"M": torch.randn(30, 4)}),
        (InputError, r"h\[:, None\]", {"P": torch.randn(30)}),
        (InputError, "a tensor or an array, got list", {"P": [[1.0, 2.0, 3.0]]}),
        (InputError, "not a kernel", {"kernel": "rbf"}),
        (InputError, "bad permutations", {"permutations": 5}),
        (InputError, "bad components", {"components": 0}),
        (InputError, "bad seed", {"seed": -1}),
        (InputError, "between outputs", {"kernel": tk.TangentKernel(nn.Linear(3, 2), "full")}),
        (NumericalError, "features are constant", {"P": torch.ones(30, 3), "M": torch.ones(30, 3)}),
        (NumericalError, r"features of M are not finite: got nan or inf in samples \[4\]", {"M": "nan"}),
    ],
)
def test_what_cannot_be_compared_is_refused(error, match, change):
    given = {"P": torch.randn(30, 3), "M": torch.randn(30, 3)} | change
    if isinstance(given["M"], str):
        given["M"] = torch.randn(30, 3)
        given["M"][4, 1] = torch.nan
    with pytest.raises(error, match=match):
        tk.compare_distributions(**given)


@pytest.mark.parametrize("call", [lambda c: c.drivers(0), lambda c: c.drivers(31), lambda c: c.filtered(0)])
def test_bad_questions_to_a_result_are_refused(call):
    with pytest.raises(InputError, match="expected"):
        call(tk.compare_distributions(torch.randn(30, 3), torch.randn(30, 3), permutations=19))


def test_data_sets_are_compared_as_their_samples_are():
    torch.manual_seed(0)
    P, M = torch.randn(30, 3), torch.randn(20, 3)
    plain = tk.compare_distributions(P, M)
    found = tk.compare_distributions(TensorDataset(P, torch.zeros(30)), TensorDataset(M, torch.zeros(20)))
    assert found.to_dict() == plain.to_dict()
    kernel = tk.ConjugateKernel(torch.nn.Linear(3, 1))
    sets = TensorDataset(P, torch.zeros(30)), TensorDataset(M, torch.zeros(20))
    assert tk.compare_distributions(*sets, kernel).p_value == tk.compare_distributions(P, M, kernel).p_value


def test_drivers_are_a_table_and_plain_numbers():
    torch.manual_seed(0)
    found = tk.compare_distributions(torch.randn(30, 3), torch.randn(20, 3) + 1).drivers(4)
    assert [row[1] for row in found.table().rows] == found.P.tolist() == found.to_dict()["P"]
    assert [row[4] for row in found.table().rows] == found.M_scores.tolist()


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-8, 1e160, 1e300])
def test_features_may_have_any_scale(scale):
    chance = np.random.default_rng(0)
    P, M = chance.normal(size=(30, 3)), chance.normal(size=(25, 3)) + 1
    plain, scaled = (tk.compare_distributions(c * P, c * M, permutations=99) for c in (1.0, scale))
    assert scaled.p_value == plain.p_value
    assert scaled.tests["energy"].statistic / scale == pytest.approx(plain.tests["energy"].statistic)
    assert scaled.tests["MMD"].statistic == pytest.approx(plain.tests["MMD"].statistic)
    assert scaled.auc.value == pytest.approx(plain.auc.value)
    np.testing.assert_allclose(scaled.scores / scale, plain.scores, atol=1e-9)


def test_contours_and_curves_are_whole_inside_the_frame():
    chance = np.random.default_rng(0)
    found = tk.compare_distributions(
        chance.normal(size=(12, 2)), chance.normal(size=(12, 2)) + 4, permutations=19
    )
    ax = found.plot()
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for contour in ax.collections:
        for path in (path for path in contour.get_paths() if len(path.vertices)):
            x, y = path.vertices.T
            assert left < x.min() < x.max() < right
            assert low < y.min() < y.max() < high
    for curve in found.plot(components=(0,)).lines:
        x, y = curve.get_data()
        inside = (x >= curve.axes.get_xlim()[0]) & (x <= curve.axes.get_xlim()[1])
        assert y[~inside].max(initial=0) < 0.01 * y.max()
