"""Each route of each kind of layer, forced, in blocks so small that they are really split."""

import dataclasses

import pytest
import torch

from cases import CASES, along, expected, gap, jacobians, kernel_of
from tangentkit.core import BudgetError
from tangentkit.empirical import plan
from tangentkit.empirical.engine import contraction, engine
from tangentkit.empirical.passes import blocks, generic, routes
from tangentkit.empirical.passes.batching import Batching
from tangentkit.empirical.rules.base import Matrix
from tangentkit.empirical.trust import profile

pytestmark = [pytest.mark.filterwarnings("ignore:.*do not reach the output")]

MATRIX = [
    "mlp", "conv1d stride dilation padding", "conv2d groups", "conv2d depthwise", "conv3d",
    "transposed conv2d groups",
    "linear over tokens", "sequence first, mean", "samples flattened with heads", "layer applied twice",
    "shared layer in a loop", "sample axis last", "bmm", "conv at two resolutions", "last of 31 tokens",
    "transformer encoder, sequence first", "gru", "hundred outputs",
]  # fmt: skip
LOOKUP = [
    "embedding", "embedding with padding_idx", "embedding, sequence first", "embedding of a large table",
    "parameter by index", "parameter by index_select",
]  # fmt: skip
TIED = ["tied embedding and head", "tied embedding with padding_idx", "tied embedding used twice"]
ASSEMBLED = [
    "weight norm",
    "parameter in slices",
    "weight and its transpose",
    "cosine head",
]
VECTOR = [
    "layer norm",
    "group norm",
    "batch norm 2d",
    "prelu of channels",
    "product with a parameter",
    "division",
]


def force(monkeypatch, route):
    """The planner with one choice; layers of other kinds stay as they are. Returns the routes taken."""
    taken = set()

    def chosen(layer, size, work, item):
        options = routes.COSTS[type(layer)](size, work, item)
        cost = next((c for c in options if c.route in route), options[0])
        taken.add(cost.route)
        return cost

    monkeypatch.setattr(routes, "cheapest", chosen)
    return taken


def small_blocks(monkeypatch):
    monkeypatch.setattr(contraction, "LONGEST_SUM", 7)
    monkeypatch.setattr(engine.Blocks, "within", lambda _budget, _item, _samples: blocks.Blocks(11, 40, 60))


def check(name, outputs=("trace", "full"), learned=None):
    """The kernel is right; what was learned of the model depends on no route, and serves all of them."""
    x, y = CASES[name].batches()
    for kind in outputs:
        kernel = along(learned or kernel_of(name), kind)
        assert gap(kernel(x), expected(name, kind, symmetric=True)) <= 1e-10
        assert gap(kernel(x, y), expected(name, kind, symmetric=False)) <= 1e-10
        parts = kernel.by_parameter(x, y)
        assert gap(sum(parts.values()), expected(name, kind, symmetric=False)) <= 1e-10


@pytest.mark.parametrize("name", MATRIX)
@pytest.mark.parametrize("route", ["pairs", "gradient"])
@pytest.mark.parametrize("blocks", ["usual", "small"])
def test_every_route_of_a_matrix_layer_gives_the_kernel(name, route, blocks, monkeypatch):
    if blocks == "small":
        small_blocks(monkeypatch)
    wanted = {"pairwise", "factored"} if route == "pairs" else {"gradient"}
    taken = force(monkeypatch, wanted)
    check(name, ("trace",) if name == "hundred outputs" else ("trace", "full"))
    assert taken & wanted


@pytest.mark.parametrize("name", LOOKUP)
@pytest.mark.parametrize("route", ["lookup (pairs)", "lookup (rows)"])
@pytest.mark.parametrize("blocks", ["usual", "small"])
def test_every_route_of_a_lookup_gives_the_kernel(name, route, blocks, monkeypatch):
    if blocks == "small":
        small_blocks(monkeypatch)
    taken = force(monkeypatch, {route})
    check(name)
    assert route in taken


@pytest.mark.parametrize("name", TIED)
@pytest.mark.parametrize("route", ["tied", "assembled"])
@pytest.mark.parametrize("blocks", ["usual", "small"])
def test_every_route_of_a_tied_weight_gives_the_kernel(name, route, blocks, monkeypatch):
    if blocks == "small":
        small_blocks(monkeypatch)
    taken = force(monkeypatch, {route})
    check(name)
    assert route in taken
    x, _ = CASES[name].batches()
    assert gap(kernel_of(name).diag(x), expected(name, "trace", symmetric=True).diagonal()) <= 1e-10


@pytest.mark.parametrize(("names", "route"), [(ASSEMBLED, "assembled"), (VECTOR, "elementwise")])
def test_layers_with_one_route_take_it_and_give_the_kernel(names, route, monkeypatch):
    small_blocks(monkeypatch)
    for name in names:
        x, _ = CASES[name].batches()
        assert route in {row.route for row in kernel_of(name).plan(x).rows}, name
        check(name)


