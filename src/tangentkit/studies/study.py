"""What a study is: a card to list it by, and a module with `SCALES`, `Result` and `run`.

    Config   a frozen dataclass of plain values, `seeds` among them, each with a docstring below it that says what it
             means
    SCALES   {"quick": Config(...), "full": Config(...)}
    run      (config, progress) -> Result, pure: all randomness comes from the seeds of the config
    Result   a frozen dataclass of numbers and arrays that can be saved, loaded, tabulated and drawn

This module is light: a study's own module, and with it torch, is imported by `Study.load`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from tangentkit.core.progress import Progress
    from tangentkit.report import Claim, Figure, StandIn, Table


@dataclass(frozen=True)
class DataCard:
    """The papers of a data set that a study used."""

    name: str
    split: str
    samples: int
    source: str
    licence: str
    fingerprint: str
    note: str = ""


class StudyResult(Protocol):
    """The numbers of a study and what they say."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were run."""
        ...

    @property
    def data(self) -> tuple[DataCard, ...]:
        """The data that were used."""
        ...

    def answer(self) -> str:
        """What came out, in two or three sentences."""
        ...

    def terms(self) -> Mapping[str, str]:
        """Abbreviation -> what it means, for the page to explain before it uses them."""
        ...

    def claims(self) -> "Sequence[Claim]":
        """The published claims, judged over the seeds."""
        ...

    def tables(self) -> "Mapping[str, Table]":
        """File name -> table; published numbers stand beside ours."""
        ...

    def figures(self) -> "Mapping[str, Figure]":
        """File name -> figure."""
        ...

    def stand_ins(self) -> "Sequence[StandIn]":
        """What was replaced by what."""
        ...


class StudyModule(Protocol):
    """The module of a study."""

    SCALES: Mapping[str, Any]
    Result: type

    def run(self, config: Any, *, progress: "Progress" = ...) -> StudyResult:
        """The numbers for a config."""
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

    def load(self) -> StudyModule:
        """The study's code."""
        return cast(StudyModule, import_module(self.module))
