"""Studies of the literature, each run again: a frozen config -> trials -> a result with the published numbers.

`registry.STUDIES` lists them without importing any; `runner.execute` runs one into a folder.
"""
