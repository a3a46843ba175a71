"""How time and memory of the trace kernel grow with samples, outputs, width and positions."""

import gc
import time
from pathlib import Path
from unittest.mock import patch

import torch
from rich.console import Console
from torch import nn

import tangentkit as tk
from benchmarks.tangent.workloads import mlp
from tangentkit.core import buffer_pool


def _tokens(positions: int) -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    return nn.Sequential(model, _Mean()), torch.randn(128, positions, 64)


class _Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


AXES = {
    "samples N (MLP 784-512-512-10)": (
        [64, 128, 256, 512, 1024, 2048],
        lambda n: (mlp(), torch.randn(n, 784)),
    ),
    "outputs C (N = 256)": ([1, 4, 16, 64, 256], lambda c: (mlp(outputs=c), torch.randn(256, 784))),
    "width (N = 256)": ([64, 128, 256, 512, 1024, 2048], lambda w: (mlp(width=w), torch.randn(256, 784))),
    "positions (MLP on tokens, N = 128)": ([1, 4, 16, 64, 256], _tokens),
}


def measure_growth(console: Console) -> dict[str, list[dict]]:
    """Best of seven times, FLOPs counted by the plan, and the most bytes of tensors alive at once."""
    growth = {}
    for title, (values, make) in AXES.items():
        growth[title] = []
        for value in values:
            torch.manual_seed(0)
            model, x = make(value)
            kernel = tk.TangentKernel(model)
            plan = kernel.plan(x)
            seconds = min(_time(kernel, x) for _ in range(7))
            growth[title].append(
                {"value": value, "seconds": seconds, "flops": plan.flops, "peak": _peak(kernel, x)}
            )
            console.print(f"growth: {title} {value}: {seconds:.4f} s")
            gc.collect()
    return growth


def _time(kernel: tk.TangentKernel, x: torch.Tensor) -> float:
    start = time.perf_counter()
    kernel(x)
    return time.perf_counter() - start


def _peak(kernel: tk.TangentKernel, x: torch.Tensor) -> float:
    """Most bytes of tensors alive at once during a call, by torch's own account of allocations."""
    # That account does not see what numpy allocates: for this call all tensors are torch's.
    with (
        patch.object(buffer_pool, "LARGE", float("inf")),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile,
    ):
        kernel(x)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]  # pyright: ignore
    alive = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return float(most)


def draw_growth(growth: dict[str, list[dict]], path: Path) -> None:
    """Time and memory over each axis, log-log, with the counted FLOPs as a dashed line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(growth), figsize=(3.2 * len(growth), 5.4), layout="constrained")
    for k, (title, rows) in enumerate(growth.items()):
        values, seconds = [row["value"] for row in rows], [row["seconds"] for row in rows]
        scale = seconds[-1] / rows[-1]["flops"]
        axes[0, k].loglog(values, seconds, "o-", label="measured")
        axes[0, k].loglog(values, [row["flops"] * scale for row in rows], "--", label="counted FLOPs, scaled")
        axes[1, k].loglog(values, [row["peak"] / 1e6 for row in rows], "s-", color="C2")
        axes[0, k].set_title(title, fontsize=9)
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("peak of tensors in MB")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)
