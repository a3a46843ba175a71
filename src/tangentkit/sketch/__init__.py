"""Random features of gradients: one vector for each sample, whose inner products are the tangent kernel.

`methods` are sketches of gradients, and which one a parameter takes; `calibration` keeps exactly what the gradients
of a calibration batch have in common; `passes` runs the model within a memory budget; `arrangement` puts it together;
`error` estimates how far the features are off.
"""

from tangentkit.sketch.kernel import SketchedTangentKernel as SketchedTangentKernel
from tangentkit.sketch.methods.choice import SketchPlan as SketchPlan
