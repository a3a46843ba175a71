"""Tensor programs: random vectors and matrices, their limits at infinite width, and samples at finite width."""
