"""Conjugate and embedding kernels, against hooks of the test's own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from cases import CASES, Formula, gap
from tangentkit import reference
from tangentkit.core import BudgetError, InputError, ModelError
from tangentkit.core.batches import take
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.empirical.activations.kernels import LeftOutWarning
from tangentkit.empirical.activations.watching import TOGETHER


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
    with pytest.raises(ModelError, match=r"calls none of the layers: .*, got calls of 'a' \(Linear\)"):
        EmbeddingKernel(model, ["idle"])(X)


def test_without_any_linear_layer_the_error_says_which_layers_there_are():
    model = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 2, 3), nn.Flatten()).double()
    with pytest.raises(
        ModelError, match=r"never calls a linear layer: .*'0' .Conv1d., .*'2' .Conv1d."
    ) as caught:
        ConjugateKernel(model)(X[:, None])
    assert str(caught.value).endswith("Try: the name of one of these")
    with pytest.raises(ModelError, match=r"never calls a linear layer: .*got no call of any module"):
        ConjugateKernel(Formula(lambda m, x: x * m.w, w=(4,)).double())(X)


def test_a_correction_beside_the_last_layer_is_no_head():
    case = CASES["lora"]
    model, (x, _) = case.model(), case.batches()
    h = seen(model, ["2.base"], x, inputs=True)["2.base"][0]
    assert gap(ConjugateKernel(model)(x), h @ h.T) <= 1e-12


def test_outputs_of_any_form():
    parts = {"a": nn.Linear(4, 5), "w": (5, 2)}
    plain = Formula(lambda m, x: torch.tanh(m.a(x)) @ m.w, **parts).double()
    dicts = Formula(
        lambda m, x: {"logits": (torch.tanh(m.a(x)) @ m.w)[:, None], "n": len(x)}, **parts
    ).double()
    dicts.load_state_dict(plain.state_dict())
    assert torch.equal(ConjugateKernel(dicts)(X, Y), ConjugateKernel(plain)(X, Y))


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
@pytest.mark.parametrize("samples", [1, 2, 4])
def test_pieces_do_not_matter(kind, samples):
    sizes = []

    def forward(model, x):
        sizes.append(len(x))
        return model(x)

    model = network()
    # A sample is 4 numbers and leaves 24 behind.
    memory = TOGETHER * (28 * 8 + 1) * samples
    whole, pieces = kind(model), kind(model, forward=forward, memory=memory)
    assert gap(pieces(X, Y), whole(X, Y)) <= 1e-12
    sizes.clear()
    assert gap(pieces(X), whole(X)) <= 1e-12
    assert gap(pieces.diag(X), whole.diag(X)) <= 1e-12
    assert max(sizes) == samples


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
def test_a_sample_that_does_not_fit_the_budget(kind):
    with pytest.raises(
        BudgetError, match=r"one sample are beyond the memory budget: expected at most 10 bytes .*, got"
    ):
        kind(network(), memory=10)(X)


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
def test_threads_do_not_see_each_other(kind):
    """Hooks stand on the user's module: one thread's must not see what another runs."""
    kernel = kind(network())
    expected = kernel(X, Y)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kernel(X, Y), range(64)))
    assert all(gap(k, expected) <= 1e-14 for k in found)


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
    with pytest.raises(InputError, match="index 7 is out of bounds"):
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


def test_batches_may_be_dicts():
    case = CASES["dict with constants"]
    model, (x, _) = case.model(), case.batches()
    assert ConjugateKernel(model).features(x).shape == (6, 3)
    assert gap(ConjugateKernel(model)(x, take(x, slice(0, 2))), ConjugateKernel(model)(x)[:, :2]) <= 1e-14


@pytest.mark.parametrize("kind", [ConjugateKernel, EmbeddingKernel])
@pytest.mark.parametrize(
    "noise", [lambda h: h.mean(0), lambda h: h.amax(0), torch.randn_like], ids=["mean", "largest", "chance"]
)
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


class Positions(nn.Module):
    """Tokens with embeddings of positions, which no sample has a part in."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, 3), nn.Embedding(5, 3)
        self.mixed, self.first = nn.GRU(3, 4), nn.Linear(4, 2)

    def forward(self, ids):
        h = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.first(self.mixed(h.transpose(0, 1))[0][-1])


def test_layers_without_samples_first_are_left_out_by_default_and_named():
    model, x = Positions().double(), torch.randint(9, (6, 5))
    kernel = EmbeddingKernel(model)
    with pytest.warns(
        LeftOutWarning, match=r"2 layer\(s\) without the samples first are left out: 'places', 'mixed'"
    ):
        found = kernel(x)
    assert torch.equal(found, EmbeddingKernel(model, ["tokens", "first"])(x))
    torch.testing.assert_close(kernel(x, x[:2]), found[:, :2])  # and says it once
    with pytest.raises(ModelError, match="layer 'places' does not have the samples first"):
        EmbeddingKernel(model, ["tokens", "places"])(x)


class Masked(nn.Module):
    """A layer whose output is no number."""

    def forward(self, h):
        return h > 0


def test_layers_without_numbers_are_left_out_by_default():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.mask, self.down = nn.Linear(4, 5), Masked(), nn.Linear(5, 2)

        def forward(self, x):
            h = self.up(x)
            return self.down(h * self.mask(h))

    model = Gated().double()
    with pytest.warns(LeftOutWarning, match="'mask'"):
        found = EmbeddingKernel(model)(X)
    assert torch.equal(found, EmbeddingKernel(model, ["up", "down"])(X))


def test_layers_with_parametrizations_count_as_without():
    model = network()
    nn.utils.parametrizations.orthogonal(model[0])
    nn.utils.parametrizations.weight_norm(model[2])
    x, names = torch.randn(7, 4).double(), ["0", "1", "2", "3", "4"]
    kernel = EmbeddingKernel(model)
    grams = [h @ h.T for (h,) in seen(model, names, x).values()]
    assert kernel.layers == names
    assert gap(kernel(x), sum(grams)) < 1e-12
