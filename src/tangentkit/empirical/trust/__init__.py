"""What is known of a model, and why it may be trusted: rules verified against plain autograd."""
