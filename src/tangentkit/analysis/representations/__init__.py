"""What the layers of a network know of the classes: probes of principal components, neural collapse, dimensions."""
