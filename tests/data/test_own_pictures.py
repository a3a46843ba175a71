"""Pictures of one's own: scaled, cropped, of more than 8 bits, on white where they are transparent."""

import numpy as np
import pytest
from PIL import Image

from tangentkit.core.errors import DataError, InputError
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


@pytest.mark.parametrize("size", [0, -1, True])
def test_a_size_below_one_pixel_is_refused_before_a_picture_is_read(tmp_path, size):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match="bad size: expected 1 pixel a side or more"):
        read_files(tmp_path, size=size)


def kept(tmp_path, picture, name: str, **options):
    """What is read of a picture that was written to a file."""
    (tmp_path / "a").mkdir(exist_ok=True)
    picture.save(tmp_path / "a" / name, **options)
    return read_files(tmp_path).data.inputs[0]


@pytest.mark.parametrize("name", ["x.png", "x.tif"])
@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_gray_pictures_of_16_bits_keep_their_values(tmp_path, name, order):
    values = np.arange(0, 65536, 257 // 4, dtype=np.uint16)[:1020].reshape(30, 34)
    found = kept(tmp_path, Image.fromarray(values.astype(order)), name)
    np.testing.assert_allclose(found[0], values / 65535, atol=1e-6)
    assert len(np.unique(found)) == values.size


def test_gray_pictures_of_8_and_16_bits_go_together(tmp_path):
    eight, sixteen = np.full((4, 4), 51, np.uint8), np.full((4, 4), 13107, np.uint16)
    kept(tmp_path, Image.fromarray(eight), "8.png")
    kept(tmp_path, Image.fromarray(sixteen), "16.png")
    found = read_files(tmp_path, size=2).data.inputs
    assert found.shape == (2, 1, 2, 2)
    np.testing.assert_allclose(found, 0.2, atol=1e-6)


@pytest.mark.parametrize(("dtype", "what"), [(np.float32, "floats"), (np.int32, "whole numbers of 32 bits")])
def test_pictures_whose_white_is_unknown_are_refused(tmp_path, dtype, what):
    picture = Image.fromarray(np.arange(16, dtype=dtype).reshape(4, 4))
    with pytest.raises(DataError, match=rf"which value of .*x\.tif is white: expected .*16 bits, got {what}"):
        kept(tmp_path, picture, "x.tif")


def test_what_is_transparent_is_white_whatever_color_it_hides(tmp_path):
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = 10, 20, 30, 255
    pixels[0, 1] = 255, 0, 0, 0
    pixels[1, 0] = 0, 0, 0, 51  # a fifth of black
    found = kept(tmp_path, Image.fromarray(pixels), "x.png")
    expected = [[[10, 20, 30], [255] * 3], [[204] * 3, [255] * 3]]
    np.testing.assert_allclose(found.permute(1, 2, 0) * 255, expected, atol=1e-4)


def test_a_transparent_color_of_a_palette_or_of_gray_is_white(tmp_path):
    for mode in ("P", "L"):
        picture = Image.fromarray(np.array([[0, 1], [1, 1]], np.uint8), mode="L")
        if mode == "P":
            picture = picture.convert("RGB").quantize(2)
        hidden = picture.getpixel((0, 0))
        found = kept(tmp_path, picture, "x.png", transparency=hidden)
        assert float(found[..., 0, 0].min()) == 1, mode
        assert float(found[..., 1, 1].max()) < 0.01, mode
