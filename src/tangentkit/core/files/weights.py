"""Files of tensors, loaded without running code."""

import io
import re
from pathlib import Path
from typing import Any

import torch

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import open_file

CODE = re.compile(r"GLOBAL ([\w.]+)")
"""How torch names what a file wants to call."""


def load_tensors(file: Path | io.BytesIO, *, device: torch.device | str = "cpu") -> Any:
    """What torch.save wrote: tensors, and containers of them and of plain values; or those of a .safetensors file.

    Raises:
        DataError: the file is missing, damaged, or holds more than that.

    Example:
        >>> content = io.BytesIO()
        >>> torch.save({"w": torch.ones(2)}, content)
        >>> load_tensors(io.BytesIO(content.getvalue()))
        {'w': tensor([1., 1.])}
    """
    if isinstance(file, Path) and file.suffix == ".safetensors":
        return _safetensors(file, device)
    try:
        with file if isinstance(file, io.BytesIO) else io.BufferedReader(open_file(file)) as stream:
            return torch.load(stream, map_location=device, weights_only=True)
    except DataError:
        raise
    # Whatever bytes can do to an unpickler.
    except Exception as error:
        name = "the content" if isinstance(file, io.BytesIO) else str(file)
        raise DataError(
            f"cannot read tensors from {name}",
            expected="a file of tensors alone",
            got=_reason(error),
            hint="torch.save(model.state_dict(), path) writes one",
        ) from None


def _safetensors(file: Path, device: torch.device | str) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load
    except ImportError as error:
        raise DataError(
            f"cannot read {file}",
            expected="safetensors to be installed",
            got=error,
            hint="pip install safetensors",
        ) from None
    try:
        with io.BufferedReader(open_file(file)) as stream:
            return {name: tensor.to(device) for name, tensor in load(stream.read()).items()}
    except DataError:
        raise
    # Its reader has errors of its own kinds.
    except Exception as error:
        raise DataError(
            f"cannot read tensors from {file}", expected="a whole .safetensors file", got=_reason(error)
        ) from None


def _reason(error: Exception) -> str:
    """What went wrong; never torch's advice to load the file with whatever code is in it."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if named := CODE.search(str(error)):
        return f"one that asks for {named[1]}, which is code"
    line = str(error).strip().partition("\n")[0]
    return f"damaged bytes ({type(error).__name__})" if "weights" in line.lower() or not line else line
