"""Never wrong, never lost: what is damaged, foreign, locked or full is an error that says so."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

import tangentkit as tk
from compute.toy_kernels import Counted, Gaussian, Linear
from tangentkit.compute import break_lock, gram, open_gram
from tangentkit.core.errors import DataError, ModelError
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
    monkeypatch.setattr("tangentkit.compute.store.FORMAT", 99)
    for attempt in (lambda: again(store), lambda: open_gram(store)):
        with pytest.raises(DataError, match="another format: expected 99, got 2"):
            attempt()


def test_one_sample_changed_in_the_middle_is_seen(store):
    x = samples()
    x[3, 1] = torch.nextafter(x[3, 1], x[3, 1] + 1)
    with pytest.raises(DataError, match=r"data\.x\.content"):
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


def test_repair_computes_only_what_is_damaged(tmp_path):
    kernel = Counted(Gaussian())
    gram(kernel, samples(), store=tmp_path / "k", tile=3)
    path = tmp_path / "k" / "gram" / "c" / "0" / "2"
    path.write_bytes(path.read_bytes()[:-10])
    kernel._calls.clear()
    gram(kernel, samples(), store=tmp_path / "k", repair=True)
    assert [call for call in kernel._calls if call[0] == "tile"] == [("tile", 3, 1)]


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


# Whose matrix is it? -----------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A network with an option that its printed form does not show."""

    def __init__(self, slope: float = 1.0, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(3, 4, dtype=torch.float64)
        self.last = nn.Linear(4, 2, dtype=torch.float64)
        self.slope = slope
        self.register_buffer("shift", torch.zeros(4, dtype=torch.float64))
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))

    def forward(self, x):
        return self.last(torch.tanh(self.slope * self.first(x)) + self.shift)


class OtherNet(Net):
    """The same parameters, other code."""

    def forward(self, x):
        return self.last(torch.sin(self.slope * self.first(x)) + self.shift)


OtherNet.__qualname__ = "Net"
OtherNet.__name__ = "Net"


def shifted_net() -> Net:
    net = Net()
    net.shift += 1
    return net


FACTOR = 2.0


def doubled(model, batch):
    return FACTOR * model(batch)


def tangent(net: nn.Module | None = None, *args, **options) -> tk.TangentKernel:
    return tk.TangentKernel(net or Net(), *args, memory="100MB", **options)


OTHERS = {
    "another model": ((tangent(Net(seed=1)), samples()), ["kernel.function.parameters"]),
    "other buffers": ((tangent(shifted_net()), samples()), ["kernel.function.buffers"]),
    "other code": ((tangent(OtherNet()), samples()), ["kernel.function.architecture"]),
    "a hidden option": ((tangent(Net(slope=2.0)), samples()), ["kernel.function.architecture"]),
    "other outputs": ((tangent(None, "pseudo"), samples()), ["kernel.outputs"]),
    "other parameters": (
        (tangent(params=["last.weight"]), samples()),
        ["kernel.function.selection", "kernel.function.parameters"],
    ),
    "another forward": ((tangent(forward=doubled), samples()), ["kernel.function.forward"]),
    "another seed": ((tangent(probes=3, seed=1), samples()), ["kernel.seed", "kernel.probes"]),
    "another kernel": ((tangent().normalized(), samples()), ["kernel.kind"]),
    "another factor": ((2.0 * tangent(), samples()), ["kernel.factor"]),
    "another dtype": ((tangent().to(torch.float32), samples()), ["dtype"]),
    "other data": ((tangent(), samples(seed=1)), ["data.x.content", "data.x.order"]),
    "more data": ((tangent(), samples(8)), ["data.x.samples"]),
    "another order": ((tangent(), samples().flip(0)), ["data.x.order"]),
    "two sides": ((tangent(), samples(), samples()), ["data.y", "symmetric"]),
}


@pytest.fixture(scope="module")
def tangent_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whose") / "k.zarr"
    gram(tangent(), samples(), store=folder, tile=4)
    return folder


@pytest.mark.parametrize("case", OTHERS)
def test_another_matrix_is_an_error_that_says_what_differs(tangent_store, case):
    (kernel, *data), names = OTHERS[case]
    before = contents(tangent_store)
    with pytest.raises(DataError, match="another Gram matrix") as caught:
        gram(kernel, *data, store=tangent_store)
    for name in names:
        assert name in str(caught.value)
    if case == "another order":
        assert "content" not in str(caught.value)
    assert contents(tangent_store) == before


def test_another_tile_size_is_an_error(tangent_store):
    with pytest.raises(DataError, match=r"differ in tile: expected tile 4, got 3"):
        gram(tangent(), samples(), store=tangent_store, tile=3)


@pytest.mark.parametrize("library", ["tangentkit", "torch"])
def test_another_version_is_an_error(tangent_store, monkeypatch, library):
    if library == "tangentkit":
        monkeypatch.setattr(sys.modules["tangentkit.compute.gram"], "version", lambda _: "99")
    else:
        monkeypatch.setattr(torch, "__version__", "99")
    with pytest.raises(DataError, match=rf"differ in library.{library}:.*got 99"):
        gram(tangent(), samples(), store=tangent_store)
    assert open_gram(tangent_store).shape == (7, 7)  # to read it needs no agreement


def test_the_same_matrix_from_new_objects_is_the_same(tangent_store):
    before = contents(tangent_store)
    gram(tangent(Net()), samples().clone(), store=tangent_store)
    assert contents(tangent_store) == before


def test_training_the_model_later_does_not_change_a_kernel(tangent_store):
    net = Net()
    kernel = tangent(net)
    with torch.no_grad():
        net.first.weight.zero_()
    gram(kernel, samples(), store=tangent_store)


