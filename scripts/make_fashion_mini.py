"""Makes the embedded data set fashion-mini from Fashion-MNIST: 200 training and 100 test images per class.

    python scripts/make_fashion_mini.py [--source FOLDER] [--target FOLDER]

The source is the folder of the four idx files; the default is where Debian's package dataset-fashion-mnist
puts them. The same source always gives the same files; their md5 (of the raw content) stand in
src/tangentkit/data/registry.py.
"""

import argparse
import gzip
import struct
from pathlib import Path

import numpy as np

from tangentkit.core.seeds import Key
from tangentkit.data import Data, load
from tangentkit.data.raw import md5
from tangentkit.data.registry import EMBEDDED, SETS

SIZES = {"train": 2000, "test": 1000}


def idx(array: np.ndarray) -> bytes:
    """The idx file of an array of bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def arrays(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, h, w) and labels as bytes."""
    images = (data.inputs[:, 0] * 255).round().numpy().astype(np.uint8)
    return images, data.targets.numpy().astype(np.uint8)


def make(source: Path, target: Path) -> None:
    """Writes the four gzipped idx files and prints the md5 of their raw content."""
    (edition,) = SETS["fashion-mini"].editions
    target.mkdir(parents=True, exist_ok=True)
    for split, size in SIZES.items():
        whole = load("fashion-mnist", split, path=source)
        part, _ = whole.partition(size, key=Key(0).fold("fashion-mini", split))
        for file, array in zip(edition.files[split], arrays(part), strict=True):
            content = idx(array)
            # No time stamp: the same content gives the same bytes.
            (target / f"{file.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
            print(f"{file.name}  md5 {md5(content)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    (debian,) = SETS["fashion-mnist"].standing
    parser.add_argument("--source", type=Path, default=debian)
    parser.add_argument("--target", type=Path, default=EMBEDDED)
    arguments = parser.parse_args()
    make(arguments.source, arguments.target)
