"""Engines: who does the work. Each has one method, `map`; nothing else in the library knows of processes.

Serial()              here, one after the other
Threads(n)            here, n at a time: writing, reading and matrix products overlap
Processes(n)          n processes of this machine, for work that shares nothing, such as the trials of a study
Dask()                processes of this machine, under a scheduler
Dask("tcp://host:port"), Dask(client)    a cluster: SSH, SLURM, Kubernetes, ...
"""

from tangentkit.compute.engines.dask import Dask as Dask
from tangentkit.compute.engines.engine import Engine as Engine
from tangentkit.compute.engines.engine import EngineError as EngineError
from tangentkit.compute.engines.local import Serial as Serial
from tangentkit.compute.engines.local import Threads as Threads
from tangentkit.compute.engines.processes import Processes as Processes
