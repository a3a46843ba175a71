"""Parameter counts, on the meta device: the largest network here would fill gigabytes."""

from itertools import pairwise

import pytest
import torch

from tangentkit import models


def count(build, *args, **options):
    with torch.device("meta"):
        model = build(*args, **options)
    assert all(p.is_meta for p in model.parameters())
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("scale", "mnist", "binary", "cifar"),
    [
        (1, 61_706, 60_941, 62_006),
        (2, 244_362, 242_841, 244_962),
        (5, 1_518_090, 1_514_301, 1_519_590),
        (10, 6_060_170, 6_052_601, 6_063_170),
        (25, 37_830_410, 37_811_501, 37_837_910),
        (60, 217_800_970, 217_755_601, 217_818_970),
    ],
)
def test_lenets_of_every_scale_have_the_published_number_of_parameters(scale, mnist, binary, cifar):
    assert count(models.lenet, scale) == mnist
    assert count(models.lenet, scale, outputs=1) == binary
    assert count(models.lenet, scale, channels=3, size=32) == cifar


@pytest.mark.parametrize(
    ("scale", "expected"), [(1, 57_044_810), (2, 228_032_138), (3, 512_961_994), (4, 911_834_378)]
)
def test_alexnets_of_every_scale_have_the_published_number_of_parameters(scale, expected):
    assert count(models.alexnet, scale) == expected


@pytest.mark.parametrize(("depth", "expected"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)])
def test_cifar_resnets_of_every_depth_have_the_published_number_of_parameters(depth, expected):
    # Table 6 of He et al. (2016): 0.27, 0.46, 0.66 and 0.85 million.
    assert count(models.cifar_resnet, depth) == expected


def test_networks_of_one_size_have_the_published_number_of_parameters():
    assert count(models.mlp, (3072, 100, 100, 1)) == 317_501
    assert count(models.mlp, (784, 100, 100, 100, 10)) == 99_710
    assert count(models.lenet5) == 136_121
    assert count(models.resnet18, outputs=10) == 11_173_962
    assert count(models.resnet18) == 11_173_962 - 9 * 513
    assert count(models.two_layer, 1000, 1500) == 1500 * 1000 + 1500


def test_small_networks_of_the_surrogate_study_count_as_their_layers_do():
    mlp = 784 * 100 + 100 + 2 * (100 * 100 + 100) + 101
    head = 128 * 64 + 64 + 64 + 1
    w = 8
    mnist = (9 * 1 + 1) * 8 * w + (9 * 8 * w + 1) * 4 * w + (9 * 4 * w + 1) * w + (9 * w + 1) * 128 + head
    doubled = (9 * 8 * w + 1) * 8 * w + (9 * 4 * w + 1) * 4 * w + (9 * w + 1) * w
    cifar = mnist + doubled + 9 * 2 * 8 * w + (16 - 9) * w * 128
    assert count(models.mnist2_mlp) == mlp
    assert count(models.mnist2_cnn) == mnist
    assert count(models.cifar2_cnn) == cifar


def test_the_poisoning_cnn_has_the_parameters_of_its_layers():
    channels = (3, 32, 32, 64, 64, 128, 128)
    convolutions = sum((9 * a + 1) * b for a, b in pairwise(channels))
    norms = 2 * (sum(channels[1:]) + 2 * 512)
    assert count(models.poisoning_cnn) == convolutions + norms + 2 * (512 * 512 + 512) + 513 * 10


def test_fractions_of_a_scale_shrink_and_never_vanish():
    assert count(models.lenet, 0.5) < count(models.lenet, 1)
    assert count(models.lenet, 1e-6) > 0
    assert count(models.alexnet, 1 / 64) < 100_000
