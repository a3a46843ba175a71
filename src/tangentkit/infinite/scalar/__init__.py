"""Kernels that are functions of an inner product: MLPs, and spectra on the cube and on the sphere."""
