"""The first-order model of a network: to come."""
