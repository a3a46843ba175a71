"""Networks expanded about their weights, and a small trainer for networks and expansions alike.

linearize    f(w0, x) + J(w0, x) u as a module whose parameters are u
taylorize    the same to any degree in u
train        a network or an expansion, by settings (`Training`) and a key
"""

from tangentkit.linearized.expansion import Expansion as Expansion
from tangentkit.linearized.expansion import LinearizedModel as LinearizedModel
from tangentkit.linearized.expansion import TaylorModel as TaylorModel
from tangentkit.linearized.expansion import linearize as linearize
from tangentkit.linearized.expansion import taylorize as taylorize
from tangentkit.linearized.settings import ConstantRate as ConstantRate
from tangentkit.linearized.settings import LinearDecay as LinearDecay
from tangentkit.linearized.settings import StepDecay as StepDecay
from tangentkit.linearized.settings import Stop as Stop
from tangentkit.linearized.settings import Training as Training
from tangentkit.linearized.training import History as History
from tangentkit.linearized.training import mini_batches as mini_batches
from tangentkit.linearized.training import train as train
