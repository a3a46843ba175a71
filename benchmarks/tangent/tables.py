"""The section on tangent kernels."""

TARGETS = {
    ("mlp", 512, "trace"): {"recipe": 400, "neural-tangents": 2},
    ("mlp", 128, "full"): {"recipe": 400},
    ("mlp", 512, "full"): {"neural-tangents": 4},
    ("lenet", 512, "trace"): {"recipe": 15, "neural-tangents": 5},
    ("lenet", 512, "full"): {"neural-tangents": 4},
    ("resnet18", 64, "trace"): {"recipe": 5},
    ("resnet18", 256, "trace"): {"recipe": 5},
    ("resnet18", 64, "pseudo"): {"recipe": 3},
    ("transformer", 64, "trace"): {"recipe": 2},
}
"""How many times faster than each contender we want to be."""
LEAN = {("resnet18", 64, "trace"): {"recipe": 0.5}}
"""The share of a contender's memory that we want to stay below."""
REASONS = """### What stands between us and the limit

From profiles of single calls:

- MLP, trace: matrix products are 70 % of a profiled call, two fifths of them backward passes; the rest is the ReLU's
  backward (6 %), copies (3 %) and Python, which the profiler slows. The layer before the head takes one direction in
  the place of ten, which is why the limit is lower than it was.
- MLP, full, N = 128: matrix products are half of it; the rest is several hundred small operations and views, which
  Python starts one by one.
- LeNet, trace: backward passes 27 % (two thirds of them one convolution, whose six input channels oneDNN pads to
  sixteen), symmetric products 26 % at 165 GFLOP/s, gradients of convolutions 15 % at 40 to 120 GFLOP/s (products of
  10 x 196 x 25 and of 160 x 100 x 150 are too thin for more), forward passes 9 % (half of it max-pooling), inputs of
  the first layer summed over its pooling 7 %, copies 5 %, Python 5 %. The second core waits a quarter of the time.
  Tried without gain: other panels, recursion and batched blocks for the symmetric product (OpenBLAS' own was 10 %
  faster on 512 x 24,000, slower on other shapes), blocks of columns, larger and smaller pieces and passes.
- LeNet, pseudo: one direction; forward passes are a third of it, half of that max-pooling.
- ResNet-18, trace: backward convolutions 33 % at 125 GFLOP/s, building gradients 29 % at 143 GFLOP/s, products of 64
  rows 13 %, unfolding patches 9 %. Channels last makes the backward passes 10 % faster, no more, and a model that
  says `view` after a convolution would not run: not taken. Batched backward passes (`is_grads_batched`) were slower
  than a loop: 26 against 20 ms on the MLP, 53 against 23 ms on LeNet, 833 against 699 ms on ResNet-18.
- Transformer: products of 64 rows and of pairs of tokens 62 %, copies of outgoing gradients 19 %.
- Pseudo kernels do one pass only: what Python and the passes over memory take is not hidden by arithmetic.
"""
CONTENDERS = ("recipe", "neural-tangents", "nngeometry")


def section(record: dict) -> str:
    """In markdown."""
    rate = record["rate"]
    head = "| kernel (float32) | ours | FLOP limit | " + " | ".join(CONTENDERS) + " |"
    lines = [
        "## Tangent kernels",
        "",
        "*Recipe* is what people write by hand: `vmap(grad)` in chunks of samples (4 to 64, by the model)",
        "and one matrix product for each output. The FLOP limit is our counted FLOPs over the rate of a large matrix",
        f"product on this machine, {rate / 1e9:.0f} GFLOP/s. In italics: the ratios of single rounds.",
        "",
        head,
        "|---" * (3 + len(CONTENDERS)) + "|",
    ]
    for row in record["rows"]:
        cells = [f"{row['workload']}, N = {row['n']}, {row['outputs']}", _cell(row["ours"])]
        cells.append(f"{_seconds(row['flops'] / rate)} ({row['ours']['seconds'] * rate / row['flops']:.1f}x)")
        for contender in CONTENDERS:
            found = row.get(contender)
            key = (row["workload"], row["n"], row["outputs"])
            target, share = (goals.get(key, {}).get(contender) for goals in (TARGETS, LEAN))
            against = "" if found is None else _against(found, row["ours"], target, share)
            cells.append(against + _rounds(row, contender))
        lines.append("| " + " | ".join(cells) + " |")
    if record.get("note"):
        lines += ["", record["note"]]
    firsts = [
        (r["workload"], r["ours"]["first"] - r["ours"]["seconds"])
        for r in record["rows"]
        if r["ours"]["first"] > r["ours"]["seconds"]  # called more than once
    ]
    lines += [
        "",
        "The first call of a kernel also learns and verifies the structure of the model: "
        + ", ".join(f"{name} {_seconds(extra)}" for name, extra in dict(firsts).items())
        + ", including one-time work of torch itself.",
        "",
        REASONS,
        "### How cost grows",
        "",
        "![Time and memory of the trace kernel over samples, outputs, width and positions](figures/growth.png)",
        "",
    ]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def _cell(found: dict) -> str:
    return f"{_seconds(found['seconds'])}, {found['peak'] / 1e9:.2f} GB"


def _against(found: dict | str, ours: dict, target: float | None, share: float | None) -> str:
    if isinstance(found, str):
        return found
    ratio, memory = found["seconds"] / ours["seconds"], ours["peak"] / found["peak"]
    goal = "" if target is None else f" → {target}x {_judged(ratio >= target)}"
    lean = "" if share is None else f"; {memory:.0%} of its memory → {share:.0%} {_judged(memory <= share)}"
    return f"{_cell(found)} ({ratio:.1f}x{goal}{lean})"


def _rounds(row: dict, contender: str) -> str:
    """How the ratio differed from round to round."""
    both = [times for times in row.get("rounds", []) if "ours" in times and contender in times]
    ratios = [times[contender] / times["ours"] for times in both]
    return f" *{min(ratios):.1f} to {max(ratios):.1f}x*" if len(ratios) > 1 else ""


def _judged(reached: bool) -> str:
    return "reached" if reached else "NOT reached"
