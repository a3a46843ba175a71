"""Scalars of a tracker for TensorBoard, where it is installed."""

from pathlib import Path
from typing import Any

from tangentkit.analysis.tracking.course import Record
from tangentkit.core.errors import InputError

FOLDER = "tensorboard"


class Board:
    """Writes the scalars of records to a folder that TensorBoard reads.

    Args:
        folder: of the tracker; None for one without.
        wanted: whether to write; None where TensorBoard is installed.
        after: the last step that was written; what a killed run wrote later is hidden.

    Raises:
        InputError: it is wanted, and not installed, or there is no folder.
    """

    def __init__(self, folder: Path | None, wanted: bool | None, *, after: int | None):
        self._writer: Any = None
        if wanted and folder is None:
            raise InputError("no place for TensorBoard's files", expected="folder=...", got="none")
        if wanted is False or folder is None:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            if wanted:
                raise InputError(
                    "TensorBoard is not installed", got=error, hint="pip install tensorboard"
                ) from error
            return
        first = None if after is None else after + 1
        self._writer = SummaryWriter(str(folder / FOLDER), purge_step=first)

    def write(self, record: Record) -> None:
        """The numbers of a record, and the largest of each of its spectra."""
        if self._writer is None:
            return
        for name, value in record.values.items():
            number = value[0] if isinstance(value, list) else value
            if number is None:
                continue
            self._writer.add_scalar(name.replace(" ", "_"), number, record.step)
        self._writer.flush()
