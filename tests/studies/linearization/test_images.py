"""The images of the studies of linearization."""

import torch

from tangentkit.core.seeds import Key
from tangentkit.studies.linearization.images import drawn_images
from tangentkit.studies.trials.data import drawn


def test_training_and_test_images_are_standardized_by_the_moved_training_images():
    train, test = drawn_images("fashion-mini", 50, 20, 7, Key(0))
    raw_train, raw_test = drawn("fashion-mini", 50, 20, key=Key(0))
    assert torch.equal(train.targets, raw_train.targets)
    assert torch.equal(test.targets, raw_test.targets)
    assert abs(float(train.inputs.mean())) < 1e-5
    assert abs(float(train.inputs.std()) - 1) < 1e-3
    # One scale and one offset for both: the background is the same number everywhere.
    assert train.inputs.min() == test.inputs.min()


def test_without_a_shift_images_stay_where_they_are():
    train, _ = drawn_images("fashion-mini", 50, 20, 0, Key(0))
    raw, _ = drawn("fashion-mini", 50, 20, key=Key(0))
    back = train.inputs * raw.inputs.std(correction=0) + raw.inputs.mean()
    torch.testing.assert_close(back, raw.inputs, rtol=1e-4, atol=1e-5)


def test_training_and_test_images_move_on_their_own():
    train, test = drawn_images("fashion-mini", 20, 20, 7, Key(0))
    plain = drawn_images("fashion-mini", 20, 20, 0, Key(0))
    moved = [
        bool((a.inputs[:, :, 10] - b.inputs[:, :, 10]).abs().max() > 0.5)
        for a, b in zip((train, test), plain, strict=True)
    ]
    assert moved == [True, True]
