"""Training dynamics in a fixed kernel, in closed form."""
