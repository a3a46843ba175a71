"""Modules that say the same in other words have the same kernel, and what has no limit is named."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tangentkit.nn as tknn
from tangentkit.core.errors import InputError, ModelError, UnknownNameError
from tangentkit.infinite import InfiniteKernel, Pointwise

X = torch.randn(4, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SCALES = {"w_std": 1.4, "b_std": 0.3}


class Net(nn.Module):
    """Two convolutions and a head, with a forward pass that is given."""

    def __init__(self, forward, features: int = 8, channels: int = 3, **modules):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(channels, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(features, 2)
        for name, module in modules.items():
            setattr(self, name, module)
        self.rule = forward

    def forward(self, x):
        return self.rule(self, x)


def kernel(forward, kind: str = "ntk", **options) -> torch.Tensor:
    return InfiniteKernel(Net(forward, **options), kind, **SCALES)(X)


def same(first, second, **options) -> None:
    for kind in ("nngp", "ntk"):
        torch.testing.assert_close(
            kernel(first, kind, **options), kernel(second, kind, **options), rtol=1e-12, atol=1e-13
        )


def gap(m, x):
    return m.head(F.adaptive_avg_pool2d(torch.relu(m.c1(x)), 1).flatten(1))


FLAT = {"features": 8 * 36}


@pytest.mark.parametrize(
    "other",
    [
        lambda m, x: m.head(torch.relu(m.c1(x)).mean((2, 3))),
        lambda m, x: m.head(m.c1(x).relu().mean(dim=(-2, -1), keepdim=True).squeeze(-1).squeeze(-1)),
        lambda m, x: m.head(F.avg_pool2d(F.relu(m.c1(x), inplace=True), 6).view(x.size(0), -1)),
        lambda m, x: m.head(m.c1(x).relu_().flatten(2).mean(-1)),
        lambda m, x: m.head(m.c1(x).relu().mean(2).mean(2)),
        lambda m, x: m.head(m.c1(x).permute(0, 2, 3, 1).relu().flatten(1, 2).mean(1)),
        lambda m, x: m.head(m.c1(x).transpose(2, 3).relu().mean((2, 3))),
        lambda m, x: m.head(F.dropout(m.c1(x).relu(), 0.5, m.training).mean((2, 3))),
        lambda m, x: m.head(m.c1(x).relu().mean((2, 3))) + 0,
        lambda m, x: -m.head(-m.c1(x).relu().mean((2, 3))),
        lambda m, x: m.head(m.c1(x).relu().mean((2, 3)) * x.shape[1] / 3),
    ],
)
def test_pooling_in_other_words(other):
    model = Net(other).eval()
    expected = kernel(gap)
    torch.testing.assert_close(InfiniteKernel(model, **SCALES)(X), expected, rtol=1e-12, atol=1e-13)


def test_a_sum_over_positions_is_a_mean_times_their_number():
    same(lambda m, x: m.head(m.c1(x).relu().sum((2, 3)) / 36), gap)
    same(lambda m, x: m.head(m.c1(x).relu().sum(3, keepdim=True).sum((-2, -1)) * (1 / 36)), gap)


def test_trained_gains_of_normalizations_are_announced():
    norm = nn.LayerNorm(8)
    model = nn.Sequential(nn.Linear(5, 8), norm, nn.ReLU(), nn.Linear(8, 1))
    with pytest.warns(UserWarning, match=r"\('1'\) count as constants"):
        warned = InfiniteKernel(model)
    InfiniteKernel(model, "nngp")
    norm.requires_grad_(False)
    x = torch.randn(3, 5)
    assert torch.equal(InfiniteKernel(model)(x), warned(x))


def test_weights_outside_of_their_layer_are_refused():
    with pytest.raises(ModelError, match=r"'c2.weight'.*outside of their layer"):
        InfiniteKernel(Net(lambda m, x: m.head(F.conv2d(m.c1(x), m.c2.weight).mean((2, 3)))))


def test_a_factor_is_a_scale_of_the_next_layer():
    doubled = Net(lambda m, x: m.head(2 * m.c1(x).relu().mean((2, 3))))
    for kind in ("nngp", "ntk"):
        got = InfiniteKernel(doubled, kind, w_std={"c1": 1.4, "head": 0.7}, b_std=0.3)(X)
        torch.testing.assert_close(got, kernel(gap, kind), rtol=1e-12, atol=0)


def test_flatten_in_other_words():
    def flat(m, x):
        return m.head(torch.relu(m.c1(x)).flatten(1))

    same(flat, lambda m, x: m.head(torch.relu(m.c1(x)).view(x.shape[0], -1)), **FLAT)
    same(flat, lambda m, x: m.head(torch.relu(m.c1(x).flatten(1))), **FLAT)
    same(flat, lambda m, x: m.head(m.c1(x).reshape(-1, 8, 36).relu().reshape(-1, 8 * 36)), **FLAT)
    same(flat, lambda m, x: m.head(m.c1(x).permute(0, 3, 1, 2).relu().flatten(1)), **FLAT)
    same(flat, lambda m, x: m.head(m.c1(x).flatten(1).unflatten(1, (8, 6, 6)).relu().flatten(1)), **FLAT)
    # A convolution whose filter is the whole image is a flatten and a linear layer.
    same(flat, lambda m, x: m.whole(m.c1(x).relu()).flatten(1), **FLAT, whole=nn.Conv2d(8, 2, 6))


def test_sums_of_branches():
    def residual(m, x):
        h = m.c1(x)
        return m.head((h + m.c2(h.relu())).relu().mean((2, 3)))

    def listed(m, x):
        h = m.c1(x)
        return m.head(sum([h, m.c2(h.relu())]).relu().mean((2, 3)))

    same(residual, listed)
    # Twice a branch is four times its covariance; a difference has the covariance of the sum.
    same(
        lambda m, x: m.head((m.c1(x) * 2).relu().mean((2, 3))),
        lambda m, x: m.head(_doubled(m.c1(x)).relu().mean((2, 3))),
    )

    def difference(m, x):
        h = m.c1(x)
        return m.head(torch.sub(h, m.c2(h.relu())).relu().mean((2, 3)))

    same(residual, difference)

    def weighted(m, x):
        h = m.c1(x)
        return m.head(torch.add(h, m.c2(h.relu()), alpha=0.5).relu().mean((2, 3)))

    def halved(m, x):
        h = m.c1(x)
        return m.head((h + m.c2(h.relu()) / 2).relu().mean((2, 3)))

    same(weighted, halved)
    assert not torch.allclose(kernel(weighted), kernel(residual), rtol=1e-3)


def _doubled(h):
    return h + h


def test_a_sum_over_transposed_images_knows_its_axes():
    def forward(m, x):
        h = m.c1(x)
        return m.head((h + m.c2(h.relu().transpose(2, 3)).transpose(2, 3)).relu().flatten(1))

    def upright(m, x):
        h = m.c1(x)
        return m.head((h + m.c2(h.relu())).relu().flatten(1))

    # 3x3 filters with the same padding on both sides are symmetric under transposition.
    same(forward, upright, **FLAT)


def test_concatenated_channels_are_a_mean_with_shares():
    def joined(m, x):
        return m.head(torch.cat([m.c1(x).relu(), m.wide(x).erf()], 1).mean((2, 3)))

    wide = nn.Conv2d(3, 24, 5, padding=2)
    got = kernel(joined, "nngp", features=32, wide=wide)
    one = kernel(gap, "nngp")
    other = kernel(lambda m, x: m.head(m.wide(x).erf().mean((2, 3))), "nngp", features=24, wide=wide)
    torch.testing.assert_close(got, 0.25 * one + 0.75 * other, rtol=1e-9, atol=1e-10)
    # An activation after the concatenation is one on each part, and flattened parts may have different positions.
    same(
        lambda m, x: m.head(torch.cat([m.c1(x), m.wide(x)], 1).relu().mean((2, 3))),
        lambda m, x: m.head(torch.cat([m.c1(x).relu(), m.wide(x).relu()], 1).mean((2, 3))),
        features=32,
        wide=wide,
    )
    flat = kernel(
        lambda m, x: m.head(torch.cat([m.c1(x).relu().flatten(1), m.wide(x).relu().mean((2, 3))], 1)),
        "nngp",
        features=8 * 36 + 24,
        wide=wide,
    )
    parts = (
        kernel(lambda m, x: m.head(m.c1(x).relu().flatten(1)), "nngp", **FLAT),
        kernel(lambda m, x: m.head(m.wide(x).relu().mean((2, 3))), "nngp", features=24, wide=wide),
    )
    torch.testing.assert_close(flat, (288 * parts[0] + 24 * parts[1]) / 312, rtol=1e-11, atol=1e-12)


def test_positions_can_be_selected():
    same(
        lambda m, x: m.head(m.c1(x)[:, :, ::2, 1:-1].relu().mean((2, 3))),
        lambda m, x: m.head(m.c1(x).relu()[..., 1:5][:, :, 0:5:2].mean((2, 3))),
    )
    # One pixel is a network on its surroundings.
    one = kernel(lambda m, x: m.head(m.c1(x)[:, :, 0, -1].relu()))
    patch = kernel(lambda m, x: m.head(m.c1(F.pad(x[:, :, :2, 4:], (0, 1, 1, 0)))[:, :, 1, 1].relu()))
    torch.testing.assert_close(one, patch, rtol=1e-12, atol=1e-13)


def test_what_comes_before_the_first_layer_is_done_as_it_stands():
    def prepared(m, x):
        return gap(m, F.max_pool2d(torch.softmax(x, 1) - 0.25, 2))

    ready = F.max_pool2d(torch.softmax(X, 1) - 0.25, 2)
    torch.testing.assert_close(
        InfiniteKernel(Net(prepared), **SCALES)(X), InfiniteKernel(Net(gap), **SCALES)(ready)
    )
    images = (255 * torch.rand(3, 3, 6, 6)).to(torch.uint8)
    scaled = InfiniteKernel(Net(lambda m, x: gap(m, x.double() / 255)), **SCALES)(images)
    torch.testing.assert_close(scaled, InfiniteKernel(Net(gap), **SCALES)(images.double() / 255))


def test_the_input_may_join_later():
    # x + z with z Gaussian of mean zero: covariances add.
    model = Net(lambda m, x: m.out(x + m.inner(x)), inner=nn.Linear(5, 5), out=nn.Linear(5, 1))
    x = torch.randn(3, 5, dtype=torch.float64)
    k0 = x @ x.T / 5
    k1 = 1.4**2 * k0 + 0.3**2
    expected = 1.4**2 * (k0 + k1) + 0.3**2
    torch.testing.assert_close(InfiniteKernel(model, "nngp", **SCALES)(x), expected)
    torch.testing.assert_close(InfiniteKernel(model, **SCALES)(x), 1.4**2 * k1 + expected)


def test_tokens():
    # A linear layer acts on each token; the mean over tokens needs all pairs of them.
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.b(torch.relu(self.a(x)).mean(1))

    class Pixels(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv1d(3, 8, 1), nn.Linear(8, 1)

        def forward(self, x):
            return self.b(torch.relu(self.a(x.transpose(1, 2))).mean(2))

    x = torch.randn(3, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(InfiniteKernel(Tokens(), **SCALES)(x), InfiniteKernel(Pixels(), **SCALES)(x))


def test_normalizations():
    norms = {
        "layer": nn.LayerNorm([8, 6, 6], eps=1e-3, elementwise_affine=False),
        "group": nn.GroupNorm(1, 8, eps=1e-3, affine=False),
        "groups": nn.GroupNorm(2, 8, eps=1e-3, affine=False),
    }
    kernels = [
        kernel(lambda m, x: m.head(m.norm(m.c1(x)).relu().mean((2, 3))), norm=norm) for norm in norms.values()
    ]
    torch.testing.assert_close(kernels[0], kernels[1])
    torch.testing.assert_close(kernels[0], kernels[2])
    # Over channels alone: at each position, as for channels-last networks; RMSNorm differs by its mean, which is 0.
    last = kernel(
        lambda m, x: m.head(m.norm(m.c1(x).permute(0, 2, 3, 1)).relu().mean((1, 2))),
        norm=nn.LayerNorm(8, eps=1e-3, elementwise_affine=False),
    )
    rms = kernel(
        lambda m, x: m.head(m.norm(m.c1(x).permute(0, 2, 3, 1)).relu().mean((1, 2))),
        norm=nn.RMSNorm(8, eps=1e-3, elementwise_affine=False),
    )
    torch.testing.assert_close(last, rms)
    assert not torch.allclose(last, kernels[0], rtol=1e-3)
    # A normalized field has variance 1, whatever the scale of the inputs.
    model = Net(lambda m, x: m.head(m.norm(m.c1(x)).flatten(1)), norm=nn.GroupNorm(2, 8, eps=0.0), **FLAT)
    torch.testing.assert_close(
        InfiniteKernel(model, "nngp")(100 * X).diagonal(), torch.ones(4, dtype=torch.float64)
    )


def test_batch_norm_in_evaluation_mode_is_the_affine_map_of_its_statistics():
    norm = nn.BatchNorm2d(8, affine=False)
    norm.running_var.fill_(3.0)
    model = Net(lambda m, x: m.head(m.norm(m.c1(x)).relu().mean((2, 3))), norm=norm).eval()
    scaled = kernel(lambda m, x: m.head(((3 + 1e-5) ** -0.5 * m.c1(x)).relu().mean((2, 3))))
    torch.testing.assert_close(InfiniteKernel(model, **SCALES)(X), scaled, rtol=1e-6, atol=0)
    for value in (norm.running_mean, norm.running_var):
        with torch.no_grad():
            value[0] += 1
        with pytest.raises(ModelError, match=r"BatchNorm2d 'norm'.*MonteCarloKernel"):
            InfiniteKernel(model, **SCALES)(X)
        with torch.no_grad():
            value[0] -= 1


def test_frozen_parameters_add_nothing():
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(4, 5, dtype=torch.float64)
    whole, nngp = InfiniteKernel(model, **SCALES)(x), InfiniteKernel(model, "nngp", **SCALES)(x)
    model[0].requires_grad_(False)
    torch.testing.assert_close(InfiniteKernel(model, **SCALES)(x), nngp)
    model[0].requires_grad_(True)
    model[2].requires_grad_(False)
    torch.testing.assert_close(InfiniteKernel(model, **SCALES)(x), whole - nngp)
    model.requires_grad_(False)
    assert not InfiniteKernel(model, **SCALES)(x).any()


def test_scales_of_our_layers_are_their_own():
    x = torch.randn(4, 5, dtype=torch.float64)
    plain = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    ours = nn.Sequential(tknn.Linear(5, 8, w_std=1.4, b_std=0.3), nn.ReLU(), tknn.Linear(8, 1, w_std=0.5))
    named = InfiniteKernel(plain, w_std={"0": 1.4, "2": 0.5}, b_std={"0": 0.3})
    torch.testing.assert_close(InfiniteKernel(ours, w_std=7.0)(x), named(x))
    torch.testing.assert_close(InfiniteKernel(ours, parameterization="standard")(x), named(x))
    with pytest.raises(UnknownNameError):
        InfiniteKernel(ours, w_std={"0": 1.0})


def test_it_is_a_snapshot_and_leaves_the_module_alone():
    model = Net(gap, norm=nn.BatchNorm2d(8, affine=False)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kernel_before = InfiniteKernel(model, **SCALES)
    expected = kernel_before(X)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.rule = lambda m, x: m.head(m.c1(x).mean((2, 3)))
    model.train()
    torch.testing.assert_close(kernel_before(X), expected)
    small = torch.randn(2, 3, 4, 4)
    assert kernel_before(small).dtype == torch.float32


def test_its_identity_tells_kernels_apart():
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    wider = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 1))
    smooth = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 1))
    other_weights = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    kernel = InfiniteKernel(model, **SCALES)
    assert kernel.identity() == InfiniteKernel(other_weights, **SCALES, memory="1GB").identity()
    others = [
        InfiniteKernel(model, "nngp", **SCALES),
        InfiniteKernel(model, w_std=1.4),
        InfiniteKernel(model, **SCALES, parameterization="standard"),
        InfiniteKernel(smooth, **SCALES),
        InfiniteKernel(wider, **SCALES),
    ]
    assert all(kernel.identity() != other.identity() for other in others)
    model[0].requires_grad_(False)
    assert kernel.identity() != InfiniteKernel(model, **SCALES).identity()
    x = torch.randn(3, 5)
    assert torch.equal(kernel.within(10**8)(x), kernel(x))
    torch.testing.assert_close((2.0 * kernel.normalized())(x).diagonal(), torch.full((3,), 2.0))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.a(-x)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x, y):
        return self.a(x) + y


def test_modules_that_cannot_be_traced_are_refused_at_once():
    with pytest.raises(ModelError, match=r"torch.fx cannot trace.*MonteCarloKernel"):
        InfiniteKernel(Branching())
    with pytest.raises(ModelError, match=r"one tensor.*x, y"):
        InfiniteKernel(TwoInputs())
    with pytest.raises(ModelError, match="training mode"):
        InfiniteKernel(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)))
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda *args: args[-1] * 2)
    with pytest.raises(ModelError, match="'0' has forward hooks"):
        InfiniteKernel(hooked)
    normed = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))
    with pytest.raises(ModelError, match="parametrization"):
        InfiniteKernel(normed)
    with pytest.raises(InputError, match="a torch module"):
        InfiniteKernel(torch.relu)  # pyright: ignore


def mixed(m, x):
    h = m.c1(x).relu()
    return m.head((h + m.c2(h).relu()).mean((2, 3)))


def gated(m, x):
    return m.head((m.c1(x) * torch.sigmoid(m.other(x))).mean((2, 3)))


def shortcut(m, x):
    h = m.c1(x).relu()
    return m.head((h + m.c2(h)).relu().mean((2, 3)))


def squeezed(m, x):
    h = m.c1(x).relu()
    return m.head((h * h.mean((2, 3), keepdim=True)).mean((2, 3)))


def correlated(m, x):
    h = m.c1(x)
    return m.head((h + F.avg_pool2d(h, 3, stride=1, padding=1)).relu().mean((2, 3)))


REFUSED = {
    "MaxPool2d 'pool'.*maximum": (
        lambda m, x: m.head(m.pool(m.c1(x)).mean((2, 3))),
        {"pool": nn.MaxPool2d(2)},
    ),
    "max_pool2d.*maximum": (lambda m, x: m.head(F.max_pool2d(m.c1(x), 6).flatten(1)), {}),
    "InstanceNorm2d 'norm'.*single channels": (
        lambda m, x: m.head(m.norm(m.c1(x)).mean((2, 3))),
        {"norm": nn.InstanceNorm2d(8)},
    ),
    "Conv2d 'part'.*groups": (
        lambda m, x: m.head(m.part(m.c1(x)).mean((2, 3))),
        {"part": nn.Conv2d(8, 8, 3, groups=2)},
    ),
    "Conv2d 'c2'.*used twice": (lambda m, x: m.head(m.c2(m.c2(m.c1(x)).relu()).mean((2, 3))), {}),
    "add.*nonlinear functions": (mixed, {}),
    "mul.*products": (gated, {"other": nn.Conv2d(3, 8, 3, padding=1)}),
    "relu.*a nonlinear function itself.*shortcut": (shortcut, {}),
    "mul.*products of branches": (squeezed, {}),
    "add.*'c1'.*correlated": (correlated, {}),
    "relu.*not Gaussian": (lambda m, x: m.head(m.c1(x).relu().mean((2, 3)).relu()), {}),
    "softmax.*mixes": (lambda m, x: torch.softmax(gap(m, x), 1), {}),
    "add.*shifts its mean": (lambda m, x: m.head(m.c1(x).relu().mean((2, 3)) + 1.0), {}),
    "sum.*over channels": (lambda m, x: m.head(m.c1(x).sum(1).flatten(1)), {"features": 36}),
    "mean.*channels": (lambda m, x: m.head(m.c1(x).mean(1).flatten(1)), {"features": 36}),
    "'mix'.*not the channels": (
        lambda m, x: m.head(m.mix(m.c1(x).relu()).mean((2, 3))),
        {"mix": nn.Linear(6, 6)},
    ),
    "ConvTranspose2d 'up'": (
        lambda m, x: m.head(m.up(m.c1(x)).mean((2, 3))),
        {"up": nn.ConvTranspose2d(8, 8, 2)},
    ),
    "parameter 'gain'.*trained": (
        lambda m, x: m.head((m.gain * m.c1(x)).mean((2, 3))),
        {"gain": nn.Parameter(torch.ones(()))},
    ),
    "view.*pieces": (lambda m, x: m.head(m.c1(x).view(-1, 2, 4, 36).mean(3).flatten(1)), {}),
    "reshape.*samples": (lambda m, x: m.head(m.c1(x).reshape(-1, 8, 36).transpose(1, 2).reshape(-1, 8)), {}),
    "cumsum": (lambda m, x: m.head(m.c1(x).cumsum(2).mean((2, 3))), {}),
    "Embedding 'look'.*lookups": (
        lambda m, x: m.head(m.look((x[:, 0, 0, 0] > 0).long())),
        {"look": nn.Embedding(4, 8)},
    ),
    "truediv.*number of samples": (lambda m, x: gap(m, x) / x.shape[0], {}),
    "LSTM 'lstm'": (
        lambda m, x: m.head(m.lstm(m.c1(x).flatten(2))[0].mean(1)),
        {"lstm": nn.LSTM(36, 8, batch_first=True)},
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_limit_is_named(words):
    forward, options = REFUSED[words]
    with pytest.raises(ModelError, match=words) as caught:
        InfiniteKernel(Net(forward, **options), **SCALES)(X)
    assert "MonteCarloKernel" in str(caught.value)


def test_a_product_can_be_declared_a_scalar_function():
    class Swish(nn.Module):
        dual = Pointwise(F.silu)

        def forward(self, x):
            return x * torch.sigmoid(x)

    x = torch.randn(4, 5, dtype=torch.float64)
    declared, known = (
        InfiniteKernel(nn.Sequential(nn.Linear(5, 8), act, nn.Linear(8, 1)))(x)
        for act in (Swish(), nn.SiLU())
    )
    torch.testing.assert_close(declared, known)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda m, x: m.c1(x), "bad output shape.*n, 8, 6, 6.*head"),
        (lambda m, x: (gap(m, x), gap(m, x)), "used twice|one tensor"),
        (lambda m, x: (m.c1(x), m.c2(m.c1(x))), "used twice|one tensor"),
        (lambda _, x: x.mean((2, 3)), "no linear or convolutional layer"),
    ],
)
def test_outputs_that_are_not_vectors(forward, words):
    with pytest.raises(ModelError, match=words):
        InfiniteKernel(Net(forward))(X)


def test_samples_that_see_each_other_are_refused():
    with pytest.raises(ModelError, match="other samples"):
        InfiniteKernel(Net(lambda m, x: gap(m, x - x.mean(0))))(X)
    with pytest.raises(ModelError, match="one output for each sample"):
        InfiniteKernel(Net(lambda m, x: gap(m, x)[:2]))(X)


def test_an_output_of_one_number_may_have_no_axis():
    model = Net(lambda m, x: m.one(m.c1(x).relu().flatten(1)).squeeze(-1), one=nn.Linear(8 * 36, 1))
    flat = Net(lambda m, x: m.one(m.c1(x).relu().flatten(1)), one=nn.Linear(8 * 36, 1))
    torch.testing.assert_close(InfiniteKernel(model)(X), InfiniteKernel(flat)(X))


def test_tied_layers_are_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    with pytest.raises(ModelError, match=r"Linear '2'.*used twice.*'0'"):
        InfiniteKernel(model)(torch.randn(2, 4))


def test_bad_inputs():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    kernel = InfiniteKernel(model)
    x = torch.randn(3, 3, 4)
    with pytest.raises(InputError, match=r"layer '1'.*expected 12 features, got 15"):
        kernel(torch.randn(3, 3, 5))
    with pytest.raises(InputError, match="do not match"):
        kernel(x, torch.randn(3, 4, 3))
    with pytest.raises(InputError, match="do not match"):
        kernel(x, x.double())
    with pytest.raises(InputError, match="empty"):
        kernel(x[:0])
    with pytest.raises(InputError, match="empty"):
        kernel(x, x[:0])
    with pytest.raises(InputError, match=r"not finite.*samples \[1\]"):
        kernel(torch.where(torch.arange(3)[:, None, None] == 1, torch.nan, x))
    with pytest.raises(InputError, match="float32 or float64"):
        kernel(x.half())
    with pytest.raises(InputError, match="one tensor"):
        kernel({"x": x})
    with pytest.raises(ModelError, match="int64"):
        kernel(torch.ones(3, 12, dtype=torch.int64))
    images = InfiniteKernel(Net(gap))
    with pytest.raises(InputError, match=r"layer 'c1'.*expected 3 channels, got 4"):
        images(torch.randn(2, 4, 6, 6))
    with pytest.raises(InputError, match="4 axes"):
        images(torch.randn(2, 3, 6))
    with pytest.raises(InputError, match="do not match"):
        images(torch.randn(2, 3, 6, 6), torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize(
    "options",
    [
        {"w_std": -1.0},
        {"b_std": float("nan")},
        {"w_std": {"0": -0.1}},
        {"kind": "ntk!"},
        {"parameterization": "mup"},
    ],
)
def test_bad_options(options):
    with pytest.raises(InputError):
        InfiniteKernel(nn.Sequential(nn.Linear(3, 1)), **options)


def test_unknown_layer_names():
    with pytest.raises(UnknownNameError, match="'head'"):
        InfiniteKernel(nn.Sequential(nn.Linear(3, 1)), w_std={"head": 1.0})


def test_a_module_that_is_a_layer_itself():
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(InfiniteKernel(nn.Linear(3, 2), w_std={"": 2.0})(x), 4 * x @ x.T / 3)
