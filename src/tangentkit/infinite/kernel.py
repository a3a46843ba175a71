"""The kernel of a module at infinite width."""

import warnings

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, as_batch, check_same_structure, describe, shapes
from tangentkit.core.data_sets import is_data_set
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.memory import memory_budget, parse_bytes
from tangentkit.infinite.computation import Computation
from tangentkit.infinite.plan import InfinitePlan, estimated_seconds
from tangentkit.infinite.reading.norms import NORMS
from tangentkit.infinite.reading.parameterization import Scales
from tangentkit.infinite.reading.reader import Reading, read
from tangentkit.infinite.reading.tracing import LAYERS, OURS, is_layer, trace
from tangentkit.nn import Stds, layer_stds


class InfiniteKernel(Kernel):
    """The kernel of a module's architecture as its widths go to infinity: NNGP covariance or tangent kernel.

    The module is read as a graph (torch.fx); its weights do not matter. With C outputs the limit is k(x, y) · I_C:
    given is k, so the trace of a finite network's kernel, divided by C, converges to it.

    Layers z = w_std / sqrt(fan_in) W x + b_std b with W, b ~ N(0, 1) turn K into w_std² K + b_std²; an activation
    turns it into E[φ(u) φ(v)] and multiplies Θ by E[φ'(u) φ'(v)]. `tangentkit.nn` layers bring their own scales,
    torch's are read with those given here. Parameters that do not require grad add nothing to Θ.

    Covered: linear and convolutional layers (stride, dilation, all paddings; groups = 1), scalar functions, average
    pooling of every kind, means, selections, flips, padding and nearest-neighbor interpolation of positions, flatten
    and other reshapes, sums of uncorrelated branches, scaled branches, concatenated and split channels, LayerNorm,
    RMSNorm, GroupNorm, BatchNorm and dropout in evaluation mode. Whatever happens before the first layer is done to
    the inputs as it stands.

    A module of your own that has an attribute `dual` (such as `Pointwise(function)`) counts as that scalar function,
    and so do several steps that act entry by entry on one Gaussian field, such as `h * torch.sigmoid(h)`.

    Gains and shifts of normalizations, and slopes of PReLU, count as constants: they must be equal for all channels
    (as at initialization), and where they are trained a warning says that their own part of the tangent kernel is
    not included. BatchNorm in evaluation mode is the affine map that its running statistics make of it.

    Args:
        model: a module whose forward pass takes one tensor and gives (n, c).
        kind: "ntk" for the tangent kernel, "nngp" for the covariance of the outputs.
        w_std: scale of the weights of torch's layers; one value, or a mapping from layer names.
        b_std: scale of their biases, likewise.
        parameterization: of torch's layers. In "ntk" the trained weights add w_std² K + b_std² to Θ. In "standard",
            W ~ N(0, w_std² / fan_in) and b ~ N(0, b_std²) unscaled, they add fan_in · K + 1: this part grows with the
            width, so the widths of the module itself count.
        memory: working memory beside the result, in bytes or as "2GB"; by default a quarter of what is free.

    Raises:
        ModelError: torch.fx cannot trace the module, or (with the first call) an operation has no such limit.
        InputError: a scale is negative, or an option unknown.
        UnknownNameError: a mapping names a layer that is not there.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 512), nn.ReLU(), nn.Linear(512, 1))
        >>> kernel = InfiniteKernel(model, w_std=2**0.5)
        >>> x = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]])
        >>> kernel(x).diagonal()  # both layers add w_std² |x|² / d
        tensor([4., 4.])
    """

    def __init__(
        self,
        model: nn.Module,
        kind: str = "ntk",
        *,
        w_std: Stds = 1.0,
        b_std: Stds = 0.0,
        parameterization: str = "ntk",
        memory: int | float | str | None = None,
    ):
        if kind not in ("ntk", "nngp"):
            raise InputError("bad kind of kernel", expected='"ntk" or "nngp"', got=repr(kind))
        if parameterization not in ("ntk", "standard"):
            raise InputError(
                "bad parameterization", expected='"ntk" or "standard"', got=repr(parameterization)
            )
        if not isinstance(model, nn.Module):
            raise InputError("not a model", expected="a torch module", got=type(model).__name__)
        self.kind, self.memory = kind, None if memory is None else parse_bytes(memory)
        plain = {
            name: layer
            for name, layer in model.named_modules()
            if isinstance(layer, LAYERS) and is_layer(layer) and not isinstance(layer, OURS)
        }
        self.scales = Scales(
            layer_stds(plain, w_std=w_std, b_std=b_std), standard=parameterization == "standard"
        )
        self.trace = trace(model)
        if kind == "ntk":
            _warn_of_constants(model)
        self._model = f"{type(model).__name__}, layers with weights: {sum(map(is_layer, model.modules()))}"
        self._readings: dict[str, Reading] = {}
        self._independent: set[str] = set()

    def __repr__(self) -> str:
        standard = ", parameterization='standard'" if self.scales.standard else ""
        return f"InfiniteKernel({self._model}; kind={self.kind!r}{standard})"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """k(x_i, y_j) as (n, m).

        Gradients flow to x and y where they require them.
        """
        x = self._checked(x)
        y = None if y is None else self._checked(y)
        if y is not None:
            check_same_structure(x, y)
            if x.device != y.device:
                raise InputError("batches differ in device", expected=x.device, got=y.device)
        work = self._work(x)
        with torch.inference_mode(False):
            return _finite(work.gram(x, y))

    def diag(self, x: Batch) -> Tensor:
        """k(x_i, x_i) as (n,), each exactly as if computed alone."""
        x = self._checked(x)
        with torch.inference_mode(False):
            return _finite(self._work(x).diag(x))

    def plan(self, x: Batch, y: Batch | None = None) -> InfinitePlan:
        """What a call will take: pairs, positions and an estimated time, from calls with few samples. It prints.

        Example:
            >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
            >>> print(InfiniteKernel(model).plan(torch.ones(100, 3)))
            100 x 100 entries, 5050 pairs of samples, 40.0 kB
            one covariance for each pair of samples and each layer
            about ... s
        """
        x = self._checked(x)
        other = None if y is None else self._checked(y)
        n, m = len(x), len(x if other is None else other)
        work, least = self._work(x), min(n, m)
        # So many that functions without a closed form are read from tables, as they are for more.
        begin = 2 if work.positions else 32
        seconds = estimated_seconds(
            lambda s: self(x[:s], None if other is None else other[:s]), least, begin=begin
        )
        return InfinitePlan(
            shape=(n, m),
            pairs=n * (n + 1) // 2 if other is None else n * m,
            positions=work.positions,
            all_positions=work.sums_offsets,
            nbytes=n * m * work.dtype.itemsize,
            seconds=seconds * max(n, m) / least,
        )

    def _checked(self, x: Batch) -> Tensor:
        pairs, x = is_data_set(x), as_batch(x)
        if isinstance(x, (tuple, list)) and (pairs or len(x) == 1):
            x = x[0]  # of samples with targets the samples
        if not isinstance(x, Tensor):
            raise InputError(
                "bad batch",
                expected="one tensor",
                got=shapes(x),
                hint="torch.stack(samples) of a list of samples, batch[0] where targets come along, or a module "
                "around the model that takes one tensor",
            )
        if x.dtype in (torch.float16, torch.bfloat16) or x.is_complex():
            raise InputError("bad dtype", expected="float32 or float64", got=x.dtype, hint="x.float()")
        if x.is_floating_point() and not x.sum().isfinite() and not x.isfinite().all():
            bad = (~x.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
            raise InputError(
                "inputs are not finite", got=f"nan or inf in samples {bad[:5]} ({len(bad)} in all)"
            )
        return x

    def _work(self, x: Tensor) -> Computation:
        shape = f"{describe(x)} {x.device}"
        if shape not in self._readings:
            self._readings[shape] = read(self.trace, x, self.scales)
        work = Computation(
            self.trace, self.kind, self._readings[shape], x, memory_budget(self.memory, device=x.device)
        )
        if len(x) > 1 and shape not in self._independent:
            work.check_independent(x)
            self._independent.add(shape)
        return work


def _warn_of_constants(model: nn.Module) -> None:
    named = {name: m for name, m in model.named_modules() if isinstance(m, (*NORMS, nn.PReLU))}
    trained = [name for name, module in named.items() if any(p.requires_grad for p in module.parameters())]
    if trained:
        warnings.warn(
            "gains and shifts of normalizations and slopes of PReLU "
            f"({', '.join(map(repr, trained))}) count as constants: their own part of the tangent kernel is left "
            "out. Freeze them (requires_grad_(False)) if that is what you mean, or tk.MonteCarloKernel includes it",
            stacklevel=3,
        )


def _finite(values: Tensor) -> Tensor:
    if not values.detach().sum().isfinite() and not values.isfinite().all():
        raise NumericalError(
            "the kernel is not finite", hint="smaller inputs or scales, or float64: some function overflows"
        )
    return values
