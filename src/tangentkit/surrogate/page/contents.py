"""The contents of a page: one table of words and numbers as JSON, and pieces of bytes that the page reads by name."""

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tangentkit.core.text import visible
from tangentkit.surrogate.page.explanation import Explanation, KernelView, Samples
from tangentkit.surrogate.page.pictures import Sheets, sheets
from tangentkit.surrogate.page.positions import positions
from tangentkit.surrogate.page.rounded import rounded
from tangentkit.surrogate.page.strongest import strongest

TABLES = "tables"
"""The piece that names all others."""
STRONGEST = 10
"""Training samples for, and as many against, that are kept of an output of a kernel that is not there whole."""
FLOAT, INDEX = np.dtype("<f4"), np.dtype("<u4")
GZIP_LEVEL = 6


@dataclass(frozen=True, eq=False)
class Contents:
    """What a page reads."""

    pieces: Mapping[str, bytes]
    """Name -> bytes, gzipped save for pictures."""

    @property
    def nbytes(self) -> int:
        """The bytes of all pieces."""
        return sum(map(len, self.pieces.values()))


def contents(explanation: Explanation, *, served: bool) -> Contents:
    """All that the page of an explanation reads.

    Args:
        explanation: what is to be shown.
        served: whether a server will hand out exact rows of every kernel. If not, the first kernel goes into the
            pieces rounded to a byte a value, and the others by class means and strongest samples.
    """
    pieces: dict[str, bytes] = {"network": _floats(explanation.logits)}
    kernels = []
    for k, view in enumerate(explanation.kernels):
        form = "rows" if served else "strongest" if k else "rounded"
        kernels.append(
            {
                "name": visible(view.name),
                "form": form,
                "offset": view.offsets.tolist(),
                "predicts": view.predicts,
            }
        )
        pieces[f"logits-{k}"] = _floats(view.logits)
        pieces.update((f"{name}-{k}", piece) for name, piece in _kernel_pieces(view, explanation, form))
    places = positions(explanation.kernels[0])
    if places is not None:
        pieces["positions"] = _floats(np.concatenate([places.test, places.train]))
    shown = {
        "test": _sheets(explanation.test, explanation.num_test, "test"),
        "train": _sheets(explanation.train, explanation.num_train, "train"),
    }
    for what, made in shown.items():
        pieces.update((f"{what}-sheet-{s}", file) for s, file in enumerate(made.files if made else ()))
    digest = hashlib.sha256()
    for piece in pieces.values():
        digest.update(piece)
    tables = {
        "id": digest.hexdigest()[:16],
        "title": visible(explanation.title),
        "summary": visible(explanation.summary),
        "notes": [visible(note) for note in (*explanation.notes, *_own_notes(shown))],
        "classes": [visible(name) for name in explanation.classes],
        "outputs": [visible(name) for name in explanation.outputs],
        "test": _words(explanation.test, explanation.test_labels, explanation.num_test, shown["test"]),
        "train": _words(explanation.train, explanation.train_labels, explanation.num_train, shown["train"]),
        "kernels": kernels,
        "landmarks": places.landmarks if places else None,
        "flags": sorted(map(_flag, explanation.flags), key=lambda flag: -flag["score"]),
    }
    text = json.dumps(tables, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return Contents({TABLES: _gzipped(text), **pieces})


def _kernel_pieces(view: KernelView, explanation: Explanation, form: str) -> Iterator[tuple[str, bytes]]:
    if form in ("rounded", "rows"):
        yield "weights", _floats(view.coefficients)
    if form == "rounded":
        small = rounded(block for _, block in view.rows())
        yield "codes", _gzipped(small.codes.tobytes())
        yield "rounding", _floats(np.stack([small.middle, small.step, small.bound]))
    if form == "strongest":
        found = strongest(view, explanation, STRONGEST)
        yield "outputs", _gzipped(found.outputs.astype(INDEX).tobytes())
        yield "means", _floats(found.means)
        yield "indices", _gzipped(found.indices.astype(INDEX).tobytes())
        yield "scores", _floats(found.scores)


def _sheets(samples: Samples, count: int, what: str) -> Sheets | None:
    return None if samples.pictures is None else sheets(samples.pictures, count=count, what=what)


def _words(samples: Samples, labels: np.ndarray | None, count: int, shown: Sheets | None) -> dict[str, Any]:
    form = {name: value for name, value in asdict(shown).items() if name != "files"} if shown else None
    return {
        "count": count,
        "labels": None if labels is None else labels.tolist(),
        "names": None if samples.names is None else [visible(name) for name in samples.names],
        "texts": None if samples.texts is None else [visible(text) for text in samples.texts],
        "sheets": form,
    }


def _own_notes(shown: Mapping[str, Sheets | None]) -> Iterator[str]:
    if any(made is not None and made.media == "image/png" for made in shown.values()):
        yield "Pictures are kept as PNG, which takes more room: Pillow has no WebP where the page was written."


def _flag(flag: Any) -> dict[str, Any]:
    return {
        "sample": int(flag.sample),
        "kind": visible(str(flag.kind)),
        "score": float(flag.score),
        "reason": visible(str(flag.reason)),
        "evidence": [int(j) for j in flag.evidence],
    }


def _floats(values: np.ndarray) -> bytes:
    return _gzipped(np.ascontiguousarray(values, dtype=FLOAT).tobytes())


def _gzipped(raw: bytes) -> bytes:
    # Without a time of day: the same numbers give the same page.
    return gzip.compress(raw, GZIP_LEVEL, mtime=0)
