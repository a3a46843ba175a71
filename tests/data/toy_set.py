"""The content of a tiny data set, and the archives it may come in."""

import hashlib
import io
import struct
import tarfile
import zipfile

import numpy as np


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


IMAGES = np.arange(4 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3)
LABELS = np.array([0, 1, 1, 0], np.uint8)
CONTENT = {"toy-images": idx(IMAGES), "toy-labels": idx(LABELS)}


def tarred(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as pack:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as pack:
        for name, content in members.items():
            pack.writestr(name, content)
    return stream.getvalue()
