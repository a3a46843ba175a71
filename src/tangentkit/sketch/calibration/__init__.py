"""Exact coordinates from a calibration batch."""
