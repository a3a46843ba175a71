"""The refitted last layer: an optimum of its loss, in a copy, of models that end in a linear layer."""

import copy

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn
from torch.nn.utils import parametrizations

import tangentkit as tk
from tangentkit.core.errors import InputError, ModelError


def network(c=3, *, bias=True, dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, c, bias=bias)).to(dtype)


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def samples(n=80):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator)
    return x, torch.randn(n, 3, dtype=torch.float64, generator=generator), (x[:, 0] * 2).round().long() % 3


def gradient_of(loss, model):
    return torch.autograd.grad(loss, list(model[-1].parameters()))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_squared_loss_has_no_gradient_at_the_refitted_layer(bias, ridge):
    x, y, _ = samples()
    weights = torch.rand(80, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    better = tk.refit_last_layer(network(bias=bias), x, y, ridge=ridge, sample_weight=weights)
    penalty = sum(p.square().sum() for p in better[-1].parameters())
    loss = (weights[:, None] * (better(x) - y).square()).sum() + ridge * penalty
    assert all(g.abs().max() < 1e-8 for g in gradient_of(loss, better))


@pytest.mark.parametrize("c", [1, 2, 3])
def test_the_cross_entropy_has_no_gradient_at_the_refitted_layer(c):
    x, _, labels = samples()
    labels = labels.clamp(max=1) if c < 3 else labels
    better = tk.refit_last_layer(network(c), x, labels, ridge=0.3)
    penalty = 0.15 * sum(p.square().sum() for p in better[-1].parameters())
    if c == 1:
        loss = nn.functional.binary_cross_entropy_with_logits(
            better(x)[:, 0], labels.double(), reduction="sum"
        )
    else:
        loss = nn.functional.cross_entropy(better(x), labels, reduction="sum")
    assert all(g.abs().max() < 1e-3 for g in gradient_of(loss + penalty, better))


def test_it_agrees_with_scikit_learn():
    x, y, labels = samples()
    model = network(bias=False)
    h = tk.ConjugateKernel(model).features(x).numpy()
    ridge = Ridge(alpha=0.5, fit_intercept=False).fit(h, y.numpy())
    found = tk.refit_last_layer(model, x, y, ridge=0.5)[-1].weight.detach().numpy()
    np.testing.assert_allclose(found, ridge.coef_, rtol=1e-6, atol=1e-8)
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000).fit(h, labels.numpy())
    found = tk.refit_last_layer(model, x, labels, ridge=1.0)(x).softmax(1).detach().numpy()
    np.testing.assert_allclose(found, peer.predict_proba(h), atol=1e-4)


@pytest.mark.parametrize("c", [1, 2, 3])
def test_the_ridge_of_the_cross_entropy_goes_with_the_size_of_the_features(c):
    x, _, labels = samples()
    labels = labels.clamp(max=1) if c < 3 else labels
    model, small = network(c, bias=False), network(c, bias=False)
    small.insert(2, Scaled(1e-3))
    expected, found = (tk.refit_last_layer(m, x, labels)(x).detach() for m in (model, small))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_without_a_ridge_samples_held_out_choose_one_for_the_cross_entropy():
    x, _, labels = samples(400)
    noisy = torch.where(torch.arange(400) % 4 == 0, labels.roll(1), labels)
    weights = torch.ones(400)
    weights[::7] = 0.0  # what has no weight is not held out either
    model, rest = network(), slice(200, None)
    model.insert(2, Scaled(1e-2))  # no ridge of one is right for all features
    for truth in (labels, noisy):
        losses = {
            ridge: float(
                nn.functional.cross_entropy(
                    tk.refit_last_layer(
                        model, x[:200], truth[:200], ridge=ridge, sample_weight=weights[:200]
                    )(x[rest]).detach(),
                    truth[rest],
                )
            )
            for ridge in (None, 1e-7, 1e-5, 1e-3)
        }
        chosen = losses.pop(None)
        assert chosen < min(losses.values()) + 0.05


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.8, 0.2)])
@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
def test_a_large_mean_of_the_features_hides_no_class(mean, shares):
    """Strong ridges leave all but the mean out, and are all equally bad: no reason to take the strongest."""
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.choice(2, size=600, p=shares))
    h = torch.from_numpy(rng.normal(size=(600, 10))) + mean
    h[:, 0] += 4 * labels
    better = tk.refit_last_layer(nn.Sequential(nn.Linear(10, 2)).double(), h[:300], labels[:300])
    assert (better(h[300:]).argmax(1) == labels[300:]).double().mean() > 0.93


