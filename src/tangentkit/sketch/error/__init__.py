"""Sketched samples, and the error of what is computed from them."""
