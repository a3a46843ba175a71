"""What all other packages stand on: batches, modules as functions, seeds, memory budgets, files, errors.

Axes carry the same letters through the whole library:

    n, m  samples of the first and of the second batch
    c     outputs of the network          p  parameters
    s     positions at which a layer uses its weight (pixels, tokens, repeated calls)
    d     dimension of inputs or features k  projected features
    r     rank                            t  time
"""

from tangentkit.core.batches import Batch as Batch
from tangentkit.core.batches import as_batch as as_batch
from tangentkit.core.batches import batch_size as batch_size
from tangentkit.core.errors import BudgetError as BudgetError
from tangentkit.core.errors import DataError as DataError
from tangentkit.core.errors import InputError as InputError
from tangentkit.core.errors import ModelError as ModelError
from tangentkit.core.errors import NumericalError as NumericalError
from tangentkit.core.errors import TangentkitError as TangentkitError
from tangentkit.core.errors import UnknownNameError as UnknownNameError
from tangentkit.core.files.fingerprints import fingerprint as fingerprint
from tangentkit.core.files.fingerprints import module_fingerprint as module_fingerprint
from tangentkit.core.memory import memory_budget as memory_budget
from tangentkit.core.model.functions import ModelFunction as ModelFunction
from tangentkit.core.model.functions import snapshot as snapshot
from tangentkit.core.model.parameters import select_parameters as select_parameters
from tangentkit.core.seeds import Key as Key
