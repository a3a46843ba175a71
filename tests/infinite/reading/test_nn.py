"""Layers in the NTK parameterization, and the conversion of whole models."""

import pytest
import torch
from torch import nn

import tangentkit.nn as tknn
from tangentkit.core.errors import InputError, ModelError, UnknownNameError

LAYERS = [
    (tknn.Linear, nn.Linear, (6, 5), {}, (3, 6)),
    (tknn.Linear, nn.Linear, (6, 5), {"bias": False}, (3, 2, 6)),
    (tknn.Conv1d, nn.Conv1d, (2, 5, 3), {"padding": 2, "dilation": 2}, (3, 2, 9)),
    (
        tknn.Conv2d,
        nn.Conv2d,
        (2, 5, (3, 2)),
        {"stride": 2, "padding": 1, "padding_mode": "circular"},
        (3, 2, 7, 6),
    ),
    (tknn.Conv2d, nn.Conv2d, (4, 6, 3), {"groups": 2, "bias": False}, (3, 4, 7, 6)),
]


@pytest.mark.parametrize(("ours", "theirs", "args", "options", "shape"), LAYERS)
def test_it_is_the_layer_of_torch_with_scaled_parameters(ours, theirs, args, options, shape):
    layer = ours(*args, **options, w_std=1.7, b_std=0.3, dtype=torch.float64)
    plain = theirs(*args, **options, dtype=torch.float64)
    fan_in = plain.weight[0].numel()
    with torch.no_grad():
        plain.weight.copy_(1.7 / fan_in**0.5 * layer.weight)
        if plain.bias is not None:
            plain.bias.copy_(0.3 * layer.bias)
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(layer(x), plain(x))
    assert {name: p.shape for name, p in layer.named_parameters()} == {
        name: p.shape for name, p in plain.named_parameters()
    }
    assert "w_std=1.7, b_std=0.3" in repr(layer)


def test_parameters_are_standard_normal_and_drawn_from_a_generator():
    layer = tknn.Linear(200, 300)
    assert layer.weight.detach().std() == pytest.approx(1, abs=0.02)
    assert layer.bias is not None
    assert layer.bias.detach().std() == pytest.approx(1, abs=0.2)
    draws = []
    for _ in range(2):
        layer.reset_parameters(torch.Generator().manual_seed(5))
        draws.append(layer.weight.detach().clone())
    assert torch.equal(*draws)


def test_device_is_that_of_the_constructor():
    assert tknn.Conv2d(2, 3, 3, device="meta").weight.is_meta


@pytest.mark.parametrize("std", [-1.0, float("inf"), float("nan"), "one", None])
def test_bad_scales_are_refused(std):
    with pytest.raises(InputError, match="w_std"):
        tknn.Linear(2, 3, w_std=std)
    with pytest.raises(InputError, match="b_std"):
        tknn.Conv1d(2, 3, 3, b_std=std)


def model() -> nn.Module:
    inner = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(inner, nn.Flatten(), nn.Linear(36, 5), nn.Linear(5, 5), nn.Linear(5, 1))


def test_a_whole_tree_is_converted_as_a_copy():
    original = model().eval()
    state = {name: value.clone() for name, value in original.state_dict().items()}
    converted = tknn.ntk_parameterize(original, w_std={"0.0": 1.5, "4": 0.5}, b_std=0.2)
    assert all(torch.equal(state[name], value) for name, value in original.state_dict().items())
    assert type(original[0][0]) is nn.Conv2d
    assert [type(converted[0][0]), type(converted[2])] == [tknn.Conv2d, tknn.Linear]
    assert [converted[0][0].w_std, converted[2].w_std, converted[4].w_std] == [1.5, 1.0, 0.5]
    assert {converted[0][0].b_std, converted[4].b_std} == {0.2}
    assert not converted.training
    assert list(converted.state_dict()) == list(original.state_dict())
    assert all(not torch.equal(converted[2].weight, p) for p in original.parameters())
    converted(torch.randn(2, 2, 3, 3))


def test_the_draw_depends_on_seed_and_name_alone():
    first, again = (tknn.ntk_parameterize(model(), seed=3) for _ in range(2))
    other = tknn.ntk_parameterize(model(), seed=4)
    assert torch.equal(first[2].weight, again[2].weight)
    assert not torch.equal(first[2].weight, other[2].weight)
    # Another layer elsewhere changes nothing here.
    changed = model()
    changed[4] = nn.Linear(5, 7)
    assert torch.equal(tknn.ntk_parameterize(changed, seed=3)[2].weight, first[2].weight)
    generator = torch.Generator().manual_seed(0)
    one, two = (tknn.ntk_parameterize(model(), seed=generator) for _ in range(2))
    assert not torch.equal(one[2].weight, two[2].weight)
    ready = model()
    state = torch.get_rng_state()
    tknn.ntk_parameterize(ready)
    assert torch.equal(state, torch.get_rng_state())


def test_tied_and_repeated_layers_stay_so():
    tied = model()
    tied[3].weight = nn.Parameter(torch.randn(5, 5))
    tied[4] = nn.Linear(5, 5)
    tied[4].weight = tied[3].weight
    converted = tknn.ntk_parameterize(tied)
    assert converted[3].weight is converted[4].weight
    assert converted[3].weight is not tied[3].weight
    layer = nn.Linear(3, 3)
    repeated = tknn.ntk_parameterize(nn.Sequential(layer, nn.ReLU(), layer))
    assert repeated[0] is repeated[2]


def test_frozen_parameters_stay_frozen_and_a_bare_layer_is_converted():
    layer = nn.Linear(3, 2).requires_grad_(False)
    converted = tknn.ntk_parameterize(layer, w_std=2.0)
    assert isinstance(converted, tknn.Linear)
    assert not converted.weight.requires_grad


def test_scales_of_unknown_layers_and_bad_ones_are_refused():
    with pytest.raises(UnknownNameError):
        tknn.ntk_parameterize(model(), w_std={"0.1": 1.0})
    with pytest.raises(InputError, match="b_std of layer '2'"):
        tknn.ntk_parameterize(model(), b_std={"2": -1.0})
    with pytest.raises(ModelError, match="nothing to convert"):
        tknn.ntk_parameterize(nn.ReLU())
    normed = nn.Sequential(nn.Linear(2, 2), torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(ModelError, match=r"'1'.*parametrization"):
        tknn.ntk_parameterize(normed)
