"""A manifest of a stranger, its checksum made to fit: whatever it says, it is read or refused, never obeyed."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from compute.toy_kernels import Gaussian, Linear
from tangentkit.compute import gram, gram_cost, open_gram
from tangentkit.compute.store.manifest import DEPTH, TILES
from tangentkit.core.errors import DataError
from tangentkit.core.files.seals import seal, unseal

KERNEL = Linear() + Gaussian()
X = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "k"
    gram(KERNEL, X, store=folder, tile=3)
    return folder


@pytest.fixture
def store(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "k")


def forge(store: Path, change) -> None:
    """Changes the manifest and makes its checksum fit."""
    content = unseal((store / "manifest.json").read_bytes())
    assert content is not None
    change(content)
    (store / "manifest.json").write_bytes(seal(content))


def put(*path: str, value):
    """Sets a value somewhere in a manifest."""

    def change(content: dict) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = value

    return change


def drop(*path: str):
    """Takes a name out of a manifest."""

    def change(content: dict) -> None:
        for name in path[:-1]:
            content = content[name]
        del content[path[-1]]

    return change


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "long": put("arrays", "gram", "shape", value=[10**12, 10**12]),
    "long and one tile": lambda content: (
        put("arrays", "gram", "shape", value=[10**9, 10**9])(content),
        put("arrays", "gram", "tile", value=[10**9, 10**9])(content),
        put("identity", "tile", value=10**9)(content),
    ),
    "many tiles": put("arrays", "gram", "shape", value=[10**9, 10**9]),
    "negative tile": lambda content: (
        put("arrays", "gram", "tile", value=[-3, -3])(content),
        put("identity", "tile", value=-3)(content),
    ),
    "no tile": put("arrays", "gram", "tile", value=[0, 0]),
    "oblong tile": put("arrays", "gram", "tile", value=[3, 2]),
    "other tile": put("arrays", "gram", "tile", value=[2, 2]),
    "part in other tiles": put("arrays", "features-l-x", "tile", value=[2, 3]),
    "oblong": put("arrays", "gram", "shape", value=[7, 6]),
    "three axes": put("arrays", "gram", "shape", value=[7, 7, 7]),
    "numbers as texts": put("arrays", "gram", "shape", value=["7", "7"]),
    "fractions": put("arrays", "gram", "shape", value=[7.0, 7.0]),
    "truths": put("arrays", "gram", "shape", value=[True, True]),
    "not a number": put("arrays", "gram", "shape", value=[float("nan"), 7]),
    "nothing": put("arrays", "gram", "shape", value=None),
    "a text": put("arrays", "gram", "tile", value="33"),
    "unknown dtype": put("arrays", "gram", "dtype", value="float8"),
    "a function of torch": put("arrays", "gram", "dtype", value="load"),
    "dtype in a list": put("arrays", "gram", "dtype", value=["float64"]),
    "array of another kind": put("arrays", "gram", value=3),
    "arrays of another kind": put("arrays", value=[]),
    "no arrays": put("arrays", value={}),
    "an array elsewhere": put("arrays", "../../elsewhere", value={}),
    "a device": put("files", value={"/dev/zero": "0" * 64}),
    "a file elsewhere": put("files", "../secret", value="0" * 64),
    "no checksum": put("files", "zarr.json", value=None),
    "files of another kind": put("files", value="zarr.json"),
    "no files": drop("files"),
    "no shape": drop("arrays", "gram", "shape"),
    "no gram": drop("arrays", "gram"),
    "no identity": drop("identity"),
    "identity of another kind": put("identity", value="mine"),
    "no symmetry": drop("identity", "symmetric"),
    "symmetry in words": put("identity", "symmetric", value="yes"),
    "no size of tiles": drop("identity", "tile"),
    "deep": put("identity", "kernel", value=nested(DEPTH)),
    "no format": drop("format"),
    "format of another kind": put("format", value=[2]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_refused_by_every_reader(store, change):
    forge(store, change)
    path = store / "manifest.json"
    for read in (
        lambda: open_gram(store),
        lambda: gram(KERNEL, X, store=store),
        lambda: gram(KERNEL, X, store=store, repair=True),
        lambda: gram_cost(KERNEL, X, store=store),
    ):
        with pytest.raises(
            DataError, match=rf"{path} is (not the manifest of a store: bad|of another format)"
        ):
            read()


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 10**5 + b"]" * 10**5,
        b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
        b"[]",
        b"null",
        b"",
        b"1" * 10**5,
        b'{"format": 2}',
        b"\xff" * 100,
    ],
)
def test_what_is_no_manifest_at_all_is_damaged(store, content):
    (store / "manifest.json").write_bytes(content)
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        open_gram(store)


def test_a_manifest_of_300_megabytes_is_not_read(store):
    os.truncate(store / "manifest.json", 300 * 10**6)
    with pytest.raises(DataError, match=r"manifest\.json is too large"):
        open_gram(store)


def test_a_pipe_is_not_waited_at(store):
    for name in ("manifest.json", "gram/zarr.json", "gram/c/0/1", "lock.json"):
        path = store / name
        content = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(DataError, match=f"{path} "):
            gram(KERNEL, X, store=store, repair=True)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    torch.testing.assert_close(gram(KERNEL, X, store=store).dense(), KERNEL(X))


def test_a_tile_of_another_size_is_refused_before_memory_is_allocated(store):
    G = open_gram(store)
    forge(
        store,
        lambda content: (
            put("arrays", "gram", "shape", value=[30_000, 30_000])(content),
            put("arrays", "gram", "tile", value=[30_000, 30_000])(content),
            put("arrays", "features-l-x", "tile", value=[30_000, 3])(content),
            put("identity", "tile", value=30_000)(content),
        ),
    )
    with pytest.raises(DataError, match=r"gram/c/0/0 has the wrong size: expected 7200000056 bytes"):
        open_gram(store)
    assert G.shape == (7, 7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pid", "7"),
        ("pid", -1),
        ("pid", 10**30),
        ("pid", True),
        ("started", "now"),
        ("host", None),
        ("boot", 3),
    ],
)
def test_a_hostile_lock_is_named(store, field, value):
    owner = {"host": "h", "machine": "", "boot": "", "namespace": "", "pid": 7, "started": 1.5, "since": ""}
    (store / "lock.json").write_text(json.dumps(owner | {field: value}, indent=1))
    with pytest.raises(DataError, match=r"lock\.json is damaged"):
        gram(KERNEL, X, store=store, repair=True)


def test_more_tiles_than_a_store_may_have_are_refused_before_any_is_computed(tmp_path):
    x = torch.zeros(int(TILES**0.5) + 1, 1, dtype=torch.float64)
    with pytest.raises(DataError, match=r"number of tiles of gram: expected at most 4194304"):
        gram(Gaussian(), x, store=tmp_path / "k", tile=1)
    assert not list((tmp_path / "k").rglob("*.*"))


# Links and leftovers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gram", "gram/c", "gram/c/1", "features-l-x"])
@pytest.mark.parametrize("repair", [True, False])
def test_nothing_is_written_or_removed_through_a_link(store, tmp_path, name, repair):
    place = shutil.copytree(store / name, tmp_path / "place")
    shutil.rmtree(store / name)
    (store / name).symlink_to(place)
    torch.testing.assert_close(gram(KERNEL, X, store=store).dense(), KERNEL(X))  # read through it
    tile = sorted(path for path in place.rglob("*") if path.name.isdecimal() and path.is_file())[-1]
    if repair:
        tile.write_bytes(b"damaged")
    else:
        tile.unlink()
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=rf"{store / name}, which is a link"):
        gram(KERNEL, X, store=store, repair=repair)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["gram", "gram/c", "features-l-x"])
def test_a_folder_with_planted_links_is_not_taken_for_empty(tmp_path, name):
    (tmp_path / "place").mkdir()
    (tmp_path / "k" / name).parent.mkdir(parents=True)
    (tmp_path / "k" / name).symlink_to(tmp_path / "place")
    with pytest.raises(DataError, match=f"not a store.*but {name}"):
        gram(KERNEL, X, store=tmp_path / "k")
    assert not list((tmp_path / "place").iterdir())


@pytest.mark.parametrize("name", [".x.partial", ".x.0123.partial", "x.0123456789abcdef.partial"])
def test_a_users_own_partial_file_is_never_deleted(store, tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(DataError, match="not a store"):
        gram(KERNEL, X, store=tmp_path / "mine")
    assert (tmp_path / "mine" / name).read_text() == "mine"
    (store / name).write_text("mine")
    (store / "gram" / "c" / "0" / "0").unlink()
    for repair in (False, True):
        gram(KERNEL, X, store=store, repair=repair)
    assert (store / name).read_text() == "mine"


# Repair -----------------------------------------------------------------------------------------------------------


def test_a_repair_that_cannot_read_deletes_nothing(store, no_handles):
    tile = store / "gram" / "c" / "0" / "0"
    tile.write_bytes(tile.read_bytes()[:-1] + b"?")
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    shelf = open_gram(store).store
    places = {name: shelf.indices(name) for name in shelf.arrays}
    with no_handles(), pytest.raises(DataError, match="Too many open files"):
        shelf.remove_damaged(places)
    with no_handles(), pytest.raises(DataError, match="Too many open files"):
        shelf.mend_descriptions()
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_tile_that_cannot_be_read_is_reported_before_damaged_ones_are_removed(store):
    first, last = store / "gram" / "c" / "0" / "0", store / "gram" / "c" / "2" / "2"
    first.write_bytes(b"damaged")
    last.unlink()
    last.mkdir()  # opening it is an error of the system, as on a disk that fails
    with pytest.raises(DataError, match=f"cannot read {last}"):
        gram(KERNEL, X, store=store, repair=True)
    assert first.read_bytes() == b"damaged"
    last.rmdir()
    torch.testing.assert_close(gram(KERNEL, X, store=store, repair=True).dense(), KERNEL(X))


@pytest.mark.parametrize("place", ["~nosuchuser/k", "k\0k", "k\ud800"])
def test_a_place_that_cannot_be_is_named(place):
    for attempt in (
        lambda: gram(KERNEL, X, store=place),
        lambda: open_gram(place),
        lambda: gram_cost(KERNEL, X, store=place),
    ):
        with pytest.raises(ValueError, match="bad path"):
            attempt()
