"""Every module of the zoo, every kernel of its outputs, every law."""

import copy
import warnings
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch.utils import _pytree as pytree

from cases import CASES, TOLERANCE, M, N, along, cast, expected, gap, jacobians, kernel_of, unlearned
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
# All laws of a module in a row: in one process they share its reference, its kernel and what that has learned.
over_cases = pytest.mark.parametrize("name", CASES, scope="module")


@dataclass(frozen=True)
class Life:
    """What was seen of a kernel that was made, whose module was trained, and that only then saw a batch."""

    kernel: tangent.TangentKernel
    found: dict[str, torch.Tensor]
    """What it gave."""
    touched: list[str]
    """What of the module and around it changed while the kernel was made, and while it was called."""
    warnings: int
    """Those of parameters that do not reach the output."""


@cache
def life(name):
    """The kernel, in float64, of which all laws are."""
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
            "product": kernel.product(x, a_vector(name, torch.float64)),
        }
        kernel.plan(x, y)
    touched += changed(trained, surroundings(model, x, y))
    return Life(kernel, found, touched, sum(issubclass(w.category, UnusedParameterWarning) for w in caught))


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


def asked(name, outputs="trace"):
    """The kernel of some outputs, of the same snapshot."""
    return along(life(name).kernel, outputs)


@cache
def matrix(name, outputs="trace", *, symmetric):
    """k(x, x) or k(x, y), computed once for all laws."""
    if outputs == "trace":
        return life(name).found["symmetric" if symmetric else "cross"]
    x, y = CASES[name].batches()
    return asked(name, outputs)(x, None if symmetric else y)


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
def test_every_kernel_of_the_outputs_is_right(name):
    (x, y), gaps = CASES[name].batches(), {}
    for kind, outputs in choices(name).items():
        once = kind in ("trace", "full")  # which other laws are about, too
        # Kinds of one direction differ in its entries alone: together they are seen both within and between batches.
        for symmetric in (True, False) if once else (kind != "index",):
            k = (
                matrix(name, kind, symmetric=symmetric)
                if once
                else asked(name, outputs)(x, None if symmetric else y)
            )
            gaps[kind, symmetric] = gap(k, expected(name, outputs, symmetric=symmetric))
    assert {kind: g for kind, g in gaps.items() if not g <= TOLERANCE[torch.float64]} == {}


@over_cases
def test_kernels_in_float32_are_right(name):
    # Kinds differ in their directions alone: the sum of all, and all apart, which comes first here, as the other does
    # above: a kernel that has learned nothing yet is right for either.
    x, y = CASES[name].batches(torch.float32)
    full, trace = (kernel_of(name, outputs, torch.float32) for outputs in ("full", "trace"))
    gaps = {
        "full, cross": gap(full(x, y), expected(name, "full", symmetric=False)),
        "trace, symmetric": gap(trace(x), expected(name, "trace", symmetric=True)),
        "trace, cross": gap(trace(x, y), expected(name, "trace", symmetric=False)),
    }
    assert {kind: g for kind, g in gaps.items() if not g <= TOLERANCE[torch.float32]} == {}


@over_cases
def test_symmetric_positive_and_the_trace_of_full_is_trace(name):
    x, y = CASES[name].batches()
    k, cross = (matrix(name, "full", symmetric=same) for same in (True, False))
    block = k.reshape(N * k.shape[1], -1)
    assert torch.equal(block, block.T)
    assert torch.linalg.eigvalsh(block)[0] >= -1e-10 * block.abs().max()
    assert gap(asked(name, "full")(y, x), cross.permute(2, 3, 0, 1)) <= 1e-12
    # The trace of the full kernel is the trace kernel.
    assert gap(matrix(name, symmetric=False), torch.einsum("icjc->ij", cross)) <= 1e-12


@over_cases
def test_parameters_sum_to_the_kernel_and_each_is_right(name):
    x, y = CASES[name].batches()
    kernel = life(name).kernel
    parts = kernel.by_parameter(x, y)
    assert gap(sum(parts.values()), matrix(name, symmetric=False)) <= 1e-12
    jx, jy = jacobians(name)
    scale, start = expected(name, "trace", symmetric=False).abs().max(), 0
    assert list(parts) == list(kernel.function.params)
    for parameter, part in parts.items():
        stop = start + kernel.function.params[parameter].numel()
        truth = torch.einsum("icp,jcp->ij", jx[:, :, start:stop], jy[:, :, start:stop])
        assert (part - truth).abs().max() <= 1e-10 * scale, parameter
        start = stop
    assert gap(life(name).found["parts"], matrix(name, symmetric=True)) <= 1e-12


