"""Studies of the literature, each run again: a frozen config -> `run` -> a result with the published numbers.

`registry.STUDIES` lists them without importing any; `run_folder.execute` runs one into a folder.
"""

from tangentkit.studies.registry import STUDIES as STUDIES
from tangentkit.studies.registry import find as find
from tangentkit.studies.study import Study as Study
