"""Pictures on sheets: each in its place, and what is no picture refused by name."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from tangentkit.core.errors import InputError
from tangentkit.surrogate.page import pictures
from tangentkit.surrogate.page.pictures import sheets


def cell(found, i: int) -> np.ndarray:
    """Picture i, read back as the page reads it."""
    per_sheet = found.per_row * found.rows
    sheet = np.asarray(Image.open(io.BytesIO(found.files[i // per_sheet])).convert("RGB"))
    row, column = divmod(i % per_sheet, found.per_row)
    top, left = row * found.height, column * found.width
    return sheet[top : top + found.height, left : left + found.width]


@pytest.fixture
def plain() -> np.ndarray:
    """Pictures of one color each: WebP keeps them nearly as they are."""
    colors = np.random.default_rng(0).integers(0, 256, (300, 3), dtype=np.uint8)
    return np.broadcast_to(colors[:, None, None, :], (300, 16, 16, 3))


def test_every_picture_is_in_its_place_on_one_of_several_sheets(plain, monkeypatch):
    monkeypatch.setattr(pictures, "SHEET", 128)  # 64 pictures each
    found = sheets(plain, count=300, what="test")
    assert len(found.files) == 5
    for i in range(300):
        assert np.abs(cell(found, i)[4:12, 4:12].astype(int) - plain[i, 0, 0]).max() <= 16


@pytest.mark.parametrize(
    "form",
    [
        lambda p: p,
        lambda p: torch.from_numpy(p.copy()).permute(0, 3, 1, 2),
        lambda p: p / 255,
        lambda p: torch.from_numpy(p / np.float32(255)).permute(0, 3, 1, 2),
    ],
    ids=["bytes", "channels first", "floats", "torch floats"],
)
def test_forms_of_arrays_give_the_same_sheets(plain, form):
    assert sheets(form(plain), count=300, what="test").files == sheets(plain, count=300, what="test").files


def test_large_pictures_are_made_small(rng):
    found = sheets(rng.random((2, 100, 200)), count=2, what="test")
    assert (found.width, found.height) == (pictures.LARGEST, pictures.LARGEST // 2)


def test_files_of_any_form_stand_in_the_middle_of_their_cells(tmp_path):
    Image.new("RGB", (200, 100), (250, 0, 0)).save(tmp_path / "<b>wide & flat.png")
    Image.new("L", (10, 10), 128).save(tmp_path / "small.jpg")
    found = sheets([str(path) for path in sorted(tmp_path.iterdir())], count=2, what="test")
    wide = cell(found, 0)
    assert wide[32, 32, 0] > 220
    assert wide[2, 32].max() < 30


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((3, 8, 8)), "expected 4 pictures, got 3"),
        (np.zeros((4, 8)), r"expected \(n, h, w\).* got float64 of shape \(4, 8\)"),
        (np.zeros((4, 8, 8, 5)), r"shape \(4, 8, 8, 5\)"),
        (np.zeros((4, 0, 8)), r"shape \(4, 0, 8\)"),
        (np.zeros((4, 8, 8), dtype=np.int64), "got int64"),
        (np.full((4, 8, 8), 2.5), "floats from 0 to 1, got 2.5 to 2.5. Try: undo the normalization"),
        (np.full((4, 8, 8), np.nan), "floats from 0 to 1, got nan"),
        ("four", "bad pictures of the test samples"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused(bad, message):
    with pytest.raises(InputError, match=message):
        sheets(bad, count=4, what="test")


def broken(folder) -> dict[str, bytes]:
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "png")
    png = file.getvalue()
    # A picture of 60,000 x 60,000 pixels in a hundred bytes.
    huge = png[:16] + (60_000).to_bytes(4, "big") * 2 + png[24:]
    return {"text.png": b"<script>", "empty.png": b"", "cut.png": png[: len(png) // 2], "huge.png": huge}


@pytest.mark.parametrize(
    "name", ["text.png", "empty.png", "cut.png", "huge.png", "missing.png", "a folder", "n\0l"]
)
def test_files_that_cannot_be_read_are_refused_by_name(tmp_path, name):
    for other, raw in broken(tmp_path).items():
        (tmp_path / other).write_bytes(raw)
    (tmp_path / "a folder").mkdir()
    with pytest.raises(
        InputError, match=r"the picture .*" + name.split("\0")[0] + r".* cannot be read|bad path"
    ):
        sheets([f"{tmp_path}/{name}"], count=1, what="test")


def test_without_webp_sheets_are_png_and_say_so(plain, monkeypatch):
    from PIL import features

    monkeypatch.setattr(features, "check", lambda name: name != "webp")
    found = sheets(plain[:4], count=4, what="test")
    assert found.media == "image/png"
    assert np.array_equal(cell(found, 3), plain[3])
