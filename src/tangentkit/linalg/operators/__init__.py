"""Matrices of any size, known by their blocks: what an operator is, its kinds, and the checks of one."""
