"""Kernels of activations: conjugate and embedding kernels."""
