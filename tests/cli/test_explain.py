"""`tangentkit explain`: a page, or a folder to be served, or the reason why not."""

import gzip
import json
import sys

import numpy as np
import pytest

from tangentkit.surrogate.page import open_folder

SMALL = ("explain", "--train", "40", "--test", "10", "--epochs", "1", "--kernel", "conjugate")
SMALL_OF_ONE = tuple("1" if word == "10" else word for word in SMALL)


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


def test_sentences_and_a_size_that_changes_nothing_are_refused(tangentkit):
    done = tangentkit(*SMALL, "--data", "cola", "--out", "why.html")
    assert (done.code, "cola has no training and test images: expected one of fashion-mini" in done.err) == (
        2,
        True,
    )
    done = tangentkit(*SMALL, "--size", "8", "--out", "why.html")
    assert (done.code, "--size belongs to pictures of a folder" in done.err) == (2, True)


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """An empty one, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("network_to_explain", None)


OWN = ("explain", "--epochs", "1", "--kernel", "conjugate")


@pytest.fixture
def networks(working_folder):
    """A folder with the code of networks of 8 x 8 pixels: of two outputs, of one, and of one without its axis."""
    (working_folder / "network_to_explain.py").write_text(
        "from torch import nn\n"
        "def make(outputs=2):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, outputs))\n"
        "def one():\n"
        "    return make(1)\n"
        "def flat():\n"
        "    return nn.Sequential(make(1), nn.Flatten(0))\n"
    )
    return working_folder


def save_pictures(folder, classes: int = 2) -> np.ndarray:
    """Writes own.npz of 24 noisy pictures."""
    pixels = np.random.default_rng(0).random((24, 1, 8, 8), dtype=np.float32)
    np.savez(folder / "own.npz", x=pixels, y=np.arange(24) % classes)
    return pixels


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_samples_keep_the_names_of_their_files(tangentkit, networks, form):
    image = pytest.importorskip("PIL.Image")
    pixels = (255 * save_pictures(networks)[:, 0]).astype(np.uint8)
    labels = np.arange(24) % 2
    pixels[1::2] = pixels[::2]  # each is there with both labels: all are flagged
    np.savez(networks / "own.npz", x=pixels[:, None], y=labels)
    for i, picture in enumerate(pixels):
        (networks / "own" / "ab"[labels[i]]).mkdir(parents=True, exist_ok=True)
        image.fromarray(picture).save(networks / "own" / "ab"[labels[i]] / f"{i:02}.png")
    data = "own" if form == "folder" else "own.npz"
    done = tangentkit(
        *OWN, "--data", data, "--model", "network_to_explain:make", "--test", "6", "--out", "why"
    )
    assert done.code == 0, done.err
    tables = json.loads(gzip.decompress(open_folder("why").piece("tables")))
    test, train = tables["test"]["names"], tables["train"]["names"]
    called = [f"{'ab'[labels[i]]}/{i:02}.png" if form == "folder" else f"sample {i}" for i in range(24)]
    assert sorted([*test, *train]) == sorted(called)
    for names, told in ((test, tables["test"]["labels"]), (train, tables["train"]["labels"])):
        assert told == [called.index(name) % 2 for name in names]
    conflicts = [flag for flag in tables["flags"] if flag["kind"] == "conflicting"]
    assert conflicts
    for flag in conflicts:
        one, other = train[flag["sample"]], train[flag["evidence"][0]]
        assert called.index(one) // 2 == called.index(other) // 2
        assert other in flag["reason"]


@pytest.mark.parametrize("make", ["one", "flat"])
def test_a_network_of_one_logit_is_trained_and_explained(tangentkit, networks, make):
    save_pictures(networks)
    words = (*OWN, "--data", "own.npz", "--model", f"network_to_explain:{make}", "--test", "6", "--json")
    done = tangentkit(*words, "--out", "why")
    assert done.code == 0, done.err
    assert open_folder("why").shape == (6, 18)
    save_pictures(networks, classes=3)
    done = tangentkit(*words, "--out", "three.html")
    assert (done.code, "one output tells two classes apart" in done.err) == (2, True)


def test_one_test_image_has_a_page_without_faithfulness(tangentkit, tmp_path):
    done = tangentkit(*SMALL_OF_ONE, "--json", "--out", "why")
    assert done.code == 0, done.err
    assert json.loads(done.out)["faithfulness"] is None
    assert open_folder("why").shape == (1, 40)
    assert "takes two test samples" in tangentkit(*SMALL_OF_ONE, "--out", "why.html").out


@pytest.mark.parametrize("option", ["--train", "--test"])
def test_no_samples_are_refused_at_the_start(tangentkit, tmp_path, option):
    done = tangentkit("explain", option, "0", "--model", "nothing", "--out", "why.html")
    assert (done.code, f"bad {option}: expected 1 sample or more, got 0" in done.err) == (2, True)


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_inputs_that_are_not_finite_are_named_before_any_work(tangentkit, networks, strange):
    pixels = save_pictures(networks)
    pixels[[13, 17], 0, 3] = strange
    np.savez("own.npz", x=pixels, y=np.arange(24) % 2)
    done = tangentkit(*OWN, "--data", "own.npz", "--model", "nothing", "--test", "6", "--out", "why.html")
    assert done.code == 2
    assert "own.npz has inputs that are not finite" in done.err
    assert "nan or infinity in sample 13, 2 of 24 samples" in done.err


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_own_files_and_an_own_network_are_explained(tangentkit, networks, form):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    np.savez(networks / "own.npz", x=pixels[:, None], y=np.arange(24) % 2)
    for i, picture in enumerate(pixels):
        (networks / "own" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        image.fromarray(picture).save(networks / "own" / "ab"[i % 2] / f"{i}.png")
    data = "own" if form == "folder" else "own.npz"
    words = (*OWN, "--data", data, "--model", "network_to_explain:make")
    done = tangentkit(*words, "--test", "6", "--json", "--out", "why")
    assert done.code == 0, done.err
    assert open_folder("why").shape == (6, 18)
    done = tangentkit(*words, "--test", "24", "--out", "why.html")
    assert (done.code, "more than the 24 of the page" in done.err) == (2, True)
