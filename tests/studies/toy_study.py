"""A study that takes no time: the mean of coin flips, with every kind of field and of trouble."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.progress import Progress, silent
from tangentkit.core.seeds import Key
from tangentkit.report import Bars, Claim, Figure, Measured, StandIn, Table
from tangentkit.studies.records import Record
from tangentkit.studies.study import DataCard, Study


@dataclass(frozen=True)
class Config:
    """Settings of the toy study."""

    flips: int = 10
    """Coins to flip."""
    chance: float = 0.5
    """Of heads."""
    limit: int | None = None
    """Not used."""
    mode: Literal["fair", "bent"] = "fair"
    """Not used
    either."""
    loud: bool = False
    names: tuple[str, ...] = ()
    """Not used."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One repeat for each."""
    trouble: Literal["none", "error", "bug", "interrupt"] = "none"
    """What goes wrong."""

    def __post_init__(self) -> None:
        if self.flips < 1:
            raise InputError("bad flips", expected="at least 1", got=self.flips)


SCALES = {"quick": Config(), "full": Config(flips=1000)}


@dataclass(frozen=True, eq=False)
class Result(Record):
    """Shares of heads."""

    seeds: tuple[int, ...]
    data: tuple[DataCard, ...]
    shares: tuple[float, ...]
    flips: np.ndarray
    missing: float = float("nan")

    def answer(self) -> str:
        return f"The share of heads is {Measured.over(self.shares):.2f}."

    def terms(self) -> dict[str, str]:
        return {"heads": "the side that shows a head"}

    def claims(self) -> tuple[Claim, ...]:
        return (Claim("Heads come up", "share", self.shares, low=0.01),)

    def tables(self) -> dict[str, Table]:
        return {"shares": Table("Shares", ("who", "share"), (("us", Measured.over(self.shares)),))}

    def figures(self) -> dict[str, Figure]:
        return {"shares": Bars(title="Shares", caption="Bars.", values={"heads": self.shares})}

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (StandIn("coin", "gold", "pseudo-random", "cheaper"),)


def run(config: Config, *, progress: Progress = silent) -> Result:
    """Flips the coins."""
    progress("flipping", 0, 1)
    if config.trouble == "error":
        raise NumericalError("the coin is lost", hint="look under the table")
    if config.trouble == "bug":
        raise ZeroDivisionError("a bug")
    if config.trouble == "interrupt":
        raise KeyboardInterrupt
    flips = np.stack([Key(seed).numpy().random(config.flips) < config.chance for seed in config.seeds])
    progress("flipping", 1, 1)
    card = DataCard(
        "coins", "train", config.flips, "the <b>mint</b>", "none", "0" * 64, "<script>note</script>"
    )
    return Result(config.seeds, (card,), tuple(map(float, flips.mean(1))), flips)


TOY = Study(
    name="toy",
    title="Coin flips",
    question="Do heads come up?",
    source="Folklore",
    cost={"quick": "nothing", "full": "nothing"},
    module="studies.toy_study",
)
