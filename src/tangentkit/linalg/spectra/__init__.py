"""Eigenvalues: spectra, the measures and tails read off them, and estimates from a few products."""
