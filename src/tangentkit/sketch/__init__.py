"""Random features of gradients: one vector for each sample, whose inner products are the tangent kernel.

`bits` draws random numbers by address; `written` and `tensor` are sketches of one parameter, from its gradient and
from its factors; `model_sketch` sums those of all parameters in the same `coordinates`; `choice` says which parameter
takes which; `projection` keeps exactly what a calibration batch has in common, by `bases` of its `factors`; `passes`
runs the model within a memory budget; `arrangement` puts it together, and `sketched` and `evidence` tell the error.
"""

from tangentkit.sketch.kernel import SketchedTangentKernel as SketchedTangentKernel
from tangentkit.sketch.methods.choice import SketchPlan as SketchPlan
