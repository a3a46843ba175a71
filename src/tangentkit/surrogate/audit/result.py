"""What an audit found: flags, counts, and a page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from tangentkit.compute.sources import SampleSource
from tangentkit.core.errors import UnknownNameError
from tangentkit.core.files.safe import as_path, write_whole
from tangentkit.core.text import counted
from tangentkit.report import Bars, Column, Figure, Page, Table, drawn
from tangentkit.surrogate.audit.kinds import KINDS, Flag
from tangentkit.surrogate.audit.pictures import pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 50
"""Flags of one kind that a page lists."""
SENTENCES = 3
"""Sentences that are shown as the evidence of a flag."""
LETTERS = 160
"""Of a sentence."""
DOUBT = (
    "To a probe that has not seen these samples another class is four times likelier. Whether their labels are "
    "wrong, or right and rare, it cannot tell at the level of {level:.0%}: look at them."
)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The flags of an audit, by kind, the surest first."""

    flags: tuple[Flag, ...]
    samples: int
    level: float
    """The share of false flags that is allowed, of each kind."""
    kernel: str
    chances: dict[str, Float[np.ndarray, " n"]]
    """Kind -> for every sample the p-value of nothing being wrong; of labels and clusters the probability of it."""
    labels: Int[np.ndarray, " n"] | None
    classes: tuple[str, ...]
    names: tuple[str, ...] = ()
    """A name for each sample; none means numbers."""
    texts: tuple[str, ...] = ()
    """What each sample says, where samples are sentences."""
    network_accuracy: float | None = None
    """The share of samples to which the network gives their label; None where its outputs are not their classes."""
    label_noise: float | None = None
    """The share of labels that are random, as estimated; None where labels were not looked at."""
    doubtful: tuple[Flag, ...] = ()
    """Labels in doubt: to a probe another class is four times likelier, but whether they are wrong or rare is not
    told. Their score is the probability of a wrong label; the highest comes first."""
    not_looked_for: dict[str, str] = field(default_factory=dict)
    """Kind -> why it could not be looked for."""
    source: SampleSource | None = None
    """The samples."""

    def __repr__(self) -> str:
        found = ", ".join(f"{number} {kind}" for kind, number in self.counts.items()) or "no flags"
        doubt = f"; {counted(len(self.doubtful), 'label')} in doubt" if self.doubtful else ""
        return f"Audit({found}{doubt}; {counted(self.samples, 'sample')})"

    @property
    def counts(self) -> dict[str, int]:
        """Kind -> number of flags, of the kinds that were found."""
        numbers = Counter(flag.kind for flag in self.flags)
        return {kind: numbers[kind] for kind in KINDS if numbers[kind]}

    def of(self, kind: str) -> tuple[Flag, ...]:
        """The flags of one kind.

        Raises:
            UnknownNameError: there is no such kind.
        """
        if kind not in KINDS:
            raise UnknownNameError("kind of flag", kind, KINDS)
        return tuple(flag for flag in self.flags if flag.kind == kind)

    def name(self, sample: int) -> str:
        """The name of a sample, or its number."""
        return self.names[sample] if self.names else str(sample)

    def table(self) -> Table:
        """How many flags of each kind there are, of the kinds that were found."""
        rows = tuple(
            (kind, number, number / self.samples, KINDS[kind]) for kind, number in self.counts.items()
        )
        note = f"At most {self.level:.0%} of the flags of each kind are expected to be false." if rows else ""
        columns = ("kind", "flags", Column("share", ".2%"), "what it means")
        return Table(f"What was found in {counted(self.samples, 'sample')}", columns, rows, note)

    def flag_table(self, kind: str, most: int | None = None) -> Table:
        """The flags of one kind, the surest first."""
        flags = self.of(kind)
        return self._listed(f"{kind}: {counted(len(flags), 'flag')}", flags, KINDS[kind], most)

    def doubtful_table(self, most: int | None = None) -> Table:
        """The labels in doubt, the least likely first."""
        title = f"labels in doubt: {len(self.doubtful)}"
        return self._listed(title, self.doubtful, DOUBT.format(level=self.level), most)

    def _listed(self, title: str, flags: tuple[Flag, ...], note: str, most: int | None) -> Table:
        shown = flags if most is None else flags[:most]
        labeled = self.labels is not None
        rows = tuple(
            (
                self.name(flag.sample),
                *([_short(self.texts[flag.sample])] if self.texts else []),
                *([self._label(flag.sample)] if labeled else []),
                flag.score,
                flag.reason,
                self._seen(flag.evidence),
            )
            for flag in shown
        )
        columns = (
            "sample",
            *(["text"] if self.texts else []),
            *(["label"] if labeled else []),
            Column("score", ".3f"),
            "reason",
            "see samples",
        )
        more = f" The first {most} of {len(flags)}." if len(shown) < len(flags) else ""
        return Table(title, columns, rows, note + more)

    def figure(self) -> Figure:
        """The number of flags of each kind that was found."""
        return Bars(
            title="Flags",
            caption="The number of flags of each kind that was found.",
            values={kind: [float(number)] for kind, number in self.counts.items()} or {"none": [0.0]},
            x_label="flags",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the number of flags on axes, its own where none are given."""
        return drawn(self.figure(), ax)

    def page(self) -> Page:
        """One page: counts, flags with reasons, and pictures where the samples are pictures."""
        figures: dict[str, Figure] = {}
        for kind in self.counts:
            shown = pictures(self.source, kind, self.of(kind), self._caption)
            figures |= {kind: shown} if shown is not None else {}
        kinds = {kind: self.flag_table(kind, ROWS) for kind in self.counts}
        doubtful = {"doubtful": self.doubtful_table(ROWS)} if self.doubtful else {}
        noise = (
            {}
            if self.label_noise is None
            else {"labels that are random, estimated": f"{self.label_noise:.2%}"}
        )
        return Page(
            title="What is wrong with these data",
            source="tk.audit",
            question="Which samples are mislabeled, duplicated, poisoned, outlying or underrepresented?",
            answer=self._answer(),
            terms={kind: KINDS[kind] for kind in self.counts},
            tables=({"found": self.table()} if kinds else {}) | kinds | doubtful,
            figures=figures,
            facts={
                "samples": f"{self.samples:,}",
                "kernel": self.kernel,
                **(
                    {}
                    if self.network_accuracy is None
                    else {"labels that the network gives": f"{self.network_accuracy:.1%}"}
                ),
                "false flags allowed": f"{self.level:.0%} of each kind",
                **noise,
                **{f"not looked for: {kind}": why for kind, why in self.not_looked_for.items()},
            },
        )

    def _answer(self) -> str:
        if self.flags:
            return repr(self).removeprefix("Audit(").removesuffix(")") + "."
        doubt = counted(len(self.doubtful), "label")
        return f"Nothing was flagged; {doubt} in doubt." if self.doubtful else "Nothing was flagged."

    def report(self, path: str | Path) -> Path:
        """Writes the page to a file and returns its path."""
        path = as_path(path)
        write_whole(path, [self.page().render().encode()], durable=False)
        return path

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and words."""
        return {
            "samples": self.samples,
            "level": self.level,
            "kernel": self.kernel,
            "label_noise": self.label_noise,
            "network_accuracy": self.network_accuracy,
            "counts": self.counts,
            "not_looked_for": dict(self.not_looked_for),
            "flags": [self._plain(flag) for flag in self.flags],
            "doubtful": [self._plain(flag) for flag in self.doubtful],
        }

    def _plain(self, flag: Flag) -> dict[str, Any]:
        return {
            "sample": flag.sample,
            "name": self.name(flag.sample),
            "kind": flag.kind,
            "score": float(flag.score),
            "reason": flag.reason,
            "evidence": list(flag.evidence),
        }

    def _label(self, sample: int) -> str:
        return "" if self.labels is None else self.classes[self.labels[sample]]

    def _seen(self, evidence: Sequence[int]) -> str:
        """The samples that show a flag: by their names, and by what they say."""
        if not self.texts:
            return ", ".join(self.name(other) for other in evidence[:5])
        shown = (
            f"{self.name(other)}{self._labeled(other)}: {_short(self.texts[other])}"
            for other in evidence[:SENTENCES]
        )
        return "; ".join(shown)

    def _labeled(self, sample: int) -> str:
        return "" if self.labels is None else f" ({self._label(sample)})"

    def _caption(self, sample: int) -> str:
        name = self.name(sample)
        return f"{name} {self._label(sample)}" if self.labels is not None else name


def _short(text: str) -> str:
    r"""The beginning of a text on one line.

    Example:
        >>> _short("one  line\nand " + 200 * "x")[:20], len(_short(300 * "x"))
        ('one line and xxxxxxx', 160)
    """
    line = " ".join(text.split())
    return line if len(line) <= LETTERS else line[: LETTERS - 2] + " …"
