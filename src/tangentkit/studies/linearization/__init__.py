"""Networks and their linearizations: where a tangent kernel is as good, and where not."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = ()
"""The studies of this topic."""
