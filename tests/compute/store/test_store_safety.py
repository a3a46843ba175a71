"""Never wrong: what is damaged, in the wrong place or not ours is an error that names the file."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import zarr

from compute.toy_kernels import Counted, Gaussian, Linear
from tangentkit.compute import gram, open_gram
from tangentkit.core.errors import DataError
from tangentkit.core.seeds import Key

KERNEL = Linear().normalized() + Gaussian()


def samples(n: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def store(tmp_path) -> Path:
    """A complete store."""
    gram(KERNEL, samples(), store=tmp_path / "k.zarr", tile=3)
    return tmp_path / "k.zarr"


def again(store: Path, **options) -> torch.Tensor:
    return gram(KERNEL, samples(), store=store, **options).dense()


def contents(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


FILES = [
    "manifest.json",
    "zarr.json",
    "gram/zarr.json",
    "features-lb-x/zarr.json",
    "scales-l-x/zarr.json",
    "gram/c/0/1",
    "features-lb-x/c/1/0",
    "scales-l-x/c/2/0",
]


def test_these_are_all_kinds_of_files(store):
    kinds = {name.split("/c/")[0] + ("/c" if "/c/" in name else "") for name in contents(store)}
    assert {name.split("/c/")[0] + ("/c" if "/c/" in name else "") for name in FILES} == kinds


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", ["first", "middle", "last", "anywhere"])
def test_one_flipped_bit_is_an_error_that_names_the_file(store, name, place):
    path = store / name
    content = bytearray(path.read_bytes())
    chance = Key(0).fold(name, place).numpy()
    where = {"first": 0, "middle": len(content) // 2, "last": len(content) - 1}.get(
        place, int(chance.integers(len(content)))
    )
    content[where] ^= 1 << int(chance.integers(8))
    path.write_bytes(content)
    with pytest.raises(DataError, match=str(path)):
        again(store)


def test_a_flip_of_any_byte_of_any_file_is_an_error(store):
    for name, content in contents(store).items():
        path = store / name
        for where in range(0, len(content), max(1, len(content) // 12)):
            path.write_bytes(content[:where] + bytes([content[where] ^ 0xFF]) + content[where + 1 :])
            with pytest.raises(DataError, match=name):
                again(store)
        path.write_bytes(content)
    torch.testing.assert_close(again(store), KERNEL(samples()))


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("gram/c/0/1", "gram/c/1/1"),
        ("gram/c/0/0", "gram/c/1/1"),
        ("features-lb-x/c/0/0", "features-lb-x/c/1/0"),
    ],
)
def test_a_whole_tile_in_the_place_of_another_is_an_error(store, source, place):
    before = contents(store)
    (store / place).write_bytes(before[source])
    with pytest.raises(DataError, match=rf"{store / place} is not the tile of this place.*repair"):
        again(store)
    again(store, repair=True)
    assert contents(store) == before


def test_a_whole_tile_from_another_matrix_is_an_error(store, tmp_path):
    gram(KERNEL, samples(seed=1), store=tmp_path / "other", tile=3)
    path = store / "gram" / "c" / "0" / "1"
    path.write_bytes((tmp_path / "other" / "gram" / "c" / "0" / "1").read_bytes())
    for attempt in (lambda: again(store), lambda: open_gram(store).dense(), lambda: open_gram(store)[0, 4]):
        with pytest.raises(DataError, match=f"{path} is not the tile of this place"):
            attempt()


@pytest.mark.parametrize("name", ["0~", "77", "03", "note.txt"])
def test_files_of_others_are_neither_read_nor_removed(store, name):
    stranger = store / "gram" / "c" / "0" / name
    stranger.write_bytes(b"mine")
    expected = KERNEL(samples())
    for repair in (False, True):
        torch.testing.assert_close(again(store, repair=repair), expected)
    assert stranger.read_bytes() == b"mine"


def test_links_to_tiles_and_to_the_store_are_followed(store, tmp_path):
    path = store / "gram" / "c" / "0" / "1"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(store)
    torch.testing.assert_close(again(tmp_path / "link"), KERNEL(samples()))
    (tmp_path / "elsewhere").unlink()
    with pytest.raises(DataError, match=f"{path} is missing|not complete"):
        open_gram(store).dense()


def test_a_store_stays_where_it_was_when_the_process_moves(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    made = gram(KERNEL, samples(), store="my k.zarr", tile=3)
    opened = open_gram("my k.zarr")
    monkeypatch.chdir(tmp_path / "other")
    for G in (made, opened):
        torch.testing.assert_close(G.dense(), KERNEL(samples()))


def test_places_where_no_folder_can_be_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "k"):
        with pytest.raises(DataError, match=f"cannot make the folder {place}"):
            gram(KERNEL, samples(), store=place)


def test_a_store_without_its_manifest_is_left_alone(store):
    (store / "manifest.json").unlink()
    before = contents(store)
    with pytest.raises(DataError, match=r"no manifest\.json, but "):
        again(store, repair=True)
    with pytest.raises(DataError, match=r"not a store: expected manifest\.json"):
        open_gram(store)
    assert contents(store) == before


def test_a_store_of_another_format_is_refused(store, monkeypatch):
    monkeypatch.setattr("tangentkit.compute.store.store.FORMAT", 99)
    for attempt in (lambda: again(store), lambda: open_gram(store)):
        with pytest.raises(
            DataError, match="of another format than this version of tangentkit reads: expected 99, got 3"
        ):
            attempt()


def test_one_sample_changed_in_the_middle_is_seen(store):
    x = samples()
    x[3, 1] = torch.nextafter(x[3, 1], x[3, 1] + 1)
    with pytest.raises(DataError, match="the samples differ: x has other values"):
        gram(KERNEL, x, store=store)


@pytest.mark.parametrize("name", [name for name in FILES if name != "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "longer", "remove"])
def test_repair_brings_back_the_same_bytes(store, name, damage):
    before = contents(store)
    path = store / name
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(
            {
                "flip": content[:-1] + bytes([content[-1] ^ 1]),
                "truncate": content[:-2],
                "empty": b"",
                "longer": content + b"\n",
            }[damage]
        )
    again(store, repair=True)
    assert contents(store) == before


def test_repair_changes_nothing_that_is_whole(store):
    (store / "gram" / "zarr.json").write_bytes(b"")
    stamps = {path: path.stat().st_ino for path in store.rglob("*") if path.name != "zarr.json"}
    again(store, repair=True)
    assert {path: path.stat().st_ino for path in stamps} == stamps


def test_repair_for_another_matrix_changes_nothing(store):
    (store / "gram" / "zarr.json").write_bytes(b"")
    before = contents(store)
    with pytest.raises(DataError, match="another Gram matrix"):
        gram(KERNEL, samples(seed=1), store=store, repair=True)
    assert contents(store) == before


def test_verify_reads_every_file(store):
    open_gram(store).verify()
    heard = []
    open_gram(store).verify(progress=lambda *news: heard.append(news))
    assert heard[-1] == ("verify", 12, 12)  # six tiles, three ranges of features and of scales
    for name, content in contents(store).items():
        path = store / name
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DataError, match=f"{path} is "):
            open_gram(store).verify()
        path.write_bytes(content)
    (store / "features-lb-x" / "c" / "0" / "0").unlink()
    with pytest.raises(DataError, match="features-lb-x/c/0/0 is missing"):
        open_gram(store).verify()


def test_repair_computes_only_what_is_damaged(tmp_path):
    kernel = Counted(Gaussian())
    gram(kernel, samples(), store=tmp_path / "k", tile=3)
    path = tmp_path / "k" / "gram" / "c" / "0" / "2"
    path.write_bytes(path.read_bytes()[:-10])
    kernel._calls.clear()
    gram(kernel, samples(), store=tmp_path / "k", repair=True)
    probes = [("tile", 7, 0), ("tile", 4, 3)]
    assert [call for call in kernel._calls if call[0] == "tile"] == [*probes, ("tile", 3, 1)]


def test_a_truncated_tile_is_an_error_unless_repair_is_asked_for(store):
    path = store / "gram" / "c" / "0" / "0"
    path.write_bytes(path.read_bytes()[:-1])
    for attempt in (lambda: again(store), lambda: open_gram(store)):
        with pytest.raises(DataError, match=rf"{path}.*size.*repair=True"):
            attempt()
    torch.testing.assert_close(again(store, repair=True), KERNEL(samples()))


def test_a_tile_that_goes_missing_is_never_read_as_numbers(store):
    G = open_gram(store)
    path = store / "gram" / "c" / "1" / "2"
    path.unlink()
    with pytest.raises(DataError, match=f"{path} is missing"):
        G.dense()
    with pytest.raises(DataError, match=f"{path} is missing"):
        G[6, 3]
    assert G[0, 0] == pytest.approx(float(KERNEL(samples())[0, 0]))


def test_two_readers_see_whole_tiles_while_one_writes(store):
    G, expected = open_gram(store), KERNEL(samples())
    tiles = {index: G.store.get("gram", index) for index in G.store.indices("gram")}
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for index, tile in tiles.items():
                G.store.put("gram", index, tile)

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(write)
        try:
            readers = [pool.submit(lambda: [open_gram(store).dense() for _ in range(20)]) for _ in range(2)]
            for read in readers:
                for dense in read.result():
                    torch.testing.assert_close(dense, expected)
        finally:
            done.set()
        writer.result()


def test_nothing_is_unpickled(store):
    code = (
        "import pickle, sys\n"
        "def no(*a, **k): raise SystemExit('unpickled')\n"
        "import torch; from tangentkit.compute import open_gram\n"
        "pickle.load = pickle.loads = pickle.Unpickler = torch.load = no\n"
        "open_gram(sys.argv[1]).dense()"
    )
    subprocess.run([sys.executable, "-c", code, str(store)], check=True, capture_output=True, timeout=120)
    for content in contents(store).values():
        assert not content.startswith(b"\x80")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(DataError, match=r"not a store.*thesis.txt"):
        gram(Gaussian(), samples(), store=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "make", [zarr.create_group, lambda place: zarr.create_array(place, shape=3, dtype="f4")]
)
def test_what_somebody_else_keeps_in_zarr_is_left_alone(tmp_path, make):
    make(str(tmp_path / "mine"))
    before = contents(tmp_path / "mine")
    with pytest.raises(DataError, match=r"not a store.*zarr.json"):
        gram(Gaussian(), samples(), store=tmp_path / "mine")
    assert contents(tmp_path / "mine") == before


def test_something_else_in_the_place_of_a_tile_is_named(store):
    folder = store / "gram" / "c" / "1"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("a file where a folder should be")
    with pytest.raises(DataError, match=f"cannot write {folder}"):
        again(store)
    with pytest.raises(DataError, match="not complete"):
        open_gram(store)
    folder.unlink()
    torch.testing.assert_close(again(store), KERNEL(samples()))
