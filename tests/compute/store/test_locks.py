"""One writer at a time: who holds the lock, when it is taken over, and how it is broken."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
import torch

from compute.toy_kernels import Gaussian
from tangentkit.compute import break_lock, gram, open_gram
from tangentkit.compute.store.locks import Owner, writing
from tangentkit.core.errors import DataError


def samples(n: int = 7) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def me(tmp_path) -> Owner:
    """This process, as it signs."""
    (tmp_path / "signed").mkdir()
    with writing(tmp_path / "signed"):
        return Owner(**json.loads((tmp_path / "signed" / "lock.json").read_text()))


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "k").mkdir()
    return tmp_path / "k"


def lock(folder: Path, owner: Owner) -> None:
    (folder / "lock.json").write_text(json.dumps(asdict(owner), indent=1))


class Rival(Gaussian):
    """Tries to write the same store while it is being written."""

    def __call__(self, x, y=None):
        if self.store and len(x) == 3:  # a tile, and no probe  # type: ignore[attr-defined]
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


def ended_process() -> int:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid


@pytest.mark.parametrize(
    "ended",
    [
        lambda me: replace(me, pid=ended_process()),
        lambda me: replace(me, started=me.started - 1000),
        lambda me: replace(me, boot="before"),
    ],
    ids=["it ended", "its number is used again", "the machine was started again"],
)
def test_the_lock_of_a_process_that_ended_is_taken_over(folder, me, ended):
    lock(folder, ended(me))
    gram(Gaussian(), samples(), store=folder)
    assert not (folder / "lock.json").exists()


@pytest.mark.parametrize(
    "other",
    [
        lambda me: replace(me, host="elsewhere", pid=1),
        lambda me: replace(me, machine="another of this name", boot="another", pid=1),
        lambda me: replace(me, machine="another of this name", pid=1),
        lambda me: replace(me, namespace="a container", pid=ended_process()),
    ],
    ids=["another machine", "another of one name", "a copy of this machine", "a container"],
)
def test_the_lock_of_whom_nothing_is_known_stands_until_it_is_broken(folder, me, other):
    owner = other(me)
    lock(folder, owner)
    with pytest.raises(DataError, match=rf"process {owner.pid} on {owner.host}.*break_lock"):
        gram(Gaussian(), samples(), store=folder)
    assert [path.name for path in folder.iterdir()] == ["lock.json"]
    assert break_lock(folder)
    assert not break_lock(folder)
    gram(Gaussian(), samples(), store=folder)


def test_machines_without_a_number_are_not_taken_for_each_other(folder, me, monkeypatch):
    monkeypatch.setattr(
        "tangentkit.compute.store.locks._line", lambda path: "" if "machine" in path else "this start"
    )
    lock(folder, replace(me, machine="", boot="another start, or another machine", pid=1))
    with pytest.raises(DataError, match="being written"):
        gram(Gaussian(), samples(), store=folder)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells starts without a clock")
def test_setting_the_clock_does_not_make_a_living_writer_dead(folder, me, monkeypatch):
    lock(folder, me)
    real = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: real(self) + 3600)
    with pytest.raises(DataError, match="being written"):
        gram(Gaussian(), samples(), store=folder)


def test_an_empty_lock_is_what_a_loss_of_power_leaves(folder):
    (folder / "lock.json").touch()
    gram(Gaussian(), samples(), store=folder)
    assert not (folder / "lock.json").exists()


@pytest.mark.parametrize("text", ["{}", "not json", '{"pid": 1}'])
def test_a_damaged_lock_is_named(folder, text):
    (folder / "lock.json").write_text(text)
    with pytest.raises(DataError, match=r"lock.json is damaged.*break_lock"):
        gram(Gaussian(), samples(), store=folder)


def test_nobody_repairs_what_another_writes(folder, me):
    gram(Gaussian(), samples(), store=folder, tile=3)
    (folder / "zarr.json").write_bytes(b"damaged")
    lock(folder, replace(me, host="elsewhere"))
    with pytest.raises(DataError, match="being written"):
        gram(Gaussian(), samples(), store=folder, repair=True)
    assert (folder / "zarr.json").read_bytes() == b"damaged"


def test_a_complete_store_is_read_while_it_is_locked(folder, me):
    expected = gram(Gaussian(), samples(), store=folder, tile=3).dense()
    lock(folder, replace(me, host="elsewhere"))
    assert torch.equal(gram(Gaussian(), samples(), store=folder).dense(), expected)
    assert torch.equal(open_gram(folder).dense(), expected)


def test_a_lock_that_was_broken_and_taken_by_another_is_not_removed(folder, me):
    other = replace(me, host="elsewhere")
    with writing(folder):
        break_lock(folder)
        lock(folder, other)
    assert Owner(**json.loads((folder / "lock.json").read_text())) == other


def test_the_lock_is_given_back_after_an_error(tmp_path):
    class Failing(Gaussian):
        def __call__(self, x, y=None):
            return super().__call__(x, y) / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        gram(Failing(), samples(), store=tmp_path / "k")
    assert not (tmp_path / "k" / "lock.json").exists()
