"""Conjugate and embedding kernels, against hooks of the test's own."""

import pytest
import torch
from torch import nn

from cases import CASES, Formula, gap
from tangentkit import reference
from tangentkit.core import ModelError
from tangentkit.core.batches import take
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel


def seen(model, layers, x, *, inputs=False, forward=None):
    """What layers take in or give out, copied at once; gradients stay on, so no fast path hides a layer."""
    found = {}
    modules = dict(model.named_modules())
    handles = [
        modules[name].register_forward_hook(
            lambda _, args, out, name=name: found.setdefault(name, []).append(
                (args[0] if inputs else out).detach().clone()
            )
        )
        for name in layers
    ]
    (forward or (lambda m, b: m(b)))(model, x)
    for handle in handles:
        handle.remove()
    return found


def network():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)).double()


X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).double(), torch.randn(4, 4).double()


def test_the_last_linear_layer_is_found():
    model = network()
    hx, hy = (seen(model, ["4"], batch, inputs=True)["4"][0] for batch in (X, Y))
    kernel = ConjugateKernel(model)
    assert torch.equal(kernel.features(X), hx)
    assert gap(kernel(X, Y), reference.conjugate_kernel(hx, hy)) <= 1e-14
    assert gap(kernel(X), reference.conjugate_kernel(hx, hx)) <= 1e-14
    assert gap(kernel.diag(X), kernel(X).diagonal()) <= 1e-14


def test_a_bias_adds_one():
    model = network()
    plain, biased = ConjugateKernel(model), ConjugateKernel(model, bias=True)
    assert gap(biased(X, Y), plain(X, Y) + 1) <= 1e-14
    assert gap(biased.diag(X), plain.diag(X) + 1) <= 1e-14
    assert biased.features(X).shape == (6, 7)


@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_tangent_kernel_of_the_last_layer(bias):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1, bias=bias)).double()
    last = [name for name, _ in model.named_parameters() if name.startswith("2")]
    assert gap(ConjugateKernel(model, bias=bias)(X, Y), TangentKernel(model, params=last)(X, Y)) <= 1e-12


def test_a_named_layer():
    model = network()
    h = seen(model, ["2"], X, inputs=True)["2"][0]
    assert gap(ConjugateKernel(model, "2")(X), h @ h.T) <= 1e-14
    conv = CASES["small convolutional network"].model()
    images, _ = CASES["small convolutional network"].batches()
    h = seen(conv, ["4"], images, inputs=True)["4"][0].flatten(1)
    assert gap(ConjugateKernel(conv, "4")(images), h @ h.T) <= 1e-14


def test_last_is_last_in_the_order_of_calls():
    """Not of definition: the head may be defined first, and a layer called twice counts the last time."""
    model = Formula(
        lambda m, x: m.head(m.body(m.body(x).tanh()).tanh()), head=nn.Linear(4, 2), body=nn.Linear(4, 4)
    ).double()
    h = seen(model, ["head"], X, inputs=True)["head"][0]
    assert torch.equal(ConjugateKernel(model).features(X), h)
    h = seen(model, ["body"], X, inputs=True)["body"][1]
    assert torch.equal(ConjugateKernel(model, "body").features(X), h)


def test_a_layer_that_is_never_called():
    model = Formula(lambda m, x: m.a(x), a=nn.Linear(4, 2), idle=nn.Linear(4, 2)).double()
    with pytest.raises(ModelError, match="the model never calls layer 'idle'"):
        ConjugateKernel(model, "idle")(X)
    with pytest.raises(ModelError, match="the model never calls a linear layer"):
        ConjugateKernel(Formula(lambda m, x: x @ m.w, w=(4, 2)).double())(X)
    with pytest.raises(ModelError, match="calls none of the layers"):
        EmbeddingKernel(model, ["idle"])(X)


def test_embedding_kernel_sums_all_layers():
    model = network()
    x, y = (seen(model, "01234", batch) for batch in (X, Y))
    kernel = EmbeddingKernel(model)
    assert gap(kernel(X, Y), sum(x[layer][0] @ y[layer][0].T for layer in "01234")) <= 1e-14
    assert gap(kernel(X), sum(x[layer][0] @ x[layer][0].T for layer in "01234")) <= 1e-14
    assert gap(kernel.diag(X), kernel(X).diagonal()) <= 1e-14


def test_embedding_kernel_of_some_layers():
    model = network()
    x = seen(model, "13", X)
    assert (
        gap(EmbeddingKernel(model, ["1", "3"])(X), sum(x[layer][0] @ x[layer][0].T for layer in "13"))
        <= 1e-14
    )


def test_layers_called_twice_count_twice():
    model = Formula(
        lambda m, x: m.head(m.body(m.body(x))), head=nn.Linear(4, 2), body=nn.Linear(4, 4)
    ).double()
    x = seen(model, ["body"], X)["body"]
    assert gap(EmbeddingKernel(model, ["body"])(X), sum(a @ a.T for a in x)) <= 1e-14


