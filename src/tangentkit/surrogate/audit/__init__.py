"""What is wrong with the samples of a data set: flags with scores, reasons and evidence.

`evidence` reads the samples once, `surroundings` and `mislabels` hold the laws, `searches` makes flags of them.
"""

from tangentkit.surrogate.audit.audit import audit as audit
from tangentkit.surrogate.audit.kinds import KINDS as KINDS
from tangentkit.surrogate.audit.kinds import Flag as Flag
from tangentkit.surrogate.audit.result import Audit as Audit
