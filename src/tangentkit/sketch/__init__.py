"""Random features of gradients: to come."""
