"""From per-sample gradients to tiles of a kernel."""
