import gzip
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from data.toy_set import CONTENT, IMAGES, LABELS, md5, tarred, zipped
from tangentkit.core import DataError
from tangentkit.data import fetch, load
from tangentkit.data.download import STAGING
from tangentkit.data.registry import SETS, File


def content_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def test_a_set_is_fetched_checked_and_loaded(served_toy, server, bare):
    folder = fetch("toy")
    assert folder == bare / "toy"
    assert {path.name.removesuffix(".gz") for path in content_of(bare)} == set(CONTENT)
    data = load("toy", "train")
    assert torch.equal(data.inputs[:, 0] * 255, torch.from_numpy(IMAGES).float())
    assert data.targets.tolist() == LABELS.tolist()
    asked = len(server.asked)
    assert fetch("toy") == folder
    assert len(server.asked) == asked


def test_load_downloads_what_is_nowhere(served_toy, bare):
    assert len(load("toy", "train")) == 4


def test_a_set_is_fetched_to_a_path(served_toy, bare, tmp_path):
    assert fetch("toy", tmp_path / "mine") == tmp_path / "mine" / "toy"
    assert len(load("toy", "train", path=tmp_path / "mine")) == 4
    assert not content_of(bare)


def broken_transfers(server):
    images = gzip.compress(CONTENT["toy-images"])
    wrong = gzip.compress(CONTENT["toy-images"][:-1] + b"\xff")
    yield "wrong", lambda: server.serve("/toy-images.gz", wrong)
    yield "cut off", lambda: server.serve("/toy-images.gz", images[:-5], claimed=len(images))
    yield "truncated", lambda: server.serve("/toy-images.gz", images[:-5])
    yield "empty", lambda: server.serve("/toy-images.gz", b"")
    yield "a page", lambda: server.serve("/toy-images.gz", b"<html>moved</html>")
    yield "gone", lambda: server.answers.pop("/toy-images.gz")


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_nothing_of_a_broken_download_stays(served_toy, server, bare, number):
    list(broken_transfers(server))[number][1]()
    with pytest.raises(DataError) as caught:
        load("toy", "train")
    assert "toy-images" in str(caught.value) or "tangentkit data get toy" in str(caught.value)
    assert not content_of(bare)
    assert not list(bare.glob(f"{STAGING}*"))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_wrong_content_is_an_error_with_file_and_sum(served_toy, server, bare, number):
    # The cases in which a whole answer came, with the wrong bytes.
    name, start = [case for case in broken_transfers(server) if case[0] in {"wrong", "truncated", "a page"}][
        number
    ]
    start()
    with pytest.raises(DataError, match=md5(CONTENT["toy-images"])) as caught:
        fetch("toy")
    assert f"{server.address}/toy-images.gz" in str(caught.value), name


