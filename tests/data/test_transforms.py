import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tangentkit.core import InputError, Key
from tangentkit.data import Data, poison_all, poisoned, shifted, stamped


def images(n=6, channels=1, size=9) -> torch.Tensor:
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(0)) + 0.1


def labeled(n=1000, channels=3, size=32) -> Data:
    return Data(
        images(n, channels, size).clamp(max=1), torch.arange(n) % 10, "toy", "train", tuple("abcdefghij")
    )


def naive_shift(image: torch.Tensor, dy: int, dx: int, background: float) -> torch.Tensor:
    moved = torch.full_like(image, background)
    _, h, w = image.shape
    for y in range(h):
        for x in range(w):
            if 0 <= y + dy < h and 0 <= x + dx < w:
                moved[:, y + dy, x + dx] = image[:, y, x]
    return moved


@given(channels=st.integers(1, 3), max_shift=st.integers(0, 4), seed=st.integers(0, 9))
def test_every_image_is_moved_by_one_of_the_allowed_shifts(channels, max_shift, seed):
    x = images(2, channels, 5)
    moved = shifted(x, max_shift, background=-1.0, key=Key(seed))
    steps = range(-max_shift, max_shift + 1)
    for image, result in zip(x, moved, strict=True):
        assert any(torch.equal(result, naive_shift(image, dy, dx, -1.0)) for dy in steps for dx in steps)


def test_both_axes_are_shifted_uniformly_and_independently():
    point = torch.zeros(20_000, 1, 15, 15)
    point[:, :, 7, 7] = 1
    counts = shifted(point, 2, key=Key(0)).sum((0, 1))
    assert counts.sum() == 20_000
    inner = counts[5:10, 5:10]
    assert inner.sum() == 20_000
    # 25 cells of 800 expected; the chi-square of 24 degrees of freedom exceeds 60 once in 20,000 draws.
    assert ((inner - 800).square() / 800).sum() < 60


def test_shifts_depend_on_the_key_only():
    x = images(50)
    assert torch.equal(shifted(x, 3, key=Key(0)), shifted(x, 3, key=Key(0)))
    assert not torch.equal(shifted(x, 3, key=Key(0)), shifted(x, 3, key=Key(1)))
    assert torch.equal(shifted(x, 3, key=Key(0))[:10], shifted(x[:10], 3, key=Key(0)))
    assert torch.equal(shifted(x.double(), 3, key=Key(0)), shifted(x, 3, key=Key(0)).double())


@pytest.mark.parametrize("max_shift", [-1, 9])
def test_bad_shifts_are_refused(max_shift):
    with pytest.raises(InputError, match="from 0 to 8 pixels"):
        shifted(images(), max_shift, key=Key(0))


def test_the_square_of_badnets_is_yellow_and_nothing_else_changes():
    x = images(2, 3, 32)
    marked = stamped(x)
    changed = torch.zeros(32, 32, dtype=torch.bool)
    changed[25:29, 25:29] = True
    assert torch.equal(
        marked[:, :, 25:29, 25:29], torch.tensor([1.0, 1.0, 0.0])[:, None, None].expand(2, 3, 4, 4)
    )
    assert torch.equal(marked[:, :, ~changed], x[:, :, ~changed])


def test_the_square_on_gray_images_of_any_size():
    marked = stamped(torch.zeros(1, 1, 28, 20))
    assert torch.equal(
        marked.nonzero()[:, 2:].unique(dim=0), torch.cartesian_prod(*map(torch.arange, (21, 13), (25, 17)))
    )
    assert marked.max() == 1
    for size, border in ((0, 0), (7, 3), (4, -1)):
        with pytest.raises(InputError, match="does not fit"):
            stamped(images(), size=size, border=border)


def test_poison_marks_relabels_and_leaves_the_rest():
    clean = labeled()
    dirty, mask = poisoned(clean, fraction=0.1, key=Key(0))
    assert torch.equal(dirty.inputs[mask], stamped(clean.inputs[mask]))
    assert torch.equal(dirty.inputs[~mask], clean.inputs[~mask])
    assert torch.equal(dirty.targets[~mask], clean.targets[~mask])
    assert set(dirty.targets[mask].tolist()) == {4}
    # Binomial(1000, 0.1): mean 100, standard deviation 9.5. Whatever the class, also the target itself.
    assert 50 < mask.sum() < 150
    assert len(clean.targets[mask].unique()) == 10
    assert "poisoned" in dirty.note
    again, same = poisoned(clean, fraction=0.1, key=Key(0))
    assert again.fingerprint == dirty.fingerprint
    assert torch.equal(mask, same)


@pytest.mark.parametrize(("fraction", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_none_or_all_poisoned(fraction, share):
    clean = labeled(20)
    dirty, mask = poisoned(clean, fraction=fraction, target=7, key=Key(0))
    assert mask.float().mean() == share
    expected = poison_all(clean, target=7) if fraction else clean
    assert dirty.fingerprint == expected.fingerprint


def test_the_poisoned_test_set_has_one_label():
    clean = labeled(20)
    dirty = poison_all(clean)
    assert dirty.targets.tolist() == [4] * 20
    assert torch.equal(dirty.inputs, stamped(clean.inputs))


def test_bad_poison_is_refused():
    with pytest.raises(InputError, match="bad fraction"):
        poisoned(labeled(5), fraction=1.5, key=Key(0))
    for target in (-1, 10):
        with pytest.raises(InputError, match=r"0\.\.9"):
            poisoned(labeled(5), target=target, key=Key(0))
