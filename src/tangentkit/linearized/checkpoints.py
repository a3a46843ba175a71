"""Checkpoints of a training run: one file, written whole or not at all, that knows what it belongs to."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.fingerprints import fingerprint, module_fingerprint
from tangentkit.core.files.safe import written_whole
from tangentkit.core.files.weights import load_tensors
from tangentkit.core.seeds import Key
from tangentkit.linearized.labeled import Labeled
from tangentkit.linearized.settings import Training

Identity = dict[str, str]
"""What a run is made of, by name: a run may only go on from a checkpoint with the same identity."""


def identity(
    model: nn.Module, data: Labeled, watch: Mapping[str, Labeled], training: Training, key: Key
) -> Identity:
    """The identity of a run, before its first step."""
    settings = {field.name: repr(getattr(training, field.name)) for field in fields(training)}
    return {
        **settings,
        "key": repr(key),
        "start of the model": module_fingerprint(model),
        "data": data.fingerprint,
        "watched sets": fingerprint({name: samples.fingerprint for name, samples in watch.items()}),
    }


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Writes the file, whole or not at all."""
    with written_whole(path, durable=True) as file:
        torch.save(content, file)


def load_checkpoint(path: Path, expected: Identity, device: torch.device) -> dict[str, Any]:
    """The content of a checkpoint of this very run.

    Raises:
        DataError: the file is damaged.
        InputError: it belongs to another run; the message says what differs.
    """
    try:
        content = load_tensors(path, device=device)
        got = "tensors of something else"
    except DataError as error:
        content, got = None, error.got
    found: Identity | None = content.get("identity") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(found, dict):
        raise DataError(
            f"{path} is not a checkpoint of a training run", got=got, hint="delete it, or name another path"
        )
    differing = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if differing:
        raise InputError(
            f"{path} belongs to another training run",
            expected=", ".join(f"{name} {_brief(expected.get(name))}" for name in differing),
            got=", ".join(f"{name} {_brief(found.get(name))}" for name in differing),
            hint="another path, or the model as it was before its first step and the same data and settings",
        )
    return content


def _brief(text: str | None) -> str:
    return str(text)[:40]
