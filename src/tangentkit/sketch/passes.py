"""Passes of a batch through the model, within a memory budget: a few samples and output directions at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import BudgetError
from tangentkit.core.memory import Budget, format_bytes
from tangentkit.empirical.passes.layer_gradients import LayerGradients
from tangentkit.empirical.trust.profile import Profile
from tangentkit.empirical.trust.profiles import Profiles
from tangentkit.linalg.operators.spans import spans

PASS_BYTES = 2**28
"""Tensors of the samples that pass together: beyond this, more samples gain nothing."""
LEAST_PASS = 8
"""Samples that pass together however large they are, if the budget allows."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Sides of a batch, piece by piece."""

    profiles: Profiles
    profile: Profile
    directions: Tensor
    """(r, c)"""
    budget: Budget
    beside: int = 0
    """Bytes for each sample that passes, beside what the model takes: its coordinates."""

    def sides(self, x: Batch, *, together: bool = False) -> Iterator[tuple[slice, int, LayerGradients]]:
        """(samples, number of the first direction, recording with gradients).

        Args:
            x: a batch.
            together: whether all directions must come at once.
        """
        n, r = batch_size(x), len(self.directions)
        samples, group = self._sizes(n, r if together else 1)
        for rows in spans(n, samples):
            batch = take(x, rows)
            recording = self.profiles.record(batch, self.profile)
            for first in range(0, r, group):
                yield rows, first, LayerGradients.of(recording, batch, self.directions[first : first + group])

    def _sizes(self, n: int, least: int) -> tuple[int, int]:
        """Samples and directions at a time, within a third of the budget; the rest is for the sketching."""
        foot, r = self.profile.footprint, len(self.directions)

        def sample(directions: int) -> float:
            return foot.saved + (directions + 1) * foot.passing + directions * foot.stacked + self.beside + 1

        share = self.budget / 3
        if sample(least) > share:
            raise BudgetError(
                "one sample does not fit the memory budget",
                expected=f"at least {format_bytes(3 * sample(least))}",
                got=format_bytes(self.budget),
                hint="memory=..., fewer params=, or one output direction",
            )
        few = min(n, LEAST_PASS)
        group = r
        # Coordinates are the same for any number of directions.
        while group > least and few * (sample(group) - self.beside) > share:
            group = max(least, group // 2)
        most = min(share, max(PASS_BYTES, few * sample(group)))
        samples = max(1, min(n, int(most / sample(group))))
        # Equal parts: 9 in parts of at most 4 is 3 + 3 + 3, not 4 + 4 + 1.
        return -(-n // -(-n // samples)), group
