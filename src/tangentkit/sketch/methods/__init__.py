"""Sketches of gradients: count, tensor, Gaussian, Rademacher; which one a parameter takes."""
