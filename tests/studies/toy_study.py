"""A study that takes no time: the mean of coin flips, with every kind of field and of trouble."""

import os
import signal
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.report import Bars, Claim, Measured, StandIn, Table
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import DataCard, Result, Study
from tangentkit.studies.trials.trial import Trial


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
    names: tuple[str, ...] = ("penny",)
    """Not used."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One repeat for each."""
    trouble: Literal["none", "error", "bug", "interrupt", "killed", "slow"] = "none"
    """What goes wrong with the last seed."""

    def __post_init__(self) -> None:
        if self.flips < 1:
            raise InputError("bad flips", expected="at least 1", got=self.flips)


SCALES = {"quick": Config(), "evening": Config(flips=100), "full": Config(flips=1000)}


def flip(*, flips: int, chance: float, seed: int, trouble: str = "none") -> dict[str, Any]:
    """Flips the coins of one seed."""
    if trouble == "error":
        raise NumericalError("the coin is lost", hint="look under the table")
    if trouble == "bug":
        raise ZeroDivisionError("a bug")
    if trouble == "interrupt":
        raise KeyboardInterrupt
    if trouble == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "slow":
        time.sleep(0.5)
    heads = Key(seed).numpy().random(flips) < chance
    card = DataCard("coins", "train", flips, "the <b>mint</b>", "none", "0" * 64, "<script>note</script>")
    return {
        "share": float(heads.mean()),
        "heads": heads,
        "missing": float("nan"),
        "data_cards": [asdict(card)],
    }


def trials(config: Config) -> list[Trial]:
    """One for each seed; trouble comes with the last one."""
    last = config.seeds[-1]
    return [
        Trial(
            flip,
            {
                "flips": config.flips,
                "chance": config.chance,
                "seed": seed,
                **({"trouble": config.trouble} if config.trouble != "none" and seed == last else {}),
            },
        )
        for seed in config.seeds
    ]


def result(config: Config, records: Records) -> Result:
    """Shares of heads."""
    shares = tuple(records.column("share"))
    return Result(
        answer=f"The share of heads in {config.flips} flips is {Measured.over(shares):.2f}.",
        terms={"heads": "the side that shows a head"},
        claims=(Claim("Heads come up", "share", shares, low=0.01),),
        tables={"shares": Table("Shares", ("who", "share"), (("us", Measured.over(shares)),))},
        figures={"shares": Bars(title="Shares", caption="Bars.", values={"heads": shares})},
        stand_ins=(StandIn("coin", "gold", "pseudo-random", "cheaper"),),
        notes=("We also tried silver.",),
    )


TOY = Study(
    name="toy",
    title="Coin flips",
    question="Do heads come up?",
    source="Folklore",
    paper="Folklore",
    cost={"quick": "nothing", "evening": "nothing", "full": "nothing"},
    module="studies.toy_study",
)
"""The toy study, listed among the others."""
