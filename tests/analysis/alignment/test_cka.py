"""CKA: against the formula written out, by its invariances, and on independent features."""

import itertools

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import InputError, ModelError, NumericalError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.empirical.activations.kernels import LeftOutWarning
from tangentkit.linalg import DenseOperator, FactorOperator


def normal(*shape, seed=0):
    generator = Key(seed).fold("cka", *shape).torch()
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def biased(K, L):
    H = torch.eye(len(K), dtype=K.dtype) - 1 / len(K)
    A, B = H @ K @ H, H @ L @ H
    return float((A * B).sum() / (A.norm() * B.norm()))


def u_centered(K):
    """Szekely and Rizzo's centering, whose inner product is the unbiased HSIC: row by row as they write it."""
    n = len(K)
    K = K - torch.diag(K.diagonal())
    rows, total = K.sum(0), K.sum()
    out = K - rows[:, None] / (n - 2) - rows[None] / (n - 2) + total / ((n - 1) * (n - 2))
    return out - torch.diag(out.diagonal())


def unbiased(K, L):
    A, B = u_centered(K), u_centered(L)
    return float((A * B).sum() / (A.norm() * B.norm()))


def test_both_forms_are_their_formulas_for_features_kernels_and_operators():
    A, B = normal(30, 5) + 3, normal(30, 4, seed=1)
    B[:, 0] += A[:, 0]
    K, L = A @ A.T, B @ B.T
    for debiased, truth in ((True, unbiased(K, L)), (False, biased(K, L))):
        forms = [(A, B), (K, L), (FactorOperator(A), L.numpy()), (A.reshape(30, 5, 1), FactorOperator(B))]
        for one, other in forms:
            assert tk.cka(one, other, debiased) == pytest.approx(truth, rel=1e-10)
        assert tk.cka(DenseOperator(K), FactorOperator(B), debiased, memory=20_000) == pytest.approx(truth)
        wide = torch.cat([A, A.new_zeros(30, 40)], 1)  # more features than samples: by tiles
        assert tk.cka(wide, B, debiased, memory=20_000) == pytest.approx(truth, rel=1e-10)


def test_few_features_of_many_samples_need_no_tile():
    class NoTiles(FactorOperator):
        def block(self, *_):
            raise AssertionError("a tile was made")

    A, B = normal(300, 5), normal(300, 4, seed=1)
    assert tk.cka(NoTiles(A), NoTiles(B)) == pytest.approx(unbiased(A @ A.T, B @ B.T), abs=1e-12)


@pytest.mark.parametrize("debiased", [True, False])
def test_rotations_shifts_and_multiples_change_nothing(debiased):
    A, B = normal(40, 6), normal(40, 3)
    B[:, 0] += A[:, 0]
    turn = torch.linalg.qr(normal(6, 6))[0]
    plain = tk.cka(A, B, debiased)
    assert tk.cka(-3 * A @ turn + 5, B, debiased) == pytest.approx(plain, rel=1e-10)
    assert tk.cka(B, A, debiased) == pytest.approx(plain, rel=1e-10)
    assert tk.cka(A, 0.1 * A @ turn, debiased) == pytest.approx(1, rel=1e-10)
    stretched = A * torch.arange(1, 7)
    assert tk.cka(stretched, A, debiased) < 0.99  # it is not blind to every linear map


def test_independent_features_have_debiased_cka_0_on_average_and_biased_cka_0_2():
    # SPEC 9: at n = 32 the biased form of independent data is 0.198, the debiased 0.017 (one draw).
    found = [[], []]
    for seed in range(200):
        A, B = normal(32, 8, seed=2 * seed), normal(32, 8, seed=2 * seed + 1)
        for k in range(2):
            found[k].append(tk.cka(A, B, debiased=bool(k)))
    plain, corrected = (torch.tensor(values) for values in found)
    error = float(corrected.std()) / 200**0.5
    assert abs(float(corrected.mean())) < 3 * error
    assert float(plain.mean()) == pytest.approx(0.2, abs=0.01)


def test_orthogonal_samples_are_like_themselves_and_like_nothing_else():
    A = torch.eye(8)[:, :4]
    assert tk.cka(A, 2 * A) == pytest.approx(1)
    with pytest.raises(InputError, match="debiasing leaves nothing of A"):
        tk.cka(A, normal(8, 3))
    assert 0 < tk.cka(A, normal(8, 3), debiased=False) < 1


def test_constant_features_few_samples_and_other_samples_are_refused():
    A = normal(10, 3)
    for scale in (1.0, 1e6):
        for dtype in (torch.float32, torch.float64):
            with pytest.raises(InputError, match="features of B are constant"):
                tk.cka(A, torch.full((10, 4), scale / 3, dtype=dtype))
    with pytest.raises(InputError, match="features of A are constant"):
        tk.cka(torch.full((10, 10), 0.7), A)
    with pytest.raises(InputError, match="10 and 9"):
        tk.cka(A, A[:9])
    with pytest.raises(InputError, match="at least 4, got 3"):
        tk.cka(A[:3], A[:3])
    with pytest.raises(NumericalError, match="features B"):
        tk.cka(A, A * torch.nan)
    with pytest.raises(InputError, match=r"tk\.gram"):
        tk.cka(tk.ConjugateKernel(nn.Linear(3, 1)), A)
    with pytest.raises(InputError, match="samples first"):
        tk.cka(A[:, 0], A)


def test_small_differences_on_a_large_mean_count():
    A, B = normal(30, 5).float(), normal(30, 5, seed=3).float()
    B += A
    assert tk.cka(A + 1000, B) == pytest.approx(tk.cka(A, B), abs=1e-3)


def network(width=6, seed=0):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(width, 3))
    return layers.double().eval()


