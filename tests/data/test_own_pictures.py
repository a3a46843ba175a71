"""Pictures of one's own: scaled to a square, or in their proportions and cropped."""

import numpy as np
import pytest
from PIL import Image

from tangentkit.core.errors import InputError
from tangentkit.data.own_files import read_files


@pytest.fixture
def folder(tmp_path):
    """A picture 12 wide and 6 high whose values are the numbers of its columns."""
    (tmp_path / "a").mkdir()
    Image.fromarray(np.tile(np.arange(12, dtype=np.uint8), (6, 1))).save(tmp_path / "a" / "wide.png")
    return tmp_path


def columns(data) -> list[int]:
    rows = (data.inputs[0, 0] * 255).round().int()
    assert (rows == rows[0]).all()
    return rows[0].tolist()


def test_a_crop_keeps_proportions_and_takes_the_middle(folder):
    assert columns(read_files(folder, size=6, crop=6).data) == [3, 4, 5, 6, 7, 8]
    assert columns(read_files(folder, size=6, crop=4).data) == [4, 5, 6, 7]


def test_the_shorter_side_is_scaled(folder):
    found = read_files(folder, size=12, crop=10).data
    assert found.inputs.shape == (1, 1, 10, 10)
    # Column c of twice as many has its middle at (c + 1/2) / 2 - 1/2 of the old ones.
    assert columns(found) == [round((c + 0.5) / 2 - 0.5) for c in range(7, 17)]


def test_tall_pictures_are_cropped_above_and_below(tmp_path):
    (tmp_path / "a").mkdir()
    tall = np.tile(np.arange(9, dtype=np.uint8)[:, None], (1, 3))
    Image.fromarray(tall).save(tmp_path / "a" / "tall.png")
    found = read_files(tmp_path, size=3, crop=3).data
    assert (found.inputs[0, 0, :, 0] * 255).round().int().tolist() == [3, 4, 5]


def test_without_a_crop_proportions_are_lost(folder):
    assert read_files(folder, size=6).data.inputs.shape == (1, 1, 6, 6)


@pytest.mark.parametrize("wrong", [{"crop": 4}, {"size": 4, "crop": 5}, {"size": 4, "crop": 0}])
def test_a_crop_beyond_the_size_is_refused(folder, wrong):
    with pytest.raises(InputError, match="bad crop"):
        read_files(folder, **wrong)
