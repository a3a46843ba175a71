"""Every module of the zoo, every kernel of its outputs, every law."""

import copy
import warnings
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch.utils import _pytree as pytree

from cases import CASES, TOLERANCE, M, N, cast, expected, gap, jacobians, kernel_of, matrix_of
from tangentkit.core.batches import take
from tangentkit.empirical import plan, tangent
from tangentkit.empirical.engine import engine
from tangentkit.empirical.passes.batching import Batching
from tangentkit.empirical.trust.profiles import UnusedParameterWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*do not reach the output"),
    # torch's own remark on an ordinary forward pass in float32.
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
]
# All laws of a module in a row: in one process they share its reference and what its kernel has learned.
over_cases = pytest.mark.parametrize("name", CASES, scope="module")


def choices(name):
    c = jacobians(name)[0].shape[1]
    return {
        "trace": "trace",
        "full": "full",
        "pseudo": "pseudo",
        "index": c - 1,
        "vector": torch.linspace(-1, 2, c),
    }


def test_the_zoo_is_large():
    assert len(CASES) >= 30


@over_cases
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_every_kernel_of_the_outputs_is_right(name, dtype):
    case = CASES[name]
    (x, y), gaps = case.batches(dtype), {}
    every = choices(name)
    # The kinds differ in their directions alone: of float32, the sum of all and all apart do.
    # Full comes first there: a kernel that has learned nothing yet is right for either kind.
    wanted = every if dtype == torch.float64 else {kind: every[kind] for kind in ("full", "trace")}
    for kind, outputs in wanted.items():
        kernel = kernel_of(name, outputs, dtype)
        if dtype == torch.float64 or kind == "trace":
            gaps[f"{kind}, symmetric"] = gap(kernel(x), expected(name, outputs, symmetric=True))
        gaps[f"{kind}, cross"] = gap(kernel(x, y), expected(name, outputs, symmetric=False))
    assert {kind: g for kind, g in gaps.items() if not g <= TOLERANCE[dtype]} == {}


@over_cases
def test_symmetric_positive_and_the_trace_of_full_is_trace(name):
    x, y = CASES[name].batches()
    k, cross = (matrix_of(name, "full", symmetric=same) for same in (True, False))
    block = k.reshape(N * k.shape[1], -1)
    assert torch.equal(block, block.T)
    assert torch.linalg.eigvalsh(block)[0] >= -1e-10 * block.abs().max()
    assert gap(kernel_of(name, "full")(y, x), cross.permute(2, 3, 0, 1)) <= 1e-12
    # The trace of the full kernel is the trace kernel.
    assert gap(matrix_of(name, symmetric=False), torch.einsum("icjc->ij", cross)) <= 1e-12


@over_cases
def test_parameters_sum_to_the_kernel_and_each_is_right(name):
    x, y = CASES[name].batches()
    kernel = kernel_of(name)
    parts = kernel.by_parameter(x, y)
    assert gap(sum(parts.values()), matrix_of(name, symmetric=False)) <= 1e-12
    jx, jy = jacobians(name)
    scale, start = expected(name, "trace", symmetric=False).abs().max(), 0
    assert list(parts) == list(kernel.function.params)
    for parameter, part in parts.items():
        stop = start + kernel.function.params[parameter].numel()
        truth = torch.einsum("icp,jcp->ij", jx[:, :, start:stop], jy[:, :, start:stop])
        assert (part - truth).abs().max() <= 1e-10 * scale, parameter
        start = stop
    halves = kernel.by_parameter(x)
    assert gap(sum(halves.values()), matrix_of(name, symmetric=True)) <= 1e-12


@over_cases
def test_batch_size_and_groups_of_directions_do_not_matter(name, monkeypatch):
    case = CASES[name]
    (x, y), made = case.batches(), []

    def small(foot, work, budget, item):
        # Of C directions, groups of C - 1 and 1: unequal, and few.
        made.append(Batching(4, work.r if work.full else max(1, work.r - 1), 3))
        return made[-1]

    for user in (engine, plan):
        monkeypatch.setattr(user, "batching", small)
    trace, full = kernel_of(name), kernel_of(name, "full")
    assert trace.plan(x).batching == made[-1]
    assert gap(trace(x), expected(name, "trace", symmetric=True)) <= 1e-10
    assert gap(trace(x, y), expected(name, "trace", symmetric=False)) <= 1e-10
    assert gap(trace.diag(x), expected(name, "trace", symmetric=True).diagonal()) <= 1e-10
    assert gap(full(x), expected(name, "full", symmetric=True)) <= 1e-10
    assert len(made) >= 5


