"""The folder of a tracker: each measurement whole or not at all, and what is needed to go on after a kill -9.

    run.json            what is measured, on which probe
    steps/NUMBER.json   a measurement, sealed by its checksum
    held/NUMBER.pt      kernels (and weights) of the first and the last step, to compare later steps with

A step's tensors are written before its record, and older ones removed after it: wherever a kill strikes, the last
record has its tensors.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tangentkit.analysis.tracking.course import Record
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import (
    JSON_BYTES,
    as_path,
    digest,
    make_folder,
    read_whole,
    remove_file,
    remove_partial_files,
    write_whole,
    written_whole,
)
from tangentkit.core.files.seals import seal, unseal
from tangentkit.core.files.weights import load_tensors

RUN, STEPS, HELD = "run.json", "steps", "held"
ORDER = "order"


class RunFolder:
    """Records and tensors of a tracker on disk.

    Args:
        folder: new, empty, or that of the same run.
        settings: what the run is; a folder of other settings is refused.

    Raises:
        InputError: the folder is that of another run, or holds something else.
        DataError: a file of it is damaged.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any]):
        self.path = as_path(folder)
        make_folder(self.path)
        raw = read_whole(self.path / RUN, limit=JSON_BYTES)
        if raw is None and any(self.path.iterdir()):
            raise InputError(
                f"{self.path} holds something else", expected="a new, an empty, or a tracker's folder"
            )
        if raw is None:
            write_whole(self.path / RUN, [seal(settings)], durable=True, within=self.path)
        elif (found := unseal(raw)) is None:
            raise DataError(f"{self.path / RUN} is damaged", hint="another folder")
        elif found != (wanted := _plain(settings)):
            differing = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
            raise InputError(
                f"{self.path} is the folder of another run",
                expected=", ".join(f"{name} {str(found.get(name))[:60]}" for name in differing),
                got=", ".join(f"{name} {str(wanted.get(name))[:60]}" for name in differing),
                hint="another folder, or the same settings",
            )
        remove_partial_files(self.path)

    def records(self) -> list[Record]:
        """All measurements, in the order of their steps.

        Raises:
            DataError: one is damaged.
        """
        found = []
        for path in sorted((self.path / STEPS).glob("*.json")):
            content = unseal(read_whole(path, limit=JSON_BYTES) or b"")
            if content is None:
                raise DataError(
                    f"{path} is damaged", hint=f"delete it, and step {int(path.stem)} is measured again"
                )
            content.pop(HELD)
            values = content.pop("values")
            names = content.pop(ORDER, list(values))
            found.append(Record(values={name: values[name] for name in names}, **content))
        return found

    def tensors(self, step: int) -> dict[str, Any] | None:
        """What was held of a step; None where it is kept no longer.

        Raises:
            DataError: it is damaged.
        """
        record, path = unseal(read_whole(self._record(step), limit=JSON_BYTES) or b""), self._held(step)
        if (found := digest(path)) is None:
            return None
        if record is None or found != record[HELD]:
            raise DataError(
                f"{path} is damaged",
                expected="the file as it was written, by its SHA-256",
                hint="track the training again in another folder",
            )
        return load_tensors(path)

    def save(self, record: Record, held: dict[str, Any], *, first: int) -> None:
        """Writes a measurement and its tensors; of the others only the tensors of the first stay."""
        path = self._held(record.step)
        with written_whole(path, durable=True, within=self.path) as file:
            torch.save(held, file)
        # A seal sorts its names, and columns of tables stand in the order of the measures.
        content = asdict(record) | {HELD: digest(path), ORDER: list(record.values)}
        write_whole(self._record(record.step), [seal(content)], durable=True, within=self.path)
        for other in (self.path / HELD).glob("*.pt"):
            if other not in (path, self._held(first)):
                remove_file(other, within=self.path)

    def drop(self, step: int) -> None:
        """Forgets a measurement."""
        remove_file(self._record(step), within=self.path)
        remove_file(self._held(step), within=self.path)

    def _record(self, step: int) -> Path:
        return self.path / STEPS / f"{step:012d}.json"

    def _held(self, step: int) -> Path:
        return self.path / HELD / f"{step:012d}.pt"


def _plain(settings: dict[str, Any]) -> Any:
    return unseal(seal(settings))
