"""Spectra, alignment, anisotropy, representations, shift, training tracker: to come."""
