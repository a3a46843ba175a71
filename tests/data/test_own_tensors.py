"""Tensors of one's own: pictures are read alike from a folder and from a file."""

import numpy as np
import pytest
import torch

from tangentkit.core import DataError
from tangentkit.data import read_files


def test_bytes_of_pictures_are_scaled_as_those_of_a_folder_are(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6) * 3
    for number, name in enumerate(("a", "b")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        image.fromarray(pixels[number]).save(tmp_path / "pictures" / name / "0.png")
    np.savez(tmp_path / "bytes.npz", x=pixels[:, None], y=np.array([0, 1]))
    np.savez(tmp_path / "rows.npz", x=pixels.reshape(2, 36), y=np.array([0, 1]))
    folder = read_files(tmp_path / "pictures").data
    assert torch.equal(read_files(tmp_path / "bytes.npz").data.inputs, folder.inputs)
    assert read_files(tmp_path / "rows.npz").data.inputs.max() == pixels.max(), (
        "rows of a table stay as they are"
    )


def test_a_file_that_is_no_picture_is_named_without_what_python_calls_it(tmp_path):
    pytest.importorskip("PIL")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"cannot read the picture .*x\.png.*got no picture") as error:
        read_files(tmp_path)
    assert "BytesIO" not in str(error.value)
