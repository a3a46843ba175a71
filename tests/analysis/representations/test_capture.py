"""Outputs of layers: those that hooks see, whatever the memory."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.analysis.representations.capture import LayerOutputs, blocks
from tangentkit.core import BudgetError, InputError, ModelError, UnknownNameError


class SharedReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.act = nn.Linear(4, 6), nn.Linear(6, 3), nn.ReLU()
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.act(self.second(self.act(self.first(x))))


def outputs(model, batches, layers=None, pool=None, forward=None, memory=None):
    return LayerOutputs(model, batches, layers, pool=pool, forward=forward, memory=memory)


@pytest.mark.parametrize(("memory", "groups"), [("1GB", 1), ("180kB", 3)])
def test_layers_come_in_groups_that_fit_and_are_what_hooks_see(memory, groups):
    model = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3))
    x, test = torch.randn(150, 4), torch.randn(30, 4)
    found = list(outputs(model, (x, test), memory=memory).groups())
    assert len(found) == groups
    flat = [entry for group in found for entry in group]
    assert [name for name, _ in flat] == list("01234")
    for i, (_, parts) in enumerate(flat):
        for got, samples in zip(parts, (x, test), strict=True):
            torch.testing.assert_close(got, model[: i + 1](samples))


def test_a_layer_that_does_not_fit_is_refused_by_name():
    model = nn.Sequential(nn.Linear(4, 500), nn.Linear(500, 2))
    with pytest.raises(BudgetError, match=r"layer '0' .*1000 samples of 500 numbers.*pool="):
        list(outputs(model, (torch.randn(1000, 4),), memory="1MB").groups())


def test_every_call_of_a_layer_counts():
    model, x = SharedReLU(), torch.randn(7, 4)
    (group,) = outputs(model, (x,)).groups()
    held = {name: h for name, (h,) in group}
    assert set(held) == {"first", "second", "act", "act (call 2)"}
    torch.testing.assert_close(held["act"], model.first(x).relu())
    torch.testing.assert_close(held["act (call 2)"], model(x))


def test_pooling_is_before_flattening():
    model, x = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(48, 2)), torch.randn(5, 1, 6, 6)
    (group,) = outputs(model, (x,), pool=lambda h: h.flatten(2).mean(2) if h.ndim == 4 else h).groups()
    torch.testing.assert_close(dict(group)["0"][0], model[0](x).mean((2, 3)))


def test_blocks_are_the_layers_that_people_name():
    names = blocks(tk.models.cifar_resnet(8))
    assert names == ["conv1", "bn1", "act1", "layer1.0", "layer2.0", "layer3.0", "pool", "linear"]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)
    assert blocks(nn.Sequential(encoder, nn.Dropout(), nn.Linear(8, 2))) == ["0.layers.0", "0.layers.1", "2"]


def test_the_network_says_its_classes_where_it_has_one_output_each():
    model, x = nn.Linear(3, 4), torch.randn(9, 3)
    found = outputs(model, (x,))
    torch.testing.assert_close(found.network_classes(0, 4), model(x).argmax(1))
    assert found.network_classes(0, 3) is None
    torch.testing.assert_close(outputs(nn.Linear(3, 1), (x,)).network_classes(0, 2).shape, torch.Size([9]))


def test_bad_layers_are_refused():
    model, x = SharedReLU(), torch.randn(5, 4)
    with pytest.raises(UnknownNameError, match="'first'"):
        outputs(model, (x,), ["frist"])
    with pytest.raises(InputError, match="a list of names"):
        outputs(model, (x,), "first")
    with pytest.raises(ModelError, match="never calls layer 'unused'"):
        list(outputs(model, (x,), ["first", "unused"]).groups())
