"""What a study is: a card to list it by, and a module with `SCALES`, `trials` and `result`.

    Config   a frozen dataclass of plain values, `seeds` among them, each with a docstring below it that says what it
             means
    SCALES   {"quick": Config(...), "evening": Config(...), "full": Config(...)}
    trials   (config) -> the trials that the config asks for
    result   (config, records) -> `Result`; it computes nothing that takes long, and reads no data

This module is light: a study's own module, and with it torch, is imported by `Study.load`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from tangentkit.report import Claim, Figure, StandIn, Table
    from tangentkit.studies.trials.records import Records
    from tangentkit.studies.trials.trial import Trial

FILE_NAME = re.compile(r"\w[\w.-]*")
"""What tables and figures may be called: their files have these names."""


@dataclass(frozen=True)
class DataCard:
    """The papers of a data set that a trial used."""

    name: str
    split: str
    samples: int
    source: str
    licence: str
    fingerprint: str
    note: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What a study says, once its trials are done."""

    answer: str
    """What came out, in two or three sentences."""
    claims: "tuple[Claim, ...]"
    """The published claims, judged over the seeds."""
    tables: "Mapping[str, Table]"
    """File name -> table; published numbers stand beside ours."""
    figures: "Mapping[str, Figure]"
    """File name -> figure; the first one is the small picture of the index."""
    stand_ins: "tuple[StandIn, ...]" = ()
    """What was replaced by what."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Abbreviation -> what it means, for the page to explain before it uses them."""
    notes: tuple[str, ...] = ()
    """What else was tried where a claim does not show, and whatever a reader must know."""

    def __post_init__(self) -> None:
        from tangentkit.core.errors import InputError  # which imports torch

        for name in (*self.tables, *self.figures):
            if not FILE_NAME.fullmatch(name):
                raise InputError(
                    "bad name of a table or figure",
                    expected="a name for a file: letters, digits, -, _ and .",
                    got=repr(name),
                )


class StudyModule(Protocol):
    """The module of a study."""

    SCALES: Mapping[str, Any]

    def trials(self, config: Any) -> "Sequence[Trial]":
        """The trials that a config asks for."""
        ...

    def result(self, config: Any, records: "Records") -> Result:
        """What the records of these trials say."""
        ...


@dataclass(frozen=True)
class Study:
    """A study's card: all that listing needs, without importing the study."""

    name: str
    title: str
    question: str
    source: str
    """The publication, in words."""
    cost: Mapping[str, str]
    """Scale -> time and memory, in words."""
    module: str
    """The import path of its code."""
    paper: str = ""
    """A short name of the publication, by which the index groups studies."""

    def load(self) -> StudyModule:
        """Imports the study's code."""
        return cast(StudyModule, import_module(self.module))
