"""Layer rules: how each kind of autograd node turns an outgoing gradient into per-sample gradients."""
