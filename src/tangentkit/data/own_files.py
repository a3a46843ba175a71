"""Data of the user's own: folders of pictures, files of tensors, tables of sentences.

Files may come from strangers: no code is run (no pickle), no link is followed, sizes are looked at before anything is
unpacked, and what cannot be read is an error that names the file.
"""

import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tangentkit.core.batches import from_array
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import as_path, open_file
from tangentkit.core.memory import format_bytes, memory_budget
from tangentkit.data.dataset import Data
from tangentkit.data.own_pictures import SUFFIXES, read_picture
from tangentkit.data.own_sentences import read_sentences

KINDS = (".npz", ".safetensors", ".csv", ".jsonl")
"""Files that are read."""
INPUTS = ("x", "inputs", "images", "input", "data", "features", "X", "x_train")
LABELS = ("y", "labels", "targets", "label", "target", "Y", "y_train")
"""Names under which inputs and labels are looked for."""


@dataclass(frozen=True, eq=False)
class OwnData:
    """Data that were read from files, and a name for each sample."""

    data: Data
    names: tuple[str, ...]

    def take(self, index: Sequence[int]) -> "OwnData":
        """The samples that a list of indices names, in its order, and their names."""
        return OwnData(self.data.take(index), tuple(self.names[i] for i in index))


def read_files(
    path: str | os.PathLike[str],
    *,
    size: int | None = None,
    crop: int | None = None,
    text: str = "text",
    label: str = "label",
) -> OwnData:
    """Labeled samples from a folder of pictures or from a file.

    ==========================  =======================================================================
    what                        how it is read
    ==========================  =======================================================================
    a folder                    a sub-folder for each class with pictures of 8 or 16 bits; values in [0, 1]; what is
                                transparent is white
    .npz, .safetensors          inputs under `x`, `inputs` or `images`, labels under `y`, `labels` or `targets`;
                                bytes (uint8) of three axes or more are pictures, as in a folder: values in [0, 1]
    .csv, .jsonl                a sentence and its label, a word or a whole number, in each row, under the names given
    ==========================  =======================================================================

    Args:
        path: of the folder or file.
        size: pictures are scaled to so many pixels a side; they must all be of one size otherwise.
        crop: pictures keep their proportions instead: the shorter side is scaled to `size`, and the middle square of
            so many pixels a side is taken, as is usual for ImageNet (256 and 224).
        text: the name of the column of sentences.
        label: the name of the column of labels.

    Returns:
        `.data` and `.names`, which are files, or numbers of rows.

    Raises:
        DataError: something cannot be read; with its name.
        InputError: the file is of no kind that is known, or does not hold what it should; or the size is no number
            of pixels, or the crop larger than it.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "toy.npz"
        >>> np.savez(file, x=np.zeros((3, 2), np.float32), y=np.array([0, 1, 1]))
        >>> read_files(file).data
        Data(toy/all: 3 samples, inputs float32 (2,), 2 classes)
    """
    where = as_path(path)
    if size is not None and (isinstance(size, bool) or size < 1):
        raise InputError("bad size", expected="1 pixel a side or more", got=size)
    if crop is not None and (size is None or not 1 <= crop <= size):
        raise InputError("bad crop", expected=f"from 1 to size = {size}", got=crop)
    if where.is_dir():
        return _folder(where, size, crop)
    kinds = {".npz": _npz, ".safetensors": _safetensors}
    if where.suffix.lower() in kinds:
        _check_size(where)
        return _of_tensors(where, kinds[where.suffix.lower()](where))
    if where.suffix.lower() in (".csv", ".jsonl"):
        _check_size(where)
        return _of_sentences(where, text, label)
    raise InputError(
        f"cannot tell what {where} holds",
        expected="a folder of pictures, or a file .npz, .safetensors, .csv or .jsonl",
        got=where.suffix or "no suffix",
        hint="np.savez('data.npz', x=inputs, y=labels); files of pickles are not read, since they run code",
    )


def _check_size(path: Path) -> None:
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"cannot read {path}", got=error.strerror or error) from error
    _check_fits(path, size)


def _check_fits(path: Path, size: int) -> None:
    budget = memory_budget()
    if size > budget:
        raise DataError(
            f"{path} is too large",
            expected=f"at most {format_bytes(budget)}, a quarter of the free memory",
            got=format_bytes(size),
            hint="in Python a Dataset is read piece by piece: tk.audit(model, dataset)",
        )


