"""What a kernel is, and how its Gram matrix is computed in tiles: here, by threads, by a cluster; in memory, on disk.

`gram(kernel, x)` gives an operator. With `store=` its tiles are files that outlive the process; with `engine=` others
compute them.
"""

from tangentkit.compute import engines as engines
from tangentkit.compute.cost.cost import gram_cost as gram_cost
from tangentkit.compute.gram import gram as gram
from tangentkit.compute.identity import identify as identify
from tangentkit.compute.kernel import Kernel as Kernel
from tangentkit.compute.sources import Samples as Samples
from tangentkit.compute.store.locks import break_lock as break_lock
from tangentkit.compute.store.operator import StoredOperator as StoredOperator
from tangentkit.compute.store.operator import open_gram as open_gram
from tangentkit.compute.terms import HasFeatures as HasFeatures
