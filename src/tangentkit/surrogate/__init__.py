"""Kernel surrogates of networks: how faithful they are, and which training samples a decision comes from."""

from tangentkit.surrogate.adversarial import AdversarialComparison as AdversarialComparison
from tangentkit.surrogate.adversarial import compare_under_attack as compare_under_attack
from tangentkit.surrogate.attribution import Attribution as Attribution
from tangentkit.surrogate.audit import Audit as Audit
from tangentkit.surrogate.audit import Flag as Flag
from tangentkit.surrogate.audit import audit as audit
from tangentkit.surrogate.evaluation import evaluate_attribution as evaluate_attribution
from tangentkit.surrogate.faithfulness import Faithfulness as Faithfulness
from tangentkit.surrogate.forensics import Forensics as Forensics
from tangentkit.surrogate.forensics import forensics as forensics
from tangentkit.surrogate.influence import influence as influence
from tangentkit.surrogate.influence import representer_points as representer_points
from tangentkit.surrogate.influence import trak as trak
from tangentkit.surrogate.kernel_comparison import compare_kernels as compare_kernels
from tangentkit.surrogate.nearest import Neighbors as Neighbors
from tangentkit.surrogate.nearest import neighbors as neighbors
from tangentkit.surrogate.shares import Share as Share
from tangentkit.surrogate.surrogate import Surrogate as Surrogate
