from pathlib import Path

import pytest

from tangentkit.core import DataError, InputError
from tangentkit.data import SETS, available, cache_folder, fetch, is_here, load
from tangentkit.data.places import find, roots


@pytest.fixture
def shared(bare, monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("TANGENTKIT_DATA", str(tmp_path / "shared"))
    return tmp_path / "shared"


def test_the_order_is_path_then_shared_folder_then_cache_then_system(
    install, shared, bare, tmp_path, write_toy
):
    entry = install(standing=(tmp_path / "system",))

    def place(path=None):
        found = find(entry, path=path)
        return found and found.folder

    assert place() is None
    for folder in (tmp_path / "system", bare / "toy", shared / "toy"):
        assert place() != write_toy(folder)
        assert place() == folder
    explicit = write_toy(tmp_path / "explicit" / "toy")
    assert place() == shared / "toy"
    assert place(tmp_path / "explicit") == explicit
    assert place(explicit) == explicit


def test_an_explicit_path_is_the_only_place(install, shared, bare, tmp_path, write_toy):
    install(standing=(tmp_path / "system",))
    for folder in (shared / "toy", bare / "toy", tmp_path / "system"):
        write_toy(folder)
    assert not is_here("toy", path=tmp_path / "elsewhere")


def test_files_may_be_gzipped_and_in_a_second_folder(toy, bare, write_toy):
    write_toy(bare / "toy" / "raw", compress=True)
    assert is_here("toy")


def test_a_part_of_the_files_is_not_the_set(toy, bare, write_toy):
    write_toy(bare / "toy", "toy-images")
    assert not is_here("toy")
    assert not is_here("toy", "train")


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("TANGENTKIT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TANGENTKIT_CACHE")
    assert cache_folder().name == "tangentkit"
    assert cache_folder().is_absolute()


def test_an_empty_variable_counts_as_unset(bare, monkeypatch):
    monkeypatch.setenv("TANGENTKIT_DATA", "")
    assert roots() == [bare]


def test_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TANGENTKIT_CACHE", "~/kept")
    assert cache_folder() == tmp_path / "kept"


def test_what_comes_with_the_library_needs_no_home(monkeypatch):
    def unknown(*_):
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "TANGENTKIT_CACHE", "TANGENTKIT_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert len(load("fashion-mini", "test", limit=5)) == 5
    assert fetch("fashion-mini")
    assert not is_here("mnist")
    assert len(available()) == len(SETS)
    for attempt in (cache_folder, lambda: fetch("mnist"), lambda: load("mnist", "test")):
        with pytest.raises(DataError, match=r"home folder.*TANGENTKIT_CACHE"):
            attempt()


@pytest.mark.parametrize("path", ["~nosuchuser/data", "a\0b"])
def test_a_place_that_cannot_be_is_named(path, monkeypatch):
    for attempt in (lambda: load("mnist", "train", path=path), lambda: fetch("mnist", path)):
        with pytest.raises(InputError, match="bad path"):
            attempt()


@pytest.mark.parametrize("variable", ["TANGENTKIT_DATA", "TANGENTKIT_CACHE"])
def test_a_variable_with_an_unknown_home_is_named(bare, monkeypatch, variable):
    monkeypatch.setenv(variable, "~nosuchuser/data")
    with pytest.raises(InputError, match="bad path '~nosuchuser/data'"):
        load("fashion-mini", "train")