@over_cases
def test_batch_size_and_groups_of_directions_do_not_matter(name, monkeypatch):
    case = CASES[name]
    (x, y), made = case.batches(), []

    def small(foot, work, budget, item):
        # Of C directions, groups of C - 1 and 1: unequal, and few.
        made.append(Batching(4, work.r if work.full else max(1, work.r - 1), 3))
        return made[-1]

    trace, full = asked(name), asked(name, "full")
    for user in (engine, plan):
        monkeypatch.setattr(user, "batching", small)
    assert trace.plan(x).batching == made[-1]
    assert gap(trace(x), expected(name, "trace", symmetric=True)) <= 1e-10
    assert gap(trace(x, y), expected(name, "trace", symmetric=False)) <= 1e-10
    assert gap(trace.diag(x), expected(name, "trace", symmetric=True).diagonal()) <= 1e-10
    assert gap(full(x), expected(name, "full", symmetric=True)) <= 1e-10
    assert len(made) >= 5


@over_cases
def test_samples_alone_and_in_tiles(name):
    x, y = CASES[name].batches()
    kernel, whole = asked(name), matrix(name, symmetric=False)
    # The first and the last alone, the others together.
    rows, columns = [slice(0, 1), slice(1, N - 1), slice(N - 1, N)], [slice(0, 1), slice(1, M)]
    assert gap(torch.cat([kernel(take(x, part), y) for part in rows]), whole) <= 1e-12
    assert gap(torch.cat([kernel(x, take(y, part)) for part in columns], 1), whole) <= 1e-12


@over_cases
def test_permuted_samples_permute_the_kernel(name):
    x, y = CASES[name].batches()
    kernel, order, other = asked(name), torch.tensor([3, 5, 0, 1, 4, 2]), torch.tensor([2, 0, 3, 1])
    k, cross = (matrix(name, symmetric=same) for same in (True, False))
    assert gap(kernel(take(x, order)), k[order][:, order]) <= 1e-12
    assert gap(kernel(take(x, order), take(y, other)), cross[order][:, other]) <= 1e-12


@over_cases
def test_diagonal_and_normalized(name):
    x, y = CASES[name].batches()
    for outputs in ("trace", "full"):
        kernel, k = asked(name, outputs), matrix(name, outputs, symmetric=True)
        diagonal = kernel.diag(x)
        assert gap(diagonal, k.diagonal() if k.ndim == 2 else torch.einsum("icic->ic", k)) <= 1e-12
        squares = [j.square().sum(2 if outputs == "full" else (1, 2)) for j in jacobians(name)]
        if all((norms > 0).all() for norms in squares):
            # Of the trace between two batches, of the full kernel within one: each is a kernel like any other.
            symmetric = outputs == "full"
            cosine = kernel.normalized()(x, None if symmetric else y)
            lengths = [norms.sqrt() for norms in (squares[0], squares[0] if symmetric else squares[1])]
            outer = lengths[0][(..., *[None] * lengths[1].ndim)] * lengths[1]
            assert (
                gap(cosine, expected(name, outputs, symmetric=symmetric) / outer) <= TOLERANCE[torch.float64]
            )
            assert cosine.abs().max() <= 1 + 1e-12
            if symmetric:
                assert (torch.einsum("icic->ic", cosine) - 1).abs().max() <= 1e-12


def a_vector(name, dtype):
    shape = expected(name, "full", symmetric=True).shape[:2]
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@over_cases
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_product_is_the_full_kernel_times_a_vector(name, dtype):
    if dtype == torch.float64:
        found = life(name).found["product"]
    else:
        found = kernel_of(name, "full", dtype).product(CASES[name].batches(dtype)[0], a_vector(name, dtype))
    full = expected(name, "full", symmetric=True)
    assert gap(found, torch.einsum("icjd,jd->ic", full, a_vector(name, dtype).double())) <= TOLERANCE[dtype]


@over_cases
def test_later_training_changes_nothing(name):
    found, truth = life(name).found, expected(name, "trace", symmetric=True)
    assert gap(found["symmetric"], truth) <= 1e-10
    assert gap(found["cross"], expected(name, "trace", symmetric=False)) <= 1e-10
    assert gap(found["parts"], truth) <= 1e-10
    assert gap(found["diagonal"], truth.diagonal()) <= 1e-10
    product = torch.einsum(
        "icjd,jd->ic", expected(name, "full", symmetric=True), a_vector(name, torch.float64)
    )
    assert gap(found["product"], product) <= 1e-10


@over_cases
def test_module_batch_and_chance_are_left_untouched(name):
    assert life(name).touched == []


@over_cases
def test_warns_of_a_parameter_that_does_not_reach_the_output(name):
    assert life(name).warnings == CASES[name].unused


@over_cases
def test_one_sample_alone_gives_the_entries_that_it_has_among_others(name):
    x, y = CASES[name].batches()
    one = take(x, slice(5, 6))
    kernel = unlearned(life(name).kernel)  # which sees nothing but this sample
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


def test_sums_and_multiples_of_kernels_are_those_of_their_matrices():
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
