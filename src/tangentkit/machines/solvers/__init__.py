"""Solvers of kernel regressions and of likelihoods."""
