"""Positions and channels that a forward pass pads, flips, repeats, selects or takes apart."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from infinite.finite_networks import finite_kernels
from tangentkit.core.errors import ModelError
from tangentkit.infinite import InfiniteKernel

X = torch.randn(3, 3, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
SCALES = {"w_std": 1.4, "b_std": 0.3}


class Net(nn.Module):
    """A convolution, its activation, what is done to it, and a second convolution with a pooled or flat head."""

    def __init__(self, rule, channels: int = 8, flat: int | None = None, **modules):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(channels, 8, 2, padding=1)
        self.head = nn.Linear(8 if flat is None else 8 * flat, 1)
        self.flat = flat
        for name, module in modules.items():
            setattr(self, name, module)
        self.rule = rule

    def forward(self, x):
        h = self.c2(self.rule(self, self.c1(x).relu())).relu()
        return self.head(h.mean((2, 3)) if self.flat is None else h.flatten(1))


def same(first, second, x=X, **options) -> None:
    for kind in ("nngp", "ntk"):
        one, other = (InfiniteKernel(Net(rule, **options), kind, **SCALES)(x) for rule in (first, second))
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def differ(first, second, **options) -> None:
    one, other = (InfiniteKernel(Net(rule, **options), **SCALES)(X) for rule in (first, second))
    assert not torch.allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda _, h: F.pad(h, (1, 1, 2, 2)), lambda m, h: m.pad(h)),
        (lambda _, h: F.pad(h, (0, 2, 1, 0), "constant", 0), lambda m, h: m.uneven(h)),
        (lambda _, h: F.pad(h, [-1, -2]), lambda _, h: h[..., 1:3]),
        (lambda _, h: F.pad(h, (1, 2, 0, 1), mode="circular"), lambda m, h: m.circular(h)),
        (lambda _, h: F.pad(h, (1, 2, 0, 1), mode="replicate"), lambda m, h: m.replicate(h)),
        (lambda _, h: F.pad(h, (1, 2, 0, 1), mode="reflect"), lambda m, h: m.reflect(h)),
        (lambda _, h: torch.flip(h, (2,)).flip(-1), lambda _, h: h.flip(2, 3)),
        (lambda _, h: h.roll(2, 3), lambda _, h: torch.roll(h, shifts=-3, dims=-1)),
        (lambda _, h: h.select(2, 3).unsqueeze(2), lambda _, h: h[:, :, 3:4]),
        (lambda _, h: h[:, :, -1][:, :, None], lambda _, h: h.narrow(2, 5, 1)),
        (lambda _, h: F.interpolate(h, scale_factor=2), lambda m, h: m.up(h)),
        (lambda _, h: F.interpolate(h, (7, 11)), lambda m, h: m.odd(h)),
        (lambda _, h: h.chunk(2, 2)[1], lambda _, h: h[:, :, 3:]),
        (lambda _, h: torch.split(h, [1, 4], dim=3)[1], lambda _, h: h[..., 1:]),
        (lambda _, h: h.unbind(3)[2][..., None], lambda _, h: h[:, :, :, 2:3]),
        (lambda _, h: F.avg_pool2d(h, h.shape[2:]), lambda _, h: F.adaptive_avg_pool2d(h, 1)),
        (
            lambda _, h: F.avg_pool2d(h, (h.size(2) // 2, 2), stride=1),
            lambda _, h: F.avg_pool2d(h, (3, 2), 1),
        ),
        (lambda _, h: h.view(h.shape[0], 8, -1).view(h.shape), lambda _, h: h),
    ],
)
@pytest.mark.parametrize("head", ["pooled", "flat"])
def test_the_same_in_other_words(one, other, head):
    modules = {
        "pad": nn.ZeroPad2d((1, 1, 2, 2)),
        "uneven": nn.ConstantPad2d((0, 2, 1, 0), 0.0),
        "circular": nn.CircularPad2d((1, 2, 0, 1)),
        "replicate": nn.ReplicationPad2d((1, 2, 0, 1)),
        "reflect": nn.ReflectionPad2d((1, 2, 0, 1)),
        "up": nn.Upsample(scale_factor=2, mode="nearest"),
        "odd": nn.Upsample((7, 11)),
    }
    flat = None
    if head == "flat":
        shape = nn.Conv2d(8, 8, 2, padding=1)(
            Net(one, **modules).rule(Net(one, **modules), torch.zeros(1, 8, 6, 5))
        )
        flat = shape[0, 0].numel()
    same(one, other, flat=flat, **modules)


def test_padding_is_that_of_a_convolution():
    conv = {"padded": nn.Conv2d(8, 8, 3, padding=(1, 2)), "valid": nn.Conv2d(8, 8, 3)}
    same(lambda m, h: m.padded(h).relu(), lambda m, h: m.valid(F.pad(h, (2, 2, 1, 1))).relu(), **conv)
    circular = {"padded": nn.Conv2d(8, 8, 3, padding=2, padding_mode="circular"), "valid": nn.Conv2d(8, 8, 3)}
    same(
        lambda m, h: m.padded(h).relu(),
        lambda m, h: m.valid(F.pad(h, (2, 2, 2, 2), mode="circular")).relu(),
        **circular,
    )
    # The zeros of a Gaussian field stay zeros behind a ReLU, and become constants behind a sigmoid.
    linear = {"linear": nn.Conv2d(8, 8, 1)}
    same(
        lambda m, h: F.pad(m.linear(h), (1, 1)).relu(),
        lambda m, h: F.pad(m.linear(h).relu(), (1, 1)),
        **linear,
    )
    differ(
        lambda m, h: F.pad(m.linear(h), (1, 1)).sigmoid(),
        lambda m, h: F.pad(m.linear(h).sigmoid(), (1, 1)),
        **linear,
    )


def test_a_flipped_image_is_that_of_flipped_filters():
    # Filters of even size see another neighbor after a flip, unless the padding is flipped too.
    same(lambda _, h: h.flip(3), lambda _, h: h, x=X.flip(3), channels=8)
    differ(lambda _, h: h.flip(3)[..., 1:], lambda _, h: h[..., 1:])


def test_repeated_positions_are_averages_undone():
    same(lambda _, h: F.avg_pool2d(F.interpolate(h, scale_factor=3), 3), lambda _, h: h)


def test_parts_of_the_channels():
    same(lambda _, h: h[:, 2:6], lambda _, h: h[:, ::2], channels=4)
    same(lambda _, h: torch.cat(h.chunk(2, 1), 1), lambda _, h: h)
    same(lambda _, h: h.flip(1), lambda _, h: h)

    def crossed(m, h):
        a, b = h.split([3, 5], 1)
        return torch.cat([a, m.conv(b).relu()], 1)

    def beside(m, h):
        return torch.cat([h[:, :3], m.conv(h[:, 3:]).relu()], 1)

    conv = {"conv": nn.Conv2d(5, 5, 3, padding=1)}
    same(crossed, beside, **conv)
    # 3 of 8 channels are those of before, 5 those behind another layer.
    names = [lambda _, h: h, lambda m, h: m.whole(h).relu()]
    whole = {"whole": nn.Conv2d(8, 8, 3, padding=1)}
    joined = InfiniteKernel(Mixed(crossed, **conv), "nngp", **SCALES)(X)
    apart = [InfiniteKernel(Mixed(rule, **whole), "nngp", **SCALES)(X) for rule in names]
    torch.testing.assert_close(joined, (3 * apart[0] + 5 * apart[1]) / 8, rtol=1e-12, atol=1e-13)


class Mixed(Net):
    """A linear head behind what is done to the first layer."""

    def forward(self, x):
        return self.head(self.rule(self, self.c1(x).relu()).mean((2, 3)))


def test_channels_of_one_layer_added_to_each_other():
    class Sum(nn.Module):
        def __init__(self, rule):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 1)
            self.short, self.rule = nn.Linear(4, 1), rule

        def forward(self, x):
            return self.rule(self, self.first(x))

    x = torch.randn(4, 5, dtype=torch.float64)

    def kernel(rule):
        return InfiniteKernel(Sum(rule), **SCALES)(x)

    # A branch that is cut into parts is still itself when it meets itself.
    doubled = kernel(lambda m, h: m.last(torch.cat([h[:, :3], h[:, 3:]], 1) + h))
    torch.testing.assert_close(doubled, kernel(lambda m, h: m.last(2 * h)))
    mixed = kernel(lambda m, h: m.last(torch.cat([h[:, :4], m.second(h.relu())[:, 4:]], 1) + h))
    assert mixed.isfinite().all()
    with pytest.raises(ModelError, match=r"'first'.*correlated"):
        kernel(lambda m, h: m.short(h[:, :4] + h[:, 4:]))


def test_one_output_of_many():
    def model(rule):
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

            def forward(self, x):
                return rule(self.b(self.a(x).relu()))

        return Head()

    x = torch.randn(4, 5, dtype=torch.float64)
    whole = InfiniteKernel(model(lambda y: y), **SCALES)(x)
    for rule in (lambda y: y[:, 0], lambda y: y[:, 1:2], lambda y: y.unbind(1)[2], lambda y: y.select(1, 0)):
        torch.testing.assert_close(InfiniteKernel(model(rule), **SCALES)(x), whole)


def test_finite_networks_agree():
    def rule(_, h):
        a, b = F.pad(h, (1, 0, 0, 2)).chunk(2, 1)
        return torch.cat([F.interpolate(a.flip(3), scale_factor=2), F.interpolate(b, scale_factor=2)], 1)

    width, draws, x = 48, 60, X[:, :, :3, :3]
    model = Net(rule)
    model.c1, model.c2 = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 2, padding=1)
    model.head = nn.Linear(width, 1)
    for kind, found in finite_kernels(model, x, draws=draws, **SCALES).items():
        exact = InfiniteKernel(model, kind, **SCALES)(x)
        error = found.std(0) / draws**0.5
        assert ((found.mean(0) - exact).abs() <= 4.5 * error + 3 * exact.max() / width).all()
        assert error.max() < 0.1 * exact.max()


REFUSED = {
    "pad.*not zero": lambda _, h: F.pad(h, (1, 1), value=1.0),
    "ConstantPad2d 'ones'.*not zero": lambda m, h: m.ones(h),
    "pad.*adds or repeats channels": lambda _, h: F.pad(h, (0, 0, 0, 0, 4, 4))[:, 4:12],
    "interpolate.*bilinear": lambda _, h: F.interpolate(h, scale_factor=2, mode="bilinear"),
    "Upsample 'smooth'.*bilinear": lambda m, h: m.smooth(h),
    "flip.*samples": lambda _, h: h.flip(0),
    "roll.*one by one": lambda _, h: h.roll(3),
    "getitem.*is a tensor": lambda m, h: h[:, :, m.index],
    "max.*several tensors|max.*maximum": lambda _, h: h.max(3, keepdim=True)[0],
    "getitem.*merged with positions": lambda _, h: h.flatten(1)[:, :8].view(-1, 8, 1, 1),
    "amax.*maximum": lambda _, h: h.amax(3, keepdim=True),
    "sort": lambda _, h: h.sort(3)[0],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_exact_meaning_is_refused(words):
    model = Net(
        REFUSED[words], ones=nn.ConstantPad2d(1, 1.0), smooth=nn.Upsample(scale_factor=2, mode="bilinear")
    )
    model.register_buffer("index", torch.tensor([0, 2]))
    with pytest.raises(ModelError, match=words) as caught:
        InfiniteKernel(model, **SCALES)(X)
    assert "MonteCarloKernel" in str(caught.value)


def test_the_number_of_samples_is_that_of_the_input():
    class Skip(nn.Module):
        def __init__(self, rule):
            super().__init__()
            self.a, self.b, self.rule = nn.Linear(6, 6), nn.Linear(6, 1), rule

        def forward(self, x):
            return self.rule(self, x, self.a(x))

    x = torch.randn(5, 6, dtype=torch.float64)
    with pytest.raises(ModelError, match=r"view.*number of samples from a hidden tensor"):
        InfiniteKernel(Skip(lambda m, x, h: m.b(x.view(h.shape[0], 6) + h)), **SCALES)(x)
    flat, plain = (
        InfiniteKernel(Skip(rule), **SCALES)(x)
        for rule in (lambda m, _, h: m.b(h.relu().view(h.shape[0], -1)), lambda m, _, h: m.b(h.relu()))
    )
    assert torch.equal(flat, plain)


def test_channels_of_the_input_are_not_alike():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(3, 1)

        def forward(self, x):
            return self.b((x + self.a(x))[:, :3])

    with pytest.raises(ModelError, match=r"getitem.*not alike"):
        InfiniteKernel(Skip())(torch.randn(2, 6))
