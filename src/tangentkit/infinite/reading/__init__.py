"""From a module to the nodes of its infinite-width limit."""