@pytest.mark.parametrize(
    "name", [*MATRIX[:3], *LOOKUP[:2], *ASSEMBLED[:2], *VECTOR[:2], "scalar parameters", "gru"]
)
@pytest.mark.parametrize("route", ["vmap", "loop"])
def test_both_generic_routes_give_the_gradients(name, route):
    case = CASES[name]
    function, (x, _) = case.kernel().function, case.batches()
    if route == "vmap" and name == "gru":
        pytest.skip("vmap does not know the recurrent cells of torch")
    gradients = {"vmap": generic.vmap_gradients, "loop": generic.loop_gradients}[route]
    truth = jacobians(name)[0]
    found = gradients(function, list(function.params), x, torch.eye(truth.shape[1], dtype=torch.float64))
    assert gap(torch.cat([found[key] for key in function.params], 2), truth) <= 1e-12


@pytest.mark.parametrize("name", ["mlp", "conv2d groups", "embedding", "scalar parameters"])
@pytest.mark.parametrize("vmap", [True, False])
def test_all_parameters_by_the_generic_route(name, vmap, monkeypatch):
    def all_generic(function, batch, structure):
        forced = structure.without(dict.fromkeys(function.params, "forced"))
        return dataclasses.replace(forced, vmap=vmap)

    monkeypatch.setattr(profile, "verified", all_generic)
    x, _ = CASES[name].batches()
    kernel = CASES[name].kernel()
    routes = {row.route for row in kernel.plan(x).rows}
    assert routes == {"fallback (vmap)" if vmap else "fallback (loop)"}
    check(name, learned=kernel)


@pytest.mark.parametrize("route", [{"pairwise", "factored", "lookup (pairs)"}, {"gradient", "lookup (rows)"}])
@pytest.mark.parametrize(
    "name", ["mlp", "conv2d groups", "linear over tokens", "embedding", "hundred outputs"]
)
def test_routes_in_groups_of_directions_and_samples(name, route, monkeypatch):
    # Grams of inputs are kept over groups of directions: the last group is smaller than the others.
    for user in (engine, plan):
        monkeypatch.setattr(
            user,
            "batching",
            lambda _foot, work, *_: Batching(4, work.r if work.full else -(-work.r * 2 // 3), 3),
        )
    small_blocks(monkeypatch)
    force(monkeypatch, route)
    check(name, ("trace",))
    x, _ = CASES[name].batches()
    assert gap(kernel_of(name).diag(x), expected(name, "trace", symmetric=True).diagonal()) <= 1e-10


@pytest.mark.parametrize("name", ["mlp", "conv2d", "transformer encoder", "lstm", "weight norm"])
@pytest.mark.parametrize("outputs", ["trace", "full"])
def test_small_budgets_are_not_exceeded_and_give_the_same_kernel(name, outputs):
    """The least budget for pieces of two samples; the plan says so beforehand."""
    kernel, (x, y) = kernel_of(name, outputs), CASES[name].batches()

    def pieces(memory):
        kernel.memory = memory
        try:
            return kernel.plan(x, y).batching.samples
        except BudgetError:
            return 0

    sizes = {2**k: pieces(2**k) for k in range(10, 32)}
    assert list(sizes.values()) == sorted(sizes.values())
    assert max(sizes.values()) == len(x)
    memory = next(memory for memory, size in sizes.items() if size >= 2)
    assert sizes[memory] < len(x)
    kernel.memory = memory
    assert gap(kernel(x, y), expected(name, outputs, symmetric=False)) <= 1e-10
    assert gap(kernel(x), expected(name, outputs, symmetric=True)) <= 1e-10


@torch.no_grad()
@pytest.mark.parametrize("name", MATRIX)
def test_some_columns_of_the_inputs_are_those_of_all(name):
    case = CASES[name]
    kernel, (x, _) = case.kernel(), case.batches()
    recording = kernel._profiles.record(x, kernel._profiles.of(x))
    sites = [site for site in recording.sites.values() if isinstance(site, Matrix)]
    assert sites
    for site in sites:
        whole = site.inputs(slice(1, 3)).detach()
        p = whole.shape[-1]
        for columns in (slice(0, 1), slice(p // 3, p // 2 + 1), slice(p - 1, p), slice(None), slice(2, None)):
            assert torch.equal(site.part(slice(1, 3), columns).detach(), whole[..., columns])


@pytest.mark.parametrize(
    "name",
    [
        "entries by indices of all kinds",
        "embedding bags of maxima, some of them empty",
        "embedding bag, max",
        "parameter by two indices",
        "relative position bias",
        "windows with a table of two indices",
        "attention in shifted windows",
        "bounds of all kinds",
        "comparisons with a parameter",
        "ties with a parameter",
        "distances of all kinds",
        "distances to prototypes",
        "functions of two tensors",
        "cumulative product of parameters",
        "written slices, sequence first",
        "in-place accumulation",
        "tokens written by mask and by index",
    ],
)
def test_uses_of_parameters_that_have_a_rule(name):
    case = CASES[name]
    rows = case.kernel().plan(case.batches()[0]).rows
    assert {row.parameter: row.note for row in rows if row.route.startswith("fallback")} == {}
