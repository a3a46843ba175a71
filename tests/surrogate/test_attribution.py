"""Scores add up to the logits, and whatever is read off them equals the slow version on all scores."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tangentkit as tk
from tangentkit.core import BudgetError, InputError
from tangentkit.linalg import as_operator
from tangentkit.surrogate import representer_points
from tangentkit.surrogate.attribution import Attribution
from tangentkit.surrogate.cross_matrix import OfOperator


def plain(n=5, m=30, c=4, seed=0):
    """An attribution of random numbers, and its scores by the formula."""
    rng = torch.Generator().manual_seed(seed)
    k, W, b = (torch.randn(*s, generator=rng, dtype=torch.float64) for s in ((n, m), (m, c), (c,)))
    labels = torch.arange(m) % c
    a = Attribution(OfOperator(as_operator(k)), W, b, labels, torch.randn(n, c, generator=rng).double())
    scores = torch.stack([torch.stack([W[:, j] * k[i] + b[j] / m for j in range(c)]) for i in range(n)])
    return a, scores


@given(n=st.integers(1, 6), m=st.integers(4, 40), c=st.integers(2, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_scores_follow_the_formula_and_add_up_to_the_logits(n, m, c, seed):
    a, scores = plain(n, m, c, seed)
    torch.testing.assert_close(a.scores, scores, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(a.scores.sum(2), a.logits, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("side", [2, 7, 4096])
def test_what_is_read_off_equals_the_slow_version_whatever_the_strips(monkeypatch, side):
    a, scores = plain()
    monkeypatch.setattr(
        OfOperator, "ranges", lambda _: [slice(i, min(i + side, 5)) for i in range(0, 5, side)]
    )
    n, c, _ = scores.shape
    own = scores[torch.arange(n), a.predicted]
    torch.testing.assert_close(a.of(), own)
    torch.testing.assert_close(a.of(2), scores[:, 2])
    torch.testing.assert_close(a.of(torch.tensor([0, 1, 2, 3, 0])), scores[torch.arange(5), [0, 1, 2, 3, 0]])
    helpful, harmful = a.top(3), a.top(3, largest=False)
    assert torch.equal(helpful.indices, own.sort(1, descending=True).indices[:, :3])
    assert torch.equal(harmful.indices, own.sort(1).indices[:, :3])
    torch.testing.assert_close(harmful.scores, own.sort(1).values[:, :3])
    torch.testing.assert_close(
        a.by_class(), torch.stack([scores[:, :, a.labels == label].mean(2) for label in range(c)], 2)
    )
    size = own.abs().sort(1, descending=True).values
    torch.testing.assert_close(a.share_of_mass(0.1), size[:, :3].sum(1) / size.sum(1))
    spread = a.spread()
    for label in range(c):
        of_class = own[:, a.labels == label]
        torch.testing.assert_close(spread.mean[:, label], of_class.mean(1))
        torch.testing.assert_close(spread.quartiles[:, label, 1], of_class.quantile(0.5, dim=1))
        torch.testing.assert_close(spread.ends[:, label, 1], of_class.amax(1))
    assert spread.mean_in_box.shape == (n, c)


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3))
    x, z = torch.randn(60, 4), torch.randn(7, 4)
    return model, x, torch.arange(60) % 3, z


@pytest.mark.parametrize(
    "make",
    [
        tk.TangentKernel,
        tk.ConjugateKernel,
        lambda m: tk.SketchedTangentKernel(m, dim=32),
        lambda m: tk.SketchedTangentKernel(m, dim=32).normalized(),
    ],
)
def test_the_sum_rule_holds_to_rounding_for_every_kind_of_kernel(fitted, make):
    model, x, y, z = fitted
    surrogate = tk.Surrogate(model, make(model)).fit(x, y)
    a = surrogate.attribute(z)
    size = a.scores.abs().sum(2)
    gap = (a.scores.sum(2) - surrogate.decision_function(z)).abs()
    assert (gap <= 1e-6 * size).all()
    torch.testing.assert_close(a.network, model(z).detach().double())


def test_a_sample_that_speaks_for_itself_is_the_diagonal_of_the_scores(fitted):
    model, x, y, _ = fitted
    for kernel in (tk.TangentKernel(model).normalized(), tk.ConjugateKernel(model)):
        surrogate = tk.Surrogate(model, kernel).fit(x, y)
        scores = surrogate.attribute(x).scores
        i = torch.arange(60)
        torch.testing.assert_close(surrogate.self_attribution(), scores[i, y, i], rtol=1e-4, atol=1e-5)


def test_an_exact_copy_has_the_score_of_its_original(fitted):
    model, x, y, z = fitted
    x, y = torch.cat([x, x[:1]]), torch.cat([y, y[:1]])
    scores = tk.Surrogate(model, tk.TangentKernel(model).normalized()).fit(x, y).attribute(z).scores
    torch.testing.assert_close(scores[..., 0], scores[..., -1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("normalized", [False, True])
def test_error_bars_of_sketched_scores_cover_the_exact_ones_at_the_nominal_rate(fitted, normalized):
    model, x, y, z = fitted
    exact = tk.TangentKernel(model)
    exact = (exact.normalized() if normalized else exact)(z, x).double()
    inside, first = [], tk.SketchedTangentKernel(model, dim=64)
    for seed in range(16):
        kernel = first.reseeded(seed)
        a = tk.Surrogate(model, kernel.normalized() if normalized else kernel).fit(x, y).attribute(z)
        truth = exact * a.weights.T[a.predicted] + (a.offset[a.predicted] / 60)[:, None]
        inside.append(((a.of() - truth).abs() <= 1.96 * a.errors()).double().mean())
    # Scores of one seed share its random numbers: the rate over seeds is what can be told.
    assert 0.90 <= torch.stack(inside).mean() <= 0.99


@pytest.mark.parametrize("made_by", ["representer points", "one-against-rest machine"])
def test_of_two_classes_what_helps_the_predicted_one_is_of_that_class(made_by):
    torch.manual_seed(0)
    y = torch.arange(80) % 2
    x = torch.randn(80, 4) + 4.0 * (2 * y[:, None] - 1)
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
    model = tk.refit_last_layer(model, x, y)
    machine = tk.KernelGLM(solver="sgd") if made_by.startswith("one") else None
    surrogate = tk.Surrogate(model, tk.ConjugateKernel(model).normalized(), machine=machine).fit(x, y)
    a = surrogate.attribute(x[:8]) if machine else representer_points(surrogate, x[:8])
    assert a.predicted.tolist() == y[:8].tolist(), "both classes are predicted"
    assert torch.equal(y[a.top(3).indices], a.predicted[:, None].expand(8, 3))
    torch.testing.assert_close(a.of(0), -a.of(1))
    torch.testing.assert_close(a.scores[:, 0], a.of(0))
    torch.testing.assert_close(a.scores.sum(2), a.logits, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(a.by_class()[:, 0], -a.by_class()[:, 1])
    own = a.scores[torch.arange(8), a.predicted]
    torch.testing.assert_close(a.spread().ends[:, 0, 1], own[:, y == 0].amax(1))
    if machine:
        torch.testing.assert_close(surrogate.decision_function(x[:8]), a.logits[:, 1:])


def test_exact_kernels_have_no_errors(fitted):
    model, x, y, z = fitted
    a = tk.Surrogate(model, tk.ConjugateKernel(model)).fit(x, y).attribute(z)
    with pytest.raises(InputError, match="no errors"):
        a.errors()


def test_bad_questions_are_named(monkeypatch):
    a, _ = plain()
    for wrong in (0, 31, True, 2.0):
        with pytest.raises(InputError, match="from 1 to 30"):
            a.top(wrong)
    for wrong in (4, -1, torch.tensor([0, 1]), 0.5):
        with pytest.raises(InputError, match="from 0 to 3"):
            a.of(wrong)
    with pytest.raises(InputError, match=r"from 0 to 3.*'cat'.*classes.index"):
        a.top(3, output="cat")
    with pytest.raises(InputError, match=r"4 outputs.*both_sides"):
        Attribution(a.cross, a.weights[:, :1], a.offset[:1], a.labels, a.network)
    with pytest.raises(InputError, match="share"):
        a.share_of_mass(0.0)
    monkeypatch.setattr("tangentkit.core.memory.free_bytes", lambda *_: 1000)
    with pytest.raises(BudgetError, match=r"top\(k\)"):
        _ = a.scores
