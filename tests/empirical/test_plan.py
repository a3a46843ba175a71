"""The plan: before any work, per parameter and in all."""

import time
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.flop_counter import FlopCounterMode

from cases import CASES
from empirical.fresh_plan import compiler_after_a_plan
from tangentkit.core.batches import batch_size
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.passes.recording import record
from tangentkit.empirical.passes.routes import Workload

pytestmark = pytest.mark.filterwarnings("ignore:.*do not reach the output")


@pytest.mark.parametrize(
    "name", ["mlp", "conv2d groups", "embedding", "tied weights", "lstm", "lora", "bilinear", "rms norm"]
)
def test_a_row_for_every_parameter(name):
    case = CASES[name]
    kernel, (x, y) = case.kernel(), case.batches()
    for plan in (kernel.plan(x), kernel.plan(x, y)):
        assert [row.parameter for row in plan.rows] == list(kernel.function.params)
        for row in plan.rows:
            assert row.shape == tuple(kernel.function.params[row.parameter].shape)
            assert row.flops > 0
            assert row.bytes > 0
            assert row.route
            assert row.share == kernel.function.params[row.parameter].numel() / sum(
                p.numel() for p in kernel.function.params.values()
            )
        assert sum(row.share for row in plan.rows) == pytest.approx(1)
        assert plan.bytes == pytest.approx(sum(row.bytes for row in plan.rows))
        assert plan.flops == pytest.approx(plan.passes + sum(row.flops for row in plan.rows))
        assert plan.passes > 0 or name == "bilinear"  # for which torch has no formula
        assert 0 < plan.seconds < 60


@pytest.mark.parametrize(
    ("name", "parameter", "uses"),
    [
        ("tied weights", "a.weight", 2),
        ("shared layer in a loop", "a.weight", 5),
        ("mlp", "0.weight", 1),
        ("shared bias", "c", 2),
        ("custom function of a parameter", "w", 1),
        ("parameter that never reaches the output", "idle", 0),
    ],
)
def test_uses_are_counted(name, parameter, uses):
    rows = CASES[name].kernel().plan(CASES[name].batches()[0]).rows
    assert next(row for row in rows if row.parameter == parameter).uses == uses


def test_no_work_is_done():
    sizes = []

    def forward(model, x):
        sizes.append(len(x))
        return model(x)

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    TangentKernel(model, forward=forward).plan(torch.randn(500, 4).double())
    assert max(sizes) <= 5


def test_it_prints_as_a_table():
    case = CASES["parameter that never reaches the output"]
    text = str(case.kernel().plan(case.batches()[0]))
    head, *_ = text.splitlines()
    assert head.split() == ["parameter", "shape", "uses", "route", "GFLOP", "MB", "share", "note"]
    for word in ("a.weight", "3x4", "idle", "does not reach the output", "GFLOP/s", "samples", "in all"):
        assert word in text


def test_plans_show_the_reasons_of_the_generic_route():
    case = CASES["custom function of a parameter"]
    row = next(r for r in case.kernel().plan(case.batches()[0]).rows if r.parameter == "w")
    assert row.route == "fallback (loop)"
    assert "ScaleBackward" in row.note


def test_costs_follow_the_request():
    case = CASES["mlp"]
    x, _ = case.batches()
    large = x.repeat(50, 1)

    def cost(plan):
        # What routes are chosen by: FLOPs and bytes together.
        return (plan.seconds - plan.latency) * plan.rate

    trace, pseudo, full = (cost(case.kernel(outputs).plan(large)) for outputs in ("trace", "pseudo", "full"))
    assert pseudo < trace < full
    assert cost(case.kernel().plan(x)) < trace
    assert trace < cost(case.kernel().plan(large, large))


def test_the_estimate_of_time_has_the_right_size():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    kernel, x = TangentKernel(model), torch.randn(1000, 256)
    estimate = kernel.plan(x).seconds
    start = time.perf_counter()
    kernel(x)
    measured = time.perf_counter() - start
    assert 0.05 < estimate / measured < 20