def test_in_place_activations_do_not_overwrite_what_was_seen():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)).double()
    x = seen(model, "012", X)
    assert gap(EmbeddingKernel(model)(X), sum(x[layer][0] @ x[layer][0].T for layer in "012")) <= 1e-14


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
def test_positive_symmetric_and_equivariant(kind):
    kernel, order = kind(network()), torch.tensor([3, 5, 0, 1, 4, 2])
    k = kernel(X)
    assert gap(k, k.T) <= 1e-14
    assert torch.linalg.eigvalsh(k)[0] >= -1e-12 * k.abs().max()
    assert gap(kernel(X[order]), k[order][:, order]) <= 1e-12
    assert (kernel.normalized()(X).diagonal() - 1).abs().max() <= 1e-12


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
def test_pieces_do_not_matter(kind):
    sizes = []

    def forward(model, x):
        sizes.append(len(x))
        return model(x)

    model = network()
    whole, pieces = kind(model), kind(model, forward=forward, memory=400 * 4 * 8 * 2)
    assert gap(pieces(X, Y), whole(X, Y)) <= 1e-12
    assert gap(pieces(X), whole(X)) <= 1e-12
    assert max(sizes[2:]) == 2  # the first two runs find the samples


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
def test_hooks_are_removed_and_the_snapshot_stays(kind):
    model = network()
    kernel = kind(model)
    before = kernel(X)
    assert not any(child._forward_hooks or child._forward_pre_hooks for child in model.modules())
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    assert torch.equal(kernel(X), before)
    broken = kind(model, forward=lambda m, x: m(x)[:, 7])
    with pytest.raises(IndexError):
        broken(X)
    assert not any(child._forward_hooks for child in model.modules())


@pytest.mark.parametrize(
    "name",
    ["transformer encoder", "multi-head attention", "lstm", "small convolutional network", "batch norm 2d"],
)
def test_conjugate_kernel_of_the_zoo(name):
    case = CASES[name]
    model, (x, y) = case.model(), case.batches()
    head = [key for key, child in model.named_modules() if isinstance(child, nn.Linear)][-1]
    hx, hy = (seen(model, [head], batch, inputs=True)[head][0] for batch in (x, y))
    assert gap(ConjugateKernel(model)(x, y), hx @ hy.T) <= 1e-12


def test_embedding_kernel_sees_the_layers_that_a_fast_path_would_skip():
    case = CASES["transformer encoder"]
    model, (x, _) = case.model(), case.batches()
    layers = ["e.layers.0.linear1", "e.layers.1.norm2"]
    found = seen(model, layers, x)
    truth = sum(found[layer][0].flatten(1) @ found[layer][0].flatten(1).T for layer in layers)
    assert gap(EmbeddingKernel(model, layers)(x), truth) <= 1e-12


@pytest.mark.parametrize("t", [3, 6])
def test_activations_whose_first_axis_is_not_the_samples_are_refused_or_right(t):
    """With t = n = 6 the shapes say nothing: rows would be tokens, silently."""
    model = Formula(lambda m, x: m.a(x.transpose(0, 1)).sum(0), a=nn.Linear(4, 2)).double()
    x = torch.randn(6, t, 4).double()
    for kernel, h in (
        (ConjugateKernel(model), x.flatten(1)),
        (EmbeddingKernel(model), model.a(x).flatten(1).detach()),
    ):
        try:
            k = kernel(x)
        except ModelError:
            continue
        assert gap(k, h @ h.T) <= 1e-12


def test_dict_batches():
    case = CASES["dict with constants"]
    model, (x, _) = case.model(), case.batches()
    assert ConjugateKernel(model).features(x).shape == (6, 3)
    assert gap(ConjugateKernel(model)(x, take(x, slice(0, 2))), ConjugateKernel(model)(x)[:, :2]) <= 1e-14


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
@pytest.mark.parametrize("noise", [lambda h: h.mean(0), torch.randn_like])
def test_samples_that_see_each_other_are_refused(kind, noise):
    model = Formula(lambda m, x: m.b(m.a(x) + noise(m.a(x))), a=nn.Linear(4, 5), b=nn.Linear(5, 2)).double()
    with pytest.raises(ModelError, match="depends on the other samples of its batch, or on chance"):
        kind(model)(X)


def test_copies_of_one_sample_settle_nothing():
    model = Formula(lambda m, x: m.b(m.a(x) * m.a(x).mean(0)), a=nn.Linear(4, 5), b=nn.Linear(5, 2)).double()
    kernel = ConjugateKernel(model)
    kernel(X[:1])
    with pytest.raises(ModelError, match="depends on the other samples"):
        kernel(X)


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
def test_layers_called_by_keyword(kind):
    parts = {"a": nn.Linear(4, 5), "b": nn.Linear(5, 2)}
    plain = Formula(lambda m, x: m.b(m.a(x)), **parts).double()
    named = Formula(lambda m, x: m.b(input=m.a(input=x)), **parts).double()
    assert torch.equal(kind(named)(X, Y), kind(plain)(X, Y))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_layers_are_refused():
    model = Formula(lambda m, x: m.a(x), a=torch.jit.trace(nn.Linear(4, 2), torch.zeros(1, 4)))
    with pytest.raises(ModelError, match="layer 'a' is scripted: expected a module that can be watched"):
        EmbeddingKernel(model, ["a"])(X.float())
