"""Seconds for a pair of images over their size, with a flatten head and with global pooling."""

import time
from pathlib import Path

import torch
from rich.console import Console

import tangentkit.infinite as infinite
from benchmarks.infinite.networks import network

SIDES = {"flatten": (8, 16, 32, 64, 128), "gap": (4, 8, 16, 32)}
SAMPLES = {"flatten": 16, "gap": 4}


def measure_growth(console: Console) -> dict[str, dict[str, float]]:
    """Head -> pixels -> seconds for one pair, best of three."""
    found: dict[str, dict[str, float]] = {}
    for head, sides in SIDES.items():
        found[head] = {}
        for side in sides:
            kernel = infinite.InfiniteKernel(network(head, side), w_std=2**0.5, b_std=0.1)
            x = torch.randn(SAMPLES[head], 3, side, side, generator=torch.Generator().manual_seed(0))
            y = torch.randn(SAMPLES[head], 3, side, side, generator=torch.Generator().manual_seed(1))
            kernel(x, y)
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                kernel(x, y)
                seconds.append(time.perf_counter() - start)
            found[head][str(side**2)] = min(seconds) / SAMPLES[head] ** 2
            console.print(f"infinite, growth: {head} {side}x{side}: {min(seconds):.4f} s")
    return found


def draw(growth: dict[str, dict[str, float]], path: Path) -> None:
    """Log-log, with lines of slope 1 and 2 through the last points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for color, (head, slope, words) in zip(
        ("C0", "C1"), (("flatten", 1, "flatten"), ("gap", 2, "global pooling")), strict=True
    ):
        pixels = [int(p) for p in growth[head]]
        seconds = list(growth[head].values())
        axis.loglog(pixels, seconds, "o-", color=color, label=words)
        line = [seconds[-1] * (p / pixels[-1]) ** slope for p in pixels]
        axis.loglog(pixels, line, "--", color=color, alpha=0.6, label=f"slope {slope}")
    axis.set(xlabel="pixels P", ylabel="seconds for a pair of images")
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