@over_cases
def test_samples_alone_and_in_tiles(name):
    x, y = CASES[name].batches()
    kernel, whole = kernel_of(name), matrix_of(name, symmetric=False)
    assert gap(torch.cat([kernel(take(x, slice(i, i + 1)), y) for i in range(N)]), whole) <= 1e-12
    columns = [slice(0, 1), slice(1, M)]
    assert gap(torch.cat([kernel(x, take(y, part)) for part in columns], 1), whole) <= 1e-12


@over_cases
def test_permuted_samples_permute_the_kernel(name):
    x, y = CASES[name].batches()
    kernel, order, other = kernel_of(name), torch.tensor([3, 5, 0, 1, 4, 2]), torch.tensor([2, 0, 3, 1])
    k, cross = (matrix_of(name, symmetric=same) for same in (True, False))
    assert gap(kernel(take(x, order)), k[order][:, order]) <= 1e-12
    assert gap(kernel(take(x, order), take(y, other)), cross[order][:, other]) <= 1e-12


@over_cases
def test_diagonal_and_normalized(name):
    case = CASES[name]
    x, y = case.batches()
    for outputs in ("trace", "full"):
        kernel, k = kernel_of(name, outputs), matrix_of(name, outputs, symmetric=True)
        diagonal = kernel.diag(x)
        assert gap(diagonal, k.diagonal() if k.ndim == 2 else torch.einsum("icic->ic", k)) <= 1e-12
        if (diagonal > 0).all() and (kernel.diag(y) > 0).all():
            cosine = kernel.normalized()(x)
            ones = cosine.diagonal() if k.ndim == 2 else torch.einsum("icic->ic", cosine)
            assert (ones - 1).abs().max() <= 1e-12
            assert kernel.normalized()(x, y).abs().max() <= 1 + 1e-12


@over_cases
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_product_is_the_full_kernel_times_a_vector(name, dtype):
    x, _ = CASES[name].batches(dtype)
    full = expected(name, "full", symmetric=True)
    v = torch.randn(full.shape[:2], generator=torch.Generator().manual_seed(1)).to(dtype)
    found = kernel_of(name, "full", dtype).product(x, v)
    assert gap(found, torch.einsum("icjd,jd->ic", full, v.double())) <= TOLERANCE[dtype]


@dataclass(frozen=True)
class Life:
    """What was seen of a kernel that was made, whose module was trained, and that only then saw a batch."""

    found: dict[str, torch.Tensor]
    """What it gave."""
    touched: list[str]
    """What of the module and around it changed while the kernel was made, and while it was called."""
    warnings: int
    """Those of parameters that do not reach the output."""


