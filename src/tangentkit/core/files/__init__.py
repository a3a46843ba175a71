"""Files that are written whole or not at all, sealed, fingerprinted, and loaded without running code."""
