"""Benchmarks: ratios against peers and against the obvious version, measured in one run, with peak memory."""
