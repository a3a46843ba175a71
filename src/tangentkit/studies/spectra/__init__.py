"""Spectra and representations: what training does to the kernels of a network."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = ()
"""The studies of this topic."""
