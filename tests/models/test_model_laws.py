"""Laws that every network of the room obeys."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from tangentkit import models
from tangentkit.core import Key

# torch compiles its forward-mode rules by a function that it has itself deprecated.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def images(channels, size):
    return lambda n: (torch.rand(n, channels, size, size),)


def points(dimension):
    return lambda n: (torch.randn(n, dimension),)


def sequences(vocabulary, length):
    def draw(n):
        lengths = torch.randint(1, length + 1, (n, 1))
        return torch.randint(vocabulary, (n, length)), torch.arange(length) < lengths

    return draw


def centered(seed=0):
    """A trained-looking difference: as built it is zero, with zero everywhere."""
    model = models.Centered(models.mnist2_cnn(2, seed=seed))
    with torch.no_grad():
        for p in model.model.parameters():
            p.mul_(1.1)
    return model


transformer = partial(models.TransformerClassifier, 30, length=12, width=16, heads=2, outputs=3)

CASES = {
    "mlp": (partial(models.mlp, (12, 9, 7, 2)), points(12), 2),
    "mlp-images": (partial(models.mlp, (48, 9, 1), activation=nn.Tanh), images(3, 4), 1),
    "lenet-28": (models.lenet, images(1, 28), 10),
    "lenet-32": (partial(models.lenet, 0.5, channels=3, size=32, outputs=1), images(3, 32), 1),
    "lenet-8": (partial(models.lenet, 2, size=8), images(1, 8), 10),
    "lenet5": (models.lenet5, images(3, 32), 1),
    "lenet5-small": (partial(models.lenet5, channels=1, size=10, activation=nn.GELU), images(1, 10), 1),
    "alexnet": (partial(models.alexnet, 1 / 32), images(3, 64), 10),
    "resnet18": (partial(models.resnet18, width=4, outputs=10, zero_init_residual=False), images(3, 16), 10),
    "resnet18-gelu": (
        partial(models.resnet18, width=4, channels=1, activation=nn.GELU, zero_init_residual=False),
        images(1, 16),
        1,
    ),
    "cifar_resnet": (partial(models.cifar_resnet, 14, outputs=5), images(3, 16), 5),
    "poisoning": (models.poisoning_cnn, images(3, 32), 10),
    "poisoning-8": (partial(models.poisoning_cnn, channels=1, size=8), images(1, 8), 10),
    "mnist2_mlp": (models.mnist2_mlp, images(1, 28), 1),
    "mnist2_cnn": (partial(models.mnist2_cnn, 2), images(1, 28), 1),
    "cifar2_cnn": (partial(models.cifar2_cnn, 2), images(3, 32), 1),
    "cifar2_cnn-8": (partial(models.cifar2_cnn, 2, channels=1, size=8, outputs=3), images(1, 8), 3),
    "centered": (centered, images(1, 28), 1),
    "arora_mlp": (partial(models.arora_mlp, (6, 8, 9, 2)), points(6), 2),
    "wang_mlp": (partial(models.wang_mlp, (6, 8, 9, 2)), points(6), 2),
    "two_layer": (partial(models.two_layer, 6, 8), points(6), 1),
    "transformer": (transformer, sequences(30, 12), 3),
    "transformer-causal": (partial(transformer, causal=True, pooling="last"), sequences(30, 12), 3),
}


@pytest.fixture(params=CASES)
def case(request):
    """How to build a network, how to draw its inputs, and how many outputs it has."""
    return CASES[request.param]


def double(inputs):
    return tuple(x.double() if x.is_floating_point() else x for x in inputs)


def built(case, n=3):
    """The network in float64 and evaluation mode with norms that have seen data, inputs and output count."""
    build, draw, outputs = case
    model = build(seed=1).double()
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.bias.data.normal_()
    return model.eval(), double(draw(n)), outputs


def test_outputs_have_shape_and_are_finite(case):
    build, draw, outputs = case
    f = build().eval()(*draw(3))
    assert f.shape == (3, outputs)
    assert f.dtype == torch.float32
    assert f.isfinite().all()


def test_samples_do_not_see_each_other(case):
    model, inputs, _ = built(case, n=4)
    together = model(*inputs)
    alone = torch.cat([model(*(x[i : i + 1] for x in inputs)) for i in range(4)])
    assert together.dtype == torch.float64
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9 * together.abs().max().item())


def test_outputs_differ_between_samples(case):
    model, inputs, _ = built(case)
    f = model(*inputs)
    assert (f[0] != f[1]).any()


def test_gradient_reaches_every_parameter(case):
    model, inputs, _ = built(case, n=8)
    f = model(*inputs)
    (f * torch.randn_like(f)).sum().backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    dead = [name for name, p in trained.items() if p.grad is None or not p.grad.abs().max() > 0]
    assert not dead
    assert all(p.grad.isfinite().all() for p in trained.values())


@FORWARD_MODE
def test_forward_mode_is_the_transpose_of_reverse_mode(case):
    """<J u, v> = <u, Jᵀ v>, which linearized networks and kernel products rest on."""
    model, inputs, _ = built(case)
    params = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    u = {name: torch.randn_like(p) for name, p in params.items()}

    def f(params):
        return torch.func.functional_call(model, params, inputs)

    _, forward = torch.func.jvp(f, (params,), (u,))
    v = torch.randn_like(forward)
    _, pullback = torch.func.vjp(f, params)
    (reverse,) = pullback(v)
    left, right = (forward * v).sum(), sum((u[name] * reverse[name]).sum() for name in params)
    size = sum((u[name] * reverse[name]).abs().sum() for name in params)
    assert abs(left - right) < 1e-10 * size


def test_vmap_of_the_gradient_is_the_gradient_of_each_sample(case):
    model, inputs, _ = built(case, n=2)
    params = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def first_output(params, sample):
        return torch.func.functional_call(model, params, tuple(x[None] for x in sample))[0, 0]

    mapped = torch.func.vmap(torch.func.grad(first_output), in_dims=(None, 0))(params, inputs)
    single = torch.func.grad(first_output)(params, tuple(x[1] for x in inputs))
    for name, value in single.items():
        torch.testing.assert_close(
            mapped[name][1], value, rtol=1e-8, atol=1e-10 * float(value.abs().max()) + 1e-300
        )


def test_seeds_decide_everything(case):
    build, _, _ = case
    first, again, keyed, other = build(seed=3), build(seed=3), build(seed=Key(3)), build(seed=4)
    drawn = [name for name, value in first.state_dict().items() if value.is_floating_point()]
    for name in drawn:
        assert torch.equal(first.state_dict()[name], again.state_dict()[name])
        assert torch.equal(first.state_dict()[name], keyed.state_dict()[name])
    assert any(not torch.equal(first.state_dict()[name], other.state_dict()[name]) for name in drawn)


def test_the_global_generator_is_left_alone(case):
    build, _, _ = case
    before = torch.get_rng_state()
    build(seed=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", [name for name in CASES if name != "centered"])
def test_the_meta_device_gives_the_same_structure(name):
    build, _, _ = CASES[name]
    with torch.device("meta"):
        empty = build()
    full = build()
    assert {n: p.shape for n, p in empty.state_dict().items()} == {
        n: p.shape for n, p in full.state_dict().items()
    }
    assert all(value.is_meta for value in empty.state_dict().values())
    assert not any(value.is_meta for value in full.state_dict().values())


def test_copies_are_equal_and_separate(case):
    model, inputs, _ = built(case)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(*inputs), model(*inputs))
    before = model(*inputs)
    for p in twin.parameters():
        p.data += 1
    assert torch.equal(model(*inputs), before)