def outputs_of_layers(model, x):
    """Each layer's output by calling them one by one."""
    first = model[0](x).detach()
    return {"0": first, "1": first.clamp(min=0), "3": model[3](first.clamp(min=0)).detach()}


@pytest.mark.parametrize("debiased", [True, False])
@pytest.mark.parametrize("memory", [None, "12kB"])
def test_layers_of_one_and_of_two_networks_by_any_budget(debiased, memory):
    one, other, x = network(), network(9, seed=1), normal(50, 4)
    pairs = {None: one, other: other}
    for given, second in pairs.items():
        found = tk.layer_cka(one, x, given, debiased=debiased, memory=memory)
        rows, columns = outputs_of_layers(one, x), outputs_of_layers(second, x)
        assert found.rows == tuple(rows)
        assert found.columns == tuple(columns)
        truth = [[tk.cka(a, b, debiased) for b in columns.values()] for a in rows.values()]
        assert torch.allclose(found.values, torch.tensor(truth, dtype=torch.float64), atol=1e-9)


def test_activations_of_few_samples_at_a_time_are_in_memory(monkeypatch):
    from tangentkit.analysis.alignment import layer_cka

    longest = []
    add = layer_cka.KernelSums.add
    monkeypatch.setattr(
        layer_cka.KernelSums,
        "add",
        lambda self, rows, cols, tiles: (longest.append(max(tiles.shape[1:])), add(self, rows, cols, tiles))[
            1
        ],
    )
    tk.layer_cka(network(), normal(50, 4), memory="12kB")
    assert max(longest) < 25


def test_the_budget_is_settled_once_whatever_else_takes_memory_meanwhile(monkeypatch):
    from tangentkit.core import memory

    free = (int(200_000 * 0.8**k) for k in itertools.count())  # less at every look
    monkeypatch.setattr(memory, "free_bytes", lambda _: next(free))
    assert tk.layer_cka(network(), normal(60, 4)).rows == ("0", "1", "3")


def test_layers_are_chosen_by_name_and_calls_counted_apart():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.step, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.head(torch.tanh(self.step(torch.tanh(self.step(x)))))

    torch.manual_seed(0)
    found = tk.layer_cka(Twice().double(), normal(20, 4), layers=["step", "head"])
    assert found.rows == ("step", "step (call 2)", "head")
    assert found.best()[2][1:] == ("head", 1.0)
    with pytest.raises(UnknownNameError, match="'step'"):
        tk.layer_cka(Twice().double(), normal(20, 4), layers=["stop"])
    with pytest.raises(InputError, match="list of names"):
        tk.layer_cka(Twice().double(), normal(20, 4), layers="step")


def test_layers_without_samples_first_are_named_and_constant_or_uncalled_ones_refused():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layer, self.idle = nn.Embedding(3, 4), nn.Linear(4, 2), nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x + self.table(torch.arange(3)).sum(0))

    model = Positions().double()
    with pytest.warns(LeftOutWarning, match="'table'"):
        assert tk.layer_cka(model, normal(9, 4)).rows == ("layer",)
    with pytest.raises(ModelError, match="never calls layer 'idle'"):
        tk.layer_cka(model, normal(9, 4), layers=["idle"])
    dead = network()
    nn.init.zeros_(dead[0].weight)
    with pytest.raises(InputError, match="features of '0' are constant"):
        tk.layer_cka(dead, normal(9, 4))
    with pytest.raises(InputError, match="Linear '0' does not take"):
        tk.layer_cka(network(), normal(9, 5))


def test_the_heat_map_is_a_table_a_picture_and_plain_numbers():
    found = tk.layer_cka(network(), normal(30, 4), network(9, seed=1), other_layers=["0", "3"])
    assert [column.name for column in found.table().headings] == ["layer", "0", "3"]
    ax = found.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1", "3"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "3"]
    assert found.to_dict()["rows"] == ["0", "1", "3"]


def test_layers_that_are_the_same_for_all_samples_are_left_out_with_a_warning():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[2].bias.fill_(-1e3)
    x = normal(40, 4).float()
    with pytest.warns(LeftOutWarning, match="'3', '4'"):
        found = tk.layer_cka(model, x)
    assert found.left_out == ("3", "4")
    torch.testing.assert_close(found.values, tk.layer_cka(model[:3], x).values)
    assert "the same for all samples: 3, 4" in found.table().note
    with pytest.raises(InputError, match="constant"):
        tk.layer_cka(model, x, layers=["3"])


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("debiased", [True, False])
def test_cka_does_not_depend_on_the_scale_of_features_or_kernels(scale, debiased):
    torch.manual_seed(0)
    A, B = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 50, dtype=torch.float64)
    expected = tk.cka(A, B, debiased)
    assert tk.cka(scale * A, B, debiased) == pytest.approx(expected, rel=1e-9)
    assert tk.cka(scale * (A @ A.T), scale * B, debiased) == pytest.approx(expected, rel=1e-9)
    assert tk.cka(DenseOperator(scale * (A @ A.T)), B, debiased) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("place", [0, 1])
def test_complex_features_are_refused(place):
    features = [torch.randn(8, 3), torch.randn(8, 3)]
    features[place] = torch.complex(features[place], torch.randn(8, 3))
    with pytest.raises(InputError, match=r"complex features [AB]: expected real numbers"):
        tk.cka(*features)


def test_the_axes_of_two_networks_say_which_is_which():
    a, b, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Sequential(nn.Linear(3, 5)), torch.randn(9, 3)
    both, alone = tk.layer_cka(a, x, other=b).plot(), tk.layer_cka(a, x).plot()
    assert (both.get_ylabel(), both.get_xlabel()) == (
        "layers of the first network",
        "layers of the other network",
    )
    assert (alone.get_ylabel(), alone.get_xlabel()) == ("", "")
