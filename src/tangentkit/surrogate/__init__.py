"""Kernel surrogates of networks: their faithfulness, the nearest training samples, and what is wrong with these."""

from tangentkit.surrogate.adversarial import AdversarialComparison as AdversarialComparison
from tangentkit.surrogate.adversarial import compare_under_attack as compare_under_attack
from tangentkit.surrogate.audit import Audit as Audit
from tangentkit.surrogate.audit import Flag as Flag
from tangentkit.surrogate.audit import audit as audit
from tangentkit.surrogate.forensics import Forensics as Forensics
from tangentkit.surrogate.forensics import forensics as forensics
from tangentkit.surrogate.nearest import Neighbors as Neighbors
from tangentkit.surrogate.nearest import neighbors as neighbors
from tangentkit.surrogate.shares import Share as Share
