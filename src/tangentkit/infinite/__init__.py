"""Kernels of an architecture at infinite width: to come."""