@pytest.mark.parametrize("name", ["mlp", "lstm", "transformer encoder", "control flow of each sample"])
def test_the_time_of_small_models_is_that_of_their_passes(name):
    """Nearly no FLOPs, and yet some milliseconds; every sample has a pass of its own where there is no rule."""
    case = CASES[name]
    kernel, (x, _) = case.kernel(), case.batches()
    plan = kernel.plan(x)
    kernel(x)
    start = time.process_time()
    kernel(x)
    measured = time.process_time() - start
    assert 0.02 < plan.seconds / measured < 50


def test_the_cheapest_route_is_taken():
    """One position and wide layers: never by gradient. Many positions and few weights: never pairwise."""
    wide = nn.Linear(300, 200).double()
    (weight, _) = TangentKernel(wide, 0).plan(torch.randn(20, 300).double()).rows
    assert weight.route == "factored"
    narrow = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    (weight, _) = TangentKernel(narrow, 0).plan(torch.randn(20, 1, 16, 16).double()).rows
    assert weight.route == "gradient"


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("samples", [1, 3, 4, 6, 10])
def test_tiles_cover_the_kernel(samples, symmetric):
    """Every pair of samples once: the tiles on the diagonal count as squares, those below it twice."""
    work = Workload(10, 10 if symmetric else 7, 2, full=False, symmetric=symmetric)
    tiles = work.tiles(samples)
    pairs = sum(times * t.n * t.m * (2 if symmetric and not t.symmetric else 1) for t, times in tiles.items())
    assert pairs == work.n * work.m
    assert all(max(t.n, t.m) <= samples for t in tiles)


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "conv2d groups",
        "transposed conv2d",
        "tied weights",
        "embedding",
        "lora",
        "transformer encoder",
        "lstm",
    ],
)
def test_flops_of_passes_are_those_of_their_products(name):
    case = CASES[name]
    kernel, (x, _) = case.kernel(), case.batches()
    profile, n = kernel._profiles.of(x), batch_size(x)
    with FlopCounterMode(display=False) as counter:
        # The counter hangs hooks on the graph, which look on and change nothing.
        recording = record(kernel.function, x, replace(profile.structure, hooked=True))
        forward = counter.get_total_flops()
        recording.backward(torch.ones(1, profile.outputs, dtype=torch.float64))
    assert tuple(n * flops for flops in profile.flops) == (forward, counter.get_total_flops() - forward)


def test_passes_through_frozen_layers_count_and_gradients_of_inputs_do_not():
    model = nn.Sequential(nn.Linear(50, 40, bias=False), nn.Linear(40, 30, bias=False))
    x = torch.randn(4, 50)
    assert TangentKernel(model, 0).plan(x).passes == 4 * 2 * (50 * 40 + 40 * 30 + 40 * 30)
    model[0].requires_grad_(False)
    assert TangentKernel(model, 0).plan(x).passes == 4 * 2 * (50 * 40 + 40 * 30)


def test_a_model_that_refuses_to_be_watched_has_a_plan():
    class Refusing(nn.Linear):
        def forward(self, x):
            if _get_current_dispatch_mode() is not None:
                raise RuntimeError("no modes here")
            return super().forward(x)

    model, x = Refusing(3, 2), torch.randn(4, 3)
    kernel = TangentKernel(model)
    assert kernel.plan(x).passes > 0
    assert kernel(x).shape == (4, 4)


def test_small_budgets_cost_more_passes():
    """Pieces of a few samples go through the model again for every tile they are part of."""
    case = CASES["conv2d"]
    kernels = [case.kernel(memory=memory) for memory in ("4MB", "1GB")]
    x = torch.cat([case.batches()[0]] * 300)
    small, large = (kernel.plan(x) for kernel in kernels)
    assert small.batching.samples < large.batching.samples == len(x)
    assert small.passes > 1.4 * large.passes
    assert small.flops > large.flops


def test_the_compiler_of_torch_is_not_imported_to_count(warm):
    heard, told = warm.Pipe(duplex=False)
    process = warm.Process(target=compiler_after_a_plan, args=(told,))
    process.start()
    told.close()
    assert heard.recv() == (False, False)
    process.join()
