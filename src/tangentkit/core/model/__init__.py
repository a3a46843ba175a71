"""A module as a function of parameters and batch: how it is copied, called, and why it refuses an input."""
