"""Kernel surrogates of networks: how faithful they are."""
