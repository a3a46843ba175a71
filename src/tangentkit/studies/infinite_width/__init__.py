"""Kernels of infinitely wide networks."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = ()
"""The studies of this topic."""
