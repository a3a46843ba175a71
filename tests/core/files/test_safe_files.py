"""What is written is whole and where it should be; what is read is a file."""

import os
from pathlib import Path

import pytest

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files import safe
from tangentkit.core.files.safe import (
    as_path,
    digest,
    read_json,
    read_whole,
    remove_file,
    remove_partial_files,
    write_json,
    write_whole,
    written_whole,
)


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("durable", [True, False])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, durable):
    (tmp_path / "file").write_text("old")

    def interrupted() -> None:
        with written_whole(tmp_path / "file", durable=durable) as file:
            file.write(b"half")
            assert (tmp_path / "file").read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert contents(tmp_path) == {"file": "old"}
    write_whole(tmp_path / "file", [b"ne", memoryview(b"w")], durable=durable)
    assert contents(tmp_path) == {"file": "new"}


def test_temporary_names_cannot_be_known(tmp_path):
    names = set()
    for _ in range(20):
        with written_whole(tmp_path / "file", durable=False):
            names |= {path.name for path in tmp_path.iterdir() if path.name != "file"}
    assert len(names) == 20
    assert all(safe.PARTIAL.fullmatch(name) for name in names)


def test_a_name_that_is_taken_by_chance_is_not_written_through(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 16)
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".file.0000000000000000.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(DataError, match="cannot write"):
        write_whole(tmp_path / "file", [b"new"], durable=False)
    assert (tmp_path / "victim").read_text() == "mine"


def test_links_of_files_are_replaced_and_links_of_folders_refused(tmp_path):
    root, place = tmp_path / "root", tmp_path / "place"
    place.mkdir()
    (root / "a").mkdir(parents=True)
    (place / "victim").write_text("mine")
    (root / "a" / "file").symlink_to(place / "victim")
    write_whole(root / "a" / "file", [b"new"], durable=False, within=root)
    assert (place / "victim").read_text() == "mine"
    for link in (root / "b", root / "c" / "b"):
        link.parent.mkdir(exist_ok=True)
        for target in (place, tmp_path / "nothing"):
            link.symlink_to(target)
            for attempt in (
                lambda link=link: write_whole(link / "d" / "victim", [b"new"], durable=False, within=root),
                lambda link=link: remove_file(link / "victim", within=root),
            ):
                with pytest.raises(DataError, match=f"{link}, which is a link"):
                    attempt()
            link.unlink()
    assert contents(place) == {"victim": "mine"}
    assert not (tmp_path / "nothing").exists()


def test_the_folder_that_the_user_names_may_be_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    write_whole(tmp_path / "near" / "a" / "b", [b"new"], durable=False, within=tmp_path / "near")
    assert contents(tmp_path / "far") == {"a/b": "new"}


def test_only_what_writers_of_ours_have_left_is_removed(tmp_path):
    for name in (".x.partial", "x.partial", ".x.0123.partial", ".x.0123456789abcdeX.partial", "a.txt"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".link.0123456789abcdef.partial").symlink_to(tmp_path / "a.txt")
    (tmp_path / ".folder.0123456789abcdef.partial").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path.parent)
    before = contents(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / ".file.0123456789abcdef.partial").write_text("half")
    remove_partial_files(tmp_path)
    assert contents(tmp_path) == before
    assert (tmp_path / ".folder.0123456789abcdef.partial").is_dir()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file_is_not_read(tmp_path, make):
    make(tmp_path / "it")
    for read in (lambda path: read_whole(path, limit=10), digest, read_json):
        with pytest.raises(DataError, match=f"{tmp_path}/it"):
            read(tmp_path / "it")


def test_reading_is_bounded(tmp_path):
    assert read_whole(tmp_path / "it", limit=10) is None
    assert digest(tmp_path / "it") is None
    (tmp_path / "it").write_bytes(b"x" * 11)
    assert read_whole(tmp_path / "it", limit=11) == b"x" * 11
    with pytest.raises(DataError, match=r"too large: expected at most 10 bytes .*got 11 bytes"):
        read_whole(tmp_path / "it", limit=10)
    with pytest.raises(DataError, match="is missing"):
        read_json(tmp_path / "other")


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 10**5, b"\xff\xfe", b"1" * 10**4, b"\0"])
def test_what_is_not_json_is_named(tmp_path, content):
    (tmp_path / "it").write_bytes(content)
    with pytest.raises(DataError, match=f"{tmp_path}/it is damaged: expected JSON"):
        read_json(tmp_path / "it")


def test_json_holds_every_text(tmp_path):
    text = "".join(map(chr, [*range(300), 0xDFFF, 0xFFFF, 0x1F600, 0xD800]))
    write_json(tmp_path / "it", {text: [text, 1.5, None]})
    assert read_json(tmp_path / "it") == {text: [text, 1.5, None]}


def test_what_cannot_be_read_is_not_missing(tmp_path, no_handles):
    for read in (lambda path: read_whole(path, limit=10), digest):
        with no_handles(), pytest.raises(DataError, match=r"cannot read .*it: got Too many open files"):
            read(tmp_path / "it")


@pytest.mark.parametrize("path", ["~nosuchuser/k", "a\0b", "half\ud800"])
def test_names_that_no_file_can_have_are_named(path):
    with pytest.raises(InputError, match="bad path"):
        as_path(path)


def test_home_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path("~/k") == tmp_path / "k"
    assert as_path(tmp_path) == tmp_path
