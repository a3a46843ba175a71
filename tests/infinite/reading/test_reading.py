"""Modules that say the same in other words have the same kernel."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tangentkit.nn as tknn
from infinite.other_words import FLAT, SCALES, Net, X, gap, kernel
from tangentkit.core.errors import ModelError, UnknownNameError
from tangentkit.infinite import InfiniteKernel


def same(first, second, **options) -> None:
    for kind in ("nngp", "ntk"):
        torch.testing.assert_close(
            kernel(first, kind, **options), kernel(second, kind, **options), rtol=1e-12, atol=1e-13
        )


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


def test_a_mean_over_tokens_is_one_over_pixels():
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


def test_normalizations_over_channels_and_positions_are_alike():
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
    other_weights = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    kernel = InfiniteKernel(model, **SCALES)
    assert kernel.identity() == InfiniteKernel(other_weights, **SCALES, memory="1GB").identity()
    others = [
        InfiniteKernel(model, "nngp", **SCALES),
        InfiniteKernel(model, w_std=1.4),
        InfiniteKernel(model, **SCALES, parameterization="standard"),
    ]
    assert all(kernel.identity() != other.identity() for other in others)
    model[0].requires_grad_(False)
    assert kernel.identity() != InfiniteKernel(model, **SCALES).identity()
    x = torch.randn(3, 5)
    assert torch.equal(kernel.within(10**8)(x), kernel(x))
    torch.testing.assert_close((2.0 * kernel.normalized())(x).diagonal(), torch.full((3,), 2.0))
