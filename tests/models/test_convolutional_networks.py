import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tangentkit import models
from tangentkit.core import InputError
from tangentkit.models.cifar_resnet import PaddedShortcut
from tangentkit.models.resnet import BasicBlock


def awake(model):
    """The network in float64 and evaluation mode, with norms away from their start."""
    for layer in model.double().modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.uniform_(0.5, 2)
            layer.bias.data.normal_()
    return model.eval()


def test_poisoning_cnn_is_its_formula():
    model, x = awake(models.poisoning_cnn(seed=1)), torch.rand(2, 3, 32, 32, dtype=torch.float64)
    h = x
    for stage in (model.stage1, model.stage2, model.stage3):
        h = stage.bn2(F.relu(stage.conv2(stage.bn1(F.relu(stage.conv1(h))))))
        h = F.max_pool2d(h, 2)
    h = h.reshape(2, 512, 4).amax(2)
    h = model.bn1(F.relu(model.fc1(h)))
    h = model.bn2(F.relu(model.fc2(h)))
    torch.testing.assert_close(model(x), model.fc3(h))


def test_poisoning_cnn_has_the_published_norms_and_dropout():
    model = models.poisoning_cnn()
    norms = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    assert len(norms) == 8
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.01, 1e-3)}
    assert model.dropout.p == 0.2


def test_a_resnet_without_residual_branches():
    """With zero scales blocks are their shortcuts, and of the branches only the last norm has a gradient."""
    model = models.resnet18(width=4, seed=1).double().eval()
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    h = model.act1(model.bn1(model.conv1(x)))
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in stage:
            h = F.relu(block.shortcut(h))
    torch.testing.assert_close(model(x), model.fc(h.mean((2, 3))))

    model(x).sum().backward()
    for name, block in model.named_modules():
        if isinstance(block, BasicBlock):
            silent = [*block.conv1.parameters(), *block.bn1.parameters(), *block.conv2.parameters()]
            assert all((p.grad == 0).all() for p in silent), name
            assert (block.bn2.weight.grad != 0).any(), name


def test_resnet_norms_are_affine_at_the_start():
    model = models.resnet18(width=4, zero_init_residual=False).double().eval()
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    x = torch.randn(3, 4, 2, 2, dtype=torch.float64)
    torch.testing.assert_close(norms[0](x), x / (1 + 1e-5) ** 0.5)
    assert len(norms) == 1 + 8 * 2 + 3
    assert all((norm.weight == 1).all() for norm in norms)
    assert {norm.eps for norm in norms} == {1e-5}


def test_strides_halve_images_three_times():
    model, x = models.resnet18(width=4).eval(), torch.rand(1, 3, 32, 32)
    shapes = []
    for name, layer in model.named_children():
        x = layer(x)
        if name.startswith("layer"):
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [(4, 32, 32), (8, 16, 16), (16, 8, 8), (32, 4, 4)]


def test_a_padded_shortcut_takes_every_second_pixel_and_adds_channels_of_zeros():
    x = torch.randn(2, 3, 5, 4)
    y = PaddedShortcut(8)(x)
    assert y.shape == (2, 8, 3, 2)
    assert torch.equal(y[:, 2:5], x[:, :, ::2, ::2])
    assert y.count_nonzero() == y[:, 2:5].count_nonzero()


@pytest.mark.parametrize("depth", [2, 19, 21, 0, -4])
def test_bad_depths_are_refused(depth):
    with pytest.raises(InputError, match="6n"):
        models.cifar_resnet(depth)


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (models.lenet, 27),
        (models.lenet, 34),
        (models.lenet, 0),
        (models.lenet5, 3),
        (models.poisoning_cnn, 7),
        (models.mnist2_cnn, 7),
        (models.cifar2_cnn, 7),
    ],
)
def test_bad_image_sizes(build, size):
    with pytest.raises(InputError, match="image size"):
        build(size=size)


def test_lenets_pool_as_they_should():
    kinds = {
        models.lenet: nn.MaxPool2d,
        models.lenet5: nn.AvgPool2d,
    }
    for build, kind in kinds.items():
        pools = [layer for layer in build() if isinstance(layer, (nn.MaxPool2d, nn.AvgPool2d))]
        assert [type(pool) for pool in pools] == [kind, kind]


def test_lenet_on_padded_images_is_lenet_on_full_ones():
    x = torch.rand(2, 1, 28, 28)
    small, full = models.lenet(seed=1), models.lenet(seed=1, size=32)
    torch.testing.assert_close(small(x), full(F.pad(x, (2, 2, 2, 2))))
