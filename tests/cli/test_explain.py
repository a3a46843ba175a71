"""`tangentkit explain`: a page, or a folder to be served, or the reason why not."""

import json
import sys

import numpy as np
import pytest

from tangentkit.surrogate.page import open_folder

SMALL = ("explain", "--train", "40", "--test", "10", "--epochs", "1", "--kernel", "conjugate")


def test_a_page_and_a_folder_are_written(tangentkit):
    done = tangentkit(*SMALL, "--json", "--out", "why.html")
    assert done.code == 0, done.err
    written = json.loads(done.out)
    assert written["page"] == "why.html"
    assert written["faithfulness"]["points"] == 10
    with open("why.html", encoding="utf-8") as page:
        assert page.readline() == "<!doctype html>\n"
    assert json.loads(tangentkit(*SMALL, "--json", "--out", "why").out)["page"] == "why"
    assert open_folder("why").shape == (10, 40)


def test_the_console_says_what_to_look_at_and_where(tangentkit, tmp_path):
    page = tmp_path / "why.html"
    done = tangentkit(*SMALL, "--out", str(page))
    assert f"page: {page}" in done.out
    assert "Choose a test image" in done.err


def test_what_cannot_be_is_an_error_and_writes_nothing(tangentkit, tmp_path):
    page = tmp_path / "out" / "why.html"
    assert tangentkit("explain", "--out", str(page), "--data", "nothing-like-it").code == 2
    done = tangentkit(*SMALL, "--out", str(page), "--model", "lenet99")
    assert (done.code, "lenet" in done.err) == (2, True)
    assert not page.parent.exists()


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """An empty one, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("network_to_explain", None)


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_own_files_and_an_own_network_are_explained(tangentkit, working_folder, form):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    np.savez(working_folder / "own.npz", x=pixels[:, None], y=np.arange(24) % 2)
    for i, picture in enumerate(pixels):
        (working_folder / "own" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        image.fromarray(picture).save(working_folder / "own" / "ab"[i % 2] / f"{i}.png")
    (working_folder / "network_to_explain.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), "
        "nn.Linear(8, 2))\n"
    )
    data = "own" if form == "folder" else "own.npz"
    words = (
        "explain",
        "--model",
        "network_to_explain:make",
        "--data",
        data,
        "--epochs",
        "1",
        "--kernel",
        "conjugate",
    )
    done = tangentkit(*words, "--test", "6", "--json", "--out", "why")
    assert done.code == 0, done.err
    assert open_folder("why").shape == (6, 18)
    done = tangentkit(*words, "--test", "24", "--out", "why.html")
    assert (done.code, "more than the 24 of the page" in done.err) == (2, True)
