import hashlib

import pytest
import torch

from tangentkit import data, models
from tangentkit.core import DataError, InputError, Key
from tangentkit.models import checkpoints


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A checkpoint of the published form, of a drawn ResNet-20, whose checksum is made the expected one."""
    model = models.cifar_resnet(20, seed=Key(7))
    model.bn1.running_mean.uniform_(-1, 1)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    folder = tmp_path / "models" / "cifar10_resnet"
    folder.mkdir(parents=True)
    torch.save({"state_dict": state, "best_prec1": 91.0}, folder / "new.th")
    digest = hashlib.sha256((folder / "new.th").read_bytes()).hexdigest()
    monkeypatch.setitem(checkpoints.CIFAR_RESNET_SHA256, 20, digest)
    file = (folder / "new.th").rename(folder / f"resnet20-{digest[:8]}.th")
    return model.eval(), tmp_path, file


def test_every_way_to_the_file(stand_in, monkeypatch):
    model, root, file = stand_in
    x = torch.rand(2, 3, 32, 32)
    monkeypatch.delenv("TANGENTKIT_DATA", raising=False)
    for path in (file, str(file), file.parent):
        assert torch.equal(models.load_cifar_resnet(20, path)(x), model(x))
    monkeypatch.setenv("TANGENTKIT_DATA", str(root))
    loaded = models.load_cifar_resnet(20)
    assert torch.equal(loaded(x), model(x))
    assert not any(layer.training for layer in loaded.modules())


def test_an_explicit_path_does_not_fall_back(stand_in, monkeypatch, tmp_path):
    _, root, _ = stand_in
    monkeypatch.setenv("TANGENTKIT_DATA", str(root))
    with pytest.raises(DataError, match=r"elsewhere\.th"):
        models.load_cifar_resnet(20, tmp_path / "elsewhere.th")


def test_a_flipped_byte_is_an_error(stand_in):
    _, _, file = stand_in
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="SHA-256"):
        models.load_cifar_resnet(20, file)


@pytest.mark.parametrize("folder", [None, "empty"])
def test_a_missing_file_says_where_it_comes_from(monkeypatch, tmp_path, folder):
    monkeypatch.delenv("TANGENTKIT_DATA", raising=False)
    if folder:
        monkeypatch.setenv("TANGENTKIT_DATA", str(tmp_path / folder))
    with pytest.raises(DataError, match=r"akamaster/pytorch_resnet_cifar10.*TANGENTKIT_DATA"):
        models.load_cifar_resnet(56)


def test_other_depths_have_no_checkpoint():
    with pytest.raises(InputError, match="20, 32, 44 or 56"):
        models.load_cifar_resnet(26)


@pytest.mark.data
@pytest.mark.parametrize("depth", [20, 32, 44, 56])
def test_the_published_files_load_strictly(real_data, depth):
    model = models.load_cifar_resnet(depth, real_data / "models" / "cifar10_resnet")
    assert len(model.layer1) == (depth - 2) // 6
    assert model(torch.rand(2, 3, 32, 32)).isfinite().all()


@pytest.mark.slow
@pytest.mark.data
def test_resnet20_has_its_published_accuracy(real_data):
    try:
        test = data.load("cifar10", "test")
    except DataError as error:
        pytest.skip(str(error))
    model = models.load_cifar_resnet(20, real_data / "models" / "cifar10_resnet")
    mean, std = (
        torch.tensor(values)[:, None, None] for values in (models.CIFAR_RESNET_MEAN, models.CIFAR_RESNET_STD)
    )
    with torch.no_grad():
        guesses = torch.cat([model((x - mean) / std).argmax(1) for x in test.inputs.split(250)])
    # 9,173 of 10,000; two images of room for other orders of summation.
    assert abs(int((guesses == test.targets).sum()) - 9173) <= 2
