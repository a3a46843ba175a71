"""Kernel regressors and classifiers, training dynamics: to come."""
