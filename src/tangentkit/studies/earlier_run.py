"""What an earlier run of another scale said, so that the page of the run that took its place names what changed.

The records of the earlier run are gone by then: its verdicts are kept beside those of the new one, as plain words in
`earlier-verdicts.json`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import read_json, write_json
from tangentkit.report import Claim
from tangentkit.studies.trials.plain import MALFORMED, from_plain, to_plain

EARLIER = "earlier-verdicts.json"
NUMBER = r"\d+(?:[,.]\d+)*"
COUNTED = "images|sentences|samples|tweets|epochs"
SIZE = re.compile(rf"(?:\b[nN] = |\bwidth |×){NUMBER}|{NUMBER}(?= (?:test )?(?:{COUNTED})\b)")
"""Numbers in a statement that are sizes, which differ between scales; others are names and bounds, such as
ResNet-56, a rate of 0.01, tau at least 0.7."""


@dataclass(frozen=True)
class EarlierRun:
    """The verdicts of a run that another one replaced."""

    scale: str
    verdicts: dict[str, str]
    """Statement of a claim -> verdict."""

    @classmethod
    def of(cls, scale: str, claims: Iterable[Claim]) -> "EarlierRun":
        """The verdicts of claims."""
        return cls(scale, {claim.statement: claim.verdict for claim in claims})

    def of_before(self, claims: Iterable[Claim]) -> dict[str, str]:
        """Statement of a claim -> its earlier verdict, of those that have one. Those that differ in sizes are one."""
        before = _by_words(self.verdicts)
        claims = list(claims)
        now = _by_words({claim.statement: claim.verdict for claim in claims})
        found = {
            statement: self.verdicts.get(statement) or _alone(statement, before, now)
            for statement in (claim.statement for claim in claims)
        }
        return {statement: verdict for statement, verdict in found.items() if verdict}

    def changed(self, claims: Iterable[Claim]) -> dict[str, str]:
        """Statement of a claim -> its earlier verdict, of those that have another one now."""
        claims = list(claims)
        now = {claim.statement: claim.verdict for claim in claims}
        return {
            statement: verdict
            for statement, verdict in self.of_before(claims).items()
            if verdict != now[statement]
        }

    def changes(self, claims: Iterable[Claim]) -> str:
        """Which verdicts have changed, in words. Claims that differ in sizes alone are one.

        Example:
            >>> earlier = EarlierRun("quick", {"tau is high at n = 100": "not decided", "TAD is small": "holds"})
            >>> now = [Claim("tau is high at n = 200", "tau", (0.8, 0.81), low=0.7)]
            >>> print(earlier.changes(now))
            Verdicts that changed from the scale quick: "tau is high at n = 200" was not decided, and holds now.
            >>> print(earlier.changes([Claim("A new one", "tau", (0.8, 0.81), low=0.7)]))
            No verdict changed from the scale quick. 1 claim has none of that scale.
        """
        claims = list(claims)
        earlier = self.changed(claims)
        changed = [
            f'"{claim.statement}" {_was(earlier[claim.statement])}, and {_is(claim.verdict)}'
            for claim in claims
            if claim.statement in earlier
        ]
        words = (
            f"Verdicts that changed from the scale {self.scale}: {'; '.join(changed)}."
            if changed
            else f"No verdict changed from the scale {self.scale}."
        )
        if new := len(claims) - len(self.of_before(claims)):
            words += f" {new} claim{' has' if new == 1 else 's have'} none of that scale."
        return words


def read_earlier(folder: Path) -> EarlierRun | None:
    """The verdicts that a folder keeps of the run before, None if there are none.

    Raises:
        DataError: they are damaged.
    """
    if not (folder / EARLIER).exists():
        return None
    try:
        return from_plain(EarlierRun, read_json(folder / EARLIER), {})
    except MALFORMED as error:
        raise DataError(f"{folder / EARLIER} is damaged", expected="scale and verdicts", got=error) from error


def write_earlier(folder: Path, earlier: EarlierRun) -> None:
    """Keeps the verdicts of the run before in a folder."""
    write_json(folder / EARLIER, to_plain(earlier, {}))


def _by_words(verdicts: Mapping[str, str]) -> dict[str, str]:
    """Statement without its sizes -> verdict, of statements that are told apart without them."""
    counts = Counter(_words(statement) for statement in verdicts)
    return {
        _words(statement): verdict
        for statement, verdict in verdicts.items()
        if counts[_words(statement)] == 1
    }


def _words(statement: str) -> str:
    return SIZE.sub("#", statement)


def _alone(statement: str, before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    words = _words(statement)
    return before.get(words) if words in now else None


def _was(verdict: str) -> str:
    return {"holds": "held", "does not hold": "did not hold"}.get(verdict, "was not decided")


def _is(verdict: str) -> str:
    return {"holds": "holds now", "does not hold": "does not hold now"}.get(verdict, "is not decided now")