@cache
def life(name):
    case = CASES[name]
    model, (x, y) = case.model(), case.batches()
    fresh = surroundings(model, x, y)
    kernel = tangent.TangentKernel(model, **case.keywords)
    touched = changed(fresh, surroundings(model, x, y))
    train(model)
    trained = surroundings(model, x, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = {
            "symmetric": kernel(x),
            "cross": kernel(x, y),
            "parts": sum(kernel.by_parameter(x).values()),
            "diagonal": kernel.diag(x),
            "product": kernel.product(x, torch.ones_like(expected(name, "full", symmetric=True)[:, :, 0, 0])),
        }
        kernel.plan(x, y)
    touched += changed(trained, surroundings(model, x, y))
    return Life(found, touched, sum(issubclass(w.category, UnusedParameterWarning) for w in caught))


def train(model):
    """Other values, and of all modules every other one, the model first, in training mode."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() or tensor.is_complex():
                (tensor._values() if tensor.is_sparse else tensor).mul_(0.5).add_(0.1)
    for i, part in enumerate(model.modules()):
        part.training = i % 2 == 0


def surroundings(model, *batches):
    """All that a kernel must not change."""
    return {
        "modes": {name: child.training for name, child in model.named_modules()},
        "hooks": {
            name: [len(hooks) for key, hooks in vars(child).items() if key.endswith("_hooks")]
            for name, child in model.named_modules()
        },
        "grads": {name: p.grad is None for name, p in model.named_parameters()},
        "tensor hooks": {name: not p._backward_hooks for name, p in model.named_parameters()},
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "identity": {name: id(p) for name, p in model.named_parameters()},
        "values": copy.deepcopy({name: value.detach() for name, value in model.state_dict().items()}),
        "batches": copy.deepcopy(batches),
        "chance": torch.get_rng_state(),
        "switches": (torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()),
    }


def changed(before, after):
    return [what for what, old in before.items() if not same(old, after[what])]


def same(a, b):
    (old, places), (new, others) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    return places == others and all(
        torch.equal(one.to_dense(), other.to_dense()) if isinstance(one, torch.Tensor) else one == other
        for one, other in zip(old, new, strict=True)
    )


@over_cases
def test_later_training_changes_nothing(name):
    full = expected(name, "full", symmetric=True)
    symmetric = expected(name, "trace", symmetric=True)
    truth = {
        "symmetric": symmetric,
        "cross": expected(name, "trace", symmetric=False),
        "parts": symmetric,
        "diagonal": symmetric.diagonal(),
        "product": full.sum((2, 3)),
    }
    assert {what: g for what, k in life(name).found.items() if not (g := gap(k, truth[what])) <= 1e-10} == {}


@over_cases
def test_module_batch_and_chance_are_left_untouched(name):
    assert life(name).touched == []


@over_cases
def test_warns_of_a_parameter_that_does_not_reach_the_output(name):
    assert life(name).warnings == CASES[name].unused


@over_cases
def test_one_sample(name):
    x, y = CASES[name].batches()
    one = take(x, slice(5, 6))
    kernel = CASES[name].kernel()  # which has seen nothing but this sample
    assert gap(kernel(one), expected(name, "trace", symmetric=True)[5:, 5:]) <= 1e-10
    assert gap(kernel(one, y), expected(name, "trace", symmetric=False)[5:]) <= 1e-10


def test_unused_parameters_are_named_once():
    case = CASES["parameter that never reaches the output"]
    kernel, (x, _) = case.kernel(), case.batches()
    with pytest.warns(UnusedParameterWarning, match=r"1 parameter\(s\) do not reach the output: idle"):
        kernel(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x)
        assert kernel.by_parameter(x)["idle"].abs().max() == 0
    assert "does not reach the output" in str(kernel.plan(x))


@pytest.mark.parametrize("name", ["mlp", "transformer encoder", "lstm", "embedding"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_within_any_grad_mode(name, mode):
    case = CASES[name]
    x, _ = case.batches()
    with mode():
        found = case.kernel()(x)
    assert gap(found, expected(name, "trace", symmetric=True)) <= 1e-10


@pytest.mark.parametrize("name", ["mlp", "transformer encoder", "lstm"])
def test_results_carry_no_graph(name):
    x, _ = CASES[name].batches()
    kernel = CASES[name].kernel("full")
    v = torch.ones_like(kernel(x)[:, :, 0, 0])
    for result in (kernel(x), kernel.diag(x), kernel.product(x, v), *kernel.by_parameter(x).values()):
        assert not result.requires_grad


def test_kernels_compose():
    case = CASES["mlp"]
    x, y = case.batches()
    k, other = case.kernel(), case.kernel("pseudo")
    torch.testing.assert_close((2.0 * k + other)(x, y), 2 * k(x, y) + other(x, y))
    torch.testing.assert_close((k + other).diag(x), (k + other)(x).diagonal())
    assert k.to(torch.float32)(x).dtype == torch.float32
    assert copy.deepcopy(k) is k


def test_input_of_arrays_and_of_casts():
    case = CASES["mlp"]
    x, y = case.batches()
    assert torch.equal(case.kernel()(x.numpy(), y.numpy()), case.kernel()(x, y))
    assert cast({"a": x, "flag": True}, torch.float32)["a"].dtype == torch.float32
