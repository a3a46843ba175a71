"""A number for each seed, from the trials of that seed with several tasks, and which of these are missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tangentkit.report import Claim
from tangentkit.studies.trials.records import Records


def mean_over_tasks(
    records: Records, quantity: Callable[[Mapping[str, Any]], float], *, tasks: int
) -> dict[int, float]:
    """The mean of a quantity over the tasks, for each seed that has finished them all.

    Args:
        records: one row for each seed and task.
        quantity: a number of a row.
        tasks: how many there are.

    Example:
        >>> rows = Records([{"seed": 0, "error": 1.0}, {"seed": 0, "error": 3.0}, {"seed": 1, "error": 1.0}])
        >>> mean_over_tasks(rows, lambda row: row["error"], tasks=2)
        {0: 2.0}
    """
    groups = whole_seeds(records, tasks=tasks)
    return {rows[0]["seed"]: float(np.mean([quantity(row) for row in rows])) for rows in groups}


def whole_seeds(records: Records, *, tasks: int) -> list[Records]:
    """The rows of each seed that has finished all tasks.

    Args:
        records: one row for each seed and task.
        tasks: how many there are.

    Example:
        >>> rows = Records([{"seed": 0, "width": 1}, {"seed": 0, "width": 2}, {"seed": 1, "width": 1}])
        >>> [group.column("width") for group in whole_seeds(rows, tasks=2)]
        [[1, 2]]
    """
    return [group for group in records.by("seed").values() if len(group) == tasks]


def missing_trials(records: Records, seeds: Sequence[int], **settings: Sequence[Any]) -> str:
    """What a claim about every value of some settings needs where trials failed; nothing where none did.

    The trials that are left are those that the values suited: a claim that is judged by them alone says more than
    was seen.

    Args:
        records: what is there.
        seeds: that were asked for.
        **settings: name -> the values that were asked for, each with every seed.

    Example:
        >>> rows = Records([{"seed": 0, "width": 1}, {"seed": 0, "width": 2}, {"seed": 1, "width": 1}])
        >>> missing_trials(rows, (0, 1), width=(1, 2))
        'all of its trials, of which width 2 (seed 1) is missing'
        >>> missing_trials(rows, (0,), width=(1, 2))
        ''
    """
    found = {(*(row.get(name) for name in settings), row.get("seed")) for row in records}
    lost = []
    for values in product(*settings.values()):
        without = [seed for seed in seeds if (*values, seed) not in found]
        if without:
            words = ", ".join(f"{name} {value}" for name, value in zip(settings, values, strict=True))
            lost.append(f"{words} (seed{'s' * (len(without) > 1)} {', '.join(map(str, without))})")
    verb = "are" if len(lost) > 1 else "is"
    return f"all of its trials, of which {'; '.join(lost)} {verb} missing" if lost else ""


def needing(claim: Claim, *needs: str) -> Claim:
    """The claim with more that it needs to be decided; empty words are nothing.

    Example:
        >>> claim = Claim("a gap at every width", "gap", (1.0, 1.1), low=0.0, needs="both widths")
        >>> needing(claim, "", "a lower rate").needs, needing(claim, "").needs
        ('both widths; and a lower rate', 'both widths')
    """
    return replace(claim, needs="; and ".join(filter(None, (claim.needs, *needs))))
