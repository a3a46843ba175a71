"""Kernel machines as scikit-learn estimators."""