def test_a_kernel_that_cannot_say_what_it_is_has_no_store(tmp_path):
    class Mystery(Gaussian):
        pass

    kernel = Mystery()
    object.__setattr__(kernel, "source", open(os.devnull))  # noqa: SIM115
    with kernel.source, pytest.raises(ModelError, match=r"kernel.source.*identity\(\)"):
        gram(kernel, samples(), store=tmp_path / "k")
    assert not (tmp_path / "k").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(DataError, match=r"not a store.*thesis.txt"):
        gram(Gaussian(), samples(), store=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


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


# One writer -------------------------------------------------------------------------------------------------------


def lock_of(pid: int, started: float, host: str | None = None) -> bytes:
    namespace = os.readlink("/proc/self/ns/pid") if Path("/proc/self/ns/pid").exists() else ""
    owner = {"host": host or socket.gethostname(), "namespace": namespace, "pid": pid, "started": started}
    return json.dumps(owner, indent=1).encode()


class Rival(Gaussian):
    """Tries to write the same store while it is being written."""

    def __call__(self, x, y=None):
        if self.store:  # type: ignore[attr-defined]
            with pytest.raises(DataError, match=rf"being written.*process {os.getpid()} on "):
                gram(Rival.of(None), samples(), store=self.store, tile=3)  # type: ignore[attr-defined]
        return super().__call__(x, y)

    @classmethod
    def of(cls, store: Path | None) -> "Rival":
        kernel = cls()
        object.__setattr__(kernel, "store", store)
        return kernel

    def identity(self):
        return {"kind": "rival"}


def test_a_second_writer_refuses_while_the_first_writes(tmp_path):
    G = gram(Rival.of(tmp_path / "k"), samples(), store=tmp_path / "k", tile=3)
    torch.testing.assert_close(G.dense(), Gaussian()(samples()))
    assert not (tmp_path / "k" / "lock.json").exists()


@pytest.mark.parametrize("pid", ["ended", "used again"])
def test_the_lock_of_a_process_that_ended_is_taken_over(tmp_path, pid):
    folder = tmp_path / "k"
    folder.mkdir()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    number = gone.pid if pid == "ended" else os.getpid()
    (folder / "lock.json").write_bytes(lock_of(number, 1000.0))
    gram(Gaussian(), samples(), store=folder)
    assert not (folder / "lock.json").exists()


def test_the_lock_of_another_machine_stands_until_it_is_broken(tmp_path):
    folder = tmp_path / "k"
    folder.mkdir()
    (folder / "lock.json").write_bytes(lock_of(1, 1000.0, host="elsewhere"))
    with pytest.raises(DataError, match=r"process 1 on elsewhere.*break_lock"):
        gram(Gaussian(), samples(), store=folder)
    assert break_lock(folder)
    assert not break_lock(folder)
    gram(Gaussian(), samples(), store=folder)


def test_a_damaged_lock_is_named(tmp_path):
    folder = tmp_path / "k"
    folder.mkdir()
    (folder / "lock.json").write_bytes(lock_of(1, 1000.0).replace(b"pid", b"pie"))
    with pytest.raises(DataError, match=r"lock.json is damaged.*break_lock"):
        gram(Gaussian(), samples(), store=folder)


def test_the_lock_is_given_back_after_an_error(tmp_path):
    class Failing(Gaussian):
        def __call__(self, x, y=None):
            return super().__call__(x, y) / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        gram(Failing(), samples(), store=tmp_path / "k")
    assert not (tmp_path / "k" / "lock.json").exists()


# A full disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_what_cannot_fit_is_refused_before_it_begins(small_disk):
    with pytest.raises(DataError, match=r"no room for the tiles.*bytes"):
        gram(Gaussian(), samples(600), store=small_disk / "k", tile=100)
    assert not list((small_disk / "k").rglob("c/*/*"))


class Filling(Gaussian):
    """Fills the disk when it has computed some tiles."""

    def __call__(self, x, y=None):
        if (self.folder / "k" / "gram" / "c" / "0" / "1").exists() and not self.filler.exists():  # type: ignore
            with self.filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
        return super().__call__(x, y)

    def identity(self):
        return {"kind": "filling"}


def test_a_disk_that_fills_up_leaves_a_valid_store(small_disk):
    kernel, x = Filling(), samples(250)
    object.__setattr__(kernel, "folder", small_disk)
    object.__setattr__(kernel, "filler", small_disk / "filler")
    with pytest.raises(DataError, match=r"no room to write .*gram/c/0/2.*run again"):
        gram(kernel, x, store=small_disk / "k", tile=50)
    assert not list(small_disk.rglob("*.partial"))
    assert not (small_disk / "k" / "lock.json").exists()
    assert len(list((small_disk / "k" / "gram" / "c").glob("*/*"))) == 2
    (small_disk / "filler").unlink()
    (small_disk / "filler").touch()
    torch.testing.assert_close(gram(kernel, x, store=small_disk / "k").dense(), Gaussian()(x))


def test_a_limit_on_the_size_of_files_leaves_a_valid_store(tmp_path):
    def limited(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    x = samples(100)
    try:
        limited(10_000)
        with pytest.raises(DataError, match="no room to write"):
            gram(Gaussian(), x, store=tmp_path / "k", tile=50)
    finally:
        limited(soft)
        signal.signal(signal.SIGXFSZ, previous)
    assert not list(tmp_path.rglob("*.partial"))
    torch.testing.assert_close(gram(Gaussian(), x, store=tmp_path / "k").dense(), Gaussian()(x))
