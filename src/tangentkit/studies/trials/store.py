"""Finished trials in a folder: one sealed JSON file each, and an npz file beside it where there are arrays.

    KEY.json          trial, values, seconds, SHA-256 of the arrays         KEY.npz   the arrays
    KEY.failed.json   the error of a trial that failed; it is tried again

Each file is written whole or not at all, the arrays first: a trial is in the store when its JSON file is. What is not
as it was written counts as not there.
"""

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import JSON_BYTES, read_whole, remove_file, write_whole
from tangentkit.core.files.seals import seal, unseal
from tangentkit.core.memory import memory_budget
from tangentkit.studies.trials.plain import MALFORMED, restored, to_plain
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.trial import Outcome, label

FAILED = ".failed.json"
ARRAYS_BYTES = 2**30
"""The most that the arrays of one trial may take in a file."""


@dataclass(frozen=True)
class TrialStore:
    """The trials of a folder, by their keys.

    Example:
        >>> import tempfile
        >>> from tangentkit.studies.trials.trial import Trial, _flip, perform
        >>> store, trial = TrialStore(Path(tempfile.mkdtemp())), Trial(_flip, {"seed": 1})
        >>> trial.key in store
        False
        >>> store.write(perform(trial))
        >>> trial.key in store, store.row(trial.key)["seed"]
        (True, 1)
    """

    folder: Path

    def __contains__(self, key: str) -> bool:
        return self._read(key) is not None

    def write(self, outcome: Outcome) -> None:
        """Stores what came of a trial; a failure is noted beside, and takes no finished one away."""
        trial = outcome.trial
        known: dict[str, Any] = {
            "function": trial.name,
            "settings": to_plain(dict(trial.settings), {}),
            "seconds": outcome.seconds,
        }
        if outcome.error:
            self._put(f"{trial.key}{FAILED}", seal({**known, "error": outcome.error}))
            return
        arrays: dict[str, np.ndarray] = {}
        known["values"] = to_plain(outcome.values, arrays)
        known["arrays"] = ""
        if arrays:
            content = io.BytesIO()
            np.savez_compressed(content, **arrays)  # pyright: ignore[reportArgumentType]
            self._put(f"{trial.key}.npz", content.getvalue())
            known["arrays"] = _sha256(content.getvalue())
        self._put(f"{trial.key}.json", seal(known))
        remove_file(self.folder / f"{trial.key}{FAILED}", within=self.folder)

    def records(self, keys: Iterable[str]) -> Records:
        """The finished ones of some trials, and the errors of those that failed.

        Raises:
            DataError: one is neither finished nor failed, or damaged; or trials have seen other data under one name.
        """
        rows, failures = {}, {}
        for key in keys:
            # A kill between the record of a second attempt and the removal of the first one's error leaves both.
            if (failure := self._failure(key)) and key not in self:
                failures[label(failure["settings"])] = failure["error"]
            else:
                rows[key] = self.row(key)
        self._check_data(rows)
        return Records(list(rows.values()), failures)

    def row(self, key: str) -> dict[str, Any]:
        """Settings and values of a finished trial, by name.

        Raises:
            DataError: the trial is not there, or not as it was written.
        """
        found = self._read(key)
        if found is None:
            raise DataError(
                f"{self.folder / key}.json is damaged",
                expected="the record of a trial, as it was written",
                got="none" if not (self.folder / f"{key}.json").exists() else "other bytes",
                hint="tangentkit run STUDY --resume FOLDER does it again",
            )
        return found

    def files(self, keys: Iterable[str]) -> list[Path]:
        """The files of some trials."""
        names = [key + suffix for key in keys for suffix in (".json", ".npz", FAILED)]
        return [path for name in names if (path := self.folder / name).is_file()]

    def every_file(self) -> list[Path]:
        """The files of all trials that are here, whoever asked for them."""
        return sorted(path for path in self.folder.glob("*") if path.suffix in (".json", ".npz"))

    def _check_data(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuses rows with two fingerprints of one data set, which are not to be averaged."""
        seen: dict[tuple[str, str], dict[str, list[str]]] = {}
        for key, row in rows.items():
            for card in row.get("data_cards", ()):
                match card:
                    case {"name": str(name), "split": str(split), "fingerprint": str(fingerprint)}:
                        seen.setdefault((name, split), {}).setdefault(fingerprint, []).append(f"{key}.json")
        for (name, split), trials in seen.items():
            if len(trials) > 1:
                raise DataError(
                    f"trials in {self.folder} have seen other data under the name {name}, {split}",
                    expected="one SHA-256",
                    got="; ".join(f"{one[:12]}... in {', '.join(files)}" for one, files in trials.items()),
                    hint="remove the files of those that are not to count, and tangentkit run --resume does them "
                    "again with the data that are there now; or begin a new run",
                )

    def _put(self, name: str, content: bytes) -> None:
        write_whole(self.folder / name, [content], durable=True, within=self.folder)

    def _failure(self, key: str) -> dict[str, Any] | None:
        raw = read_whole(self.folder / f"{key}{FAILED}", limit=JSON_BYTES)
        return unseal(raw) if raw is not None else None

    def _read(self, key: str) -> dict[str, Any] | None:
        raw = read_whole(self.folder / f"{key}.json", limit=JSON_BYTES)
        known = unseal(raw) if raw is not None else None
        if known is None:
            return None
        try:
            arrays = self._arrays(key, known["arrays"])
            if arrays is None:
                return None
            settings, values = (restored(known[name], arrays) for name in ("settings", "values"))
            return {**settings, **values, "seconds": float(known["seconds"])}
        except MALFORMED:
            return None

    def _arrays(self, key: str, expected: str) -> Mapping[str, np.ndarray] | None:
        if not expected:
            return {}
        raw = read_whole(self.folder / f"{key}.npz", limit=ARRAYS_BYTES)
        if raw is None or _sha256(raw) != expected:
            return None
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            size = sum(entry.file_size for entry in stored.zip.infolist())
            memory_budget().check(size, "its arrays are", hint="more memory")
            return {name: stored[name] for name in stored.files}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
