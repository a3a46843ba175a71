"""A Gram matrix on disk: tiles, the manifest that says whose it is, locks, and the operator of it."""
