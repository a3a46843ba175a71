"""Trained weights: where they are looked for, and how they are checked."""

import hashlib
import io
import os
from pathlib import Path

from torch import nn

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import as_path, read_whole
from tangentkit.core.files.weights import load_tensors
from tangentkit.models.cifar_resnet import cifar_resnet

CIFAR_RESNET_SHA256 = {
    20: "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
    32: "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850",
    44: "014dd6541728a1c700b1642ab640e211dc6eb8ed507d70697458dc8f8a0ae2e4",
    56: "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
}
"""Depth -> SHA-256 of the file; its first eight digits are part of the file's name."""

FILE_BYTES = 2**24
"""More than any of the files has."""

CIFAR_RESNET_MEAN = (0.485, 0.456, 0.406)
"""Channel means that the trained networks expect to be subtracted from images in [0, 1]."""

CIFAR_RESNET_STD = (0.229, 0.224, 0.225)
"""Channel standard deviations that they expect to be divided by."""


def load_cifar_resnet(depth: int = 20, path: str | Path | None = None) -> nn.Sequential:
    """ResNet-20, 32, 44 or 56 trained on CIFAR-10, in evaluation mode.

    They reach 91.73, 92.63, 93.10 and 93.39 % on the test set. Inputs are images in [0, 1], standardized
    with `CIFAR_RESNET_MEAN` and `CIFAR_RESNET_STD`.

    Args:
        depth: 20, 32, 44 or 56.
        path: the checkpoint or the folder that holds it; by default `models/cifar10_resnet` in the folder
            that the environment variable TANGENTKIT_DATA names.

    Raises:
        InputError: there is no checkpoint of this depth.
        DataError: the file is missing, or its checksum is wrong.
    """
    if depth not in CIFAR_RESNET_SHA256:
        raise InputError("no checkpoint of this depth", expected="20, 32, 44 or 56", got=depth)
    content = _verified(_locate(depth, path), CIFAR_RESNET_SHA256[depth])
    state = load_tensors(content)["state_dict"]
    model = cifar_resnet(depth)
    model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()}, strict=True)
    return model.eval()


def _locate(depth: int, path: str | Path | None) -> Path:
    name = f"resnet{depth}-{CIFAR_RESNET_SHA256[depth][:8]}.th"
    data = os.environ.get("TANGENTKIT_DATA")
    if path is None and data:
        path = Path(data) / "models" / "cifar10_resnet"
    file = as_path(path) if path is not None else None
    if file is not None and file.is_dir():
        file = file / name
    if file is None or not file.is_file():
        raise DataError(
            f"the trained ResNet-{depth} is not here",
            expected=file or f"{name}, in a folder that path= or TANGENTKIT_DATA names",
            got="no such file" if file else "neither",
            hint=f"download pretrained_models/{name} of github.com/akamaster/pytorch_resnet_cifar10 to "
            "$TANGENTKIT_DATA/models/cifar10_resnet, or pass path=",
        )
    return file


def _verified(file: Path, sha256: str) -> io.BytesIO:
    # The bytes that are checked are the bytes that are loaded.
    content = read_whole(file, limit=FILE_BYTES) or b""
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise DataError(
            f"{file} is not the checkpoint it should be",
            expected=f"SHA-256 {sha256}",
            got=digest,
            hint="download it again",
        )
    return io.BytesIO(content)
