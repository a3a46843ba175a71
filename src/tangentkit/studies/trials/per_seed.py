"""A number for each seed, from the trials of that seed with several tasks."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
    groups = records.by("seed").items()
    return {
        seed: float(np.mean([quantity(row) for row in rows])) for seed, rows in groups if len(rows) == tasks
    }
