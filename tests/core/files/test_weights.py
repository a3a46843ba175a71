"""Files of tensors: loaded without running code, and errors that say so without advice to run it."""

import io
import os
import pickle
import traceback
import zipfile

import pytest
import torch

from tangentkit.core.errors import DataError
from tangentkit.core.files.weights import load_tensors


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("owned",)


def saved(content: object) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


HOSTILE = {
    "code": saved({"w": Evil()}),
    "plain pickle": pickle.dumps(Evil()),
    "old pickle": pickle.dumps(Evil(), protocol=0),
    "a module": saved(torch.nn.Linear(2, 2)),
    "truncated": saved({"w": torch.ones(3)})[:-200],
    "empty": b"",
    "words": b"not tensors",
    "other zip": b"PK\x03\x04" + b"\0" * 50,
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_tensors_is_refused_without_advice_to_run_it(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read tensors from .*w\.pt") as raised:
        load_tensors(tmp_path / "w.pt")
    told = "".join(traceback.format_exception(raised.value)).lower()
    for advice in ("weights_only", "arbitrary code", "if you trust", "safe_globals"):
        assert advice not in told.split("raise dataerror")[-1]
    assert not (tmp_path / "owned").exists()


def test_code_is_named(tmp_path):
    (tmp_path / "w.pt").write_bytes(HOSTILE["code"])
    with pytest.raises(DataError, match=r"got one that asks for posix\.mkdir, which is code"):
        load_tensors(tmp_path / "w.pt")


def test_any_flip_is_refused_or_gives_tensors(tmp_path):
    content = saved({"w": torch.arange(3.0)})
    for where in range(0, len(content), 11):
        (tmp_path / "w.pt").write_bytes(
            content[:where] + bytes([content[where] ^ 0xFF]) + content[where + 1 :]
        )
        try:
            load_tensors(tmp_path / "w.pt")
        except DataError as error:
            assert "weights_only" not in str(error)  # noqa: PT017


def test_what_is_missing_or_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("gone", "No such file"), ("pipe", "is not a file"), ("", "Is a directory")):
        with pytest.raises(DataError, match=words):
            load_tensors(tmp_path / name)


def test_a_zip_without_tensors_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as pack:
        pack.writestr("readme", "hello")
    with pytest.raises(DataError, match="cannot read tensors"):
        load_tensors(tmp_path / "w.pt")