@pytest.mark.parametrize("pack", [tarred, zipped], ids=["tar", "zip"])
@pytest.mark.parametrize("damage", ["truncated", "other member", "wrong member"])
def test_nothing_of_a_broken_archive_stays(server, install, bare, pack, damage):
    members = dict(CONTENT)
    if damage == "other member":
        members["elsewhere"] = members.pop("toy-labels")
    if damage == "wrong member":
        members["toy-labels"] = members["toy-labels"][:-1] + b"\x07"
    archive = pack(members)
    url = server.serve("/pack", archive[: len(archive) // 2] if damage == "truncated" else archive)
    install(tuple(File(name, md5(content), (url,), name) for name, content in CONTENT.items()))
    with pytest.raises(DataError, match="content of md5") as caught:
        fetch("toy")
    assert url in str(caught.value)
    assert not content_of(bare)


def test_nothing_else_of_an_archive_is_written(server, install, bare):
    url = server.serve("/pack", tarred({**CONTENT, "../escaped": b"!", "other": b"?"}))
    install(tuple(File(name, md5(content), (url,), name) for name, content in CONTENT.items()))
    fetch("toy")
    assert {path.name for path in content_of(bare.parent)} == set(CONTENT)


@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_an_interrupted_download_leaves_nothing(served_toy, bare, monkeypatch):
    import pooch

    def interrupted(self, url, output_file, *_):
        Path(output_file).write_bytes(b"half")
        assert any(bare.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("toy")
    assert not content_of(bare)
    assert not list(bare.iterdir())


@pytest.mark.parametrize("first", ["gone", "wrong"])
def test_the_second_address_is_tried(server, install, bare, first):
    urls = (server.address + "/no", server.serve("/yes", CONTENT["toy-images"]))
    if first == "wrong":
        server.serve("/no", b"something else")
    labels = File("toy-labels", md5(CONTENT["toy-labels"]), (server.serve("/l", CONTENT["toy-labels"]),))
    install((File("toy-images", md5(CONTENT["toy-images"]), urls), labels))
    assert len(load("toy", "train")) == 4
    assert server.asked == ["/no", "/yes", "/l"]


@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_a_damaged_file_in_the_cache_is_an_error_until_it_is_fetched_again(served_toy, bare, write_toy):
    write_toy(bare / "toy")
    (bare / "toy" / "toy-images").write_bytes(b"junk")
    with pytest.raises(DataError, match="toy-images is corrupt"):
        load("toy", "train")
    fetch("toy")
    assert len(load("toy", "train")) == 4


@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_a_damaged_file_elsewhere_is_never_replaced(served_toy, bare, write_toy, monkeypatch, tmp_path):
    monkeypatch.setenv("TANGENTKIT_DATA", str(tmp_path / "shared"))
    bad = write_toy(tmp_path / "shared" / "toy") / "toy-images"
    bad.write_bytes(b"junk")
    with pytest.raises(DataError, match="toy-images is corrupt"):
        fetch("toy")
    assert bad.read_bytes() == b"junk"
    assert not content_of(bare)


def test_a_missing_set_is_one_sentence_with_the_command(install, bare):
    # Port 9 of this machine: nobody answers there.
    install((File("toy-images", "0" * 32, ("http://127.0.0.1:9/x",)),))
    with pytest.raises(DataError) as caught:
        load("toy", "train")
    sentence = str(caught.value)
    assert sentence.startswith("the data set 'toy' is not on this machine (the download failed")
    assert str(bare / "toy") in sentence
    assert "tangentkit data get toy" in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400


def test_without_pooch_the_sentence_says_what_to_install(install, bare, monkeypatch):
    install((File("toy-images", "0" * 32, ("http://127.0.0.1:9/x",)),))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r'pip install "tangentkit\[data\]" and then tangentkit data get toy'):
        load("toy", "train")


def test_an_explicit_path_without_the_set_is_an_error_and_no_download(served_toy, server, bare, tmp_path):
    with pytest.raises(DataError, match="not on this machine") as caught:
        load("toy", "train", path=tmp_path / "empty")
    assert str(tmp_path / "empty") in str(caught.value)
    assert not server.asked


def test_a_packed_copy_is_named_with_its_command(bare, monkeypatch, tmp_path):
    monkeypatch.setenv("TANGENTKIT_DATA", str(tmp_path))
    script = tmp_path / "unpack_cifar10.py"
    script.touch()
    with pytest.raises(DataError) as caught:
        load("cifar10", "train")
    assert f"python {script} {bare}" in str(caught.value)
    assert "packed" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_an_error(served_toy, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.delenv("TANGENTKIT_DATA", raising=False)
    monkeypatch.setenv("TANGENTKIT_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match="tangentkit data get toy"):
        load("toy", "train")


@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_what_a_killed_download_left_is_swept(served_toy, bare):
    old, new = bare / f"{STAGING}old", bare / f"{STAGING}new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    fetch("toy")
    assert not old.exists()
    assert new.exists()


def test_sets_without_files_need_no_fetching(bare):
    assert fetch("digits") is None
    assert fetch("function-f1") is None
    assert not bare.exists()


def test_an_embedded_set_that_is_gone_asks_for_a_new_installation(bare, monkeypatch, tmp_path):
    monkeypatch.setitem(SETS, "fashion-mini", replace(SETS["fashion-mini"], standing=(tmp_path,)))
    with pytest.raises(DataError, match="install tangentkit again"):
        load("fashion-mini", "train")


@pytest.mark.parametrize("pack", [tarred, zipped], ids=["tar", "zip"])
def test_a_bomb_in_an_archive_is_unzipped_no_further_than_the_file_may_be_long(server, install, bare, pack):
    url = server.serve("/pack", pack({name: b"\0" * 10**6 for name in CONTENT}))
    install(tuple(File(name, md5(content), (url,), name, len(content)) for name, content in CONTENT.items()))
    with pytest.raises(DataError, match=r"got more than its \d+ bytes"):
        fetch("toy")
    assert not content_of(bare)


@pytest.mark.parametrize("served_toy", ["gz"], indirect=True)
def test_what_a_user_calls_partial_is_not_swept(served_toy, bare):
    for name in (".partial-mine", ".tangentkit-download-mine.txt"):
        (bare / name).parent.mkdir(parents=True, exist_ok=True)
        (bare / name).write_text("mine")
        os.utime(bare / name, (0, 0))
    (bare / ".partial-folder").mkdir()
    os.utime(bare / ".partial-folder", (0, 0))
    fetch("toy")
    assert (bare / ".partial-mine").exists()
    assert (bare / ".partial-folder").exists()
    assert (bare / ".tangentkit-download-mine.txt").exists()
