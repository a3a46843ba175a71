import pytest
import torch

from tangentkit.core import DataError, InputError, UnknownNameError
from tangentkit.data import SETS, load
from tangentkit.data.registry import EMBEDDED


@pytest.mark.parametrize(("split", "each"), [("train", 200), ("test", 100)])
def test_fashion_mini_has_the_stated_classes_sizes_and_licence(split, each):
    data = load("fashion-mini", split)
    assert set(data.counts.values()) == {each}
    assert data.inputs.shape == (10 * each, 1, 28, 28)
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert (data.inputs.min(), data.inputs.max()) == (0, 1)
    assert data.licence.startswith("MIT")
    assert "zalando" in data.source
    assert data.classes[9] == "Ankle boot"


def test_the_embedded_test_images_are_not_among_the_training_images():
    train, test = (load("fashion-mini", split).inputs.flatten(1) for split in ("train", "test"))
    assert torch.cdist(test, train).min() > 0


def test_fashion_mini_can_be_learned():
    # A nearest class mean gets about 68 % on the whole set; labels out of step with images would get 10 %.
    train, test = load("fashion-mini", "train"), load("fashion-mini", "test")
    means = torch.stack([train.inputs[train.targets == label].mean(0) for label in range(10)])
    nearest = torch.cdist(test.inputs.flatten(1), means.flatten(1)).argmin(1)
    assert (nearest == test.targets).float().mean() > 0.6


def test_digits_are_split_into_disjoint_balanced_parts():
    train, test, everything = (load("digits", split) for split in ("train", "test", "all"))
    assert (len(train), len(test), len(everything)) == (1200, 597, 1797)
    assert everything.inputs.shape == (1797, 1, 8, 8)
    assert (everything.inputs.min(), everything.inputs.max()) == (0, 1)
    assert set(train.counts.values()) == {120}
    rows = torch.cat([train.inputs, test.inputs]).flatten(1).tolist()
    assert sorted(rows) == sorted(everything.inputs.flatten(1).tolist())


def test_a_limit_is_balanced_and_seeded():
    def part(seed):
        return load("fashion-mini", "train", limit=55, seed=seed)

    assert sorted(part(0).counts.values()) == [5] * 5 + [6] * 5
    assert part(0).fingerprint == part(0).fingerprint
    assert part(0).fingerprint != part(1).fingerprint
    assert part(0).fingerprint != load("fashion-mini", "test", limit=55).fingerprint


def test_classes_come_before_the_limit():
    data = load("fashion-mini", "test", classes=[7, "Bag"], limit=150)
    assert data.counts == {"Sneaker": 75, "Bag": 75}
    with pytest.raises(InputError, match="from 1 to 200"):
        load("fashion-mini", "test", classes=[7, "Bag"], limit=201)


def test_the_seed_does_not_touch_whole_sets():
    assert load("digits", "train", seed=0).fingerprint == load("digits", "train", seed=5).fingerprint


@pytest.mark.parametrize(
    ("name", "near"), [("cifar", "'cifar10'"), ("fashion_mnist", "'fashion-mnist'"), ("mnits", "'mnist'")]
)
def test_unknown_sets_list_the_near_matches(name, near):
    with pytest.raises(UnknownNameError, match=f"unknown data set '{name}'") as caught:
        load(name, "train")
    assert near in str(caught.value)


def test_unknown_splits_and_classes_list_the_near_matches():
    with pytest.raises(UnknownNameError, match=r"unknown split of mnist 'tran'\. Try: 'train'"):
        load("mnist", "tran")
    with pytest.raises(UnknownNameError, match="unknown class of digits 'seven'"):
        load("digits", "train", classes=["seven"])


@pytest.mark.parametrize("limit", [0, -3, 1201, 1.5])
def test_bad_limits_are_refused(limit):
    with pytest.raises(InputError, match="an integer from 1 to 1,200"):
        load("digits", "train", limit=limit)


@pytest.mark.parametrize("seed", [-1, 0.5])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InputError, match="bad seed"):
        load("digits", "train", limit=10, seed=seed)


def test_sets_without_files_take_no_path(tmp_path):
    with pytest.raises(InputError, match="digits has no files"):
        load("digits", "train", path=tmp_path)


def test_a_corrupt_copy_is_an_error_with_file_and_sums(tmp_path):
    for path in EMBEDDED.glob("*.gz"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert len(load("fashion-mini", "test", path=tmp_path)) == 1000
    broken = tmp_path / "t10k-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(DataError) as caught:
        load("fashion-mini", "test", path=tmp_path)
    assert str(broken) in str(caught.value)
    assert SETS["fashion-mini"].editions[0].files["test"][0].md5 in str(caught.value)
    assert len(load("fashion-mini", "train", path=tmp_path)) == 2000


@pytest.mark.parametrize("name", [name for name in SETS if SETS[name].origin])
def test_computed_sets_go_through_the_same_door(name):
    for split in SETS[name].splits:
        data = load(name, split, seed=3)
        assert (data.name, data.split, data.classes) == (name, split, SETS[name].classes)
        assert data.fingerprint == load(name, split, seed=3).fingerprint
        assert len(data.inputs) == len(data.targets) > 0


def test_the_teacher_of_both_splits_is_the_same():
    def direction(split, seed):
        # E[y x] is a multiple of the teacher's direction (Stein's lemma).
        data = load("teacher", split, seed=seed)
        return (data.targets - data.targets.mean()) @ data.inputs

    cosine = torch.nn.CosineSimilarity(dim=0)
    # In 1,000 dimensions unrelated directions have cosines of about 0.03.
    assert cosine(direction("train", 0), direction("test", 0)) > 0.3
    assert cosine(direction("train", 0), direction("train", 1)).abs() < 0.2


def test_a_limit_of_teacher_data():
    assert load("teacher", "train", limit=7).inputs.shape == (7, 1000)


def test_quadrature_nodes_have_no_subsets():
    with pytest.raises(InputError, match="quadrature weights"):
        load("function-f1", "train", limit=10)
