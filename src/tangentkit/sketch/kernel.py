"""The tangent kernel of a module by random features of its gradients."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel, NormalizedFeatures
from tangentkit.core.batches import Batch, batch_size, check_same_structure, copied, take
from tangentkit.core.errors import (
    InputError,
    NumericalError,
    TangentkitError,
    UnknownNameError,
)
from tangentkit.core.memory import Budget, free_bytes, memory_budget, parse_bytes
from tangentkit.core.model.calls import call
from tangentkit.core.model.functions import Forward, ModelFunction, snapshot
from tangentkit.core.model.hooks import refuse_hooked_parameters
from tangentkit.core.model.parameters import Selection
from tangentkit.core.model.refusals import accepted, refusal
from tangentkit.core.model.swaps import outside_autograd
from tangentkit.core.seeds import Key
from tangentkit.empirical.outputs import Outputs, as_outputs, words
from tangentkit.empirical.trust.profiles import Profiles
from tangentkit.linalg.operators.symmetry import mirrored
from tangentkit.sketch.arrangement import Arrangement, arrange, project, sketch_directions
from tangentkit.sketch.calibration.projection import Projection
from tangentkit.sketch.error.sketched import Sketched
from tangentkit.sketch.loss import Loss, LossOfModel
from tangentkit.sketch.methods.choice import METHODS, SketchPlan
from tangentkit.sketch.methods.coordinates import Coordinates, working_dtype
from tangentkit.sketch.passes import Passes

LEAST_DIM = 16
OTHERS = 7
"""Sketches of other seeds that tell the error of random output signs."""


class SketchedTangentKernel(Kernel):
    """The tangent kernel by random features of gradients: k(x, y) = φ(x) · φ(y), E[k] = the exact kernel.

    One vector φ(x) of length `dim` for each sample holds all parameters; its cost does not grow with the number of
    samples it is compared with. The relative error of a Gram matrix falls as 1/sqrt(dim).

    ============  =====================================================================================
    sketch        what it does
    ============  =====================================================================================
    "auto"        for each parameter the cheapest of "tensor" and "count"; with a calibration batch also
                  exact coordinates, if they pay
    "tensor"      TensorSketch of the factors of each layer: no gradient is built
    "hybrid"      "tensor", with exact coordinates from the calibration batch
    "count"       count-sketch of explicit gradients, a few samples at a time
    "gaussian"    a dense normal matrix, drawn in blocks: the reference, slow
    "rademacher"  the same with signs
    ============  =====================================================================================

    **Seeds.** A random number is given by (seed, half, parameter name, method, output direction, block) and nothing
    else: not by the batch, its order or size, the number of threads or the device. Features of today and of next
    week, of train and of test data, can be compared, as long as model, dim, outputs, sketch, seed and calibration
    batch are the same. "auto" also looks at the shape of the samples: the first batch that a kernel sees, or the
    calibration batch, decides; name the sketch where lengths vary between runs.

    **Calibration.** `calibration` is a batch like those that will come (a few hundred samples of the training set).
    What their gradients have in common is kept exactly, the rest is sketched: unbiased whatever the batch, and
    several times more accurate if it is typical. Without one "hybrid" is "tensor": features must not depend on
    which batch happens to come first.

    Args:
        model: any module that autograd can differentiate, in evaluation mode where that matters.
        dim: number of features, at least 16.
        outputs: "trace", "pseudo", an index or a vector, as in `TangentKernel`; "loss" for the gradient of `loss`.
        sketch: see above.
        seed: same seed, same features.
        params: None for all that require grad; names or patterns such as "head.*", or a predicate
            (name, parameter) -> bool.
        forward: (model, batch) -> (n, c). By default the model is called as its signature takes the batch (a dict by
            keywords, a tuple by positions, or the whole as one argument), and `.logits` are read.
        memory: working memory beside the features, in bytes or as "2GB"; by default a quarter of what is free.
        calibration: a batch, for "hybrid" and "auto".
        loss: (outputs, targets) -> (n,); batches are then pairs (inputs, targets).
        probes: for "trace": the number of random output signs that stand for the outputs. By default all outputs
            are taken up to `dim` of them, and `dim` signs beyond: S signs add at most 2/S to the relative variance
            of an entry, of which the sketch itself has at least 1/dim, so fewer would cost accuracy, and more time.
            With a calibration batch, whose error is smaller, all outputs are taken.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2))
        >>> kernel = SketchedTangentKernel(model, dim=256)
        >>> x = torch.randn(5, 3)
        >>> kernel.features(x).shape, kernel(x).shape, bool(0 < kernel.error(x) < 0.5)
        (torch.Size([5, 256]), torch.Size([5, 5]), True)

        The gradient of a loss, as data attribution uses it:

        >>> by_loss = SketchedTangentKernel(
        ...     model, 256, outputs="loss", loss=lambda f, t: nn.functional.cross_entropy(f, t, reduction="none")
        ... )
        >>> by_loss.features((x, torch.tensor([0, 1, 0, 1, 0]))).shape
        torch.Size([5, 256])
    """

    def __init__(
        self,
        model: nn.Module,
        dim: int = 4096,
        outputs: Outputs = "trace",
        sketch: str = "auto",
        seed: int = 0,
        *,
        params: Selection = None,
        forward: Forward | None = None,
        memory: int | str | None = None,
        calibration: Batch | None = None,
        loss: Loss | None = None,
        probes: int | None = None,
    ):
        outputs = _checked_outputs(outputs, loss)
        if sketch not in METHODS:
            raise UnknownNameError("sketch", sketch, METHODS)
        if not _is_integer(dim) or dim < LEAST_DIM:
            raise InputError("bad dim", expected=f"an integer >= {LEAST_DIM}", got=repr(dim))
        if probes is not None and (outputs != "trace" or not _is_integer(probes) or probes < 1):
            raise InputError(
                "bad probes", expected='an integer >= 1, with outputs="trace"', got=f"{probes!r}, {outputs!r}"
            )
        if calibration is not None and sketch not in ("hybrid", "auto"):
            raise InputError(
                "a calibration batch is for other sketches", expected='"hybrid" or "auto"', got=repr(sketch)
            )
        rule = forward if loss is None else LossOfModel(forward or call, loss)
        self.function = snapshot(model, params=params, forward=rule)
        refuse_hooked_parameters(model, self.function.params)
        self.dim, self.outputs, self.sketch, self.seed = int(dim), outputs, sketch, Key(seed).seed
        self.probes = None if probes is None else int(probes)
        self.memory = None if memory is None else parse_bytes(memory)
        # A snapshot too: it is looked at when the first samples come.
        self.calibration = None if calibration is None else copied(self._checked(calibration))
        self._profiles = Profiles(self.function)
        self._arrangement: Arrangement | None = None
        self._projection: tuple[Projection | None] | None = None

    def __repr__(self) -> str:
        more = "" if self.probes is None else f", probes={self.probes}"
        more += "" if self.calibration is None else f", calibrated on {batch_size(self.calibration)} samples"
        return (
            f"SketchedTangentKernel({self.function!r}; dim={self.dim}, outputs={words(self.outputs)}, "
            f"sketch={self.sketch!r}, seed={self.seed}{more})"
        )

    @outside_autograd
    def features(self, x: Batch) -> Tensor:
        """φ(x) (n, dim).

        Raises:
            NumericalError: they are not finite.
        """
        return self._sketched(x).features(self.function.dtype)

    @outside_autograd
    def halves(self, x: Batch) -> tuple[Tensor, Tensor]:
        """Two features of each sample from independent sketches: half the gap of any score of both is its error.

        Each is unbiased alone, with twice the variance. Exact coordinates are common to both.
        """
        found = self._sketched(x)
        one, other = (torch.cat([found.exact, half], 1).to(self.function.dtype) for half in found.halves)
        return one, other

    @outside_autograd
    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """φ(x) φ(y)ᵀ."""
        if y is not None:
            check_same_structure(x := self._checked(x), y := self._checked(y))
        left = self.features(x)
        return mirrored(left @ left.T) if y is None else left @ self.features(y).T

    @outside_autograd
    def diag(self, x: Batch) -> Tensor:
        """‖φ(x)‖²."""
        return self.features(x).square().sum(1)

    def functions(self) -> tuple[ModelFunction, ...]:
        """The network at its snapshot."""
        return (self.function,)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """The dtype and device of the model."""
        return self.function.dtype, self.function.device

    @outside_autograd
    def error(self, x: Batch) -> Tensor:
        """The estimated relative Frobenius error of the Gram matrix, ‖k(x) - K‖ / ‖K‖ with K exact, a scalar.

        Two independent half-sketches tell how large errors are (see `sketch.error.sketched`), exact norms of the
        gradients which part of that is the error of this seed (see `sketch.error.evidence`). With `probes`, where
        neither knows enough, seven more sketches are made.

        Raises:
            InputError: there is one random output sign, whose error nothing tells.
        """
        found = self._sketched(x, with_norms=True)
        return found.error([other._sketched(x) for other in self._others(found)]).to(found.exact.dtype)

    @outside_autograd
    def with_error(self, x: Batch, y: Batch | None = None) -> tuple[Tensor, Tensor]:
        """The kernel and its standard error, entry by entry."""
        left, right, more = self._pairs(x, y)
        kernel, error = left.gram_with_error(right, more)
        return (mirrored(kernel), mirrored(error)) if y is None else (kernel, error)

    def normalized(self) -> "NormalizedSketch":
        """The cosine kernel, which tells its error too."""
        return NormalizedSketch(self)

    @outside_autograd
    def cosines_with_error(self, x: Batch, y: Batch | None = None) -> tuple[Tensor, Tensor]:
        """The kernel k(x, y) / sqrt(k(x, x) k(y, y)) and its standard error, entry by entry."""
        left, right, more = self._pairs(x, y)
        cosines, error = left.cosines_with_error(right, more)
        return (mirrored(cosines), mirrored(error)) if y is None else (cosines, error)

    def _pairs(self, x: Batch, y: Batch | None) -> tuple[Sketched, Sketched, list[tuple[Sketched, Sketched]]]:
        """Both sides sketched, and what other seeds give where these are needed to tell the error."""
        if y is not None:
            check_same_structure(x := self._checked(x), y := self._checked(y))

        def both(kernel: SketchedTangentKernel) -> tuple[Sketched, Sketched]:
            left = kernel._sketched(x)
            return left, left if y is None else kernel._sketched(y)

        left, right = both(self)
        return left, right, [both(other) for other in self._others(left)]

    def _others(self, found: Sketched) -> list["SketchedTangentKernel"]:
        """Kernels of other seeds: of random output signs the gap of two halves is a single random number."""
        count = OTHERS if found.signs == "own" else 0
        return [self.reseeded(Key(self.seed).fold("others", i).entropy) for i in range(count)]

    def reseeded(self, seed: int) -> "SketchedTangentKernel":
        """The same kernel with other random numbers; what is known of the model and calibrated is shared."""
        return self._replaced(seed=Key(seed).seed, _arrangement=None)

    @outside_autograd
    def plan(self, x: Batch) -> SketchPlan:
        """How samples like these are sketched. Prints as a table."""
        return self._arranged(self._checked(x)).plan()

    def _sketched(self, x: Batch, *, with_norms: bool = False) -> Sketched:
        x = self._checked(x)
        if batch_size(x) == 1:
            # In a batch of one, axes of length one hide where samples stand: two copies are faster.
            return self._sketched(take(x, [0, 0]), with_norms=with_norms).first()

        self._check_room(batch_size(x))
        arranged = self._arranged(x)

        def work() -> Sketched:
            like = arranged.directions.vectors
            norms = (
                torch.zeros(batch_size(x), dtype=torch.float64, device=like.device) if with_norms else None
            )
            exact, halves = arranged.features(self._passes(x, like), x, norms=norms)
            return Sketched(exact, halves, arranged.shares, arranged.directions.signs, norms)

        found = self._profiles.computed(x, work)
        finite = torch.stack([half.isfinite().all(1) for half in (found.exact, *found.halves)]).all(0)
        if not finite.all():
            bad = (~finite).nonzero().flatten().tolist()
            raise NumericalError(
                "gradients are not finite",
                expected="finite gradients",
                got=f"nan or inf in samples {bad[:5]} ({len(bad)} in all)",
                hint="float64, or look for an operation with an infinite derivative (sqrt at 0, say)",
            )
        return found

    def _arranged(self, x: Batch) -> Arrangement:
        """The arrangement, made for the first samples and used for all: features must stay comparable."""
        if self._arrangement is None:
            typical = x if self.calibration is None else self.calibration
            self._arrangement = self._profiles.revising(typical, lambda: self._arrange(typical))
        return self._arrangement

    def _arrange(self, typical: Batch) -> Arrangement:
        key, like = Key(self.seed).fold("sketch"), next(iter(self.function.params.values()))
        c = self._profiles.of(typical).outputs
        calibrated = self.calibration is not None
        found = sketch_directions(
            self.outputs, self.probes, c, dim=self.dim, calibrated=calibrated, key=key, like=like
        )
        passes = self._passes(typical, found.vectors)
        if self.calibration is not None and self._projection is None:
            made = project(passes, self.calibration, directions=found, dim=self.dim)
            self._projection = (made,)
        return arrange(
            passes,
            typical,
            sketch=self.sketch,
            directions=found,
            dim=self.dim,
            key=key,
            projection=None if self._projection is None else self._projection[0],
        )

    def _passes(self, x: Batch, vectors: Tensor) -> Passes:
        budget = memory_budget(self.memory, device=self.function.device)
        beside = Coordinates.WIDTH * self.dim * working_dtype(self.function.dtype).itemsize
        return Passes(self._profiles, self._profiles.of(x), vectors, budget, beside)

    def _check_room(self, n: int) -> None:
        function = self.function
        # The halves, and the features that they make.
        needed = 2 * n * self.dim * working_dtype(function.dtype).itemsize
        Budget(free_bytes(function.device)).check(
            needed,
            "features are",
            of=f"{n} samples",
            hint="a smaller dim, or fewer samples at a time: features do not depend on the batch",
        )

    def _checked(self, x: Batch) -> Batch:
        return accepted(self.function, x)

    def _refusal(self, error: Exception, *data: Any) -> TangentkitError | None:
        return refusal(self.function, error, *data)


class NormalizedSketch(NormalizedFeatures):
    """The cosine kernel of a sketched kernel."""

    kernel: SketchedTangentKernel

    def with_error(self, x: Batch, y: Batch | None = None) -> tuple[Tensor, Tensor]:
        """The cosines and their standard error, entry by entry."""
        return self.kernel.cosines_with_error(x, y)


def _is_integer(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _checked_outputs(outputs: Outputs, loss: Loss | None) -> Outputs:
    """What is asked of the model, whose one output is the loss if there is one."""
    if isinstance(outputs, str) and outputs == "full":
        raise InputError(
            "features are of one kernel",
            expected='"trace", "pseudo", "loss", an index or a vector',
            got="'full'",
        )
    if loss is None:
        if isinstance(outputs, str) and outputs == "loss":
            raise InputError(
                "no loss",
                expected="loss=(outputs, targets) -> (n,)",
                got=None,
                hint="loss=my_loss, one a sample",
            )
        return copied(as_outputs(outputs))
    if not isinstance(outputs, str) or outputs not in ("loss", "trace"):
        raise InputError("a loss is one output", expected='outputs="loss"', got=repr(outputs))
    return "trace"
