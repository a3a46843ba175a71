"""Kernel machines: regressors and classifiers for any kernel, as scikit-learn estimators; training dynamics.

`KernelRegression`, `NystromRegression` (many samples), `KernelRidgeClassifier`, `KernelLogistic` and `KernelGLM` take
a kernel of this library, a function k(x, y), features, or a kernel matrix. `Dynamics` and `InfiniteEnsemble` predict
training itself; `refit_last_layer` gives a network the best last layer for its features.
"""

from tangentkit.machines.dynamics.descents import GradientDescent as GradientDescent
from tangentkit.machines.dynamics.descents import GradientFlow as GradientFlow
from tangentkit.machines.dynamics.descents import HeavyBall as HeavyBall
from tangentkit.machines.dynamics.descents import MomentumFlow as MomentumFlow
from tangentkit.machines.dynamics.descents import Nesterov as Nesterov
from tangentkit.machines.dynamics.dynamics import Dynamics as Dynamics
from tangentkit.machines.dynamics.dynamics import gradient_flow as gradient_flow
from tangentkit.machines.dynamics.dynamics import max_learning_rate as max_learning_rate
from tangentkit.machines.dynamics.ensemble import InfiniteEnsemble as InfiniteEnsemble
from tangentkit.machines.dynamics.ensemble import KernelBlocks as KernelBlocks
from tangentkit.machines.estimators.glm import KernelGLM as KernelGLM
from tangentkit.machines.estimators.last_layer import refit_last_layer as refit_last_layer
from tangentkit.machines.estimators.logistic import KernelLogistic as KernelLogistic
from tangentkit.machines.estimators.nystrom import NystromRegression as NystromRegression
from tangentkit.machines.estimators.regression import KernelRegression as KernelRegression
from tangentkit.machines.estimators.ridge_classifier import KernelRidgeClassifier as KernelRidgeClassifier
from tangentkit.machines.solvers.minimizers import LBFGS as LBFGS
from tangentkit.machines.solvers.minimizers import SGD as SGD
from tangentkit.machines.solvers.minimizers import Adam as Adam
from tangentkit.machines.solvers.minimizers import Newton as Newton
