"""Passes of a batch through a model: what is recorded, per-sample gradients, their cost and their sizes."""
