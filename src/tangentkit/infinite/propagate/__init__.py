"""Covariances through a network of infinite width."""