@pytest.mark.parametrize("mean", [1e3, 1e4])
def test_a_large_mean_of_the_inputs_hides_no_class(mean):
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 2)).double()
    h = torch.randn(1400, 5, dtype=torch.float64, generator=generator)
    noise = 0.3 * torch.randn(1400, dtype=torch.float64, generator=generator)
    labels = (h[:, 0] + noise > 0).long()
    better = tk.refit_last_layer(model, h[:400] + mean, labels[:400])
    assert (better(h[400:] + mean).argmax(1) == (h[400:, 0] > 0)).double().mean() > 0.95


def one_small_feature(noise, size, n=600):
    """Features of noise, and one that is small and tells all."""
    h = torch.randn(n, noise + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    h[:, noise] *= size
    return h, (h[:, noise] > 0).long()


@pytest.mark.parametrize("noise", [5, 30])
def test_a_small_feature_that_tells_all_is_found_among_large_ones_that_tell_nothing(noise):
    h, labels = one_small_feature(noise, 0.003)
    model = nn.Sequential(nn.Linear(noise + 1, 1)).double()
    chosen, best = (
        tk.refit_last_layer(model, h[:150], labels[:150], ridge=ridge)(h[150:])[:, 0]
        for ridge in (None, 1e-8 if noise == 5 else 1e-5)
    )
    truth = labels[150:].double()
    found, least = (
        nn.functional.binary_cross_entropy_with_logits(logits, truth) for logits in (chosen, best)
    )
    assert found < 1.1 * least


def test_a_search_for_a_ridge_that_ends_while_weaker_ones_do_better_says_so():
    h, labels = one_small_feature(5, 3e-4)
    with pytest.warns(ConvergenceWarning, match="weaker ridges than 1e-12 .* might do better"):
        tk.refit_last_layer(nn.Sequential(nn.Linear(6, 1)).double(), h, labels)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_samples_of_no_weight_do_not_choose_the_ridge(loss):
    x, y, labels = samples(60)
    generator = torch.Generator().manual_seed(3)
    wild = 100 * torch.randn(40, 4, dtype=torch.float64, generator=generator)
    targets, others = (
        (y, 1000 * torch.randn(40, 3, dtype=torch.float64, generator=generator))
        if loss == "squared"
        else (labels, torch.arange(40) % 3)
    )
    model = network()
    model[1] = nn.ReLU()  # its features go with the size of the samples
    weights = torch.cat([torch.ones(60), torch.zeros(40)])
    alone = tk.refit_last_layer(model, x, targets, loss=loss)
    among = tk.refit_last_layer(
        model, torch.cat([x, wild]), torch.cat([targets, others]), loss=loss, sample_weight=weights
    )
    torch.testing.assert_close(among[-1].weight, alone[-1].weight, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_ridge_goes_with_the_size_of_the_weights(loss):
    x, y, labels = samples(60)
    targets = y if loss == "squared" else labels
    weights = torch.rand(60, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    one, other = (
        tk.refit_last_layer(network(), x, targets, loss=loss, sample_weight=size * weights)(x)
        for size in (1.0, 1e-4)
    )
    torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)


def test_few_weights_that_count_leave_the_ridge_to_the_samples_that_do():
    x, y, _ = samples(60)
    weights = torch.cat([torch.ones(40), torch.full((20,), 1e-9)])
    y[40:] *= 1e3
    alone, among = (
        tk.refit_last_layer(network(), x[:n], y[:n], sample_weight=weights[:n])(x[:40]) for n in (40, 60)
    )
    torch.testing.assert_close(among, alone, rtol=0.0, atol=0.05)


def test_one_sample_of_a_class_is_enough():
    x, _, labels = samples()
    few = torch.cat([(labels == 0).nonzero()[:1, 0], (labels > 0).nonzero()[:, 0]])
    assert tk.refit_last_layer(network(), x[few], labels[few])(x).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_half_precision_are_refitted_too(dtype):
    x, _, labels = samples()
    expected = tk.refit_last_layer(network(), x, labels, ridge=1.0)(x).detach()
    found = tk.refit_last_layer(network(dtype=dtype), x.to(dtype), labels, ridge=1.0)(x.to(dtype)).detach()
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0.0, atol=20 * torch.finfo(dtype).eps)


def test_the_model_itself_and_all_other_parameters_stay():
    x, y, _ = samples()
    model = network(dtype=torch.float32)
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    better = tk.refit_last_layer(model, x.float(), y.float())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    for (name, p), q in zip(better.named_parameters(), model.parameters(), strict=True):
        assert (p.dtype, p.requires_grad, p.shape) == (q.dtype, q.requires_grad, q.shape)
        assert torch.equal(p, q) == name.startswith("0.")
    assert (better(x.float()) - y).square().mean() < (model(x.float()) - y).square().mean()
    model.load_state_dict(better.state_dict())


def test_without_a_ridge_leave_one_out_errors_choose_one():
    def error(seed, ridge):
        generator = torch.Generator().manual_seed(seed)
        x, z = (torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in (14, 500))
        noise = 0.5 * torch.randn(14, dtype=torch.float64, generator=generator)
        better = tk.refit_last_layer(network(1), x, x[:, 0] + x[:, 1] + noise, ridge=ridge)
        return float((better(z)[:, 0] - z[:, 0] - z[:, 1]).detach().square().mean())

    # 13 features and 14 noisy samples: the optimum without a ridge follows the noise.
    chosen, none = (np.median([error(seed, ridge) for seed in range(5)]) for ridge in (None, 0.0))
    assert chosen < none / 10


def test_labels_under_the_squared_loss_are_ones_and_zeros():
    x, _, labels = samples()
    by_labels = tk.refit_last_layer(network(), x, labels, loss="squared", ridge=0.1)
    by_targets = tk.refit_last_layer(network(), x, nn.functional.one_hot(labels).double(), ridge=0.1)
    torch.testing.assert_close(by_labels(x), by_targets(x))


def test_models_may_end_in_a_log_softmax_and_take_other_inputs():
    x, _, labels = samples()

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            return self.inner(x).log_softmax(1)

    better = tk.refit_last_layer(Named(), {"x": x}, labels)
    plain = tk.refit_last_layer(network(), x, labels)
    torch.testing.assert_close(better(x), plain(x).log_softmax(1))
    wrapped = tk.refit_last_layer(network(), {"x": x}, labels, forward=lambda model, batch: model(batch["x"]))
    torch.testing.assert_close(wrapped(x), plain(x))


class Tied(nn.Module):
    """A table that is also the head."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.table(tokens).mean(1).tanh())


def test_tied_weights_are_untied_in_the_copy():
    torch.manual_seed(0)
    model, tokens = Tied().double(), torch.randint(0, 7, (50, 4))
    better = tk.refit_last_layer(model, tokens, tokens[:, 0].clone(), ridge=0.1)
    assert torch.equal(better.table.weight, model.table.weight)
    assert not torch.equal(better.head.weight, model.head.weight)
    assert model.head.weight is model.table.weight


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.square = nn.Linear(4, 4)

    def forward(self, x):
        return self.square(self.square(x).tanh())


class Doubled(nn.Bilinear):
    def forward(self, h):
        return super().forward(h, h)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), "the outputs are not those of layer '0'"),
        (Twice(), "the outputs are not those of layer 'square'"),
        (
            nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Doubled(6, 6, 4)),
            "no plain linear layer.*got a product that no module makes",
        ),
        (
            nn.Sequential(nn.Linear(4, 6), parametrizations.weight_norm(nn.Linear(6, 4))),
            "no plain linear layer.*remove_parametrizations",
        ),
        (nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 2), nn.Flatten()), "several positions"),
    ],
    ids=["sigmoid", "twice", "bilinear", "parametrized", "positions"],
)
def test_models_that_do_more_than_a_last_linear_layer_are_refused(model, words):
    with pytest.raises(ModelError, match=words):
        tk.refit_last_layer(model.double(), samples()[0], torch.randn(80, 4, dtype=torch.float64))


def test_targets_that_do_not_fit_are_refused():
    x, y, labels = samples()
    for wrong, words in (
        (y[:, :2], r"targets do not fit the model: expected shape \(80, 3\), got \(80, 2\)"),
        (y[:50], r"got \(50, 3\)"),
        (labels[:50], r"bad labels: expected integers of shape \(80,\)"),
        (
            labels.clamp(max=1),
            r"labels do not fit a model of 3 outputs: expected all of 0 to 2, got \[0, 1\]",
        ),
        (labels + 1, r"expected all of 0 to 2, got \[1, 2, 3\]"),
        (["cat"] * 80, "targets are not numbers.*got str_ cat.*return_inverse"),
    ):
        with pytest.raises(InputError, match=words):
            tk.refit_last_layer(network(), x, wrong)
    with pytest.raises(KeyError, match="unknown loss 'hinge'"):
        tk.refit_last_layer(network(), x, labels, loss="hinge")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a model"):
        tk.refit_last_layer(lambda x: x, x, y)  # type: ignore[arg-type]