def _folder(folder: Path, size: int | None, crop: int | None) -> OwnData:
    if find_spec("PIL") is None:
        raise InputError("pictures need Pillow", hint="pip install 'tangentkit[data]'")
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    files = [(c, file) for c in classes for file in _pictures_in(folder / c)]
    if not files:
        raise InputError(
            f"{folder} holds no pictures in sub-folders",
            expected=f"FOLDER/CLASS/NAME with {', '.join(SUFFIXES[:4])}, ...",
            got=f"sub-folders {classes[:5]}" if classes else "no sub-folders",
        )
    arrays = [read_picture(file, size, crop) for _, file in files]
    shapes = sorted({array.shape[:2] for array in arrays})
    if len(shapes) > 1:
        shown = ", ".join(f"{h} x {w}" for h, w in shapes[:4])
        raise InputError(
            "pictures of several sizes", expected="one size", got=shown, hint="--size 32 scales them"
        )
    gray = all(array.ndim == 2 for array in arrays)
    pixels = np.stack(
        [array if gray or array.ndim == 3 else np.repeat(array[..., None], 3, 2) for array in arrays]
    )
    inputs = torch.from_numpy(pixels).float().div_(255)
    inputs = inputs[:, None] if gray else inputs.permute(0, 3, 1, 2).contiguous()
    used = sorted({c for c, _ in files})
    targets = torch.tensor([used.index(c) for c, _ in files])
    names = tuple(f"{c}/{file.name}" for c, file in files)
    return OwnData(Data(inputs, targets, folder.name or "folder", "all", tuple(used)), names)


def _pictures_in(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if Path(entry.name).suffix.lower() not in SUFFIXES:
            continue
        if entry.is_symlink():
            raise DataError(
                f"{entry.path} is a link", expected="files", hint="links are not followed: put the file there"
            )
        yield Path(entry.path)


def _npz(path: Path) -> dict[str, Tensor | np.ndarray]:
    try:
        with zipfile.ZipFile(path) as packed:
            _check_fits(path, sum(member.file_size for member in packed.infolist()))
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if name in (*INPUTS, *LABELS)}
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"cannot read {path}",
            expected="arrays of numbers, as np.savez writes them",
            got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
        ) from None


def _safetensors(path: Path) -> dict[str, Tensor | np.ndarray]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise InputError("safetensors is not installed", hint="pip install safetensors") from None
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"cannot read {path}", expected="a safetensors file", got=error) from None


def _of_tensors(path: Path, found: dict[str, Tensor | np.ndarray]) -> OwnData:
    def first(names: tuple[str, ...], what: str) -> Tensor:
        for name in names:
            if name in found:
                value = found[name]
                return from_array(value) if isinstance(value, np.ndarray) else value
        raise InputError(
            f"{path} has no {what}", expected=f"an array named {', '.join(names[:3])}", got=f"{sorted(found)}"
        )

    inputs, labels = first(INPUTS, "inputs"), first(LABELS, "labels")
    if inputs.ndim < 2 or labels.ndim != 1 or len(inputs) != len(labels) or labels.is_floating_point():
        raise InputError(
            f"bad arrays in {path}",
            expected="inputs (n, ...) and whole numbers (n,)",
            got=f"{tuple(inputs.shape)} and {labels.dtype} {tuple(labels.shape)}",
        )
    values, indices = torch.unique(labels, return_inverse=True)
    pictures = inputs.dtype == torch.uint8 and inputs.ndim > 2
    inputs = inputs if inputs.is_floating_point() else inputs.float()
    inputs = inputs / 255 if pictures else inputs
    classes = tuple(str(value) for value in values.tolist())
    return OwnData(Data(inputs, indices, path.stem, "all", classes), tuple(map(str, range(len(inputs)))))


def _of_sentences(path: Path, text: str, label: str) -> OwnData:
    numbers, sentences, labels = read_sentences(path, text, label)
    classes = sorted(set(labels))
    targets = torch.tensor([classes.index(one) for one in labels])
    data = Data(sentences, targets, path.stem, "all", tuple(classes))
    return OwnData(data, tuple(f"row {number}" for number in numbers))
